//! Errors of this crate as those of a task, with the step that failed.

use consul_watch::error_chain;
use cts_tasks::{Error as TaskError, Task};

use crate::{Error, Result, Step};

impl From<Error> for TaskError {
    fn from(error: Error) -> Self {
        match error {
            Error::Interrupted { reason } => Self::Stopped { reason },
            Error::File { action, path, source } => Self::File { action, path, source },
            other => Self::Driver {
                message: error_chain(&other),
                retryable: other.is_retryable(),
                source: None,
            },
        }
    }
}

/// Says which step of which task failed.
///
/// Source: Consul-Terraform-Sync 0.9, errors of the Terraform driver.
pub(super) trait InTask {
    type Error;

    fn in_task(self, step: Step, task: &Task) -> Self::Error;
}

impl InTask for Error {
    type Error = TaskError;

    fn in_task(self, step: Step, task: &Task) -> TaskError {
        if let Self::Interrupted { .. } | Self::File { .. } = self {
            return self.into();
        }
        TaskError::Driver {
            message: format!("error tf-{step} for '{}': {}", task.name, error_chain(&self)),
            retryable: self.is_retryable(),
            source: None,
        }
    }
}

impl<T> InTask for Result<T> {
    type Error = cts_tasks::Result<T>;

    fn in_task(self, step: Step, task: &Task) -> cts_tasks::Result<T> {
        self.map_err(|error| error.in_task(step, task))
    }
}
