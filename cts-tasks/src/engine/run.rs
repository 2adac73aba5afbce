//! One run of a task with its tries, and the event that it becomes.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Local};
use consul_watch::error_chain;
use tokio::{sync::SemaphorePermit, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    Shared,
    pending_approvals::{PendingApprovals, Waits},
    under_way::WorkStep,
    view::View,
};
use crate::{
    ApplyRequest, Change, Changes, Driver, Error, Event, EventConfig, EventError, InputsDigest,
    Objection, Outcome, Plan, PlanId, Result, Retry, RunContext, Stop, StopReason, Task,
    TaskInputs, error::SUPERSEDED, measure,
};

/// A run of one task: apply with all retries, and the event that reports it.
pub(crate) struct Run {
    pub(crate) task: Task,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) view: Arc<Mutex<View>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) retry: Retry,
    /// A run with nothing new is an event, but no apply.
    pub(crate) only_if_dirty: bool,
    /// A change to commit together with the event of a run that succeeds.
    pub(crate) also_commit: Option<Change>,
    /// `true` if a run that fails is an event, too.
    pub(crate) record_failure: bool,
    /// Given when the task is deleted: what runs may end, nothing more begins.
    pub(crate) retired: CancellationToken,
    /// The plan that somebody approved; without it the newest inputs count.
    pub(crate) approved: Option<PlanId>,
    /// Applies that wait for a person outside this process.
    pub(crate) pending_approvals: Arc<PendingApprovals>,
}

/// The ways in which a run ends that did not fail.
#[derive(Debug)]
pub(super) enum End {
    /// Real infrastructure is in line with the inputs of this digest.
    Applied(Outcome, InputsDigest),
    /// Nothing came in since the last run.
    NothingNew,
    /// The guard objects to the plan.
    Waits(Box<Plan>),
    /// The plan that waited already is the right one still.
    StillWaits,
    /// The plan that was approved is not the right one any more.
    OutOfDate,
    /// A person has to act elsewhere; the number is the apply's.
    ApprovalPending { number: u64, ticket: String, inputs: InputsDigest },
    /// An apply that waited for a person elsewhere gave way to a newer one.
    Superseded,
}

impl Run {
    /// Returns the context of each call of the driver.
    pub(super) fn context(&self, stop: &Stop) -> RunContext {
        self.shared.context(&self.task.name, stop)
    }

    /// Notes that the task could not be made ready, as an event. The same
    /// failure once more is no further one, so a task that waits long for its
    /// cause to be mended keeps its other events.
    ///
    /// # Errors
    ///
    /// The store's, or a stop.
    pub(super) async fn note_setback(
        &self,
        start_time: DateTime<Local>,
        error: &Error,
        stop: &Stop,
    ) -> Result<()> {
        let message = error_chain(error);
        let known = self.shared.cached_store.read(|state| {
            let newest = state.events.get(&self.task.name).and_then(|events| events.first());
            let failure = newest.and_then(|event| event.error.as_ref());
            failure.is_some_and(|failure| failure.message == message)
        });
        if known {
            return Ok(());
        }
        let event = self.failure(start_time, message);
        self.shared.cached_store.commit(&[Change::AddEvent(Box::new(event))], stop).await
    }

    /// Runs to the end, with a grace after a stop.
    pub(crate) async fn finish(self, stop: &Stop) -> Result<()> {
        let (task, shared, ended) = (self.task.clone(), Arc::clone(&self.shared), stop.clone());
        shared.with_grace(&task, stop, |context| self.work(context, ended)).await
    }

