//! Findings of the platform about a run besides its plan: costs, policies, run tasks.

use serde::Deserialize;

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// Estimated costs of a run.
pub type CostEstimate = Resource<CostEstimateAttributes>;

/// Id of a [`CostEstimate`].
pub type CostEstimateId = Id<CostEstimateAttributes>;

/// Attributes of a [`CostEstimate`].
///
/// Amounts are in US dollars a month, as the platform writes them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct CostEstimateAttributes {
    /// Progress, such as `finished` or `errored`.
    pub status: String,
    /// Error, for people.
    pub error_message: Option<String>,
    /// Number of resources with a known price.
    pub matched_resources_count: u64,
    /// Number of all resources.
    pub resources_count: u64,
    /// Costs after an apply.
    pub proposed_monthly_cost: Option<String>,
    /// Difference to the costs now.
    pub delta_monthly_cost: Option<String>,
}

impl Kind for CostEstimateAttributes {
    const TYPE: &'static str = "cost-estimates";
}

/// Check of a run against policies of Sentinel.
pub type PolicyCheck = Resource<PolicyCheckAttributes>;

/// Attributes of a [`PolicyCheck`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct PolicyCheckAttributes {
    /// Result, such as `passed`, `soft_failed`, `hard_failed` or `overridden`.
    pub status: String,
    /// Owner of the policies: `organization` or `workspace`.
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
    /// Number of policies that passed.
    pub passed: u64,
    /// Number of failures that end the run.
    pub hard_failed: u64,
    /// Number of failures that a person may override.
    pub soft_failed: u64,
    /// Number of failures that are only reported.
    pub advisory_failed: u64,
}

/// Stage of a run with run tasks or policies.
pub type TaskStage = Resource<TaskStageAttributes>;

/// Id of a [`TaskStage`].
pub type TaskStageId = Id<TaskStageAttributes>;

/// Attributes of a [`TaskStage`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct TaskStageAttributes {
    /// Moment in a run, such as `post_plan`.
    pub stage: String,
    /// Progress, such as `passed`, `failed` or `awaiting_override`.
    pub status: String,
}

impl Kind for TaskStageAttributes {
    const TYPE: &'static str = "task-stages";
}

/// Evaluation of policies of OPA or Sentinel in a [`TaskStage`].
pub type PolicyEvaluation = Resource<PolicyEvaluationAttributes>;

/// Attributes of a [`PolicyEvaluation`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct PolicyEvaluationAttributes {
    /// Result, such as `passed`, `failed`, `errored` or `overridden`.
    pub status: String,
    /// Engine: `opa` or `sentinel`.
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
    /// Number of policies that passed.
    pub passed: u64,
    /// Number of failures that hold the run up or end it.
    pub mandatory_failed: u64,
    /// Number of failures that are only reported.
    pub advisory_failed: u64,
    /// Number of policies that could not be evaluated.
    pub errored: u64,
}

/// Answer of a run task in a [`TaskStage`].
pub type TaskResult = Resource<TaskResultAttributes>;

/// Id of a [`TaskResult`].
pub type TaskResultId = Id<TaskResultAttributes>;

/// Attributes of a [`TaskResult`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct TaskResultAttributes {
    /// Name of the run task.
    pub task_name: String,
    /// Result, such as `passed` or `failed`.
    pub status: String,
    /// Text of the run task, for people.
    pub message: Option<String>,
    /// Address of a page with more.
    pub url: Option<String>,
    /// Enforcement: `mandatory` or `advisory`.
    pub workspace_task_enforcement_level: String,
}

impl Kind for TaskResultAttributes {
    const TYPE: &'static str = "task-results";
}
