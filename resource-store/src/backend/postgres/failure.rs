//! What the failures of `PostgreSQL` and of its driver mean.

use deadpool::managed::{PoolError, TimeoutType};
use tokio_postgres::error::SqlState;

use crate::{backend::Error, error_chain::error_chain};

/// Upper bound, in characters, of a text of the server that goes into an error.
const LONGEST_TEXT: usize = 300;

/// The beginnings of the texts of failures that the driver has by itself, before it sends anything:
/// no password for a server that wants one, a server that does not prove itself, a value that
/// is too large to be sent.
const OWN_REFUSALS: [&str; 4] = [
    "invalid configuration",
    "authentication error",
    "error encoding message",
    "error serializing parameter",
];

/// Why a statement was not done.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// No server takes statements now. Nothing was done.
    Unreachable(String),
    /// A server may have got the statement, and its answer was lost.
    Unanswered(String),
    /// The server took nothing of it, but may later.
    Postponed(String),
    /// The server refuses; no retry helps before someone does something about it.
    Refused(String),
}

impl Failure {
    /// Returns `true` if the same statement may succeed soon.
    pub(super) fn is_passing(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    pub(super) fn into_reason(self) -> String {
        match self {
            Self::Unreachable(reason)
            | Self::Unanswered(reason)
            | Self::Postponed(reason)
            | Self::Refused(reason) => reason,
        }
    }

    /// The same for a statement that does no harm if it arrived, so that it may
    /// be repeated.
    pub(super) fn repeatable(self) -> Self {
        match self {
            Self::Unanswered(reason) => Self::Unreachable(reason),
            other => other,
        }
    }

    /// The same for a caller of the backend; `place` says where.
    pub(super) fn into_error(self, operation: &'static str, place: &str) -> Error {
        match self {
            Self::Unreachable(reason) => {
                Error::Inconsistent { reason: format!("{place}: {reason}") }
            }
            Self::Unanswered(reason) => {
                Error::outcome_unknown(operation, &format!("{place}: {reason}"))
            }
            Self::Postponed(reason) => Error::Other {
                operation,
                retryable: true,
                source: format!("{place}: {reason}").into(),
            },
            Self::Refused(reason) => Error::failed(operation, format!("{place}: {reason}")),
        }
    }
}

/// Judges the failure of a statement that was sent.
///
/// Source: "PostgreSQL Error Codes", appendix A of the manual of version 15.
pub(super) fn judge(error: &tokio_postgres::Error) -> Failure {
    let text = text(error);
    let Some(code) = error.code() else {
        // The driver has no other way to tell its own refusals, of which nothing was sent, from
        // a connection that was lost.
        let is_own = OWN_REFUSALS.iter().any(|own| text.starts_with(own));
        return if is_own { Failure::Refused(text) } else { Failure::Unanswered(text) };
    };
    match *code {
        // A shutdown ends connections that wait, and those at work, maybe while they
        // commit: a backend that waits for a standby has committed already.
        SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::IDLE_SESSION_TIMEOUT
        | SqlState::DATABASE_DROPPED => Failure::Unanswered(text),
        SqlState::CANNOT_CONNECT_NOW => Failure::Unreachable(text),
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            Failure::Unreachable(format!("{text}: this server is a standby"))
        }
        SqlState::QUERY_CANCELED => Failure::Postponed(format!(
            "{text}: it took longer than the statement_timeout, or someone cancelled it"
        )),
        SqlState::LOCK_NOT_AVAILABLE => Failure::Postponed(text),
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            Failure::Refused(text)
        }
        SqlState::INSUFFICIENT_PRIVILEGE => Failure::Refused(format!(
            "{text}: give the role USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on \
             its tables"
        )),
        SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME | SqlState::UNDEFINED_COLUMN => {
            Failure::Refused(format!(
                "{text}: the tables of the store are gone; start the program again to make them"
            ))
        }
        SqlState::PROGRAM_LIMIT_EXCEEDED => Failure::Refused(format!(
            "{text}: PostgreSQL takes keys (group, kind, tenancy and name, with those of the \
             owner) of about 2,600 bytes"
        )),
        _ => match code.code().get(..2) {
            Some("08") => Failure::Unanswered(text),
            Some("40") => Failure::Postponed(text),
            Some("53") => Failure::Postponed(format!("{text}: free what it is short of")),
            _ => Failure::Refused(format!("{text} (SQLSTATE {})", code.code())),
        },
    }
}

/// Judges the failure of a connection that did not come about.
pub(super) fn judge_connecting(error: &tokio_postgres::Error) -> Failure {
    match judge(error) {
        Failure::Unanswered(text) => Failure::Unreachable(text),
        other => other,
    }
}

/// Judges why there is no connection to use.
pub(super) fn judge_pool(error: PoolError<Failure>) -> Failure {
    match error {
        PoolError::Backend(failure) => failure,
        PoolError::Timeout(TimeoutType::Wait) => {
            Failure::Unreachable("all connections are in use".to_owned())
        }
        PoolError::Timeout(_)
        | PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_) => {
            Failure::Unreachable("no server answered in time".to_owned())
        }
    }
}

/// Returns the message with its causes, in a bounded line.
fn text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        // Its detail may show stored values, so it stays out.
        Some(answer) => bounded(answer.message()),
        None => bounded(&error_chain(error)),
    }
}

fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_become_the_errors_of_the_contract() {
        let text = || "gone".to_owned();
        let error = |failure: Failure| failure.into_error("writing", "PostgreSQL at a:1");
        assert!(matches!(error(Failure::Unreachable(text())), Error::Inconsistent { .. }));
        let unknown = error(Failure::Unanswered(text()));
        assert!(matches!(unknown, Error::OutcomeUnknown { .. }) && !unknown.is_retryable());
        assert!(error(Failure::Unanswered(text()).repeatable()).is_retryable());
        assert!(error(Failure::Postponed(text())).is_retryable());
        let refused = error(Failure::Refused(text()));
        assert!(!refused.is_retryable() && refused.to_string().contains("a:1"), "{refused}");
    }

    #[test]
    fn texts_are_bounded_and_one_line() {
        assert_eq!(bounded(&format!("a\nb{}", "x".repeat(1000))).len(), LONGEST_TEXT);
    }
}
