//! A plan as a driver gives it, and its identity.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Changes, PlannedResources, Waiting, hex::hex};

/// The purpose of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanPurpose {
    /// To be shown; nothing of it is kept.
    Inspect,
    /// To be applied by its id, perhaps after approval.
    Apply,
    /// To find differences between the state and real infrastructure.
    Drift,
}

/// Identifies one plan: a digest of module, inputs and planned changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanId(String);

impl PlanId {
    /// Takes a digest as an id.
    pub fn new(digest: impl Into<String>) -> Self {
        Self(digest.into())
    }

    /// Digests what a plan is made of: what is there, and what is to be. Equal values have
    /// equal ids, also in another process.
    ///
    /// ```
    /// use cts_tasks::PlanId;
    ///
    /// assert_eq!(PlanId::of(&("before", "after")), PlanId::of(&("before", "after")));
    /// assert_ne!(PlanId::of(&("before", "after")), PlanId::of(&("before", "other")));
    /// ```
    pub fn of(parts: &impl Serialize) -> Self {
        let written = serde_json::to_vec(parts).unwrap_or_default();
        Self(hex(&Sha256::digest(written)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The changes that an apply would make, and the plan's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// Identifies it.
    pub id: PlanId,
    /// Counts and addresses of the changes.
    pub changes: Changes,
    /// Resources that would change, with their values; `None` where the driver has no such list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<PlannedResources>,
    /// For people, as the tool prints it.
    pub text: String,
    /// URL of the plan, for a person.
    pub url: Option<String>,
    /// `true` if an instance other than the one that made the plan could apply it.
    pub portable: bool,
    /// Noted by the engine while the plan waits for approval; drivers leave it empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
}

impl Plan {
    /// A plan that lives in this process alone.
    pub fn new(id: PlanId, changes: Changes, text: impl Into<String>) -> Self {
        Self {
            id,
            changes,
            resources: None,
            text: text.into(),
            url: None,
            portable: false,
            waiting: None,
        }
    }

    /// Replaces the list of resources that would change.
    #[must_use]
    pub fn with_resources(mut self, resources: PlannedResources) -> Self {
        self.resources = Some(resources);
        self
    }
}
