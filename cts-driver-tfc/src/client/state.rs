use serde_json::json;

use super::{Call, Client};
use crate::{
    Result,
    types::{Output, RunTrigger, RunTriggerKind, StateVersion, WorkspaceId},
};

impl Client {
    /// The newest state of a workspace; `None` when it has none yet.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`].
    pub async fn current_state(&self, workspace: &WorkspaceId) -> Result<Option<StateVersion>> {
        let path = format!("/workspaces/{workspace}/current-state-version");
        match self.one(Call::get("read state", path)).await {
            Ok(state) => Ok(Some(state)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The output values of the newest state, once the platform has read them
    /// from it; none when there is no state yet.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`]; 503 when the platform is not ready in time.
    pub async fn outputs(&self, workspace: &WorkspaceId) -> Result<Vec<Output>> {
        let path = format!("/workspaces/{workspace}/current-state-version-outputs");
        match self.all(Call::get("read outputs", path)).await {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// What makes the workspace run, or what it makes run.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`].
    pub async fn run_triggers(
        &self,
        workspace: &WorkspaceId,
        kind: RunTriggerKind,
    ) -> Result<Vec<RunTrigger>> {
        let kind = match kind {
            RunTriggerKind::Inbound => "inbound",
            RunTriggerKind::Outbound => "outbound",
        };
        let path = format!("/workspaces/{workspace}/run-triggers");
        self.all(Call::get("list run triggers", path).query("filter[run-trigger][type]", kind))
            .await
    }

    /// Makes `workspace` run whenever `source` was applied.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`].
    pub async fn create_run_trigger(
        &self,
        workspace: &WorkspaceId,
        source: &WorkspaceId,
    ) -> Result<RunTrigger> {
        let body = json!({"data": {"relationships": {
            "sourceable": {"data": {"type": "workspaces", "id": source}},
        }}});
        let path = format!("/workspaces/{workspace}/run-triggers");
        self.one(Call::post("create run trigger", path).json(&body)).await
    }
}
