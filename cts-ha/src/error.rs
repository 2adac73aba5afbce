//! Errors of sessions, locks, semaphores, elections and the state in Consul.

use crate::{Loss, RefusedOp};

/// Boxed error of another crate, kept as the source of one of ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Result of every operation of this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a session, lock, semaphore, election or store.
///
/// Texts of locks and semaphores are those of Consul's own client, which operators search for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Consul refused, or could not be reached.
    #[error("failed to {action}")]
    Consul {
        /// Action that failed, such as `read lock: app/leader`.
        action: String,
        /// Error of the Consul client.
        source: consul_watch::Error,
    },
    /// The token lacks a permission; no retry helps until it has it.
    #[error("missing required Consul ACL: {needs} to {action}")]
    Permission {
        /// Action that failed.
        action: String,
        /// Missing permission, as a policy names it.
        needs: String,
        /// Answer of Consul.
        source: BoxError,
    },
    /// Consul no longer knows the session.
    #[error("session expired")]
    SessionExpired,
    /// This handle already holds the lock.
    #[error("Lock already held")]
    AlreadyHeld,
    /// This handle does not hold the lock.
    #[error("Lock not held")]
    NotHeld,
    /// Another handle or session holds the lock.
    #[error("Lock in use")]
    InUse,
    /// The key is used for something else, and is left as it is.
    #[error("Existing key does not match lock use: {key}")]
    Conflict {
        /// Key in Consul.
        key: String,
    },
    /// Other holders of the semaphore asked for another number of slots.
    #[error("semaphore limit conflict: {prefix} has the limit {found}, asked for {asked}")]
    LimitConflict {
        /// Prefix of the semaphore.
        prefix: String,
        /// Limit in force.
        found: usize,
        /// Limit that was asked for.
        asked: usize,
    },
    /// Leadership, or a lock, is no longer held.
    #[error("leadership has ended: {0}")]
    Ended(Loss),
    /// A batch was rolled back for a reason other than lost leadership.
    #[error("nothing was written: {}", listed(refused))]
    RolledBack {
        /// Operations that Consul refused, in the order of the batch.
        refused: Vec<RefusedOp>,
    },
    /// A setting is invalid.
    #[error("{setting}: {problem}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Description of the wrong value, and of a right one.
        problem: String,
    },
    /// Stored data is unusable.
    #[error("{key}: {problem}")]
    Data {
        /// Key in Consul.
        key: String,
        /// Problem, and the way out.
        problem: String,
    },
    /// An implementation outside this crate failed.
    #[error("{operation} failed")]
    Other {
        /// Operation that failed.
        operation: &'static str,
        /// `true` if another attempt may succeed.
        retryable: bool,
        /// Cause.
        source: BoxError,
    },
}

