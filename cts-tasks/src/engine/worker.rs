use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use consul_watch::{
    error_chain,
    watch::{Buffer, BufferTimer, WatchError},
};
use futures::future::{BoxFuture, FutureExt, OptionFuture};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    command::{Command, Orders, Reply, answer},
    feeds::{Feeds, FirstFailure},
    guarded::discard,
    run::Run,
    schedule::Schedule,
    update::Update,
    view::View,
    want::{Feed, Want},
};
use crate::{
    Driver, DriverFactory, Error, Inspection, Plan, PlanId, PlanPurpose, Result, Retry, RunContext,
    Stop, Task, TaskName,
};

/// Owns one task: its watches, its driver, and when it runs.
pub(crate) struct Worker {
    task: Task,
    driver: Arc<dyn Driver>,
    view: Arc<Mutex<View>>,
    feeds: Feeds,
    shared: Arc<Shared>,
    /// Given when the task is deleted.
    retired: CancellationToken,
}

/// What a worker's work came to, and who waits for it.
enum Done {
    Ran(Result<()>),
    RanByHand(Result<()>, Reply<()>),
    Updated(bool, Result<()>, Reply<()>),
    Inspected(Result<Inspection>, Reply<Inspection>),
}

/// What makes a task run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Change,
    Schedule,
}

/// How long a task may take until everything it needs was read once.
///
/// Source: Consul-Terraform-Sync 0.9, task creation.
const FIRST_DATA: Duration = Duration::from_mins(1);

impl Worker {
    /// Makes everything ready for a first run: everything that the task needs
    /// was read from Consul once, and its driver is prepared.
    ///
    /// # Errors
    ///
    /// The first answer of Consul that is an error, the driver's error, or a
    /// stop.
    pub(crate) async fn prepare(
        task: Task,
        factory: &dyn DriverFactory,
        shared: Arc<Shared>,
        stop: &Stop,
    ) -> Result<Self> {
        let view = View::new(&task).map_err(|error| Error::Other {
            operation: "compiling a regular expression",
            retryable: false,
            source: error.into(),
        })?;
        let driver = factory.driver(&task)?;
        let feeds = Feeds::new(shared.watcher.clone(), Arc::clone(&shared.health));
        let view = Arc::new(Mutex::new(view));
        let retired = CancellationToken::new();
        let mut worker = Self { task, driver, view, feeds, shared, retired };
        tokio::select! {
            read = timeout(FIRST_DATA, worker.read_everything()) => match read {
                Ok(read) => read?,
                Err(_) => return Err(worker.no_data()),
            },
            reason = stop.stopped() => return Err(Error::Stopped { reason }),
        }
        worker.driver.prepare(&worker.context(stop)).await?;
        Ok(worker)
    }

    /// Reads until everything that is wanted was answered; an error ends it.
    async fn read_everything(&mut self) -> Result<()> {
        let wants = self.view().wants();
        self.feeds.set(&wants);
        while !self.view().is_complete() {
            let (want, answer) = self.feeds.next().await;
            let feed = answer.map_err(|source| Error::Consul {
                what: want.to_string(),
                retryable: !source.is_fatal(),
                source: FirstFailure(source).into(),
            })?;
            self.take(&want, &feed);
        }
        Ok(())
    }

    fn no_data(&self) -> Error {
        let missing = self.view().missing().iter().map(Want::to_string).collect::<Vec<_>>();
        Error::Other {
            operation: "error initializing task",
            retryable: true,
            source: format!(
                "no answer from Consul within {} s to: {}",
                FIRST_DATA.as_secs(),
                missing.join(", ")
            )
            .into(),
        }
    }

    /// Runs the task for the first time, without a second try.
    ///
    /// # Errors
    ///
    /// What the run failed with; its event is stored.
    pub(crate) async fn first_run(&mut self, stop: &Stop) -> Result<()> {
        if !self.task.enabled {
            tracing::debug!(task.name = %self.task.name, "task is disabled, it is not run");
            return Ok(());
        }
        tracing::info!(task.name = %self.task.name, "executing task");
        self.run(Retry::NEVER, false).finish(stop).await
    }

    /// What a run would change now.
    ///
    /// # Errors
    ///
    /// The driver's error, or a stop.
    pub(crate) async fn inspect(&mut self, stop: &Stop) -> Result<Option<Plan>> {
        if !self.task.enabled {
            return Ok(None);
        }
        let inputs = self.view().inputs().unwrap_or_default();
        self.driver.plan(&inputs, PlanPurpose::Inspect, &self.context(stop)).await.map(Some)
    }

    pub(crate) fn name(&self) -> &TaskName {
        &self.task.name
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.task.enabled
    }