    /// Waits until one more task may work.
    pub(super) async fn turn(&self, stop: &Stop) -> Result<Option<SemaphorePermit<'_>>> {
        let Some(turns) = &self.shared.turns else { return Ok(None) };
        tokio::select! {
            turn = turns.acquire() => Ok(turn.ok()),
            () = self.retired.cancelled() => {
                Err(Error::Stopped { reason: StopReason::TaskDeleted })
            }
            reason = stop.stopped() => Err(Error::Stopped { reason }),
        }
    }

    async fn work(self, context: RunContext, stop: Stop) -> Result<()> {
        let _turn = self.turn(&stop).await?;
        // The first step is set again where it is done.
        let _working = self.shared.work.begin(&self.task.name, WorkStep::Apply);
        // After the turn: the wait for it is not part of the run's duration.
        let (start_time, started) = (Local::now(), Instant::now());
        let (run, ended) = (&self, &stop);
        let steps = |context: RunContext| async move { run.steps(&context, ended).await };
        let (result, out_of_date) =
            match self.shared.within_timeout(&self.task, &context, steps).await {
                Ok((end, out_of_date)) => (Ok(end), out_of_date),
                Err(error) => (Err(error), false),
            };
        measure::ran(&self.task.name, outcome(&result), started.elapsed());
        if result.is_err() {
            // The inputs were taken and not applied, so the next trigger has to run with them.
            self.view().mark_dirty();
        }
        // Cut off and not failed: no event, and whoever may act next runs the task.
        if let Err(Error::Stopped { .. } | Error::NotPermitted { .. }) = result {
            return result.map(drop);
        }
        // Stored before anybody hears of the end, which a crash then cannot take back.
        let batch = self.batch(start_time, &result, &context).await;
        self.shared.cached_store.commit(&batch, &stop).await?;
        match result? {
            End::ApprovalPending { number, ticket, inputs } => {
                self.pending_approvals.add(Waits { number, ticket, inputs, start_time });
            }
            end => self.report(end),
        }
        match &self.approved {
            Some(plan) if out_of_date => Err(Error::PlanSuperseded {
                task: self.task.name.clone(),
                plan: plan.clone(),
                waiting: self.waiting_plan().map(|plan| plan.id),
            }),
            _ => Ok(()),
        }
    }

    /// Applies what was approved, or the newest inputs; `true` with an approved plan that is
    /// not the right one any more. Then the run plans again, and its answer says that the
    /// approval did not count.
    async fn steps(&self, context: &RunContext, stop: &Stop) -> Result<(End, bool)> {
        let mut out_of_date = false;
        if let Some(plan) = &self.approved {
            match self.apply_approved(plan, context).await? {
                End::OutOfDate => out_of_date = true,
                end => return Ok((end, false)),
            }
        }
        Ok((self.attempts(context, stop).await?, out_of_date))
    }

    /// Collects the changes of the state that the run leads to, for a commit of all
    /// or nothing.
    async fn batch(
        &self,
        start_time: DateTime<Local>,
        result: &Result<End>,
        context: &RunContext,
    ) -> Vec<Change> {
        let name = &self.task.name;
        let mut batch = Vec::new();
        if result.is_ok() {
            batch.extend(self.also_commit.clone());
        }
        let waits_on = match (result, &self.approved) {
            (Ok(End::StillWaits), _) => true,
            // An approved plan that was not even begun can be approved again.
            (Err(_), Some(plan)) => self.holds(plan, context).await,
            _ => false,
        };
        if self.waiting_plan().is_some() && !waits_on {
            batch.push(Change::DeletePlan(name.clone()));
        }
        // What waits elsewhere becomes an event when it ends.
        let told = !matches!(result, Ok(End::StillWaits | End::ApprovalPending { .. }));
        if told && (result.is_ok() || self.record_failure) {
            let event = Event { notes: context.notes.lines(), ..self.event(start_time, result) };
            batch.push(Change::AddEvent(Box::new(event)));
        }
        match result {
            Ok(End::Applied(_, digest)) => {
                let applied = self.view().mark_applied(digest);
                batch.push(Change::SetApplied(name.clone(), applied));
            }
            Ok(End::Waits(plan)) => batch.push(Change::PutPlan(name.clone(), plan.clone())),
            Ok(_) | Err(_) => {}
        }
        batch
    }

    pub(super) fn report(&self, end: End) {
        let name = &self.task.name;
        match end {
            End::Applied(outcome, _) => {
                let Changes { add, change, destroy, .. } = changes(&outcome).unwrap_or_default();
                tracing::info!(task.name = %name, add, change, destroy, "task completed");
            }
            End::Waits(plan) => {
                let Changes { add, change, destroy, .. } = plan.changes;
                tracing::warn!(
                    task.name = %name, plan.id = %plan.id, add, change, destroy,
                    "{}", waiting_text(&plan)
                );
            }
            End::Superseded => {
                tracing::info!(task.name = %name, "what waited for a person gave way to something newer");
            }
            End::NothingNew | End::StillWaits | End::OutOfDate | End::ApprovalPending { .. } => {}
        }
    }

    pub(super) fn event(&self, start_time: DateTime<Local>, result: &Result<End>) -> Event {
        let failed = |message| self.failure(start_time, message);
        let changes = match result {
            Err(error) => return failed(error_chain(error)),
            Ok(End::Waits(plan)) => {
                let mut event = failed(waiting_text(plan));
                event.changes = Some(plan.changes.clone());
                event.waiting_plan = Some(plan.id.clone());
                return event;
            }
            Ok(End::Applied(outcome, _)) => changes(outcome),
            Ok(End::NothingNew) => Some(Changes::default()),
            Ok(
                End::StillWaits | End::OutOfDate | End::ApprovalPending { .. } | End::Superseded,
            ) => None,
        };
        Event { success: true, error: None, changes, ..failed(String::new()) }
    }

    /// The event of something that failed.
    pub(super) fn failure(&self, start_time: DateTime<Local>, message: String) -> Event {
        Event {
            id: Uuid::new_v4(),
            success: false,
            start_time,
            end_time: Local::now(),
            task_name: self.task.name.clone(),
            error: Some(EventError { message }),
            config: EventConfig::of(&self.task),
            changes: None,
            waiting_plan: None,
            notes: Vec::new(),
        }
    }

    /// Applies, and tries again as the policy says, each time with the newest inputs.
    async fn attempts(&self, context: &RunContext, stop: &Stop) -> Result<End> {
        if self.only_if_dirty && !self.view().is_dirty() {
            if self.waiting_plan().is_some() || self.pending_approvals.is_open() {
                return Ok(End::StillWaits);
            }
            tracing::info!(task.name = %self.task.name, "scheduled task triggered but had no changes");
            return Ok(End::NothingNew);
        }
        tracing::info!(task.name = %self.task.name, "executing task");
        self.retrying(context, stop, || self.attempt(context)).await
    }

    /// Tries, and tries again as the policy says, until the stop or that of the context.
    pub(super) async fn retrying<T, F: Future<Output = Result<T>> + Send>(
        &self,
        context: &RunContext,
        stop: &Stop,
        mut try_once: impl FnMut() -> F + Send,
    ) -> Result<T> {
        let mut failures = Failures::default();
        for attempt in 0.. {
            let error = match try_once().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if context.stop.reason() == Some(StopReason::TimeLimit) {
                return Err(failures.at_the_limit(attempt, error));
            }
            let delay = self.retry.delay(attempt, self.shared.random());
            let retryable = error.is_retryable();
            let error = failures.add(attempt, error);
            match delay.filter(|_| retryable) {
                None => return Err(error),
                Some(delay) => self.announce(attempt, delay, &error),
            }
            tokio::select! {
                () = tokio::time::sleep(delay.unwrap_or_default()) => measure::retried(&self.task.name),
                () = self.retired.cancelled() => return Err(error),
                reason = stop.stopped() => return Err(Error::Stopped { reason }),
                reason = context.stop.stopped() => return Err(self.ended_in_pause(reason, error)),
            }
        }
        Err(Error::Stopped { reason: StopReason::Shutdown })
    }

    /// Returns the error of a run that ended between two tries. One that has run out of time has
    /// failed for the reason that its last try had.
    fn ended_in_pause(&self, reason: StopReason, error: Error) -> Error {
        match (reason, self.task.timeout) {
            (StopReason::TimeLimit, Some(limit)) => {
                Error::NoTimeLeft { task: self.task.name.clone(), limit, source: Box::new(error) }
            }
            _ => Error::Stopped { reason },
        }
    }

    /// Brings real infrastructure in line with the newest inputs, as far as the
    /// guard lets it.
    async fn attempt(&self, context: &RunContext) -> Result<End> {
        let (inputs, digest) = self.take_inputs();
        if self.still_waits(&digest, context).await {
            return Ok(End::StillWaits);
        }
        if self.task.guard.is_set() {
            return self.plan_first(&inputs, digest, context).await;
        }
        let number = self.pending_approvals.begin();
        self.shared.work.step(&self.task.name, WorkStep::Apply);
        let outcome = self.driver.apply(ApplyRequest::Inputs(&inputs), context).await?;
        self.end(number, outcome, digest).ok_or_else(superseded)
    }

    /// Takes the inputs of the module, with their digest.
    pub(super) fn take_inputs(&self) -> (TaskInputs, InputsDigest) {
        self.view().take_inputs().unwrap_or_else(|| {
            let inputs = TaskInputs::default();
            let digest = InputsDigest::of(&inputs);
            (inputs, digest)
        })
    }

    /// Judges the outcome of an apply; `None` if nothing was applied because the
    /// plan is not the right one.
    pub(super) fn end(&self, number: u64, outcome: Outcome, inputs: InputsDigest) -> Option<End> {
        match outcome {
            Outcome::Superseded => None,
            Outcome::Waiting { ticket, url } => {
                self.tell_waiting(url.as_deref());
                Some(End::ApprovalPending { number, ticket, inputs })
            }
            outcome => Some(End::Applied(outcome, inputs)),
        }
    }

    fn tell_waiting(&self, url: Option<&str>) {
        tracing::info!(task.name = %self.task.name, url, "waiting for a person to act");
    }

    /// Waits until nobody has to act any more.
    pub(super) async fn follow_to_end(
        &self,
        mut outcome: Outcome,
        context: &RunContext,
    ) -> Result<Outcome> {
        while let Outcome::Waiting { ticket, url } = outcome {
            self.tell_waiting(url.as_deref());
            outcome = self.driver.follow(&ticket, context).await?;
        }
        Ok(outcome)
    }

    pub(super) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deviation: upstream's first retry is silent, so nobody sees what the first try of a run
    /// that ends well had met.
    fn announce(&self, attempt: u32, delay: Duration, error: &Error) {
        tracing::warn!(
            task.name = %self.task.name,
            attempt = attempt + 1,
            delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            error = error as &dyn std::error::Error,
            "retrying"
        );
    }
}

