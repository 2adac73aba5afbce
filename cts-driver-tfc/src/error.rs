use std::{path::PathBuf, time::Duration};

use consul_watch::BoxError;
use http::StatusCode;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a task and its runs.
///
/// No variant ever holds a token, the value of a variable, or the address of
/// an archive, which is a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No complete HTTP exchange took place: connection refused or cut, DNS, TLS.
    #[error("{operation}: request to {host} did not complete")]
    Transport {
        /// The call, such as `create run`.
        operation: &'static str,
        /// The host that was asked.
        host: String,
        /// What the transport reported.
        source: BoxError,
    },
    /// The platform did not answer in time.
    #[error("{operation}: no answer from {host} within {} s", after.as_secs_f64())]
    Timeout {
        /// The call, such as `create run`.
        operation: &'static str,
        /// The host that was asked.
        host: String,
        /// The limit that was reached.
        after: Duration,
    },
    /// The platform answered outside of 2xx.
    #[error("{operation}: {message}")]
    Status {
        /// The call, such as `create run`.
        operation: &'static str,
        /// The HTTP status.
        status: StatusCode,
        /// What the error document says; one line for each of its errors.
        message: String,
    },
    /// The body was complete but is not what the call is known to answer.
    #[error("{operation}: cannot read the answer")]
    Decode {
        /// The call, such as `create run`.
        operation: &'static str,
        /// What the decoder reported.
        source: BoxError,
    },
    /// The request cannot be sent as asked.
    #[error("{operation}: {problem}")]
    Input {
        /// The call, such as `create run`.
        operation: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// This process may not change anything at the platform now.
    #[error("{operation}: not sent")]
    NotPermitted {
        /// The call, such as `create run`.
        operation: &'static str,
        /// The refusal of the permit.
        source: Box<cts_tasks::Error>,
    },
    /// A setting cannot be used.
    #[error("{setting}: {problem}")]
    Setting {
        /// The setting, such as `tls.ca_cert`.
        setting: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A workspace cannot serve its task.
    #[error("workspace \"{workspace}\" {problem}")]
    Workspace {
        /// The workspace's name.
        workspace: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A run did not end well.
    #[error("unexpected run status for workspace {workspace}: {run} {status}\n{url}{details}")]
    Run {
        /// The workspace's name.
        workspace: String,
        /// The run's id.
        run: String,
        /// Its status, and what it means where that is not plain.
        status: String,
        /// Where a person can look at it.
        url: String,
        /// The errors in its logs: empty, or beginning with a line break.
        details: String,
        /// Whether a new run may end better.
        retryable: bool,
    },
    /// A file could not be read.
    #[error("{action} {}", path.display())]
    File {
        /// What was tried, such as `cannot read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// The generated module is not one that could be run.
    #[error(transparent)]
    Module(#[from] cts_driver_terraform::Error),
}

impl Error {
    /// Whether the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Timeout { .. } | Self::File { .. } => true,
            Self::Status { status, .. } => is_transient(*status) || *status == StatusCode::CONFLICT,
            Self::Run { retryable, .. } => *retryable,
            Self::Module(error) => error.is_retryable(),
            Self::NotPermitted { source, .. } => source.is_retryable(),
            Self::Decode { .. }
            | Self::Input { .. }
            | Self::Setting { .. }
            | Self::Workspace { .. } => false,
        }
    }

    /// Whether what was asked for is not there, or not for this token.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether the state of something forbids the call (409).
    pub fn is_conflict(&self) -> bool {
        self.status() == Some(StatusCode::CONFLICT)
    }

    /// Whether the platform refused what the request says (422).
    pub fn is_refused(&self) -> bool {
        self.status() == Some(StatusCode::UNPROCESSABLE_ENTITY)
    }

    /// Whether the call may have taken effect although it failed: no answer, or 5xx.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Timeout { .. } => true,
            Self::Status { status, .. } => status.is_server_error(),
            Self::Decode { .. }
            | Self::Input { .. }
            | Self::Setting { .. }
            | Self::Workspace { .. }
            | Self::Run { .. }
            | Self::File { .. }
            | Self::NotPermitted { .. }
            | Self::Module(_) => false,
        }
    }

    /// The HTTP status, when the platform answered.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Whether the status may pass by itself.
pub(crate) fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504)
}
