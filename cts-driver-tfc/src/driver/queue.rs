//! Queues the runs of a task, and discards those of its older runs that would apply what is no
//! longer wanted.

use cts_tasks::{Outcome, RunContext, TaskInputs};

use super::{Ready, TfcDriver, kind::Kind, not_ready};
use crate::{
    Result,
    halt::{Halt, Step},
    module::Module,
    runs::{Runs, SUPERSEDED, Until},
    types::{NewConfigurationVersion, NewRun, Phase, Run, RunAttributes, RunId, Workspace},
};

impl TfcDriver {
    /// Queues a run.
    ///
    /// A workspace that is found to be gone is looked for, or made again, once.
    pub(super) async fn queue(
        &self,
        inputs: &TaskInputs,
        kind: Kind,
        context: &RunContext,
    ) -> Step<(Workspace, Run)> {
        let mut again = false;
        loop {
            let mut ready = self.ready(context).await?;
            let known = ready.as_mut().ok_or_else(not_ready)?;
            match self.queue_once(known, inputs, kind, context).await {
                Ok(run) => return Ok((known.workspace.clone(), run)),
                Err(Halt::Failed(error))
                    // 404 for a workspace that was deleted, 422 for an upload that can no longer be
                    // used.
                    if !again && (error.is_not_found() || error.is_refused()) =>
                {
                    again = true;
                    tracing::warn!(task.name = %self.task.name, error = consul_watch::error_chain(&error), "the workspace is not what it was, looking at it again");
                    self.connection.note_upload(&known.workspace.id, None);
                    *ready = None;
                }
                Err(halt) => return Err(halt),
            }
        }
    }

    async fn queue_once(
        &self,
        ready: &mut Ready,
        inputs: &TaskInputs,
        kind: Kind,
        context: &RunContext,
    ) -> Step<Run> {
        // Before anything is written; checked again below, because preparing can take minutes.
        context.permit.check().map_err(Halt::NotPermitted)?;
        let prepared = tokio::select! {
            prepared = self.prepare_run(ready, inputs, kind, context) => prepared?,
            reason = context.stop.stopped() => return Err(Halt::Stopped(reason)),
        };
        let (module, new) = prepared;
        if !kind.is_speculative() {
            context.permit.check().map_err(Halt::NotPermitted)?;
            tokio::select! {
                // After the upload, so that the older run keeps its chance if preparing fails.
                discarded = self.discard_stale(&ready.workspace, context) => discarded?,
                reason = context.stop.stopped() => return Err(Halt::Stopped(reason)),
            }
        }
        let workspace = ready.workspace.clone();
        let runs = self.runs(&workspace, context).map_err(Halt::NotPermitted)?;
        // A release that knows variables of runs repeats them in its answer.
        let wanted = new.variables.len();
        let created = self.create(&runs, new, kind).await;
        if wanted > 0
            && let Err(Halt::Failed(error)) = &created
            && error.is_refused()
        {
            tracing::warn!(task.name = %self.task.name, error = consul_watch::error_chain(error), "the run was refused with variables of its own");
            return self.run_with_file(&module, inputs, kind, &runs).await;
        }
        let run = created?;
        if !kind.is_speculative() {
            // Before anything can stop this: a run that is not known here is ended by nobody.
            let mut known_runs = self.known_runs();
            known_runs.open = Some(run.id.clone());
            known_runs.looked = true;
        }
        if run.attributes.variables.len() >= wanted {
            return Ok(run);
        }
        self.run_with_file(&module, inputs, kind, &runs).await
    }

    /// Queues a run, and notes it if nobody can tell whether it was made.
    async fn create(&self, runs: &Runs<'_>, new: NewRun, kind: Kind) -> Step<Run> {
        let created = runs.create(new, kind.name()).await;
        let doubtful = match &created {
            Ok(_) | Err(Halt::NotPermitted(_)) => false,
            Err(Halt::Failed(error)) => error.is_uncertain(),
            // Stopped while the request was under way: the platform may have taken it.
            Err(Halt::Stopped(_)) => true,
        };
        if doubtful && !kind.is_speculative() {
            self.known_runs().doubt = true;
        }
        created
    }

    /// Sets variables and builds the run that is to be made.
    async fn prepare_run(
        &self,
        ready: &mut Ready,
        inputs: &TaskInputs,
        kind: Kind,
        context: &RunContext,
    ) -> Step<(Module, NewRun)> {
        let client = self.connection.client_for(context).map_err(Halt::NotPermitted)?;
        let module = self.module().await?;
        let mut new = NewRun::new(ready.workspace.id.clone());
        new.configuration_version = Some(self.upload(&module, &ready.workspace.id, &client).await?);
        if kind.is_speculative() {
            new.plan_only = Some(true);
            // Of the run, not of the workspace: the next run that applies must not find them there.
            new.variables = module.run_variables(inputs)?;
            new.refresh_only = (kind == Kind::Drift).then_some(true);
        } else {
            let wanted: Vec<_> =
                // Again with the settings: dynamic values may have changed since the workspace was
                // made ready.
                module.settings().into_iter().chain(module.inputs(inputs)?).collect();
            self.set_variables(&wanted, ready, &client).await?;
            // Otherwise the workspace decides, so that manual apply holds.
            new.auto_apply = (kind == Kind::Plan).then_some(false);
        }
        Ok((module, new))
    }

