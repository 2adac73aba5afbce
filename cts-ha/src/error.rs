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
