//! Run triggers between workspaces.

use serde::Deserialize;

use crate::document::{Kind, Resource};

/// Trigger that queues a run of one workspace when another one was applied.
pub type RunTrigger = Resource<RunTriggerAttributes>;

/// Attributes of a [`RunTrigger`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct RunTriggerAttributes {
    /// Name of the workspace that is watched.
    #[serde(default)]
    pub sourceable_name: Option<String>,
    /// Name of the workspace that runs.
    #[serde(default)]
    pub workspace_name: Option<String>,
}

impl Kind for RunTriggerAttributes {
    const TYPE: &'static str = "run-triggers";
}

/// Direction of the run triggers that are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunTriggerKind {
    /// Triggers that make the workspace run.
    Inbound,
    /// Triggers by which the workspace makes others run.
    Outbound,
}