    /// Queues a run with the variables in its files, for old releases, which ignore those of a run.
    async fn run_with_file(
        &self,
        module: &Module,
        inputs: &TaskInputs,
        kind: Kind,
        runs: &Runs<'_>,
    ) -> Step<Run> {
        tracing::warn!(task.name = %self.task.name, "this release of the platform takes no variables for one run, uploading them");
        let archive = module.pack_with(inputs).await?;
        // Speculative, so that no run that applies can use these files.
        let options = NewConfigurationVersion { speculative: true, ..Default::default() };
        let mut new = NewRun::new(runs.workspace.clone());
        let version = self.send(archive, runs.workspace, options, &runs.client).await?;
        new.configuration_version = Some(version);
        new.plan_only = Some(true);
        new.refresh_only = (kind == Kind::Drift).then_some(true);
        runs.create(new, kind.name()).await
    }

    /// Discards the run of this task that waits, because there is something newer.
    async fn discard_stale(&self, workspace: &Workspace, context: &RunContext) -> Step<()> {
        let (open, looked, doubt) = {
            let known_runs = self.known_runs();
            (known_runs.open.clone(), known_runs.looked, known_runs.doubt)
        };
        let runs = self.runs(workspace, context).map_err(Halt::NotPermitted)?;
        if doubt {
            // A run whose creation was lost would be applied beside the next one.
            let ended = runs.end_leftovers().await?;
            let mut known_runs = self.known_runs();
            known_runs.superseded.extend(ended);
            known_runs.doubt = false;
        }
        if !self.connection.settings.run.discard_stale {
            return Ok(());
        }
        if let Some(open) = open {
            // Noted before it is discarded, so that whoever follows it learns why.
            self.known_runs().superseded.insert(open.clone());
            let discarded = runs.discard(&open, SUPERSEDED).await;
            // `false`: it had gone further, and is somebody's outcome of its own.
            if !matches!(discarded, Ok(true)) {
                self.known_runs().superseded.remove(&open);
            }
            discarded?;
            self.forget(&open);
        // Once per process: later runs are known by their ids.
        } else if !looked && self.may_have_leftovers(workspace, &runs).await? {
            let discarded = runs.discard_leftovers().await?;
            self.known_runs().superseded.extend(discarded);
        }
        self.known_runs().looked = true;
        Ok(())
    }

    /// Returns `true` if an earlier process may have left runs.
    ///
    /// The platform allows 30 lists of runs a minute, so the current run answers where it can.
    async fn may_have_leftovers(&self, workspace: &Workspace, runs: &Runs<'_>) -> Result<bool> {
        // A lock may be held by a run that is not the current one.
        if workspace.attributes.locked {
            return Ok(true);
        }
        let current: Option<RunId> = workspace.relationships.one::<RunAttributes>("current-run");
        let Some(current) = current else { return Ok(false) };
        match runs.client.run(&current).await {
            Ok(report) => Ok(!report.run.attributes.phase().is_final()),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Destroys what the workspace manages, and the workspace itself if that is configured.
    pub(super) async fn destroy_all(&self, context: &RunContext) -> Step<Outcome> {
        let outcome = self.destroy_resources(context).await?;
        let delete = self.connection.settings.delete_workspace;
        // A run that waits for a person still needs its workspace.
        if delete && matches!(outcome, Outcome::Applied(_) | Outcome::Unchanged) {
            context.permit.check().map_err(Halt::NotPermitted)?;
            let workspace = self.workspace(context).await?;
            let client = self.connection.client_for(context).map_err(Halt::NotPermitted)?;
            // Safe: the platform refuses if something is managed still, whatever was found before.
            match client.safe_delete_workspace(&workspace.id).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                Ok(()) | Err(_) => *self.ready.lock().await = None,
            }
        }
        Ok(outcome)
    }

    async fn destroy_resources(&self, context: &RunContext) -> Step<Outcome> {
        let client = self.connection.client_for(context).map_err(Halt::NotPermitted)?;
        let mut ready = self.ready(context).await?;
        let known = ready.as_mut().ok_or_else(not_ready)?;
        let workspace = client.workspace(&known.workspace.id).await?;
        // `None` comes from a release that counts nothing; then a run has to find out.
        if workspace.attributes.resource_count == Some(0) {
            return Ok(Outcome::Unchanged);
        }
        context.permit.check().map_err(Halt::NotPermitted)?;
        let module = self.module().await?;
        // Required variables without a value would fail the run. Those that are set stay, since
        // providers may need them.
        let missing = module.inputs(&TaskInputs::default())?.into_iter().filter(|input| {
            known.variables.iter().all(|variable| variable.attributes.key != input.key)
        });
        self.set_variables(&missing.collect::<Vec<_>>(), known, &client).await?;
        self.discard_stale(&workspace, context).await?;
        let mut new = NewRun::new(workspace.id.clone());
        new.configuration_version = Some(self.upload(&module, &workspace.id, &client).await?);
        new.is_destroy = Some(true);
        // The run can take hours, and other calls need the workspace meanwhile.
        drop(ready);
        let runs = self.runs(&workspace, context).map_err(Halt::NotPermitted)?;
        let run = self.create(&runs, new, Kind::Destroy).await?;
        // So that a stop or a newer run finds it.
        self.known_runs().open = Some(run.id.clone());
        let report = runs.wait(&run.id, &run.attributes.status, Until::Settled).await?;
        if report.run.attributes.phase() == Phase::Waiting {
            tracing::info!(task.name = %self.task.name, "a person has to confirm that everything is destroyed");
        }
        self.outcome(&report, &runs).await
    }
}
