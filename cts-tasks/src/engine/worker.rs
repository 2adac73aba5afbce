//! Owns one task: what it reads of Consul, its driver, and when it runs.

mod changes;
mod orders;
mod readying;
mod replacement;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use consul_watch::{
    error_chain,
    watch::{Buffer, BufferTimer, WatchError},
};
use futures::future::{BoxFuture, FutureExt, OptionFuture};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    caught::{Unmade, driver_of},
    command::{Command, Orders},
    dependency::{Dependency, DependencyValue},
    dependency_streams::{Answer, DependencyStreams, FirstFailure},
    drift::check_drift,
    pending_approvals::{Following, PendingApprovals},
    removal::Removal,
    run::Run,
    schedule::Schedule,
    view::View,
};
use crate::{
    Driver, DriverFactory, Error, Plan, PlanPurpose, Result, Retry, RunContext, Stop, StopReason,
    Task, TaskInputs, TaskName, WorkStep, measure,
};
use orders::{Done, Settled};
use readying::{Readying, Setback};
use replacement::Replacement;

/// Owns one task: its watches, its driver, and when it runs.
pub(crate) struct Worker {
    task: Task,
    driver: Arc<dyn Driver>,
    view: Arc<Mutex<View>>,
    dependency_streams: DependencyStreams,
    shared: Arc<Shared>,
    pending_approvals: Arc<PendingApprovals>,
    /// Given when the task is deleted.
    retired: CancellationToken,
    /// Everything was read from Consul once, and the driver is prepared.
    ready: bool,
    setback: Option<Setback>,
}

/// The causes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Change,
    Schedule,
    /// A run failed, and may succeed now.
    Again,
}

/// The ways in which a worker's watch ends.
pub(crate) enum Left {
    /// The engine stops; the task stays in the store.
    Stopped,
    /// The task is deleted; the store still has it.
    Deleted,
    /// The task was to be deleted and could not be; it is watched on.
    Stays(Box<Worker>),
}

/// Work that is done as soon as nothing runs.
#[derive(Default)]
struct Due {
    replacement: Option<Replacement>,
    trigger: Option<Trigger>,
    drift_check: bool,
}

/// The timers after which a worker acts by itself.
struct Timers {
    started: Instant,
    buffer: BufferTimer,
    schedule: Schedule,
    drift_checks: Schedule,
}

impl Timers {
    fn of(worker: &Worker) -> Self {
        let clock = || Arc::clone(&worker.shared.options.clock);
        Self {
            started: Instant::now(),
            buffer: BufferTimer::new(Buffer::from(worker.task.buffer_period)),
            schedule: Schedule::of(&worker.task, clock()),
            drift_checks: Schedule::of_drift_checks(&worker.task, clock()),
        }
    }

    /// A change came in that triggers.
    fn change(&mut self) {
        self.buffer.change(self.started.elapsed());
    }

    /// Until the buffer period ends, if one has begun.
    fn rest(&self) -> Option<Duration> {
        self.buffer.fires_at().map(|at| at.saturating_sub(self.started.elapsed()))
    }
}

