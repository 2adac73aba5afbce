//! Calls about a workspace's state, its outputs and its run triggers.

use serde_json::json;

use super::{Call, Client};
use crate::{
    Result,
    types::{Output, RunTrigger, RunTriggerKind, StateVersion, WorkspaceId},
};

impl Client {
    /// Reads the newest state of a workspace; `None` if it has none yet.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn current_state(&self, workspace: &WorkspaceId) -> Result<Option<StateVersion>> {
        let path = format!("/workspaces/{workspace}/current-state-version");
        match self.one(Call::get("read state", path)).await {
            Ok(state) => Ok(Some(state)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists the output values of the newest state, once the platform has processed it; empty
    /// without a state.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`]; 503 if the platform is not ready in time.
    pub async fn outputs(&self, workspace: &WorkspaceId) -> Result<Vec<Output>> {
        let path = format!("/workspaces/{workspace}/current-state-version-outputs");
        match self.all(Call::get("read outputs", path)).await {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// Lists the workspaces that trigger runs of this one, or that this one triggers.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
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

    /// Makes `workspace` run after each apply of `source`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
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
