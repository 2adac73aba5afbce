//! The errors of this crate, and which of them may pass, were refused, or leave it open what
//! happened.

use std::{path::PathBuf, time::Duration};

use consul_watch::BoxError;
use http::StatusCode;

/// Result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure between a task and its runs.
///
/// No variant ever holds a token, the value of a variable, or the address of an archive, which is a
/// secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No complete HTTP exchange took place: connection refused or cut, DNS, TLS.
    #[error("{operation}: request to {host} did not complete")]
    Transport {
        /// Call, such as `create run`.
        operation: &'static str,
        /// Host that was asked.
        host: String,
        /// Error of the transport.
        source: BoxError,
    },
    /// The platform did not answer in time.
    #[error("{operation}: no answer from {host} within {} s", after.as_secs_f64())]
    Timeout {
        /// Call, such as `create run`.
        operation: &'static str,
        /// Host that was asked.
        host: String,
        /// Limit that was reached.
        after: Duration,
    },
    /// The platform answered outside of 2xx.
    #[error("{operation}: {message}")]
    Status {
        /// Call, such as `create run`.
        operation: &'static str,
        /// HTTP status.
        status: StatusCode,
        /// Text of the error document; one line for each of its errors.
        message: String,
    },
    /// The body was complete but is not what the call is known to answer.
    #[error("{operation}: cannot read the answer")]
    Decode {
        /// Call, such as `create run`.
        operation: &'static str,
        /// Error of the decoder.
        source: BoxError,
    },
    /// The request cannot be sent as asked.
    #[error("{operation}: {problem}")]
    Input {
        /// Call, such as `create run`.
        operation: &'static str,
        /// Words for a person: what is wrong and what would be right.
        problem: String,
    },
    /// This process may not change anything at the platform now.
    #[error("{operation}: not sent")]
    NotPermitted {
        /// Call, such as `create run`.
        operation: &'static str,
        /// Refusal of the permit.
        source: Box<cts_tasks::Error>,
    },
    /// A setting cannot be used.
    #[error("{setting}: {problem}")]
    Setting {
        /// Setting, such as `tls.ca_cert`.
        setting: &'static str,
        /// Words for a person: what is wrong and what would be right.
        problem: String,
    },
    /// A workspace cannot serve its task.
    #[error("workspace \"{workspace}\" {problem}")]
    Workspace {
        /// Name of the workspace.
        workspace: String,
        /// Words for a person: what is wrong with it, and what to do.
        problem: String,
    },
    /// A run did not end well.
    #[error("unexpected run status for workspace {workspace}: {run} {status}\n{url}{details}")]
    Run {
        /// Name of the workspace.
        workspace: String,
        /// Id of the run.
        run: String,
        /// Status of the run, and what it means where that is not plain.
        status: String,
        /// Page at which a person can look at it.
        url: String,
        /// Errors in its logs: empty, or beginning with a line break.
        details: String,
        /// `true` if a new run may end better.
        retryable: bool,
    },
    /// A file could not be read.
    #[error("{action} {}", path.display())]
    File {
        /// Attempted action, such as `cannot read`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The generated module is not one that could be run.
    #[error(transparent)]
    Module(#[from] cts_driver_terraform::Error),
}

impl Error {
    /// Returns `true` if the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Timeout { .. } | Self::File { .. } => true,
            // 409 passes, too: a workspace is unlocked, or a run moves on.
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

    /// Returns `true` if the object does not exist, or not for this token: the platform answers 404
    /// for both.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Returns `true` if the state of something forbids the call (409).
    pub fn is_conflict(&self) -> bool {
        self.status() == Some(StatusCode::CONFLICT)
    }

    /// Returns `true` if the platform refused the content of the request (422).
    pub fn is_refused(&self) -> bool {
        self.status() == Some(StatusCode::UNPROCESSABLE_ENTITY)
    }

    /// Returns `true` if the call may have taken effect although it failed: no answer, or 5xx.
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

    /// Returns the HTTP status, if the platform answered.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Returns `true` for a status that may pass by itself.
pub(crate) fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504)
}
