//! Orders to one task, and what comes of its work.

use std::sync::Arc;

use consul_watch::error_chain;
use futures::future::{BoxFuture, FutureExt};

use super::Worker;
use crate::{
    Error, Inspection, PlanId, PlanPurpose, Result, Retry, Stop,
    engine::{
        command::{Command, Reply, answer},
        update::Update,
    },
    measure,
};

/// The result of a worker's job, and who waits for it.
pub(super) enum Done {
    Readied(Result<()>),
    Ran(Result<()>),
    RanByHand(Result<()>, Reply<()>),
    Updated(bool, Result<()>, Reply<()>),
    Inspected(Result<Inspection>, Reply<Inspection>),
    Replaced(Result<Box<Worker>>, Reply<()>),
}

/// The state of a worker after a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    AsBefore,
    /// The task was disabled.
    Disabled,
    /// The task was replaced by another version.
    Replaced,
}

/// Commands, and what comes of the work.
impl Worker {
    /// Begins what a command asks for, unless something runs.
    pub(super) fn handle(
        &self,
        command: Command,
        busy: bool,
        stop: &Stop,
    ) -> Option<BoxFuture<'static, Done>> {
        let name = &self.task.name;
        if busy {
            command.refuse(Error::TaskActive { task: name.clone() });
            return None;
        }
        let enables = matches!(command, Command::SetEnabled { enabled: true, .. });
        if enables && !self.view().is_complete() {
            command.refuse(self.no_data());
            return None;
        }
        match command {
            Command::SetEnabled { enabled, first_run, reply } => {
                let update = Update {
                    run: self.run(Retry::NEVER, false),
                    context: self.context(stop),
                    enabled,
                    first_run,
                };
                let stop = stop.clone();
                Some(
                    async move { Done::Updated(enabled, update.finish(&stop).await, reply) }
                        .boxed(),
                )
            }
            Command::Inspect { enabled, reply } => {
                let (driver, context) = (Arc::clone(&self.driver), self.context(stop));
                let inputs = self.inputs();
                let name = name.clone();
                Some(Box::pin(async move {
                    let plan = if enabled {
                        driver.plan(&inputs, PlanPurpose::Inspect, &context).await.map(Some)
                    } else {
                        Ok(None)
                    };
                    Done::Inspected(plan.map(|plan| Inspection { task: name, plan }), reply)
                }))
            }
            // Taken before, because it waits its turn.
            Command::Replace { reply, .. } => {
                answer(reply, Err(Error::TaskActive { task: name.clone() }));
                None
            }
            Command::Run { reply } | Command::Approve { reply, .. } if !self.task.enabled => {
                answer(reply, Err(Error::TaskDisabled { task: name.clone() }));
                None
            }
            Command::Approve { plan, reply } | Command::Discard { plan, reply }
                if !self.waits(&plan) =>
            {
                let waiting = self.waiting_plan();
                answer(reply, Err(Error::NoSuchPlan { task: name.clone(), plan, waiting }));
                None
            }
            Command::Approve { plan, reply } => {
                tracing::info!(task.name = %name, plan.id = %plan, "the plan was approved");
                let (mut run, stop) = (self.run(Retry::NEVER, false), stop.clone());
                run.approved = Some(plan);
                Some(async move { Done::RanByHand(run.finish(&stop).await, reply) }.boxed())
            }
            Command::Discard { plan, reply } => {
                let (run, context, stop) =
                    (self.run(Retry::NEVER, false), self.context(stop), stop.clone());
                Some(async move { Done::RanByHand(run.discard(&plan, &context, &stop).await, reply) }.boxed())
            }
            Command::Run { reply } => {
                measure::triggered(name, "hand");
                let (run, stop) = (self.run(Retry::NEVER, false), stop.clone());
                Some(async move { Done::RanByHand(run.finish(&stop).await, reply) }.boxed())
            }
        }
    }

    fn waiting_plan(&self) -> Option<PlanId> {
        self.shared
            .cached_store
            .read(|state| state.plans.get(&self.task.name).map(|plan| plan.id.clone()))
    }

    fn waits(&self, plan: &PlanId) -> bool {
        self.waiting_plan().as_ref() == Some(plan)
    }

    /// Takes notice of what came of the work, and answers who asked for it.
    /// Only what concerns the whole engine goes on.
    pub(super) fn settle(&mut self, done: Done) -> Result<Settled> {
        let mut settled = Settled::AsBefore;
        let (result, reply) = match done {
            Done::Readied(result) | Done::Ran(result) => {
                self.note_failure(result.as_ref().err());
                return self.settle_run(result).map(|()| settled);
            }
            Done::Inspected(inspection, reply) => {
                answer(reply, inspection);
                return Ok(settled);
            }
            Done::Replaced(worker, reply) => {
                let result = worker.map(|worker| {
                    // A deletion that was ordered meanwhile reaches this worker by the token of the old one.
                    let retired = std::mem::take(&mut self.retired);
                    *self = Self { retired, ..*worker };
                    settled = Settled::Replaced;
                });
                (result, reply)
            }
            Done::RanByHand(result, reply) => (result, reply),
            Done::Updated(enabled, result, reply) => {
                if result.is_ok() {
                    // Enabling has prepared the driver.
                    self.ready |= enabled && !self.task.enabled;
                    self.task.enabled = enabled;
                    self.setback = None;
                    if !enabled {
                        settled = Settled::Disabled;
                    }
                }
                (result, reply)
            }
        };
        let ends_all = result.as_ref().err().and_then(Error::concerning_all);
        answer(reply, result);
        ends_all.map_or(Ok(settled), Err)
    }

    /// A failed run is in its event.
    pub(super) fn settle_run(&self, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => Ok(()),
            Err(error @ (Error::Fenced { .. } | Error::NotPermitted { .. })) => Err(error),
            Err(Error::Stopped { reason }) => {
                tracing::info!(task.name = %self.task.name, %reason, "task was stopped");
                Ok(())
            }
            Err(error) => {
                tracing::error!(task.name = %self.task.name, error = error_chain(&error), "error applying task");
                Ok(())
            }
        }
    }
}
