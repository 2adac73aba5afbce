use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{AgentPoolId, ProjectId};
use crate::{
    Error, Result,
    document::{Kind, Resource},
    id::Id,
};

/// A workspace: one state, its variables and its runs.
pub type Workspace = Resource<WorkspaceAttributes>;

/// The id of a [`Workspace`], such as `ws-6jrRyVDv1J8zQMB5`.
pub type WorkspaceId = Id<WorkspaceAttributes>;

/// Attributes of an organization; nothing of them is needed.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct OrganizationAttributes {}

impl Kind for OrganizationAttributes {
    const TYPE: &'static str = "organizations";
}

/// Where runs are executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum ExecutionMode {
    /// By the platform.
    Remote,
    /// By agents of a pool.
    Agent,
    /// Elsewhere: the platform only keeps the state.
    Local,
    /// One that is not known.
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
    /// Its name, unique in the organization.
    pub name: String,
    /// Whether runs are applied without confirmation.
    #[serde(default)]
    pub auto_apply: bool,
    /// Where runs are executed; `None` on releases that know only `operations`.
    #[serde(default)]
    pub execution_mode: Option<ExecutionMode>,
    /// Whether runs are executed at all; the older form of `execution_mode`.
    #[serde(default)]
    pub operations: Option<bool>,
    /// Whether no run may begin.
    #[serde(default)]
    pub locked: bool,
    /// The version of Terraform, or a constraint.
    #[serde(default)]
    pub terraform_version: Option<String>,
    /// The repository that it is connected to.
    #[serde(default)]
    pub vcs_repo: Option<Value>,
    /// The names of its tags; `None` on releases without tags.
    #[serde(default)]
    pub tag_names: Option<Vec<String>>,
    /// Who made it, in that program's own words.
    #[serde(default)]
    pub source_name: Option<String>,
    /// For people.
    #[serde(default)]
    pub description: Option<String>,
    /// How many resources its state has.
    #[serde(default)]
    pub resource_count: Option<u64>,
    /// Which settings stand over those of the organization; only newer releases know it.
    #[serde(default)]
    pub setting_overwrites: Option<BTreeMap<String, Value>>,
    /// What the token may do.
    #[serde(default)]
    pub permissions: WorkspacePermissions,
}

impl Kind for WorkspaceAttributes {
    const TYPE: &'static str = "workspaces";
}

impl WorkspaceAttributes {
    /// Where runs are executed, also on releases that know only `operations`.
    pub fn mode(&self) -> ExecutionMode {
        match (&self.execution_mode, self.operations) {
            (Some(mode), _) => mode.clone(),
            (None, Some(false)) => ExecutionMode::Local,
            (None, _) => ExecutionMode::Remote,
        }
    }
}

/// What the token may do with a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct WorkspacePermissions {
    /// It may queue runs.
    pub can_queue_run: bool,
    /// It may confirm them.
    pub can_queue_apply: bool,
    /// It may change variables.
    pub can_update_variable: bool,
}

impl Default for WorkspacePermissions {
    /// What is not said is allowed, until the platform refuses it.
    fn default() -> Self {
        Self { can_queue_run: true, can_queue_apply: true, can_update_variable: true }
    }
}

/// A workspace to be made.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct NewWorkspace {
    /// Letters, digits, `-` and `_`; unique in the organization.
    pub name: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where runs are executed; the organization's default if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_mode: Option<ExecutionMode>,
    /// The older form of `execution_mode`; never both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<bool>,
    /// The pool, for [`ExecutionMode::Agent`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_pool_id: Option<AgentPoolId>,
    /// Whether runs are applied without confirmation.
    pub auto_apply: bool,
    /// The version of Terraform, a constraint, or `latest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terraform_version: Option<String>,
    /// Whether uploads queue runs even before the first run.
    pub queue_all_runs: bool,
    /// Who makes it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source_name: String,
    /// The project that it belongs to; the default one if `None`.
    #[serde(skip)]
    pub project: Option<ProjectId>,
}

impl NewWorkspace {
    /// A workspace of this name, with the platform's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The document that asks for it.
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
        if let (Some(project), Some(data)) = (&self.project, data.as_object_mut()) {
            data.insert(
                "relationships".to_owned(),
                json!({"project": {"data": {"type": "projects", "id": project}}}),
            );
        }
        Ok(json!({"data": data}))
    }
}

/// What is to be changed of a workspace; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct WorkspaceChange {
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where runs are executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_mode: Option<ExecutionMode>,
    /// The pool, for [`ExecutionMode::Agent`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_pool_id: Option<AgentPoolId>,
    /// The version of Terraform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terraform_version: Option<String>,
    /// Which settings stand over those of the organization; only newer releases take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting_overwrites: Option<BTreeMap<String, bool>>,
}

impl WorkspaceChange {
    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn document(&self) -> Result<Value> {
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