/// Nothing was applied, though nothing newer is there; another try plans again.
pub(super) fn superseded() -> Error {
    Error::Driver { message: SUPERSEDED.to_owned(), retryable: true, source: None }
}

/// The failures of one step's tries.
#[derive(Default)]
struct Failures {
    /// Failure of the last try, alone.
    last: Option<String>,
    /// Failures of all tries, the newest first.
    all: String,
}

impl Failures {
    /// Returns the failures of a run whose last try ended because its time was over.
    fn at_the_limit(mut self, attempt: u32, error: Error) -> Error {
        if matches!(error, Error::Stopped { .. }) && !self.all.is_empty() {
            return Error::Driver { message: self.all, retryable: true, source: None };
        }
        self.add(attempt, error)
    }

    /// Puts the failure of a retry before those that came earlier, as upstream
    /// does. One that repeats the failure before it does not repeat its text.
    fn add(&mut self, attempt: u32, error: Error) -> Error {
        let text = error_chain(&error);
        let Some(last) = self.last.replace(text.clone()) else {
            self.all = text;
            return error;
        };
        if matches!(error, Error::Stopped { .. } | Error::NotPermitted { .. }) {
            return error;
        }
        let shown = if last == text { "with the same error" } else { &text };
        self.all = format!("retry attempt #{attempt} failed '{shown}': {}", self.all);
        Error::Driver { message: self.all.clone(), retryable: error.is_retryable(), source: None }
    }
}

/// Names the outcome of a run as metrics count it.
fn outcome(result: &Result<End>) -> &'static str {
    match result {
        Ok(End::Applied(Outcome::Unchanged, _) | End::NothingNew) => "unchanged",
        Ok(End::Applied(..)) => "applied",
        Ok(_) => "waiting",
        Err(Error::Stopped { .. } | Error::NotPermitted { .. }) => "stopped",
        Err(_) => "failed",
    }
}

fn waiting_text(plan: &Plan) -> String {
    let objection =
        plan.waiting.as_ref().map_or(Objection::ApprovalRequired, |waiting| waiting.objection);
    format!("plan {} was not applied and waits for approval: {objection}", plan.id)
}

fn changes(outcome: &Outcome) -> Option<Changes> {
    match outcome {
        Outcome::Applied(changes) => Some(changes.clone()),
        Outcome::Unchanged => Some(Changes::default()),
        Outcome::Superseded | Outcome::Waiting { .. } => None,
    }
}
