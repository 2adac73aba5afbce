//! Ends of a driver's step other than success, kept apart so that a stop is never reported as a
//! failure of the run.

use cts_tasks::{Error as TaskError, StopReason};

use crate::Error;

/// Reason that a driver's step did not get to its end.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The engine asked for a stop.
    Stopped(StopReason),
    /// This process may not act now.
    NotPermitted(TaskError),
    /// A call or a run failed.
    Failed(Error),
}

/// Result of a driver's step.
pub(crate) type Step<T> = Result<T, Halt>;

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        match error {
            // Raised deep in the client, but no failure: another process leads now.
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
            // As the error of the engine, which knows files itself.
            Error::File { action, path, source } => Self::File { action, path, source },
            other => Self::Driver {
                message: consul_watch::error_chain(&other),
                retryable: other.is_retryable(),
                source: None,
            },
        }
    }
}
