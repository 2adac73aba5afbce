//! Runs: what the platform says of one, and what is asked for with a new one.

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

/// Run of a workspace: a plan, and perhaps an apply of it.
pub type Run = Resource<RunAttributes>;

/// Id of a [`Run`], such as `run-CZcmD7eagjhyX0vN`.
pub type RunId = Id<RunAttributes>;

/// Attributes of a [`Run`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct RunAttributes {
    /// Progress.
    pub status: RunStatus,
    /// Origin, such as `tfe-api`.
    #[serde(default)]
    pub source: Option<String>,
    /// Text for people; a run of this driver's is known by it.
    #[serde(default)]
    pub message: Option<String>,
    /// `true` if it is applied without confirmation.
    #[serde(default)]
    pub auto_apply: bool,
    /// `true` if it is never applied.
    #[serde(default)]
    pub plan_only: bool,
    /// Actions that are possible now.
    #[serde(default)]
    pub actions: RunActions,
    /// Actions that are allowed to the token.
    #[serde(default)]
    pub permissions: RunPermissions,
    /// Values that it was given itself; an old release gives none back.
    #[serde(default)]
    pub variables: Vec<RunVariable>,
    /// Version of Terraform that it uses.
    #[serde(default)]
    pub terraform_version: Option<String>,
    /// Time from which it can be ended by force, once it was cancelled.
    #[serde(default)]
    pub force_cancel_available_at: Option<String>,
}

impl Kind for RunAttributes {
    const TYPE: &'static str = "runs";
}

impl RunAttributes {
    /// Returns the meaning of its status.
    pub fn phase(&self) -> Phase {
        self.status.phase(self.actions.is_confirmable)
    }
}

/// Actions that are possible with a run now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "the platform's own attributes")]
pub struct RunActions {
    /// The run can be cancelled.
    pub is_cancelable: bool,
    /// The run waits for confirmation.
    pub is_confirmable: bool,
    /// The run can be discarded.
    pub is_discardable: bool,
    /// The run can be ended by force.
    pub is_force_cancelable: bool,
}

/// Actions with a run that are allowed to the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct RunPermissions {
    /// The token may confirm the run.
    pub can_apply: bool,
    /// The token may cancel the run.
    pub can_cancel: bool,
    /// The token may discard the run.
    pub can_discard: bool,
}

impl Default for RunPermissions {
    /// Returns permission for everything: what an answer leaves out is allowed, until the platform
    /// refuses it.
    fn default() -> Self {
        Self { can_apply: true, can_cancel: true, can_discard: true }
    }
}

/// Value that holds for one run only, as an expression.
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct RunVariable {
    /// Name of the variable.
    pub key: String,
    /// Expression in the language of Terraform.
    #[serde(default)]
    pub value: SecretString,
}

impl RunVariable {
    /// Creates a value for one run.
    pub fn new(key: impl Into<String>, value: impl Into<SecretString>) -> Self {
        Self { key: key.into(), value: value.into() }
    }
}

impl fmt::Debug for RunVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the value, which may be a secret.
        f.debug_struct("RunVariable").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Run with the objects that belong to it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunReport {
    /// Run itself.
    pub run: Run,
    /// Plan, if there is one yet.
    pub plan: Option<Plan>,
    /// Apply, if there is one yet.
    pub apply: Option<Apply>,
    /// Workspace of the run.
    pub workspace: Option<Workspace>,
}

/// Options of a new run; `None` is the platform's default.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct NewRun {
    /// Workspace of the run; required.
    pub workspace: Option<WorkspaceId>,
    /// Upload that is run; the workspace's newest if `None`.
    pub configuration_version: Option<ConfigurationVersionId>,
    /// Text for people.
    pub message: String,
    /// `true` to apply without confirmation; the workspace's setting by default.
    pub auto_apply: Option<bool>,
    /// `true` to plan only.
    pub plan_only: Option<bool>,
    /// `true` to keep the plan until a person applies it.
    pub save_plan: Option<bool>,
    /// `true` to read real infrastructure first, which is the default.
    pub refresh: Option<bool>,
    /// `true` to update the state only.
    pub refresh_only: Option<bool>,
    /// `true` to destroy everything.
    pub is_destroy: Option<bool>,
    /// Version of Terraform, for a plan-only run.
    pub terraform_version: Option<String>,
    /// Values that hold for this run only.
    pub variables: Vec<RunVariable>,
}

impl NewRun {
    /// Creates the options of a run of this workspace.
    pub fn new(workspace: WorkspaceId) -> Self {
        Self { workspace: Some(workspace), ..Self::default() }
    }

    /// Returns the document that asks for the run.
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
            // Left out if nothing is asked for, so that the platform's default holds.
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

/// Filter of the listed runs of a workspace; plan-only ones are never listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunFilter {
    /// All runs.
    #[default]
    All,
    /// Runs that have not ended.
    NonFinal,
    /// Runs that have ended.
    Final,
    /// Runs that can be discarded.
    Discardable,
}

impl RunFilter {
    /// Returns the value of `filter[status_group]`.
    pub(crate) fn group(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::NonFinal => Some("non_final"),
            Self::Final => Some("final"),
            Self::Discardable => Some("discardable"),
        }
    }
}
