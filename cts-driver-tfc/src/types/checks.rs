//! What the platform finds about a run besides its plan: costs, policies, run tasks.

use serde::Deserialize;

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// The estimated costs of a run.
pub type CostEstimate = Resource<CostEstimateAttributes>;

/// The id of a [`CostEstimate`].
pub type CostEstimateId = Id<CostEstimateAttributes>;

/// Attributes of a [`CostEstimate`]. Amounts are in US dollars a month, as the platform
/// writes them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct CostEstimateAttributes {
    /// How far it is, such as `finished` or `errored`.
    pub status: String,
    /// What went wrong.
    pub error_message: Option<String>,
    /// Resources with a known price.
    pub matched_resources_count: u64,
    /// All resources.
    pub resources_count: u64,
    /// The costs after an apply.
    pub proposed_monthly_cost: Option<String>,
    /// The difference to the costs now.
    pub delta_monthly_cost: Option<String>,
}

impl Kind for CostEstimateAttributes {
    const TYPE: &'static str = "cost-estimates";
}

/// A check of a run against policies of Sentinel.
pub type PolicyCheck = Resource<PolicyCheckAttributes>;

/// Attributes of a [`PolicyCheck`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct PolicyCheckAttributes {
    /// How it ended, such as `passed`, `soft_failed`, `hard_failed` or `overridden`.
    pub status: String,
    /// Whose policies these are: `organization` or `workspace`.
    pub scope: String,
    /// Counts of policies; `None` until they are known.
    pub result: Option<PolicyCheckCounts>,
}

impl Kind for PolicyCheckAttributes {
    const TYPE: &'static str = "policy-checks";
}

/// Counts of the policies of a [`PolicyCheck`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct PolicyCheckCounts {
    /// Policies that passed.
    pub passed: u64,
    /// Failures that end the run.
    pub hard_failed: u64,
    /// Failures that a person may override.
    pub soft_failed: u64,
    /// Failures that are only told.
    pub advisory_failed: u64,
}

/// A stage of a run with run tasks or policies.
pub type TaskStage = Resource<TaskStageAttributes>;

/// The id of a [`TaskStage`].
pub type TaskStageId = Id<TaskStageAttributes>;

/// Attributes of a [`TaskStage`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct TaskStageAttributes {
    /// When in a run, such as `post_plan`.
    pub stage: String,
    /// How far it is, such as `passed`, `failed` or `awaiting_override`.
    pub status: String,
}

impl Kind for TaskStageAttributes {
    const TYPE: &'static str = "task-stages";
}

/// An evaluation of policies of OPA or Sentinel in a [`TaskStage`].
pub type PolicyEvaluation = Resource<PolicyEvaluationAttributes>;

/// Attributes of a [`PolicyEvaluation`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct PolicyEvaluationAttributes {
    /// How it ended, such as `passed`, `failed`, `errored` or `overridden`.
    pub status: String,
    /// `opa` or `sentinel`.
    pub policy_kind: String,
    /// Counts of policies; `None` until they are known.
    pub result_count: Option<PolicyEvaluationCounts>,
}

impl Kind for PolicyEvaluationAttributes {
    const TYPE: &'static str = "policy-evaluations";
}

/// Counts of the policies of a [`PolicyEvaluation`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct PolicyEvaluationCounts {
    /// Policies that passed.
    pub passed: u64,
    /// Failures that hold the run up or end it.
    pub mandatory_failed: u64,
    /// Failures that are only told.
    pub advisory_failed: u64,
    /// Policies that could not be evaluated.
    pub errored: u64,
}

/// What a run task answered in a [`TaskStage`].
pub type TaskResult = Resource<TaskResultAttributes>;

/// The id of a [`TaskResult`].
pub type TaskResultId = Id<TaskResultAttributes>;

/// Attributes of a [`TaskResult`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct TaskResultAttributes {
    /// The run task's name.
    pub task_name: String,
    /// How it ended, such as `passed` or `failed`.
    pub status: String,
    /// What it says.
    pub message: Option<String>,
    /// Where it says more.
    pub url: Option<String>,
    /// `mandatory` or `advisory`.
    pub workspace_task_enforcement_level: String,
}

impl Kind for TaskResultAttributes {
    const TYPE: &'static str = "task-results";
}