    /// Runs the task whenever its condition says so, and does what it is told,
    /// until the stop or until the task is deleted. What runs then may end.
    ///
    /// Changes that come in during a run lead to exactly one more.
    ///
    /// # Errors
    ///
    /// Only what no later run can cure: a store that refuses this process, or a
    /// permit that is gone.
    pub(crate) async fn watch(mut self, mut orders: Orders, stop: Stop) -> Result<()> {
        self.retired = orders.retired.clone();
        let started = Instant::now();
        let mut buffer = BufferTimer::new(Buffer::from(self.task.buffer_period));
        let mut schedule = Schedule::of(&self.task, Arc::clone(&self.shared.options.clock));
        let mut due = None;
        let mut running: OptionFuture<BoxFuture<'static, Done>> = None.into();
        let mut busy = false;
        loop {
            if !busy && self.retired.is_cancelled() {
                return self.leave(&stop).await;
            }
            if !busy && stop.reason().is_some() {
                return Ok(());
            }
            if let Some(trigger) = due.take_if(|_| !busy)
                && self.is_worth_running(trigger)
            {
                // Everything that came in so far is part of this run.
                buffer.reset();
                running = Some(self.start_run(trigger, stop.clone())).into();
                busy = true;
            }
            let rest = buffer.fires_at().map(|at| at.saturating_sub(started.elapsed()));
            tokio::select! {
                biased;
                Some(done) = &mut running, if busy => {
                    busy = false;
                    self.settle(done)?;
                }
                _ = stop.stopped(), if !busy => {}
                () = orders.retired.cancelled(), if !busy => {}
                Some(command) = orders.commands.recv() => {
                    // What is buffered stays: it runs later unless this applies it.
                    if let Some(work) = self.obey(command, busy, &stop) {
                        running = Some(work).into();
                        busy = true;
                    }
                }
                () = sleep(rest.unwrap_or_default()), if rest.is_some() => {
                    buffer.reset();
                    due = Some(Trigger::Change);
                }
                () = schedule.next() => {
                    if busy {
                        let name = &self.task.name;
                        tracing::warn!("task '{name}' is active and cannot be run at this time");
                    } else {
                        due = Some(Trigger::Schedule);
                    }
                }
                (want, answer) = self.feeds.next() => match answer {
                    Ok(feed) => {
                        if self.take(&want, &feed) {
                            buffer.change(started.elapsed());
                        }
                    }
                    Err(error) => self.warn(&want, &error),
                },
            }
        }
    }

    /// Leaves nothing behind that only a task could use which is being deleted.
    async fn leave(self, stop: &Stop) -> Result<()> {
        if let Some(plan) = self.waiting_plan() {
            discard(&self.run(Retry::NEVER, false), &plan, &self.context(stop)).await;
        }
        Ok(())
    }

    /// Begins what a command asks for, unless something runs.
    fn obey(&self, command: Command, busy: bool, stop: &Stop) -> Option<BoxFuture<'static, Done>> {
        let name = &self.task.name;
        if busy {
            command.refuse(Error::TaskActive { task: name.clone() });
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
                let inputs = self.view().inputs().unwrap_or_default();
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
                let (run, stop) = (self.run(Retry::NEVER, false), stop.clone());
                Some(async move { Done::RanByHand(run.finish(&stop).await, reply) }.boxed())
            }
        }
    }

    fn waiting_plan(&self) -> Option<PlanId> {
        self.shared
            .ledger
            .read(|state| state.plans.get(&self.task.name).map(|plan| plan.id.clone()))
    }

    fn waits(&self, plan: &PlanId) -> bool {
        self.waiting_plan().as_ref() == Some(plan)
    }

    /// A disabled task does not run, and nor does one that would only do again
    /// what it has done.
    fn is_worth_running(&self, trigger: Trigger) -> bool {
        let task = &self.task.name;
        match trigger {
            Trigger::Schedule if !self.task.enabled => {
                tracing::info!(task.name = %task, "skipping disabled scheduled task");
                false
            }
            Trigger::Schedule => true,
            Trigger::Change if self.task.enabled && self.view().is_dirty() => true,
            Trigger::Change => {
                tracing::trace!(task.name = %task, "nothing to run");
                false
            }
        }
    }

    fn start_run(&self, trigger: Trigger, stop: Stop) -> BoxFuture<'static, Done> {
        tracing::info!(task.name = %self.task.name, "executing task");
        let run = self.run(self.shared.options.retry, trigger == Trigger::Schedule);
        async move { Done::Ran(run.finish(&stop).await) }.boxed()
    }

    /// Takes an answer; returns whether it triggers.
    fn take(&mut self, want: &Want, feed: &Feed) -> bool {
        let update = self.view().update(want, feed);
        if update.wants_changed {
            let wants = self.view().wants();
            self.feeds.set(&wants);
        }
        update.triggers
    }

    /// Takes notice of what came of the work, and answers who asked for it.
    /// Only what concerns the whole engine goes on.
    fn settle(&mut self, done: Done) -> Result<()> {
        let (result, reply) = match done {
            Done::Ran(result) => return self.settle_run(result),
            Done::Inspected(inspection, reply) => {
                answer(reply, inspection);
                return Ok(());
            }
            Done::RanByHand(result, reply) => (result, reply),
            Done::Updated(enabled, result, reply) => {
                if result.is_ok() {
                    self.task.enabled = enabled;
                }
                (result, reply)
            }
        };
        let ends_all = result.as_ref().err().and_then(Error::concerning_all);
        answer(reply, result);
        ends_all.map_or(Ok(()), Err)
    }

    /// A failed run is in its event.
    fn settle_run(&self, result: Result<()>) -> Result<()> {
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

    /// The watch itself tells of failures that it goes on after, once for all tasks.
    fn warn(&self, want: &Want, error: &WatchError) {
        if error.is_fatal() {
            tracing::warn!(
                task.name = %self.task.name,
                query = %want,
                error = error_chain(error.cause()),
                "Consul refuses a read, asking again in a minute"
            );
        }
    }

    pub(crate) fn run(&self, retry: Retry, only_if_dirty: bool) -> Run {
        Run {
            task: self.task.clone(),
            driver: Arc::clone(&self.driver),
            view: Arc::clone(&self.view),
            shared: Arc::clone(&self.shared),
            retry,
            only_if_dirty,
            also_commit: None,
            record_failure: true,
            retired: self.retired.clone(),
            approved: None,
        }
    }

    fn context(&self, stop: &Stop) -> RunContext {
        RunContext::new(stop.clone()).with_permit(Arc::clone(&self.shared.options.permit))
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
