//! The errors of this crate, and which of them a retry may cure.

use std::time::Duration;

use consul_watch::{BoxError, error_chain};

/// Result of every operation of this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why the controller could not do its work.
///
/// `Display` is one line without the cause; [`consul_watch::error_chain`] gives the whole. No
/// variant ever holds a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is wrong.
    #[error("{setting}: {problem}")]
    Config {
        /// Name of the setting, such as `partition`.
        setting: String,
        /// Description of the wrong value, and of one that would be right.
        problem: String,
    },
    /// Outside input, such as a tag, an ARN or a secret, does not have the required form.
    #[error("{problem}")]
    Input {
        /// Origin of the input, and what is wrong with it.
        problem: String,
    },
    /// Consul refused, or could not be reached.
    #[error("{operation}")]
    Consul {
        /// Operation that failed, such as `listing tokens`.
        operation: String,
        /// Error of the Consul client.
        source: consul_watch::Error,
    },
    /// A [`TaskSource`](crate::TaskSource) or [`SecretStore`](crate::SecretStore) failed.
    #[error("{operation}")]
    Other {
        /// Operation that failed and its object, such as `describing tasks of the cluster prod`, or
        /// `updating the secret prod-web`.
        operation: String,
        /// `true` if the same call may succeed later.
        retryable: bool,
        /// Wait that the other side asked for.
        retry_after: Option<Duration>,
        /// Cause. Never shows the content of a secret.
        source: BoxError,
    },
    /// A step of a larger piece of work failed.
    #[error("{step}")]
    Step {
        /// Name of the step, such as `reconciling service web`.
        step: String,
        /// Cause.
        source: Box<Self>,
    },
    /// Several operations failed independently.
    #[error("{}", texts(errors))]
    Several {
        /// Errors with their contexts; never empty.
        errors: Vec<Self>,
    },
}

/// Joins the errors with their causes on one line.
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

    /// Combines several errors into one; `None` if there are none.
    pub(crate) fn several(mut errors: Vec<Self>) -> Option<Self> {
        if errors.len() > 1 { Some(Self::Several { errors }) } else { errors.pop() }
    }

    /// Returns `true` if other operations would fail at the moment, too: the other side is
    /// unreachable, has no leader, or throttles.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Config { .. } | Self::Input { .. } => false,
            // A refusal concerns the controller's own token, hence every call.
            Self::Consul { source, .. } => source.is_retryable() || source.is_permission_denied(),
            Self::Other { retryable, .. } => *retryable,
            Self::Step { source, .. } => source.is_outage(),
            Self::Several { errors } => errors.iter().any(Self::is_outage),
        }
    }

    /// Returns `true` if the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config { .. } | Self::Input { .. } => false,
            Self::Consul { source, .. } => source.is_retryable(),
            Self::Other { retryable, .. } => *retryable,
            Self::Step { source, .. } => source.is_retryable(),
            Self::Several { errors } => errors.iter().any(Self::is_retryable),
        }
    }

    /// Returns the wait that the other side asked for before the next attempt.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each variant as a person reads it: its own text, and what its causes add.
    #[test]
    fn every_error_says_what_failed_and_with_what() {
        let refused = || consul_watch::Error::Timeout {
            operation: "acl.tokens",
            address: "http://consul:8500".to_owned(),
            after: Duration::from_secs(10),
        };
        let cause = ": acl.tokens: no answer from http://consul:8500 within 10 s";
        let other = || Error::Other {
            operation: "updating the secret prod-web".to_owned(),
            retryable: true,
            retry_after: None,
            source: "throttled".into(),
        };
        let input = || Error::input("task web: the tag service-name is empty");
        let table = [
            (
                Error::Config {
                    setting: "partition".to_owned(),
                    problem: "\"a/b\" is no name".to_owned(),
                },
                "partition: \"a/b\" is no name",
                "",
            ),
            (input(), "task web: the tag service-name is empty", ""),
            (Error::consul("listing tokens")(refused()), "listing tokens", cause),
            (other(), "updating the secret prod-web", ": throttled"),
            (
                Error::step("reconciling service web", other()),
                "reconciling service web",
                ": updating the secret prod-web: throttled",
            ),
            // Several have no one source: each is there with its own causes.
            (
                Error::Several { errors: vec![input(), other()] },
                "task web: the tag service-name is empty; updating the secret prod-web: throttled",
                "",
            ),
        ];
        for (at, (error, text, causes)) in table.iter().enumerate() {
            // Without a wildcard: a new variant does not compile until it has a row.
            let row = match error {
                Error::Config { .. } => 0,
                Error::Input { .. } => 1,
                Error::Consul { .. } => 2,
                Error::Other { .. } => 3,
                Error::Step { .. } => 4,
                Error::Several { .. } => 5,
            };
            assert_eq!((row, error.to_string().as_str()), (at, *text));
            assert_eq!(error_chain(error), format!("{text}{causes}"));
        }
        assert_eq!(table.len(), 6);
    }
}
