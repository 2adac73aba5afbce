//! Pools of agents.

use serde::Deserialize;

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// Pool of agents, which run what must run inside of somebody's network.
pub type AgentPool = Resource<AgentPoolAttributes>;

/// Id of an [`AgentPool`], such as `apool-yoGUFz5zcRMMz53i`.
pub type AgentPoolId = Id<AgentPoolAttributes>;

/// Attributes of an [`AgentPool`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct AgentPoolAttributes {
    /// Name, unique in the organization.
    pub name: String,
    /// Number of its agents; without any, runs wait.
    #[serde(default)]
    pub agent_count: Option<u64>,
    /// `true` if all workspaces of the organization may use it.
    #[serde(default)]
    pub organization_scoped: Option<bool>,
}

impl Kind for AgentPoolAttributes {
    const TYPE: &'static str = "agent-pools";
}
