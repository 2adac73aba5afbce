//! What backends answer.

use std::sync::Arc;

use crate::pb::{Resource, Type};

/// The result of a backend.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a backend did not do what was asked.
///
/// Source: `internal/storage/storage.go`, Consul 1.21.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such resource, or only another incarnation.
    #[error("resource not found")]
    NotFound,
    /// The stored version differs from the one that the caller expects.
    #[error("CAS operation failed because the given version doesn't match what is stored")]
    CasFailure,
    /// The stored uid differs from the one that the caller writes.
    #[error("write failed because the given uid doesn't match what is stored")]
    WrongUid,
    /// There is no quorum or leader now.
    #[error("cannot satisfy consistency requirements{}", detail(.reason))]
    Inconsistent {
        /// More about it; may be empty.
        reason: String,
    },
    /// The watch fell behind, or the store was restored: start again.
    #[error("watch closed")]
    WatchClosed,
    /// The resource is stored with another version of its group.
    #[error(
        "resource was requested with GroupVersion={:?}, but stored with GroupVersion={:?}",
        requested.group_version, stored_version(.stored)
    )]
    GroupVersionMismatch {
        /// Type that was asked for.
        requested: Box<Type>,
        /// Resource that is stored.
        stored: Arc<Resource>,
    },
    /// A change may have taken place, may yet, or never.
    #[error(
        "{operation} failed: the outcome is unknown, because {reason}; read the resource again before repeating it"
    )]
    OutcomeUnknown {
        /// The change that was attempted.
        operation: &'static str,
        /// The reason why nobody can tell.
        reason: String,
    },
    /// More is under way than the backend takes; nothing was done.
    #[error("too much is under way: {reason}; try again in {} ms", retry_after.as_millis())]
    Overloaded {
        /// The bound that was reached.
        reason: String,
        /// When to try again.
        retry_after: std::time::Duration,
    },
    /// Something specific to the backend failed.
    #[error("{operation} failed: {source}")]
    Other {
        /// The operation that was attempted.
        operation: &'static str,
        /// `true` if the same call may succeed later.
        retryable: bool,
        /// The cause of the failure.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Builds the error of an operation that fails again however often it is repeated.
    pub(crate) fn failed(
        operation: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Other { operation, retryable: false, source: source.into() }
    }

    /// Builds the error of a change that may have taken place, may yet, or never: who asked for
    /// it has to look before it asks again.
    #[cfg(any(feature = "etcd", feature = "postgres", feature = "raft"))]
    pub(crate) fn outcome_unknown(operation: &'static str, reason: &str) -> Self {
        Self::OutcomeUnknown { operation, reason: reason.to_owned() }
    }

    /// Returns `true` if the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Inconsistent { .. } | Self::WatchClosed | Self::Overloaded { .. } => true,
            Self::NotFound
            | Self::CasFailure
            | Self::WrongUid
            | Self::OutcomeUnknown { .. }
            | Self::GroupVersionMismatch { .. } => false,
            Self::Other { retryable, .. } => *retryable,
        }
    }
}

fn detail(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

fn stored_version(stored: &Resource) -> &str {
    stored.resource_type().map_or("", |ty| &ty.group_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo;

    #[test]
    fn texts_are_those_of_the_protocol() {
        let texts = [
            (Error::NotFound, "resource not found"),
            (
                Error::CasFailure,
                "CAS operation failed because the given version doesn't match what is stored",
            ),
            (Error::WrongUid, "write failed because the given uid doesn't match what is stored"),
            (
                Error::Inconsistent { reason: String::new() },
                "cannot satisfy consistency requirements",
            ),
            (
                Error::Inconsistent { reason: "no leader".to_owned() },
                "cannot satisfy consistency requirements: no leader",
            ),
            (Error::WatchClosed, "watch closed"),
            (
                Error::GroupVersionMismatch {
                    requested: Box::new(Type::new("demo", "v1", "Artist")),
                    stored: Arc::new(demo::artist("korn").encode()),
                },
                "resource was requested with GroupVersion=\"v1\", but stored with GroupVersion=\"v2\"",
            ),
        ];
        for (error, text) in texts {
            assert_eq!(error.to_string(), text);
        }
    }
}
