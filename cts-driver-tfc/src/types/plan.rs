use std::fmt;

use secrecy::SecretString;
use serde::Deserialize;

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// The plan of a run.
pub type Plan = Resource<PlanAttributes>;

/// The id of a [`Plan`].
pub type PlanId = Id<PlanAttributes>;

/// The apply of a run.
pub type Apply = Resource<ApplyAttributes>;

/// The id of an [`Apply`].
pub type ApplyId = Id<ApplyAttributes>;

/// How far a plan or an apply is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
#[non_exhaustive]
pub enum StepStatus {
    /// It has not ended.
    #[default]
    Open,
    /// It ended well.
    Finished,
    /// It failed.
    Errored,
    /// Somebody ended it.
    Canceled,
    /// It will not run.
    Unreachable,
}

impl From<String> for StepStatus {
    fn from(text: String) -> Self {
        match text.as_str() {
            "finished" => Self::Finished,
            "errored" => Self::Errored,
            "canceled" => Self::Canceled,
            "unreachable" => Self::Unreachable,
            _ => Self::Open,
        }
    }
}

impl StepStatus {
    /// Whether it goes no further.
    pub fn is_final(&self) -> bool {
        *self != Self::Open
    }
}

/// Attributes of a [`Plan`].
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct PlanAttributes {
    /// How far it is.
    #[serde(default)]
    pub status: StepStatus,
    /// Whether an apply would change anything; `None` until that is known.
    #[serde(default)]
    pub has_changes: Option<bool>,
    /// Resources to add; `None` until that is known.
    #[serde(default)]
    pub resource_additions: Option<u64>,
    /// Resources to change.
    #[serde(default)]
    pub resource_changes: Option<u64>,
    /// Resources to destroy.
    #[serde(default)]
    pub resource_destructions: Option<u64>,
    /// Where its log can be read: a secret.
    #[serde(default)]
    pub log_read_url: Option<SecretString>,
}

impl Kind for PlanAttributes {
    const TYPE: &'static str = "plans";
}

impl fmt::Debug for PlanAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    /// How far it is.
    #[serde(default)]
    pub status: StepStatus,
    /// Resources that were added; `None` until that is known.
    #[serde(default)]
    pub resource_additions: Option<u64>,
    /// Resources that were changed.
    #[serde(default)]
    pub resource_changes: Option<u64>,
    /// Resources that were destroyed.
    #[serde(default)]
    pub resource_destructions: Option<u64>,
    /// Where its log can be read: a secret.
    #[serde(default)]
    pub log_read_url: Option<SecretString>,
}

impl Kind for ApplyAttributes {
    const TYPE: &'static str = "applies";
}

impl fmt::Debug for ApplyAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyAttributes")
            .field("status", &self.status)
            .field("resource_additions", &self.resource_additions)
            .field("resource_changes", &self.resource_changes)
            .field("resource_destructions", &self.resource_destructions)
            .finish_non_exhaustive()
    }
}
