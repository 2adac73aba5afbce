//! Calls about runs, their plans and their applies.

use serde_json::{Value, json};

use super::{Budget, Call, Client, call::segment, is_redirect};
use crate::{
    Error, Result,
    document::{self, Document},
    types::{
        Apply, ApplyId, NewRun, Plan, PlanId, Run, RunAttributes, RunFilter, RunId, RunReport,
        WorkspaceId,
    },
};

impl Client {
    /// Queues a run. The call is never repeated automatically: after a failure that is
    /// [uncertain](Error::is_uncertain), look for the run in the list by its message.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for options that the platform is known to refuse; [`Error::Status`], 422
    /// while nothing is uploaded.
    pub async fn create_run(&self, run: &NewRun) -> Result<Run> {
        self.one(Call::post("create run", "/runs").json(&run.document()?)).await
    }

    /// Reads a run with its plan, its apply and its workspace, in one request.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the platform refuses.
    pub async fn run(&self, id: &RunId) -> Result<RunReport> {
        let call = Call::get("read run", format!("/runs/{id}"))
            .query("include", "plan,apply,workspace")
            .within(Budget::Poll);
        let found: Document<RunAttributes> = self.document(call).await?;
        Ok(RunReport {
            plan: found.included("plan"),
            apply: found.included("apply"),
            workspace: found.included("workspace"),
            run: found.data,
        })
    }

    /// Lists the runs of a workspace, newest first, without plan-only runs. The platform allows 30
    /// such lists in a minute.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the platform refuses.
    pub async fn runs(&self, workspace: &WorkspaceId, filter: RunFilter) -> Result<Vec<Run>> {
        let mut call =
            Call::get("list runs", format!("/workspaces/{workspace}/runs")).within(Budget::RunList);
        if let Some(group) = filter.group() {
            call = call.query("filter[status_group]", group);
        }
        self.all(call).await
    }

    /// Lists the newest runs of a workspace, at most 20.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the platform refuses.
    pub async fn newest_runs(&self, workspace: &WorkspaceId) -> Result<Vec<Run>> {
        let call =
            Call::get("list runs", format!("/workspaces/{workspace}/runs")).within(Budget::RunList);
        self.list(call.query("page[size]", "20")).await
    }

    /// Lists the runs of all workspaces of an organization, newest first.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the platform refuses.
    pub async fn organization_runs(
        &self,
        organization: &str,
        filter: RunFilter,
    ) -> Result<Vec<Run>> {
        let path = format!("/organizations/{}/runs", segment(organization));
        let mut call = Call::get("list runs", path).within(Budget::RunList);
        if let Some(group) = filter.group() {
            call = call.query("filter[status_group]", group);
        }
        self.all(call).await
    }

    /// Confirms a run that waits for confirmation.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 409 if it does not wait.
    pub async fn confirm_run(&self, id: &RunId, comment: &str) -> Result<()> {
        self.act("confirm run", id, "apply", comment).await
    }

    /// Discards a run that waits for confirmation.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 409 if it does not wait.
    pub async fn discard_run(&self, id: &RunId, comment: &str) -> Result<()> {
        self.act("discard run", id, "discard", comment).await
    }

    /// Cancels a run that is being planned or applied.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 409 if it is neither.
    pub async fn cancel_run(&self, id: &RunId, comment: &str) -> Result<()> {
        self.act("cancel run", id, "cancel", comment).await
    }

    /// Ends a run by force that was cancelled and does not end.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 409 unless it was cancelled a while ago.
    pub async fn force_cancel_run(&self, id: &RunId, comment: &str) -> Result<()> {
        self.act("force-cancel run", id, "force-cancel", comment).await
    }

    /// Starts a pending run at once, and discards the run that blocks it.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 403 without the permission, 409 if the run is not pending.
    pub async fn force_execute_run(&self, id: &RunId) -> Result<()> {
        self.act("force-execute run", id, "force-execute", "").await
    }

    async fn act(
        &self,
        operation: &'static str,
        id: &RunId,
        action: &str,
        comment: &str,
    ) -> Result<()> {
        let mut call = Call::post(operation, format!("/runs/{id}/actions/{action}"));
        if !comment.is_empty() {
            call = call.json(&json!({ "comment": comment }));
        }
        self.send(call).await.map(drop)
    }

    /// Reads a plan.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the platform refuses.
    pub async fn plan(&self, id: &PlanId) -> Result<Plan> {
        self.one(Call::get("read plan", format!("/plans/{id}"))).await
    }

    /// Reads an apply.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the platform refuses.
    pub async fn apply(&self, id: &ApplyId) -> Result<Apply> {
        self.one(Call::get("read apply", format!("/applies/{id}"))).await
    }

    /// Reads a plan in Terraform's JSON format; `None` if it is not ready, or not visible to this
    /// token.
    ///
    /// The token is not sent to the host that the platform redirects to.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the platform refuses, [`Error::Decode`] if the document is not JSON.
    pub async fn plan_json(&self, id: &PlanId) -> Result<Option<Value>> {
        let operation = "read plan as JSON";
        let call = Call::get(operation, format!("/plans/{id}/json-output"));
        let mut answer = self.exchange(&call).await?;
        let mut archive = false;
        // Followed here and not by the HTTP client, which would send the token along.
        if is_redirect(answer.status()) {
            let target = answer.headers().get(http::header::LOCATION);
            let target = target.and_then(|target| target.to_str().ok()).unwrap_or_default();
            let target = match target.strip_prefix('/') {
                Some(path) => format!("{}/{path}", self.shared.host),
                None => target.to_owned(),
            };
            answer = self.exchange(&Call::archive(operation, http::Method::GET, &target)).await?;
            archive = true;
        }
        match answer.status().as_u16() {
            204 | 404 => Ok(None),
            200 => document::read(operation, answer.body()).map(Some),
            _ => {
                // An error page of the archive host may repeat the address, which is a secret.
                let body = if archive { &[] } else { answer.body().as_ref() };
                let status = answer.status();
                let message = document::error_message(status, body);
                Err(Error::Status { operation, status, message })
            }
        }
    }
}
