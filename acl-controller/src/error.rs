use std::time::Duration;

use consul_watch::{BoxError, error_chain};

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
    /// A step of a larger piece of work failed.
    #[error("{step}")]
    Step {
        /// The step, such as `reconciling service web`.
        step: String,
        /// Why it failed.
        source: Box<Self>,
    },
    /// Several things failed beside each other.
    #[error("{}", texts(errors))]
    Several {
        /// Each of them, with what it was about; never empty.
        errors: Vec<Self>,
    },
}

/// Each error with its causes; all of them on one line.
fn texts(errors: &[Error]) -> String {
    let texts: Vec<String> = errors.iter().map(|error| error_chain(error)).collect();
    texts.join("; ")
}

impl Error {
    pub(crate) fn input(problem: impl Into<String>) -> Self {
        Self::Input { problem: problem.into() }
    }

    pub(crate) fn consul(operation: impl Into<String>) -> impl FnOnce(consul_watch::Error) -> Self {
        let operation = operation.into();
        |source| Self::Consul { operation, source }
    }

    pub(crate) fn step(step: impl Into<String>, source: Self) -> Self {
        Self::Step { step: step.into(), source: Box::new(source) }
    }

    /// All of them as one; `None` without any.
    pub(crate) fn several(mut errors: Vec<Self>) -> Option<Self> {
        if errors.len() > 1 { Some(Self::Several { errors }) } else { errors.pop() }
    }

    /// Whether it says that nothing else would succeed at the moment either: the other side is
    /// not there, has no leader, or asks for fewer calls.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Config { .. } | Self::Input { .. } => false,
            Self::Consul { source, .. } => source.is_retryable() || source.is_permission_denied(),
            Self::Other { retryable, .. } => *retryable,
            Self::Step { source, .. } => source.is_outage(),
            Self::Several { errors } => errors.iter().any(Self::is_outage),
        }
    }

    /// Whether the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config { .. } | Self::Input { .. } => false,
            Self::Consul { source, .. } => source.is_retryable(),
            Self::Other { retryable, .. } => *retryable,
            Self::Step { source, .. } => source.is_retryable(),
            Self::Several { errors } => errors.iter().any(Self::is_retryable),
        }
    }

    /// How long the other side asked to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Config { .. } | Self::Input { .. } => None,
            Self::Consul { source, .. } => source.retry_after(),
            Self::Other { retry_after, .. } => *retry_after,
            Self::Step { source, .. } => source.retry_after(),
            Self::Several { errors } => errors.iter().filter_map(Self::retry_after).max(),
        }
    }
}
