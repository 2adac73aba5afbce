//! The driver of one task: what the engine asks for (plan, apply, discard, follow, destroy) as runs
//! of the task's workspace, and the runs that this process remembers.

mod kind;
mod prepare;
mod queue;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::{Backoff, error_chain};
use cts_driver_terraform::dynamic::ValueSource;
use cts_tasks::{
    ApplyRequest, Driver, Outcome, Plan, PlanId, PlanPurpose, Result as TaskResult, RunContext,
    Task, TaskInputs,
};

use tokio::time::sleep;

use self::kind::Kind;
use crate::{
    Error, Result,
    connection::Connection,
    halt::{Halt, Step},
    mask::Mask,
    module::Module,
    plan_json::{self, List},
    runs::{Logs, Runs, SUPERSEDED, Until, applied},
    types::{Phase, RunId, RunReport, RunStatus, Variable, Workspace},
};

/// Driver that runs one task in its workspace of HCP Terraform or Terraform Enterprise.
///
/// Data of Consul's goes by variables of the workspace; the root module is uploaded when it
/// changed. Each change is a run, which is followed by its id. A plan that may wait for approval is
/// such a run, not yet confirmed, and its id is the run's: approving it confirms that very run.
///
/// In a workspace without automatic apply a person confirms every run at the platform; an approval
/// here does not take the place of that.
#[derive(Debug)]
pub(crate) struct TfcDriver {
    task: Task,
    connection: Arc<Connection>,
    /// Dynamic values, with the leases of those that the task has used.
    values: Arc<dyn ValueSource>,
    ready: tokio::sync::Mutex<Option<Ready>>,
    known_runs: Mutex<KnownRuns>,
    logs: Logs,
    mask: Mask,
}

/// Workspace that can run the task.
#[derive(Debug, Clone)]
struct Ready {
    workspace: Workspace,
    variables: Vec<Variable>,
    /// `false` while they are being written, and after a write failed.
    variables_known: bool,
}

/// Number of times that a run is confirmed whose confirmation was lost.
const CONFIRMATIONS: u32 = 5;

/// Runs that this process knows of.
#[derive(Debug, Default)]
struct KnownRuns {
    /// Last run, unless it is known to have ended.
    open: Option<RunId>,
    /// `true` once runs of an earlier process were looked for.
    looked: bool,
    /// `true` if a run may have been made whose id nobody knows.
    doubt: bool,
    /// Runs that were discarded for newer ones, while somebody follows them.
    superseded: HashSet<RunId>,
    /// Plan that waits for approval, with a digest of what it was made from.
    held: Option<(String, Plan)>,
}

impl TfcDriver {
    /// Creates the driver of one task; touches nothing outside.
    ///
    /// # Errors
    ///
    /// [`Error::Module`] if the task asks for what Terraform would refuse.
    pub(crate) fn new(task: Task, connection: Arc<Connection>) -> Result<Self> {
        let settings = &connection.settings;
        // Built only to be checked: a mistake in the configuration is an error at the start, not of
        // the first run.
        Module::new(settings, &task, settings.providers())?;
        let values = settings.values_for_task();
        Ok(Self {
            task,
            connection,
            values,
            ready: tokio::sync::Mutex::default(),
            known_runs: Mutex::default(),
            logs: Logs::default(),
            mask: Mask::default(),
        })
    }

