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
    /// Queues a run. It is never sent twice by itself: after a failure that is
    /// [uncertain](Error::is_uncertain), look for it in the list by its message.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for what the platform is known to refuse;
    /// [`Error::Status`]; 422 while nothing is uploaded.
    pub async fn create_run(&self, run: &NewRun) -> Result<Run> {
        self.one(Call::post("create run", "/runs").json(&run.document()?)).await
    }

    /// A run with its plan, its apply and its workspace, in one request.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
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

    /// The runs of a workspace, the newest first, without those that only
    /// plan. The platform allows 30 of these in a minute.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn runs(&self, workspace: &WorkspaceId, filter: RunFilter) -> Result<Vec<Run>> {
        let mut call =
            Call::get("list runs", format!("/workspaces/{workspace}/runs")).within(Budget::RunList);
        if let Some(group) = filter.group() {
            call = call.query("filter[status_group]", group);
        }
        self.all(call).await
    }

    /// The newest runs of a workspace, at most 20.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn newest_runs(&self, workspace: &WorkspaceId) -> Result<Vec<Run>> {
        let call =
            Call::get("list runs", format!("/workspaces/{workspace}/runs")).within(Budget::RunList);
        self.list(call.query("page[size]", "20")).await
    }

    /// The runs of all workspaces of an organization, the newest first.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
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

    /// Confirms a run that waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 409 when it does not wait.
    pub async fn confirm_run(&self, id: &RunId, comment: &str) -> Result<()> {
        self.act("confirm run", id, "apply", comment).await
    }

    /// Discards a run that waits.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 409 when it does not wait.
    pub async fn discard_run(&self, id: &RunId, comment: &str) -> Result<()> {
        self.act("discard run", id, "discard", comment).await
    }

    /// Ends a run that is being planned or applied.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 409 when it is neither.
    pub async fn cancel_run(&self, id: &RunId, comment: &str) -> Result<()> {
        self.act("cancel run", id, "cancel", comment).await
    }

    /// Ends a run that was cancelled and does not end.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 409 unless it was cancelled a while ago.
    pub async fn force_cancel_run(&self, id: &RunId, comment: &str) -> Result<()> {
        self.act("force-cancel run", id, "force-cancel", comment).await
    }

    /// Begins a pending run at once, and discards the one that holds it up.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 403 and 409.
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

    /// A plan.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn plan(&self, id: &PlanId) -> Result<Plan> {
        self.one(Call::get("read plan", format!("/plans/{id}"))).await
    }

    /// An apply.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn apply(&self, id: &ApplyId) -> Result<Apply> {
        self.one(Call::get("read apply", format!("/applies/{id}"))).await
    }

    /// A plan as Terraform describes it in JSON; `None` when it is not ready,
    /// or not for this token.
    ///
    /// The token is not shown to the host that the platform sends us to.
    ///
    /// # Errors
    ///
    /// [`Error::Status`], [`Error::Decode`].
    pub async fn plan_json(&self, id: &PlanId) -> Result<Option<Value>> {
        let operation = "read plan as JSON";
        let call = Call::get(operation, format!("/plans/{id}/json-output"));
        let mut answer = self.exchange(&call).await?;
        let mut archive = false;
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
                // A page of the host of archives may repeat the address, which is a secret.
                let body = if archive { &[] } else { answer.body().as_ref() };
                let status = answer.status();
                let message = document::error_message(status, body);
                Err(Error::Status { operation, status, message })
            }
        }
    }
}
