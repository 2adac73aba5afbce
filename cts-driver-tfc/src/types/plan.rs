//! The plan and the apply of a run: how far they are, their counts and logs.

use std::fmt;

use secrecy::SecretString;
use serde::Deserialize;

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// Plan of a run.
pub type Plan = Resource<PlanAttributes>;

/// Id of a [`Plan`].
pub type PlanId = Id<PlanAttributes>;

/// Apply of a run.
pub type Apply = Resource<ApplyAttributes>;

/// Id of an [`Apply`].
pub type ApplyId = Id<ApplyAttributes>;

/// Progress of a plan or an apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
#[non_exhaustive]
pub enum StepStatus {
    /// The step has not ended.
    #[default]
    Open,
    /// The step ended well.
    Finished,
    /// The step failed.
    Errored,
    /// Somebody ended the step.
    Canceled,
    /// The step will not run.
    Unreachable,
}

impl From<String> for StepStatus {
    fn from(text: String) -> Self {
        match text.as_str() {
            "finished" => Self::Finished,
            "errored" => Self::Errored,
            "canceled" => Self::Canceled,
            "unreachable" => Self::Unreachable,
            // The many words before the end; a new one among them is no error.
            _ => Self::Open,
        }
    }
}

impl StepStatus {
    /// Returns `true` if the step goes no further.
    pub fn is_final(&self) -> bool {
        *self != Self::Open
    }
}

/// Attributes of a [`Plan`].
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct PlanAttributes {
    /// Progress.
    #[serde(default)]
    pub status: StepStatus,
    /// `true` if an apply would change anything; `None` until that is known.
    #[serde(default)]
    pub has_changes: Option<bool>,
    /// Number of resources to add; `None` until that is known.
    #[serde(default)]
    pub resource_additions: Option<u64>,
    /// Number of resources to change.
    #[serde(default)]
    pub resource_changes: Option<u64>,
    /// Number of resources to destroy.
    #[serde(default)]
    pub resource_destructions: Option<u64>,
    /// Address of its log: a secret.
    #[serde(default)]
    pub log_read_url: Option<SecretString>,
}

impl Kind for PlanAttributes {
    const TYPE: &'static str = "plans";
}

impl fmt::Debug for PlanAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the address of the log, which needs no token.
        f.debug_struct("PlanAttributes")
            .field("status", &self.status)
            .field("has_changes", &self.has_changes)
            .field("resource_additions", &self.resource_additions)
            .field("resource_changes", &self.resource_changes)
            .field("resource_destructions", &self.resource_destructions)
            .finish_non_exhaustive()
    }
}

/// Attributes of an [`Apply`].
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct ApplyAttributes {
    /// Progress.
    #[serde(default)]
    pub status: StepStatus,
    /// Number of resources that were added; `None` until that is known.
    #[serde(default)]
    pub resource_additions: Option<u64>,
    /// Number of resources that were changed.
    #[serde(default)]
    pub resource_changes: Option<u64>,
    /// Number of resources that were destroyed.
    #[serde(default)]
    pub resource_destructions: Option<u64>,
    /// Address of its log: a secret.
    #[serde(default)]
    pub log_read_url: Option<SecretString>,
}

impl Kind for ApplyAttributes {
    const TYPE: &'static str = "applies";
}

impl fmt::Debug for ApplyAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As for plans, without the address of the log.
        f.debug_struct("ApplyAttributes")
            .field("status", &self.status)
            .field("resource_additions", &self.resource_additions)
            .field("resource_changes", &self.resource_changes)
            .field("resource_destructions", &self.resource_destructions)
            .finish_non_exhaustive()
    }
}
