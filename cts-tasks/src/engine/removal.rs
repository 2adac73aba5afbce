//! The end of a task that somebody deletes.

use consul_watch::error_chain;

use super::{guarded::discard, run::Run};
use crate::{Change, Changes, Error, Outcome, Result, RunContext, Stop, WorkStep};

/// The steps before a deleted task is forgotten.
pub(super) struct Removal {
    pub(super) run: Run,
    /// `true` if the task's infrastructure is destroyed, too.
    pub(super) destroy: bool,
}

impl Removal {
    /// Discards the plan that waits, and destroys what is to be destroyed.
    ///
    /// The task is disabled before the first resource goes, so that whatever
    /// happens then, nothing creates it again.
    ///
    /// # Errors
    ///
    /// The driver's, which is an event by then; the task has to stay, so that
    /// what is left of its infrastructure is not forgotten. Also a stop.
    pub(super) async fn finish(mut self, stop: &Stop) -> Result<()> {
        if let Some(plan) = self.run.waiting_plan() {
            discard(&self.run, &plan.id, &self.run.context(stop)).await;
        }
        if !self.destroy {
            return Ok(());
        }
        let name = self.run.task.name.clone();
        self.run.task.enabled = false;
        let mut batch = vec![Change::PutTask(Box::new(self.run.task.clone()))];
        if self.run.waiting_plan().is_some() {
            batch.push(Change::DeletePlan(name.clone()));
        }
        self.run.shared.cached_store.commit(&batch, stop).await?;
        tracing::info!(task.name = %name, "destroying the infrastructure of the task");
        let start_time = chrono::Local::now();
        let (run, ended) = (&self.run, stop.clone());
        let work = move |context: RunContext| async move {
            run.retrying(&context, &ended, || destroy(run, &context)).await
        };
        let error = match run.shared.with_grace(&run.task, stop, work).await {
            Ok(Changes { destroy, .. }) => {
                tracing::info!(task.name = %name, destroy, "the infrastructure is destroyed");
                return Ok(());
            }
            Err(error @ (Error::Stopped { .. } | Error::NotPermitted { .. })) => return Err(error),
            Err(error) => error,
        };
        tracing::error!(
            task.name = %name,
            error = error_chain(&error),
            "error destroying; the task stays, disabled, to be deleted again"
        );
        let event = run.failure(start_time, format!("error destroying: {}", error_chain(&error)));
        let batch = [Change::DeleteDeletion(name), Change::AddEvent(Box::new(event))];
        run.shared.cached_store.commit(&batch, stop).await?;
        Err(error)
    }
}

async fn destroy(run: &Run, context: &RunContext) -> Result<Changes> {
    let _turn = run.turn(&context.stop).await?;
    let _working = run.shared.work.begin(&run.task.name, WorkStep::Destroy);
    let destroy = |context: RunContext| async move { run.driver.destroy(&context).await };
    let begun = run.shared.within_timeout(&run.task, context, destroy).await?;
    match run.follow_to_end(begun, context).await? {
        Outcome::Applied(changes) => Ok(changes),
        Outcome::Unchanged => Ok(Changes::default()),
        Outcome::Superseded | Outcome::Waiting { .. } => Err(Error::Driver {
            message: "nothing was destroyed: that was refused, or is no longer the right plan"
                .to_owned(),
            retryable: true,
            source: None,
        }),
    }
}
