//! Errors of sessions, locks, semaphores, elections and the state in Consul.

use crate::{Loss, RefusedOp};

/// A boxed error of another crate, kept as the source of one of ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with sessions, locks and leadership.
///
/// Texts of locks and semaphores keep the words of Consul's own client, which
/// operators search for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Consul could not be asked, or refused.
    #[error("failed to {action}")]
    Consul {
        /// What was tried, such as `read lock: app/leader`.
        action: String,
        /// What the client reported.
        source: consul_watch::Error,
    },
    /// The token lacks a permission; no retry helps until it has it.
    #[error("missing required Consul ACL: {needs} to {action}")]
    Permission {
        /// What was tried.
        action: String,
        /// The permission, as a policy names it.
        needs: String,
        /// What Consul said.
        source: BoxError,
    },
    /// Consul knows the session no more.
    #[error("session expired")]
    SessionExpired,
    /// The lock is held by this handle already.
    #[error("Lock already held")]
    AlreadyHeld,
    /// The lock is not held by this handle.
    #[error("Lock not held")]
    NotHeld,
    /// The lock is held by another.
    #[error("Lock in use")]
    InUse,
    /// The key is used for something else; it is left as it is.
    #[error("Existing key does not match lock use: {key}")]
    Conflict {
        /// The key.
        key: String,
    },
    /// Other holders of a semaphore have asked for another number of places.
    #[error("semaphore limit conflict: {prefix} has the limit {found}, asked for {asked}")]
    LimitConflict {
        /// The semaphore's prefix.
        prefix: String,
        /// The limit that is in force.
        found: usize,
        /// The limit asked for.
        asked: usize,
    },
    /// Leadership, or a lock, is held no more.
    #[error("leadership has ended: {0}")]
    Ended(Loss),
    /// A batch was rolled back for another reason than lost leadership.
    #[error("nothing was written: {}", listed(refused))]
    RolledBack {
        /// The operations that Consul refused, in the order of the batch.
        refused: Vec<RefusedOp>,
    },
    /// A setting makes no sense.
    #[error("{setting}: {problem}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Stored data cannot be used.
    #[error("{key}: {problem}")]
    Data {
        /// The key in Consul.
        key: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// An implementation outside this crate failed.
    #[error("{operation} failed")]
    Other {
        /// What was tried.
        operation: &'static str,
        /// Whether trying again may help.
        retryable: bool,
        /// The cause.
        source: BoxError,
    },
}

fn listed(refused: &[RefusedOp]) -> String {
    refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Error {
    /// An answer of Consul; `needs` is what a token must be allowed for it.
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

    /// Whether the same call may succeed later with the same input.
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
