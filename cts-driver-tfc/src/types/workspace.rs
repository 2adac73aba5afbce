//! Workspaces: what the platform says of one, and what is asked for with a new or changed one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{AgentPoolId, ProjectId};
use crate::{
    Error, Result,
    document::{Kind, Resource},
    id::Id,
};

/// Workspace: one state, its variables and its runs.
pub type Workspace = Resource<WorkspaceAttributes>;

/// Id of a [`Workspace`], such as `ws-6jrRyVDv1J8zQMB5`.
pub type WorkspaceId = Id<WorkspaceAttributes>;

/// Attributes of an organization, of which none are needed.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct OrganizationAttributes {}

impl Kind for OrganizationAttributes {
    const TYPE: &'static str = "organizations";
}

/// Place at which runs are executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum ExecutionMode {
    /// The platform executes runs.
    Remote,
    /// Agents of a pool execute runs.
    Agent,
    /// Runs are executed elsewhere: the platform only keeps the state.
    Local,
    /// Mode that is not known.
    Other(String),
}

impl From<String> for ExecutionMode {
    fn from(text: String) -> Self {
        match text.as_str() {
            "remote" => Self::Remote,
            "agent" => Self::Agent,
            "local" => Self::Local,
            _ => Self::Other(text),
        }
    }
}

impl From<ExecutionMode> for String {
    fn from(mode: ExecutionMode) -> Self {
        match mode {
            ExecutionMode::Remote => "remote".to_owned(),
            ExecutionMode::Agent => "agent".to_owned(),
            ExecutionMode::Local => "local".to_owned(),
            ExecutionMode::Other(text) => text,
        }
    }
}

/// Attributes of a [`Workspace`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct WorkspaceAttributes {
    /// Name, unique in the organization.
    pub name: String,
    /// `true` if runs are applied without confirmation.
    #[serde(default)]
    pub auto_apply: bool,
    /// Execution mode; `None` on releases that know only `operations`.
    #[serde(default)]
    pub execution_mode: Option<ExecutionMode>,
    /// `true` if runs are executed at all; the older form of `execution_mode`.
    #[serde(default)]
    pub operations: Option<bool>,
    /// `true` if no run may begin.
    #[serde(default)]
    pub locked: bool,
    /// Version of Terraform, or a constraint.
    #[serde(default)]
    pub terraform_version: Option<String>,
    /// Repository that it is connected to.
    #[serde(default)]
    pub vcs_repo: Option<Value>,
    /// Names of its tags; `None` on releases without tags.
    #[serde(default)]
    pub tag_names: Option<Vec<String>>,
    /// Maker, in that program's own words.
    #[serde(default)]
    pub source_name: Option<String>,
    /// Description, for people.
    #[serde(default)]
    pub description: Option<String>,
    /// Number of resources in its state.
    #[serde(default)]
    pub resource_count: Option<u64>,
    /// Settings that stand over those of the organization; only newer releases know it.
    #[serde(default)]
    pub setting_overwrites: Option<BTreeMap<String, Value>>,
    /// Actions that are allowed to the token.
    #[serde(default)]
    pub permissions: WorkspacePermissions,
}

impl Kind for WorkspaceAttributes {
    const TYPE: &'static str = "workspaces";
}

impl WorkspaceAttributes {
    /// Returns the execution mode, also on releases that know only `operations`.
    pub fn mode(&self) -> ExecutionMode {
        match (&self.execution_mode, self.operations) {
            (Some(mode), _) => mode.clone(),
            (None, Some(false)) => ExecutionMode::Local,
            (None, _) => ExecutionMode::Remote,
        }
    }
}

/// Actions with a workspace that are allowed to the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct WorkspacePermissions {
    /// The token may queue runs.
    pub can_queue_run: bool,
    /// The token may confirm runs.
    pub can_queue_apply: bool,
    /// The token may change variables.
    pub can_update_variable: bool,
}

impl Default for WorkspacePermissions {
    /// Returns permission for everything: what an answer leaves out is allowed, until the platform
    /// refuses it.
    fn default() -> Self {
        Self { can_queue_run: true, can_queue_apply: true, can_update_variable: true }
    }
}

/// Options of a new workspace.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct NewWorkspace {
    /// Name of letters, digits, `-` and `_`, unique in the organization.
    pub name: String,
    /// Description, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Execution mode; the organization's default if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_mode: Option<ExecutionMode>,
    /// Older form of `execution_mode`; never both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<bool>,
    /// Agent pool, for [`ExecutionMode::Agent`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_pool_id: Option<AgentPoolId>,
    /// `true` if runs are applied without confirmation.
    pub auto_apply: bool,
    /// Version of Terraform, a constraint, or `latest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terraform_version: Option<String>,
    /// `true` if uploads queue runs even before the first run.
    pub queue_all_runs: bool,
    /// Maker of the workspace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source_name: String,
    /// Project that it belongs to; the default one if `None`.
    #[serde(skip)]
    pub project: Option<ProjectId>,
}

impl NewWorkspace {
    /// Creates options for a workspace of this name, with the platform's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Returns the document that asks for the workspace.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for what the platform is known to refuse.
    pub(crate) fn document(&self) -> Result<Value> {
        let refuse = |problem: String| Err(Error::Input { operation: "create workspace", problem });
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if self.name.is_empty() || !self.name.bytes().all(fits) {
            return refuse(format!(
                "{:?} is no name for a workspace: only letters, digits, - and _ of ASCII can stand \
                 in one",
                self.name
            ));
        }
        if self.execution_mode.is_some() && self.operations.is_some() {
            return refuse("set the execution mode or operations, not both".to_owned());
        }
        check_pool(self.execution_mode.as_ref(), self.agent_pool_id.as_ref())
            .map_err(|problem| Error::Input { operation: "create workspace", problem })?;
        let mut data = json!({"type": "workspaces", "attributes": self});
        // A relationship, not an attribute like everything else.
        if let (Some(project), Some(data)) = (&self.project, data.as_object_mut()) {
            data.insert(
                "relationships".to_owned(),
                json!({"project": {"data": {"type": "projects", "id": project}}}),
            );
        }
        Ok(json!({"data": data}))
    }
}

/// Change of a workspace; a field that is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct WorkspaceChange {
    /// Description, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Execution mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_mode: Option<ExecutionMode>,
    /// Agent pool, for [`ExecutionMode::Agent`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_pool_id: Option<AgentPoolId>,
    /// Version of Terraform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terraform_version: Option<String>,
    /// Settings that stand over those of the organization; only newer releases take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting_overwrites: Option<BTreeMap<String, bool>>,
}

impl WorkspaceChange {
    /// Returns `true` if nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn document(&self) -> Result<Value> {
        // A pool alone is not checked: the mode that the workspace has decides on it.
        if self.execution_mode.is_some() {
            check_pool(self.execution_mode.as_ref(), self.agent_pool_id.as_ref())
                .map_err(|problem| Error::Input { operation: "change workspace", problem })?;
        }
        Ok(json!({"data": {"type": "workspaces", "attributes": self}}))
    }
}

fn check_pool(mode: Option<&ExecutionMode>, pool: Option<&AgentPoolId>) -> Result<(), String> {
    match (mode, pool) {
        (Some(ExecutionMode::Agent), None) => {
            Err("execution mode agent needs the id of an agent pool".to_owned())
        }
        (mode, Some(_)) if mode != Some(&ExecutionMode::Agent) => {
            Err("an agent pool can be set only with execution mode agent".to_owned())
        }
        _ => Ok(()),
    }
}
