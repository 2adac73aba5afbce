//! The result of a check for drift.

use chrono::{DateTime, Local};
use serde::{Deserialize, Serialize};

use crate::Changes;

/// The result of a task's last check for drift, which compares what is really there
/// with what was last applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DriftCheck {
    /// When it ended.
    pub at: DateTime<Local>,
    /// The differences, none without drift; `None` when the check failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// Why the check failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl DriftCheck {
    /// A check that ends now.
    pub fn new(found: Result<Changes, String>) -> Self {
        let (changes, error) = match found {
            Ok(changes) => (Some(changes), None),
            Err(error) => (None, Some(error)),
        };
        Self { at: Local::now(), changes, error }
    }

    /// Returns `true` if there are differences, as far as is known.
    pub fn has_drifted(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.is_empty())
    }
}
