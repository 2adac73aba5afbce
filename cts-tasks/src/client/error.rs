//! Errors of the client.

use http::StatusCode;

use crate::BoxError;

/// The result of everything that a client does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client's settings cannot be used.
    #[error("{problem}")]
    Config {
        /// The field of [`super::ClientConfig`], or of its TLS settings.
        setting: &'static str,
        /// The problem with the setting.
        problem: String,
    },
    /// No complete exchange took place. The request may have taken effect.
    #[error("{operation}: no answer from {address}{}", hint.map_or_else(String::new, |hint| format!(" ({hint})")))]
    Transport {
        /// The operation that was attempted.
        operation: &'static str,
        /// The address of the instance.
        address: String,
        /// The probable cause, with advice.
        hint: Option<&'static str>,
        /// The failure of the transport.
        source: BoxError,
    },
    /// The server answered outside 2xx.
    #[error("{operation}: request returned {status} with error: {message}")]
    Refused {
        /// The operation that was attempted.
        operation: &'static str,
        /// The status.
        status: StatusCode,
        /// The server's reason.
        message: String,
        /// Names the request in the server's log.
        request_id: Option<String>,
    },
    /// The answer is not one of this API.
    #[error("{operation}: the answer is not understood: {problem}")]
    Answer {
        /// The operation that was attempted.
        operation: &'static str,
        /// The problem with the answer.
        problem: String,
    },
}

impl Error {
    pub(super) fn config(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Config { setting, problem: problem.into() }
    }

    pub(super) fn answer(operation: &'static str, problem: impl Into<String>) -> Self {
        Self::Answer { operation, problem: problem.into() }
    }

    /// The status of an answer outside 2xx.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Config { .. } | Self::Transport { .. } | Self::Answer { .. } => None,
        }
    }

    /// Returns the id under which the server's log has the request.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Refused { request_id, .. } => request_id.as_deref(),
            Self::Config { .. } | Self::Transport { .. } | Self::Answer { .. } => None,
        }
    }

    /// Returns `true` if the same request may succeed later.
    ///
    /// A request that changes something may have taken effect nevertheless: this
    /// answers nothing about that.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { .. } => true,
            Self::Refused { status, .. } => {
                status.is_server_error() || *status == StatusCode::CONFLICT
            }
            Self::Config { .. } | Self::Answer { .. } => false,
        }
    }
}