    fn known_runs(&self) -> MutexGuard<'_, KnownRuns> {
        self.known_runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs<'a>(
        &'a self,
        workspace: &'a Workspace,
        context: &'a RunContext,
    ) -> TaskResult<Runs<'a>> {
        let settings = &self.connection.settings;
        Ok(Runs {
            client: self.connection.client_for(context)?,
            behind: std::sync::OnceLock::new(),
            settings: &settings.run,
            organization: &settings.organization,
            name: &workspace.attributes.name,
            workspace: &workspace.id,
            task: &self.task,
            context,
            logs: &self.logs,
            mask: &self.mask,
        })
    }

    async fn workspace(&self, context: &RunContext) -> Step<Workspace> {
        let ready = self.ready(context).await?;
        ready.as_ref().map(|ready| ready.workspace.clone()).ok_or_else(not_ready)
    }

    /// Returns what a run came to that goes no further by itself.
    async fn outcome(&self, report: &RunReport, runs: &Runs<'_>) -> Step<Outcome> {
        let id = &report.run.id;
        let phase = report.run.attributes.phase();
        if phase.is_final() {
            self.forget(id);
        }
        // For each phase: a run that waits has checks to report, too.
        let checks = runs.checks(report).await;
        match phase {
            Phase::Applied => Ok(Outcome::Applied(applied(report))),
            Phase::Finished | Phase::SoftFailed => Ok(Outcome::Unchanged),
            Phase::Failed if self.was_superseded(report) => Ok(Outcome::Superseded),
            Phase::Failed => Err(runs.failure(report, &checks).await.into()),
            _ => {
                // Everything else that is settled waits for a person, maybe behind a run of
                // somebody else.
                let status = &report.run.attributes.status;
                // Behind a run of somebody else, that is the one where a person has to act.
                let url = runs.behind.get().cloned().unwrap_or_else(|| runs.url(id));
                tracing::info!(task.name = %self.task.name, run.id = %id, run.status = %status, run.url = url, "the run waits for a person");
                Ok(Outcome::Waiting { ticket: id.to_string(), url: Some(url) })
            }
        }
    }

    fn was_superseded(&self, report: &RunReport) -> bool {
        // Removed on the way: the next run with this outcome has to be discarded again.
        report.run.attributes.status == RunStatus::Discarded
            && self.known_runs().superseded.remove(&report.run.id)
    }

    /// Forgets a run that has ended, and the plan that it was.
    fn forget(&self, id: &RunId) {
        let mut known_runs = self.known_runs();
        // Only this run: a newer one may have taken its place since.
        known_runs.open.take_if(|open| open == id);
        known_runs.held.take_if(|(_, plan)| plan.id.as_str() == id.as_str());
    }

    async fn apply_inputs(&self, inputs: &TaskInputs, context: &RunContext) -> Step<Outcome> {
        let mut left = self.connection.settings.run.retry_errored;
        loop {
            let (workspace, run) = self.queue(inputs, Kind::Apply, context).await?;
            let runs = self.runs(&workspace, context).map_err(Halt::NotPermitted)?;
            let report = runs.wait(&run.id, &run.attributes.status, Until::Settled).await?;
            // Only a run that errored is repeated. One that a person discarded or cancelled would
            // come back against their will.
            let errored = report.run.attributes.status == RunStatus::Errored;
            let outcome = self.outcome(&report, &runs).await;
            match outcome {
                Err(Halt::Failed(error)) if errored && left > 0 => {
                    left -= 1;
                    tracing::warn!(task.name = %self.task.name, error = error_chain(&error), "the run failed, queueing another");
                }
                outcome => return outcome,
            }
        }
    }

    /// Confirms the run that is the plan, unless a person at the platform has to.
    async fn apply_plan(&self, id: &PlanId, context: &RunContext) -> Step<Outcome> {
        // A plan that was only shown has a digest for an id, and no run that could be confirmed.
        let Some(id) = run_of(id) else { return Ok(Outcome::Superseded) };
        let workspace = self.workspace(context).await?;
        let runs = self.runs(&workspace, context).map_err(Halt::NotPermitted)?;
        let report = match runs.client.run(&id).await {
            Ok(report) => report,
            Err(error) if error.is_not_found() => return Ok(Outcome::Superseded),
            Err(error) => return Err(error.into()),
        };
        let attributes = &report.run.attributes;
        match attributes.phase() {
            Phase::Waiting if attributes.actions.is_confirmable => {}
            // Whoever ended it, there is nothing to apply any more.
            phase if phase.is_final() || attributes.plan_only => {
                self.forget(&id);
                return Ok(Outcome::Superseded);
            }
            Phase::Waiting => return self.outcome(&report, &runs).await,
            _ => return self.wait_for(&report.run, &runs).await,
        }
        // The workspace as it is now comes with the run; the one in memory may be old.
        let by_itself = report.workspace.as_ref().unwrap_or(&workspace).attributes.auto_apply;
        if !by_itself {
            return self.outcome(&report, &runs).await;
        }
        self.confirm(&id, &runs).await?;
        self.wait_for(&report.run, &runs).await
    }

    /// Confirms a run.
    ///
    /// A confirmation that was lost is repeated as long as the run waits for it: whoever approved
    /// was answered that the plan is applied, and nobody else would ask again.
    async fn confirm(&self, id: &RunId, runs: &Runs<'_>) -> Step<()> {
        let mut waits = Backoff::default().with_initial(Duration::from_secs(1));
        for left in (0..CONFIRMATIONS).rev() {
            // Each attempt asks again, because leadership may have been lost while this waited.
            runs.context.permit.confirm().await.map_err(Halt::NotPermitted)?;
            let confirmed = runs.client.confirm_run(id, "approved in Consul-Terraform-Sync").await;
            let Err(error) = confirmed else { return Ok(()) };
            if !(error.is_conflict() || error.is_uncertain()) {
                return Err(error.into());
            }
            tracing::warn!(task.name = %self.task.name, run.id = %id, error = error_chain(&error), "cannot tell whether the run was confirmed, looking at it");
            // 409 also comes for a run that is confirmed already; only its status says which.
            let attributes = runs.client.run(id).await?.run.attributes;
            if attributes.phase() != Phase::Waiting || !attributes.actions.is_confirmable {
                return Ok(());
            }
            if left == 0 {
                return Err(error.into());
            }
            tokio::select! {
                () = sleep(waits.next_delay()) => {}
                reason = runs.context.stop.stopped() => return Err(Halt::Stopped(reason)),
            }
        }
        Ok(())
    }

    async fn wait_for(&self, run: &crate::types::Run, runs: &Runs<'_>) -> Step<Outcome> {
        let report = runs.wait(&run.id, &RunStatus::Confirmed, Until::Settled).await?;
        self.outcome(&report, runs).await
    }

    async fn planned(
        &self,
        inputs: &TaskInputs,
        purpose: PlanPurpose,
        context: &RunContext,
    ) -> Step<Plan> {
        let kind = match purpose {
            PlanPurpose::Apply => Kind::Plan,
            PlanPurpose::Drift => Kind::Drift,
            _ => Kind::Inspect,
        };
        // A plan for approval that waits already is shown again, so that its id stays the same for
        // who approves it.
        if kind == Kind::Plan
            && let Some(plan) = self.held(inputs, context).await?
        {
            return Ok(plan);
        }
        let (workspace, run) = self.queue(inputs, kind, context).await?;
        let runs = self.runs(&workspace, context).map_err(Halt::NotPermitted)?;
        let report = runs.wait(&run.id, &run.attributes.status, Until::Settled).await?;
        let checks = runs.checks(&report).await;
        if report.run.attributes.phase() == Phase::Failed {
            self.forget(&run.id);
            return Err(runs.failure(&report, &checks).await.into());
        }
        if let Some(behind) = runs.behind.get() {
            // There is no plan to be shown or approved; it is asked for again later.
            runs.end(&run.id, SUPERSEDED).await?;
            self.forget(&run.id);
            return Err(runs.waits_behind(&run.id, behind).into());
        }
        if report.run.attributes.phase() == Phase::SoftFailed {
            tracing::warn!(task.name = %self.task.name, run.id = %run.id, run.url = runs.url(&run.id), "a policy failed that can be overridden");
        }
        let mut plan = runs.plan(&report).await?;
        // The plan in JSON needs the right to read it, which a token may lack; then the counts of
        // the run have to do.
        if let Some(id) = report.plan.as_ref().map(|plan| &plan.id)
            && let Some(json) = runs.client.plan_json(id).await?
        {
            let list = if kind == Kind::Drift { List::Drift } else { List::Planned };
            let listed = plan_json::changes(&json, list);
            // Where the lists are empty, the counts may still include outputs.
            if !listed.is_empty() || kind == Kind::Drift {
                plan.changes = listed;
            }
            if list == List::Planned {
                // The platform masks what Terraform marks; of the values that it was given this
                // process knows some more.
                let resources = cts_driver_terraform::planned_resources(&json);
                plan.resources = Some(resources.hiding(|text| self.mask.hide(text)));
            }
        }
        // Such a run is over with its plan. The id is a digest, so that equal plans have equal ids.
        if kind != Kind::Plan {
            plan.id = self.digested(inputs, &plan, context).await?;
            plan.portable = false;
            return Ok(plan);
        }
        if report.run.attributes.phase().is_final() {
            self.forget(&run.id);
        } else {
            let digest = self.digest(inputs, context).await?;
            self.known_runs().held = Some((digest, plan.clone()));
        }
        Ok(plan)
    }

    /// Returns the plan that waits and was made from the same inputs, if it waits still.
    async fn held(&self, inputs: &TaskInputs, context: &RunContext) -> Step<Option<Plan>> {
        let Some((digest, plan)) = self.known_runs().held.clone() else { return Ok(None) };
        if digest != self.digest(inputs, context).await? || !self.waits(&plan.id).await? {
            return Ok(None);
        }
        Ok(Some(plan))
    }

    /// Returns `true` if the run of a plan waits for confirmation.
    async fn waits(&self, plan: &PlanId) -> Step<bool> {
        let Some(id) = run_of(plan) else { return Ok(false) };
        let client = self.connection.client().map_err(Halt::NotPermitted)?;
        match client.run(&id).await {
            Ok(report) => Ok(report.run.attributes.phase() == Phase::Waiting),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn discard_plan(&self, plan: &PlanId, context: &RunContext) -> Step<()> {
        let Some(id) = run_of(plan) else { return Ok(()) };
        // A run that is not the open one has ended by now. Before leftovers were looked for nothing
        // is known, and the id may be from an earlier process.
        let known = {
            let known_runs = self.known_runs();
            !known_runs.looked || known_runs.open.as_ref() == Some(&id)
        };
        // Forgotten before the call, so that a plan whose discard failed is not offered again.
        self.forget(&id);
        if !known {
            return Ok(());
        }
        context.permit.check().map_err(Halt::NotPermitted)?;
        let workspace = self.workspace(context).await?;
        let runs = self.runs(&workspace, context).map_err(Halt::NotPermitted)?;
        runs.discard(&id, SUPERSEDED).await?;
        Ok(())
    }

    async fn follow_run(&self, ticket: &str, context: &RunContext) -> Step<Outcome> {
        let id: RunId = ticket.parse().map_err(|error: crate::types::InvalidId| Error::Input {
            operation: "follow run",
            problem: error.to_string(),
        })?;
        let workspace = self.workspace(context).await?;
        let runs = self.runs(&workspace, context).map_err(Halt::NotPermitted)?;
        let report = runs.wait(&id, &RunStatus::Planned, Until::Ended).await?;
        self.outcome(&report, &runs).await
    }
}

/// Returns the run that is a plan; a plan that was only shown has none.
fn run_of(plan: &PlanId) -> Option<RunId> {
    plan.as_str().starts_with("run-").then(|| plan.as_str().parse().ok())?
}

fn not_ready() -> Halt {
    Halt::Failed(Error::Input {
        operation: "run task",
        problem: "the workspace is not ready".to_owned(),
    })
}

#[async_trait]
impl Driver for TfcDriver {
    async fn prepare(&self, context: &RunContext) -> TaskResult<()> {
        // Forgotten first, so that everything is looked at again.
        *self.ready.lock().await = None;
        drop(self.ready(context).await?);
        Ok(())
    }

    async fn plan(
        &self,
        inputs: &TaskInputs,
        purpose: PlanPurpose,
        context: &RunContext,
    ) -> TaskResult<Plan> {
        Ok(self.planned(inputs, purpose, context).await?)
    }

    async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> TaskResult<Outcome> {
        Ok(match request {
            ApplyRequest::Inputs(inputs) => self.apply_inputs(inputs, context).await?,
            ApplyRequest::Plan(id) => self.apply_plan(id, context).await?,
        })
    }

    async fn discard(&self, plan: &PlanId, context: &RunContext) -> TaskResult<()> {
        Ok(self.discard_plan(plan, context).await?)
    }

    async fn changed(&self) {
        self.connection.settings.values_changed(&self.task, &*self.values).await;
    }

    async fn holds(&self, plan: &PlanId, _context: &RunContext) -> TaskResult<bool> {
        Ok(self.waits(plan).await?)
    }

    async fn follow(&self, ticket: &str, context: &RunContext) -> TaskResult<Outcome> {
        Ok(self.follow_run(ticket, context).await?)
    }

    async fn destroy(&self, context: &RunContext) -> TaskResult<Outcome> {
        Ok(self.destroy_all(context).await?)
    }
}
