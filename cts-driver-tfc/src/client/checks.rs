//! Calls about the platform's findings on a run: costs, policies, run tasks.

use super::{Call, Client};
use crate::{
    Result,
    types::{
        CostEstimate, CostEstimateId, PolicyCheck, PolicyEvaluation, RunId, TaskResult,
        TaskResultId, TaskStage, TaskStageId,
    },
};

impl Client {
    /// Reads the estimated costs of a run.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn cost_estimate(&self, id: &CostEstimateId) -> Result<CostEstimate> {
        self.one(Call::get("read cost estimate", format!("/cost-estimates/{id}"))).await
    }

    /// Lists the checks of a run against policies of Sentinel.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn policy_checks(&self, run: &RunId) -> Result<Vec<PolicyCheck>> {
        self.all(Call::get("list policy checks", format!("/runs/{run}/policy-checks"))).await
    }

    /// Lists the stages of a run that have run tasks or policies.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn task_stages(&self, run: &RunId) -> Result<Vec<TaskStage>> {
        self.all(Call::get("list task stages", format!("/runs/{run}/task-stages"))).await
    }

    /// Lists the evaluations of policies in a stage.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn policy_evaluations(&self, stage: &TaskStageId) -> Result<Vec<PolicyEvaluation>> {
        let path = format!("/task-stages/{stage}/policy-evaluations");
        self.all(Call::get("list policy evaluations", path)).await
    }

    /// Reads the result of a run task.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn task_result(&self, id: &TaskResultId) -> Result<TaskResult> {
        self.one(Call::get("read task result", format!("/task-results/{id}"))).await
    }
}