fn listed(refused: &[RefusedOp]) -> String {
    refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Error {
    /// Wraps an error of Consul; `needs` is the permission that the call requires.
    pub(crate) fn consul(
        action: impl Into<String>,
        needs: impl Into<String>,
        source: consul_watch::Error,
    ) -> Self {
        let action = action.into();
        if source.is_permission_denied() {
            return Self::Permission { action, needs: needs.into(), source: source.into() };
        }
        Self::Consul { action, source }
    }

    /// Returns `true` if the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Consul { source, .. } => source.is_retryable(),
            Self::Other { retryable, .. } => *retryable,
            Self::SessionExpired | Self::InUse => true,
            Self::Permission { .. }
            | Self::AlreadyHeld
            | Self::NotHeld
            | Self::Conflict { .. }
            | Self::LimitConflict { .. }
            | Self::Ended(_)
            | Self::RolledBack { .. }
            | Self::Setting { .. }
            | Self::Data { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use consul_watch::error_chain;

    use super::*;

    fn refused() -> RefusedOp {
        RefusedOp {
            index: 1,
            verb: "cas".to_owned(),
            key: "app/state".to_owned(),
            reason: "index is stale".to_owned(),
        }
    }

    /// Each variant as a person reads it: its own text, and what its causes add.
    #[test]
    #[expect(clippy::too_many_lines, reason = "one row for each variant")]
    fn every_error_says_what_failed_and_with_what() {
        let consul = || consul_watch::Error::Timeout {
            operation: "kv.get",
            address: "http://consul:8500".to_owned(),
            after: std::time::Duration::from_secs(10),
        };
        let cause = ": kv.get: no answer from http://consul:8500 within 10 s";
        let table = [
            (
                Error::Consul { action: "read lock: app/leader".to_owned(), source: consul() },
                "failed to read lock: app/leader",
                cause,
            ),
            (
                Error::Permission {
                    action: "read lock: app/leader".to_owned(),
                    needs: "key:write on \"app/leader\"".to_owned(),
                    source: consul().into(),
                },
                "missing required Consul ACL: key:write on \"app/leader\" to read lock: app/leader",
                cause,
            ),
            (Error::SessionExpired, "session expired", ""),
            (Error::AlreadyHeld, "Lock already held", ""),
            (Error::NotHeld, "Lock not held", ""),
            (Error::InUse, "Lock in use", ""),
            (
                Error::Conflict { key: "app/leader".to_owned() },
                "Existing key does not match lock use: app/leader",
                "",
            ),
            (
                Error::LimitConflict { prefix: "app/slots".to_owned(), found: 3, asked: 5 },
                "semaphore limit conflict: app/slots has the limit 3, asked for 5",
                "",
            ),
            (
                Error::Ended(Loss::LeaseExpired),
                "leadership has ended: the lease expired without a renewal",
                "",
            ),
            (
                Error::RolledBack { refused: vec![refused(), RefusedOp { index: 2, ..refused() }] },
                "nothing was written: operation 1 (cas app/state): index is stale; \
                 operation 2 (cas app/state): index is stale",
                "",
            ),
            (
                Error::Setting { setting: "ttl", problem: "0s is not above zero".to_owned() },
                "ttl: 0s is not above zero",
                "",
            ),
            (
                Error::Data { key: "app/state".to_owned(), problem: "it is no JSON".to_owned() },
                "app/state: it is no JSON",
                "",
            ),
            (
                Error::Other { operation: "campaign", retryable: true, source: "away".into() },
                "campaign failed",
                ": away",
            ),
        ];
        for (at, (error, text, causes)) in table.iter().enumerate() {
            // Without a wildcard: a new variant does not compile until it has a row.
            let row = match error {
                Error::Consul { .. } => 0,
                Error::Permission { .. } => 1,
                Error::SessionExpired => 2,
                Error::AlreadyHeld => 3,
                Error::NotHeld => 4,
                Error::InUse => 5,
                Error::Conflict { .. } => 6,
                Error::LimitConflict { .. } => 7,
                Error::Ended(_) => 8,
                Error::RolledBack { .. } => 9,
                Error::Setting { .. } => 10,
                Error::Data { .. } => 11,
                Error::Other { .. } => 12,
            };
            assert_eq!((row, error.to_string().as_str()), (at, *text));
            assert_eq!(error_chain(error), format!("{text}{causes}"));
        }
        assert_eq!(table.len(), 13);
    }

    /// Reasons for which a hold ends, as they follow "leadership has ended: ".
    #[test]
    fn every_loss_says_why() {
        for (loss, text) in [
            (Loss::LeaseExpired, "the lease expired without a renewal"),
            (Loss::SessionEnded, "the session has ended"),
            (Loss::Taken, "the lock was deleted or taken"),
            (Loss::Unwatched, "the lock could not be watched"),
            (Loss::Refused, "Consul refused a write of this session"),
            (Loss::Resigned, "it was given up"),
            (Loss::Abandoned, "nothing renews it any more"),
        ] {
            assert_eq!(loss.to_string(), text);
        }
    }
}
