use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Apply, ConfigurationVersionId, Phase, Plan, RunStatus, Workspace, WorkspaceId};
use crate::{
    Error, Result,
    document::{Kind, Resource},
    id::Id,
};

/// One run of a workspace: a plan, and perhaps an apply of it.
pub type Run = Resource<RunAttributes>;

/// The id of a [`Run`], such as `run-CZcmD7eagjhyX0vN`.
pub type RunId = Id<RunAttributes>;

/// Attributes of a [`Run`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct RunAttributes {
    /// How far it is.
    pub status: RunStatus,
    /// What created it, such as `tfe-api`.
    #[serde(default)]
    pub source: Option<String>,
    /// For people; a run of this driver's is known by it.
    #[serde(default)]
    pub message: Option<String>,
    /// Whether it is applied without confirmation.
    #[serde(default)]
    pub auto_apply: bool,
    /// Whether it is never applied.
    #[serde(default)]
    pub plan_only: bool,
    /// What can be done with it now.
    #[serde(default)]
    pub actions: RunActions,
    /// What the token may do with it.
    #[serde(default)]
    pub permissions: RunPermissions,
    /// The values it was given itself; an old release gives none back.
    #[serde(default)]
    pub variables: Vec<RunVariable>,
    /// The version of Terraform that it uses.
    #[serde(default)]
    pub terraform_version: Option<String>,
    /// When it can be ended by force, once it was cancelled.
    #[serde(default)]
    pub force_cancel_available_at: Option<String>,
}

impl Kind for RunAttributes {
    const TYPE: &'static str = "runs";
}

impl RunAttributes {
    /// What its status means.
    pub fn phase(&self) -> Phase {
        self.status.phase(self.actions.is_confirmable)
    }
}

/// What can be done with a run now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "the platform's own attributes")]
pub struct RunActions {
    /// It can be ended.
    pub is_cancelable: bool,
    /// It waits for confirmation.
    pub is_confirmable: bool,
    /// It can be discarded.
    pub is_discardable: bool,
    /// It can be ended by force.
    pub is_force_cancelable: bool,
}

/// What the token may do with a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct RunPermissions {
    /// It may confirm it.
    pub can_apply: bool,
    /// It may end it.
    pub can_cancel: bool,
    /// It may discard it.
    pub can_discard: bool,
}

impl Default for RunPermissions {
    /// What is not said is allowed, until the platform refuses it.
    fn default() -> Self {
        Self { can_apply: true, can_cancel: true, can_discard: true }
    }
}

/// A value that holds for one run only, as an expression.
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct RunVariable {
    /// The variable's name.
    pub key: String,
    /// The value.
    #[serde(default)]
    pub value: SecretString,
}

impl RunVariable {
    /// A value for one run.
    pub fn new(key: impl Into<String>, value: impl Into<SecretString>) -> Self {
        Self { key: key.into(), value: value.into() }
    }
}

impl fmt::Debug for RunVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunVariable").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A run with what belongs to it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunReport {
    /// The run.
    pub run: Run,
    /// Its plan, if there is one yet.
    pub plan: Option<Plan>,
    /// Its apply, if there is one yet.
    pub apply: Option<Apply>,
    /// Its workspace.
    pub workspace: Option<Workspace>,
}

/// What a new run is to be. What is `None` is the platform's default.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct NewRun {
    /// Where; required.
    pub workspace: Option<WorkspaceId>,
    /// Which upload; the workspace's newest if there is none.
    pub configuration_version: Option<ConfigurationVersionId>,
    /// For people.
    pub message: String,
    /// Whether it is applied without confirmation; the workspace's setting by default.
    pub auto_apply: Option<bool>,
    /// Whether it is only planned.
    pub plan_only: Option<bool>,
    /// Whether its plan is kept until a person applies it.
    pub save_plan: Option<bool>,
    /// Whether real infrastructure is read first; true by default.
    pub refresh: Option<bool>,
    /// Whether it only updates the state.
    pub refresh_only: Option<bool>,
    /// Whether it destroys everything.
    pub is_destroy: Option<bool>,
    /// The version of Terraform, for a plan-only run.
    pub terraform_version: Option<String>,
    /// Values that hold for this run only.
    pub variables: Vec<RunVariable>,
}

impl NewRun {
    /// A run of this workspace.
    pub fn new(workspace: WorkspaceId) -> Self {
        Self { workspace: Some(workspace), ..Self::default() }
    }

    /// The document that asks for it.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for what the platform is known to refuse.
    pub(crate) fn document(&self) -> Result<Value> {
        let operation = "create run";
        let refuse = |problem: &str| Err(Error::Input { operation, problem: problem.to_owned() });
        let Some(workspace) = &self.workspace else { return refuse("a run needs a workspace") };
        if self.is_destroy == Some(true) && self.refresh_only == Some(true) {
            return refuse("a run can destroy or refresh only, not both");
        }
        if self.terraform_version.is_some() && self.plan_only != Some(true) {
            return refuse("a run with a version of Terraform of its own must be plan-only");
        }
        let mut attributes = Map::new();
        attributes.insert("message".to_owned(), self.message.as_str().into());
        for (name, value) in [
            ("auto-apply", self.auto_apply),
            ("plan-only", self.plan_only),
            ("save-plan", self.save_plan),
            ("refresh", self.refresh),
            ("refresh-only", self.refresh_only),
            ("is-destroy", self.is_destroy),
        ] {
            if let Some(value) = value {
                attributes.insert(name.to_owned(), value.into());
            }
        }
        if let Some(version) = &self.terraform_version {
            attributes.insert("terraform-version".to_owned(), version.as_str().into());
        }
        if !self.variables.is_empty() {
            let variables = self.variables.iter().map(
                |variable| json!({"key": variable.key, "value": variable.value.expose_secret()}),
            );
            attributes.insert("variables".to_owned(), variables.collect());
        }
        let mut relationships = Map::new();
        relationships.insert(
            "workspace".to_owned(),
            json!({"data": {"type": "workspaces", "id": workspace}}),
        );
        if let Some(version) = &self.configuration_version {
            relationships.insert(
                "configuration-version".to_owned(),
                json!({"data": {"type": "configuration-versions", "id": version}}),
            );
        }
        Ok(json!({"data": {
            "type": "runs", "attributes": attributes, "relationships": relationships,
        }}))
    }
}

/// Which runs of a workspace are listed; plan-only ones never are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunFilter {
    /// All.
    #[default]
    All,
    /// Those that have not ended.
    NonFinal,
    /// Those that have ended.
    Final,
    /// Those that can be discarded.
    Discardable,
}

impl RunFilter {
    /// The value of `filter[status_group]`.
    pub(crate) fn group(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::NonFinal => Some("non_final"),
            Self::Final => Some("final"),
            Self::Discardable => Some("discardable"),
        }
    }
}
