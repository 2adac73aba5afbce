use cts_tasks::{Error as TaskError, StopReason};

use crate::Error;

/// Why a driver's step did not get to its end.
#[derive(Debug)]
pub(crate) enum Halt {
    /// It was told to stop.
    Stopped(StopReason),
    /// This process may not act now.
    NotPermitted(TaskError),
    /// It failed.
    Failed(Error),
}

/// The result of a driver's step.
pub(crate) type Step<T> = Result<T, Halt>;

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        match error {
            Error::NotPermitted { source, .. } => Self::NotPermitted(*source),
            error => Self::Failed(error),
        }
    }
}

impl From<Halt> for TaskError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Stopped(reason) => Self::Stopped { reason },
            Halt::NotPermitted(error) => error,
            Halt::Failed(error) => error.into(),
        }
    }
}

impl From<Error> for TaskError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotPermitted { source, .. } => *source,
            Error::File { action, path, source } => Self::File { action, path, source },
            other => Self::Driver {
                message: consul_watch::error_chain(&other),
                retryable: other.is_retryable(),
                source: None,
            },
        }
    }
}
