use std::time::Duration;

use consul_watch::BoxError;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kept the controller from doing its work.
///
/// `Display` is one line without the cause; [`consul_watch::error_chain`] gives the whole. No
/// variant ever holds a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is wrong.
    #[error("{setting}: {problem}")]
    Config {
        /// The setting, such as `partition`.
        setting: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// Something that was read from outside is not what it has to be: a tag, an ARN, a secret.
    #[error("{problem}")]
    Input {
        /// Where it was read, what is wrong and what would be right.
        problem: String,
    },
    /// Consul refused, or could not be reached.
    #[error("{operation}")]
    Consul {
        /// What was being done, such as `listing tokens`.
        operation: String,
        /// What Consul's client reported.
        source: consul_watch::Error,
    },
    /// A [`TaskSource`](crate::TaskSource) or [`SecretStore`](crate::SecretStore) failed.
    #[error("{operation}")]
    Other {
        /// What was being done and with what, such as `describing tasks of the cluster prod`, or
        /// `updating the secret prod-web`.
        operation: String,
        /// Whether the same call may succeed later.
        retryable: bool,
        /// How long the other side asked to wait.
        retry_after: Option<Duration>,
        /// The cause. Never shows what a secret holds.
        source: BoxError,
    },
    /// Several things failed beside each other.
    #[error("{} errors", errors.len())]
    Several {
        /// Each of them, with what it was about; never empty.
        errors: Vec<Self>,
    },
}

impl Error {
    /// Whether the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config { .. } | Self::Input { .. } => false,
            Self::Consul { source, .. } => source.is_retryable(),
            Self::Other { retryable, .. } => *retryable,
            Self::Several { errors } => errors.iter().any(Self::is_retryable),
        }
    }

    /// How long the other side asked to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Config { .. } | Self::Input { .. } => None,
            Self::Consul { source, .. } => source.retry_after(),
            Self::Other { retry_after, .. } => *retry_after,
            Self::Several { errors } => errors.iter().filter_map(Self::retry_after).max(),
        }
    }
}