/// Longest time that Consul may take for the next first answer of those that a
/// task needs. Work of our own does not count, however many they are.
///
/// Source: Consul-Terraform-Sync 0.9, task creation.
///
/// Deviation: upstream grants a minute for everything together.
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
        let mut worker = Self::new(task, factory, shared)?;
        worker.make_ready(stop).await?;
        Ok(worker)
    }

    /// Makes a worker that has done nothing yet, neither outside nor in Consul.
    ///
    /// # Errors
    ///
    /// The factory's, or a regular expression that does not compile.
    pub(crate) fn new(
        task: Task,
        factory: &dyn DriverFactory,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let view = View::new(&task).map_err(|error| Error::Other {
            operation: "compiling a regular expression",
            retryable: false,
            source: error.into(),
        })?;
        let driver = driver_of(&task, factory)?;
        Ok(Self::with(task, view, driver, shared))
    }

    /// Makes a worker of a task whose driver cannot be made: it can be shown,
    /// replaced, disabled and deleted, and says why it does not run.
    pub(crate) fn unmade(task: Task, error: &Error, shared: Arc<Shared>) -> Self {
        Self::with(task, View::default(), Arc::new(Unmade::new(error)), shared)
    }

    fn with(task: Task, view: View, driver: Arc<dyn Driver>, shared: Arc<Shared>) -> Self {
        let dependency_streams =
            DependencyStreams::new(shared.watcher.clone(), Arc::clone(&shared.health));
        let view = Arc::new(Mutex::new(view));
        shared.views.put(&task.name, &view);
        Self {
            task,
            driver,
            view,
            dependency_streams,
            shared,
            pending_approvals: Arc::default(),
            retired: CancellationToken::new(),
            ready: false,
            setback: None,
        }
    }

    /// Reads everything from Consul once, and prepares the driver.
    ///
    /// # Errors
    ///
    /// As [`Worker::prepare`]; it may be called again.
    pub(crate) async fn make_ready(&mut self, stop: &Stop) -> Result<()> {
        tokio::select! {
            read = self.read_everything() => read?,
            reason = stop.stopped() => return Err(Error::Stopped { reason }),
        }
        let _working = self.shared.work.begin(&self.task.name, WorkStep::Prepare);
        let driver = &self.driver;
        let prepare = |context: RunContext| async move { driver.prepare(&context).await };
        self.shared.within_timeout(&self.task, &self.context(stop), prepare).await?;
        self.ready = true;
        Ok(())
    }

    /// Reads until everything that is wanted was answered; an error ends it.
    async fn read_everything(&mut self) -> Result<()> {
        self.follow_wants();
        let (mut missing, mut deadline) =
            (self.view().missing().len(), Instant::now() + FIRST_DATA);
        while !self.view().is_complete() {
            // An answer that is there counts, also past the deadline.
            let Ok((dependency, answer)) =
                timeout_at(deadline, self.dependency_streams.next()).await
            else {
                return Err(self.no_data());
            };
            let value = answer.map_err(|source| Error::Consul {
                what: dependency.to_string(),
                retryable: !source.is_fatal(),
                source: FirstFailure(source).into(),
            })?;
            self.take(&dependency, &value);
            let left = self.view().missing().len();
            // A key that changes all the time is no progress.
            if left != missing {
                (missing, deadline) = (left, Instant::now() + FIRST_DATA);
            }
        }
        Ok(())
    }

    fn no_data(&self) -> Error {
        const SHOWN: usize = 5;
        let view = self.view();
        let mut missing: Vec<_> =
            view.missing().iter().take(SHOWN).map(ToString::to_string).collect();
        if let Some(more) = view.missing().len().checked_sub(SHOWN).filter(|more| *more > 0) {
            missing.push(format!("{more} more"));
        }
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
        if self.shared.options.skip_unchanged_first_runs && self.is_as_applied() {
            tracing::info!(
                task.name = %self.task.name,
                "the inputs are those last applied, the task is not run"
            );
            return Ok(());
        }
        self.run(Retry::NEVER, false).finish(stop).await
    }

    /// Returns `true` if the last run succeeded with the present inputs. If so,
    /// they are taken, and call for no further run.
    fn is_as_applied(&self) -> bool {
        let mut view = self.view();
        let Some((_, digest)) = view.inputs() else { return false };
        let name = &self.task.name;
        let is = self.shared.cached_store.read(|state| {
            let newest = state.events.get(name).and_then(|events| events.first());
            let applied = state.applied.get(name).is_some_and(|applied| applied.digest == digest);
            applied && newest.is_some_and(|event| event.success)
        });
        if is {
            // Taken, so that nothing counts as new before Consul's next answer.
            drop(view.take_inputs());
            drop(view.mark_applied(&digest));
        }
        is
    }

    /// Plans a run with the present inputs, without applying it.
    ///
    /// # Errors
    ///
    /// The driver's error, or a stop.
    pub(crate) async fn inspect(&mut self, stop: &Stop) -> Result<Option<Plan>> {
        if !self.task.enabled {
            return Ok(None);
        }
        let inputs = self.inputs();
        self.driver.plan(&inputs, PlanPurpose::Inspect, &self.context(stop)).await.map(Some)
    }

    /// Returns the inputs of the module; nothing until everything was answered once.
    fn inputs(&self) -> TaskInputs {
        self.view().inputs().map(|(inputs, _)| inputs).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &TaskName {
        &self.task.name
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.task.enabled
    }

    /// Runs the task whenever its condition says so, and handles commands,
    /// until the stop or until the task is deleted. What runs then may end.
    ///
    /// Changes that come in during a run lead to exactly one more. An apply
    /// that waits for a person elsewhere is followed on the side: it keeps
    /// nothing from running.
    ///
    /// # Errors
    ///
    /// Only what no later run can cure: a store that refuses this process, or a
    /// permit that is gone.
    pub(crate) async fn watch(mut self, mut orders: Orders, stop: Stop) -> Result<Left> {
        self.retired = orders.retired.clone();
        let mut timers = Timers::of(&self);
        let mut due = Due::default();
        let mut running: OptionFuture<BoxFuture<'static, Done>> = None.into();
        let mut busy = false;
        let mut readying = Readying::default();
        let mut following = Following::new(&stop);
        let mut changes = self.driver_changes();
        self.follow_wants();
        loop {
            if !busy {
                // The run that has just ended may have left an apply that waits for a person.
                following.take_up(&self.pending_approvals, || self.run(self.retry(), false));
                if self.retired.is_cancelled() {
                    self.abandon(&mut following, StopReason::TaskDeleted).await?;
                    return self.leave(orders.spares(), &stop).await;
                }
                if let Some(reason) = stop.reason() {
                    self.abandon(&mut following, reason).await?;
                    return Ok(Left::Stopped);
                }
                let work = match readying.take_waiting() {
                    Some(command) => self.handle(command, false, &stop),
                    None if self.ready => self.begin(&mut due, &mut timers, &stop),
                    None => self.begin_readying(&mut due, &mut readying, &stop),
                };
                if let Some(work) = work {
                    running = Some(work).into();
                    busy = true;
                }
            }
            let (rest, settled, again) = self.pauses(&timers, &due, busy);
            tokio::select! {
                // In this order: the end of a run and orders come before answers of Consul, of which
                // there may always be another.
                biased;
                Some(done) = &mut running, if busy => {
                    busy = false;
                    if let Done::Readied(result) = done {
                        self.settle_readied(result, &mut due, &mut readying)?;
                        continue;
                    }
                    let settled = self.settle(done)?;
                    if settled != Settled::AsBefore {
                        self.abandon(&mut following, StopReason::TaskChanged).await?;
                    }
                    if settled == Settled::Replaced {
                        // Another configuration may call for a run though nothing in Consul has changed.
                        (timers, changes) = (Timers::of(&self), self.driver_changes());
                        due.trigger = Some(Trigger::Change);
                    }
                }
                Some(result) = following.next() => self.settle_run(result)?,
                // What runs has its own grace after the stop, and the loop waits for it: see
                // `Shared::with_grace`.
                _ = stop.stopped(), if !busy => {}
                () = orders.retired.cancelled(), if !busy || readying.is_undisturbed() => {
                    readying.interrupt(StopReason::TaskDeleted);
                }
                Some(command) = orders.commands.recv() => {
                    let work = self.take_command(command, busy, &mut due, &mut readying, &stop);
                    if let Some(work) = work {
                        running = Some(work).into();
                        busy = true;
                    }
                }
                () = sleep(rest.unwrap_or_default()), if rest.is_some() => {
                    timers.buffer.reset();
                    due.trigger = Some(Trigger::Change);
                }
                // What holds the run is looked at again at the top of the loop.
                () = sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() && !busy => {}
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {
                    self.try_again(&mut due);
                }
                () = &mut changes => self.driver_changed(&mut changes, &mut due),
                () = timers.schedule.next() => self.schedule_fires(busy, &mut due),
                () = timers.drift_checks.next() => due.drift_check = true,
                (dependency, answer) = self.dependency_streams.next() => {
                    self.take_answer(&dependency, answer, &mut due, &mut timers);
                }
            }
        }
    }

    /// Returns the rest of the buffer period, and until when instances and another try are
    /// waited for.
    fn pauses(
        &self,
        timers: &Timers,
        due: &Due,
        busy: bool,
    ) -> (Option<Duration>, Option<Instant>, Option<Instant>) {
        let rest = timers.rest();
        let settled = due.trigger.and_then(|_| self.view().holds(Instant::now()));
        let again = self.again_at().filter(|_| !busy && due.trigger.is_none());
        #[cfg(feature = "ui")]
        self.note_pauses(rest, again);
        (rest, settled, again)
    }

    /// Tells those who look until when it waits by itself.
    #[cfg(feature = "ui")]
    fn note_pauses(&self, rest: Option<Duration>, retry: Option<Instant>) {
        let buffer = rest.map(|rest| Instant::now() + rest);
        self.view().pauses = super::view::Pauses { buffer, retry };
    }

    /// Watches what is wanted and not watched yet.
    fn follow_wants(&mut self) {
        let dependencies = self.view().dependencies().clone();
        self.dependency_streams.set(&dependencies);
    }

    /// Takes a command; returns the work that it begins.
    fn take_command(
        &self,
        command: Command,
        busy: bool,
        due: &mut Due,
        readying: &mut Readying,
        stop: &Stop,
    ) -> Option<BoxFuture<'static, Done>> {
        match command {
            Command::Replace { task, factory, reply } => {
                due.replacement = Some(Replacement { task: *task, factory, reply });
                readying.interrupt(StopReason::TaskChanged);
                None
            }
            command if !self.ready && (!busy || readying.goes_on()) => {
                self.keep_waiting(command, readying);
                None
            }
            // What is buffered stays: it runs later unless this applies it.
            command => self.handle(command, busy, stop),
        }
    }

    fn schedule_fires(&self, busy: bool, due: &mut Due) {
        if busy {
            let name = &self.task.name;
            tracing::warn!("task '{name}' is active and cannot be run at this time");
        } else {
            due.trigger = Some(Trigger::Schedule);
        }
    }

    fn take_answer(
        &mut self,
        dependency: &Arc<Dependency>,
        answer: Answer,
        due: &mut Due,
        timers: &mut Timers,
    ) {
        let value = match answer {
            Ok(value) => value,
            Err(error) => return self.warn(dependency, &error),
        };
        let was_complete = self.view().is_complete();
        if self.take(dependency, &value) {
            timers.change();
        }
        // The next try to get ready could not begin without this answer: no need to wait for
        // its pause.
        if !self.ready && !was_complete && self.view().is_complete() {
            due.trigger = Some(Trigger::Change);
        }
    }

    /// Ends what waits for a person elsewhere; a task that goes on applies it again.
    async fn abandon(&mut self, following: &mut Following, reason: StopReason) -> Result<()> {
        for result in following.end(reason).await {
            self.settle_run(result)?;
        }
        Ok(())
    }

    /// Begins the first thing that is due, if there is one: the task as it is
    /// now, what triggered it, and only then a look at drift.
    fn begin(
        &self,
        due: &mut Due,
        timers: &mut Timers,
        stop: &Stop,
    ) -> Option<BoxFuture<'static, Done>> {
        // First, for a run with the old configuration would be in vain.
        if let Some(replacement) = due.replacement.take() {
            return Some(replacement.finish(self.run(Retry::NEVER, false), stop.clone()).boxed());
        }
        if self.view().holds(Instant::now()).is_none()
            && let Some(trigger) = due.trigger.take()
            && self.is_worth_running(trigger)
        {
            // Everything that came in so far is part of this run.
            timers.buffer.reset();
            return Some(self.start_run(trigger, stop.clone()));
        }
        if std::mem::take(&mut due.drift_check) && self.task.enabled {
            let (run, stop) = (self.run(Retry::NEVER, false), stop.clone());
            return Some(async move { Done::Ran(check_drift(run, &stop).await) }.boxed());
        }
        None
    }

    /// Does what a deletion asks for before the task can be forgotten.
    async fn leave(mut self, spare: bool, stop: &Stop) -> Result<Left> {
        // This is the work that the deletion waits for, so it does not end it.
        self.retired = CancellationToken::new();
        let run = self.run(self.retry(), false);
        let destroy = self.task.destroy_on_delete && !spare;
        match (Removal { run, destroy }).finish(stop).await {
            Ok(()) => Ok(Left::Deleted),
            Err(Error::Stopped { .. }) => Ok(Left::Stopped),
            Err(error) => {
                if let Some(error) = error.concerning_all() {
                    return Err(error);
                }
                // What is left of the infrastructure must not be built up again before somebody
                // deletes the task once more.
                self.task.enabled = false;
                Ok(Left::Stays(Box::new(self)))
            }
        }
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
            Trigger::Change | Trigger::Again if self.task.enabled && self.view().is_dirty() => true,
            Trigger::Change | Trigger::Again => {
                tracing::trace!(task.name = %task, "nothing to run");
                false
            }
        }
    }

    fn start_run(&self, trigger: Trigger, stop: Stop) -> BoxFuture<'static, Done> {
        let cause = match trigger {
            Trigger::Change => "change",
            Trigger::Schedule => "schedule",
            Trigger::Again => "retry",
        };
        measure::triggered(&self.task.name, cause);
        let mut run = self.run(self.retry(), trigger == Trigger::Schedule);
        if trigger == Trigger::Again {
            // The event of the run that failed stands until a run ends well.
            run.retry = Retry::NEVER;
            run.record_failure = false;
        }
        async move { Done::Ran(run.finish(&stop).await) }.boxed()
    }

    /// Takes an answer; returns whether it triggers.
    fn take(&mut self, dependency: &Arc<Dependency>, value: &DependencyValue) -> bool {
        // A guard that borrows `self` would lock `dependency_streams`, which change below.
        let view = Arc::clone(&self.view);
        let mut view = view.lock().unwrap_or_else(PoisonError::into_inner);
        let update = view.update(dependency, value, Instant::now());
        if update.dependencies_changed {
            self.dependency_streams.set(view.dependencies());
        }
        update.triggers
    }

    /// The watch itself tells of failures that it goes on after, once for all tasks.
    fn warn(&self, dependency: &Dependency, error: &WatchError) {
        if error.is_fatal() {
            tracing::warn!(
                task.name = %self.task.name,
                query = %dependency,
                error = error_chain(error.cause()),
                "Consul refuses a read, asking again in a minute"
            );
        }
    }

    /// The task's own retries, or the deployment's.
    fn retry(&self) -> Retry {
        self.task.retry.unwrap_or(self.shared.options.retry)
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
            pending_approvals: Arc::clone(&self.pending_approvals),
        }
    }

    fn context(&self, stop: &Stop) -> RunContext {
        self.shared.context(&self.task.name, stop)
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
