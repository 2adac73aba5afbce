//! The settings of one task's workspace, in the task's own blocks of the configuration.

use cts_driver_terraform::{Version, VersionConstraint};
use cts_tasks::{Literal, Task, config::TaskBlock};
use serde_json::{Value, json};

use super::reader::Reader;
use crate::types::ExecutionMode;

/// Names of the blocks in a task that this driver reads; the second is the deprecated form of one
/// setting of the first.
pub(crate) const WORKSPACE_BLOCK: &str = "terraform_cloud_workspace";
pub(crate) const VERSION: &str = "terraform_version";

/// Settings of one task's workspace: its `terraform_cloud_workspace` block. An empty text is not
/// set.
///
/// Source: Consul-Terraform-Sync 0.9, `config/terraform_cloud_workspace.go`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkspaceBlock {
    /// Execution mode: `remote`, which is the default, or `agent`.
    pub execution_mode: String,
    /// Id of the agent pool, for the mode `agent`.
    pub agent_pool_id: String,
    /// Name of the agent pool, for the mode `agent`; an id counts more.
    pub agent_pool_name: String,
    /// Exact version of Terraform.
    pub terraform_version: String,
}

impl WorkspaceBlock {
    /// Returns the settings of a checked task, with the deprecated `terraform_version` where the
    /// block says nothing.
    pub fn of(task: &Task) -> Self {
        let deprecated =
            Self { terraform_version: text(task.driver_blocks.get(VERSION)), ..Self::default() };
        let block = task.driver_blocks.get(WORKSPACE_BLOCK).map(Self::read).unwrap_or_default();
        deprecated.merged(&block)
    }

    fn read(block: &Literal) -> Self {
        let field = |name: &str| match block {
            Literal::Map(members) => text(members.get(name)),
            _ => String::new(),
        };
        Self {
            execution_mode: field("execution_mode"),
            agent_pool_id: field("agent_pool_id"),
            agent_pool_name: field("agent_pool_name"),
            terraform_version: field("terraform_version"),
        }
    }

    /// Returns `true` if nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a block in which the settings of `later` stand over those of this one.
    #[must_use]
    pub fn merged(&self, later: &Self) -> Self {
        let choose = |earlier: &String, later: &String| {
            if later.is_empty() { earlier.clone() } else { later.clone() }
        };
        Self {
            execution_mode: choose(&self.execution_mode, &later.execution_mode),
            agent_pool_id: choose(&self.agent_pool_id, &later.agent_pool_id),
            agent_pool_name: choose(&self.agent_pool_name, &later.agent_pool_name),
            terraform_version: choose(&self.terraform_version, &later.terraform_version),
        }
    }

    /// Returns the execution mode; `None` if it is not set.
    pub fn mode(&self) -> Option<ExecutionMode> {
        (!self.execution_mode.is_empty()).then(|| self.execution_mode.clone().into())
    }

    /// Returns the mistakes in the block, in upstream's words.
    pub fn problems(&self, supported: &VersionConstraint) -> Vec<String> {
        let mut problems = Vec::new();
        let pool = !(self.agent_pool_id.is_empty() && self.agent_pool_name.is_empty());
        match self.execution_mode.as_str() {
            "" | "remote" if pool => {
                problems
                    .push("agent pool configured when execution mode is not 'agent'".to_owned());
            }
            "agent" if !pool => problems.push(
                "agent_pool_id or agent_pool_name is required if execution mode is 'agent'"
                    .to_owned(),
            ),
            "" | "remote" | "agent" => {}
            other => problems.push(format!(
                "execution mode '{other}' not supported for CTS, use 'remote' or 'agent' instead"
            )),
        }
        problems.extend(self.version_problem(supported));
        problems
    }

    fn version_problem(&self, supported: &VersionConstraint) -> Option<String> {
        let text = self.terraform_version.as_str();
        if text.is_empty() {
            return None;
        }
        let parts: Vec<&str> = text.split('.').collect();
        // `1.9` is a version for Terraform's parser, and no release that could be installed.
        let numbers = parts.iter().all(|part| part.parse::<u64>().is_ok());
        if parts.len() < 3 && numbers {
            return Some(format!("provide the exact Terraform version to install: {text}"));
        }
        match text.parse::<Version>() {
            Err(error) => Some(format!("terraform_version: {error}")),
            Ok(version) if supported.accepts(&version) => None,
            Ok(_) => Some(format!(
                "Terraform version is not supported by Consul-Terraform-Sync, try updating to a \
                 different version ({supported}): {text}"
            )),
        }
    }
}

fn text(value: Option<&Literal>) -> String {
    match value {
        Some(Literal::String(text)) => text.clone(),
        Some(Literal::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

const FIELDS: [&str; 4] =
    ["execution_mode", "agent_pool_id", "agent_pool_name", "terraform_version"];

impl Reader<'_> {
    /// Checks one task's block.
    pub(super) fn workspace_block(&mut self, block: &TaskBlock, supported: &VersionConstraint) {
        let place = block.body.place.clone().or_else(|| block.place.clone());
        let found = if block.name == VERSION {
            self.warn_at(
                place.clone(),
                "terraform_version of a task is deprecated since 0.6: set it in \
                 terraform_cloud_workspace",
            );
            let terraform_version = text(Some(&block.body.to_literal()));
            WorkspaceBlock { terraform_version, ..WorkspaceBlock::default() }
        } else {
            for entry in self.entries(&block.body, WORKSPACE_BLOCK) {
                if FIELDS.contains(&entry.key.as_str()) {
                    // Only for its mistakes; the values are read below.
                    self.string(entry);
                } else {
                    self.unknown(entry, "task.terraform_cloud_workspace");
                }
            }
            WorkspaceBlock::read(&block.body.to_literal())
        };
        if !found.agent_pool_id.is_empty() && !found.agent_pool_name.is_empty() {
            self.warn_at(
                place.clone(),
                "agent_pool_id and agent_pool_name are both configured, agent_pool_id will be used",
            );
        }
        for problem in found.problems(supported) {
            self.error_at(place.clone(), format!("{problem} (task \"{}\")", block.task));
        }
    }
}

/// Returns the JSON Schema of a task's block, as a request of the HTTP API has it; `None` for a
/// block that this driver does not read.
pub(crate) fn task_block_schema(block: &str) -> Option<Value> {
    match block {
        WORKSPACE_BLOCK => Some(json!({
            "type": "object",
            "description": "Settings of the task's workspace in HCP Terraform",
            "additionalProperties": false,
            "properties": {
                // Empty means not set, as in the configuration.
                "execution_mode": {"type": "string", "enum": ["", "remote", "agent"]},
                "agent_pool_id": {"type": "string"},
                "agent_pool_name": {"type": "string"},
                "terraform_version": {
                    "type": "string", "description": "The exact version, as in 1.9.4",
                },
            },
        })),
        VERSION => Some(json!({"type": "string", "deprecated": true})),
        _ => None,
    }
}
