use serde::Deserialize;

use crate::document::{Kind, Resource};

/// What queues a run of one workspace when another one was applied.
pub type RunTrigger = Resource<RunTriggerAttributes>;

/// Attributes of a [`RunTrigger`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct RunTriggerAttributes {
    /// The workspace that is watched.
    #[serde(default)]
    pub sourceable_name: Option<String>,
    /// The workspace that runs.
    #[serde(default)]
    pub workspace_name: Option<String>,
}

impl Kind for RunTriggerAttributes {
    const TYPE: &'static str = "run-triggers";
}

/// Which run triggers of a workspace are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunTriggerKind {
    /// Those that make it run.
    Inbound,
    /// Those by which it makes others run.
    Outbound,
}
