use std::{
    error::Error as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::Local;
use uuid::Uuid;

use super::{Shared, view::View};
use crate::{
    ApplyRequest, Change, Changes, Driver, Error, Event, EventConfig, EventError, InputsDigest,
    Outcome, Result, Retry, RunContext, Stop, StopReason, Task, TaskInputs,
};

/// One run of one task: apply with all retries, and the event that tells of it.
pub(crate) struct Run {
    pub(crate) task: Task,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) view: Arc<Mutex<View>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) retry: Retry,
    /// A run with nothing new is an event, but no apply.
    pub(crate) only_if_dirty: bool,
}

impl Run {
    /// Runs to the end. A stop gives the driver the grace of the options to end
    /// by itself and then tells it to; leadership that is lost gives none.
    pub(crate) async fn finish(self, stop: &Stop) -> Result<()> {
        let inner = Stop::new();
        let context =
            RunContext::new(inner.clone()).with_permit(Arc::clone(&self.shared.options.permit));
        let grace = self.shared.options.stop_grace;
        let work = self.work(context, stop.clone());
        tokio::pin!(work);
        let reason = tokio::select! {
            done = &mut work => return done,
            reason = stop.stopped() => reason,
        };
        if reason != StopReason::LeadershipLost
            && let Ok(done) = tokio::time::timeout(grace, &mut work).await
        {
            return done;
        }
        inner.stop(reason);
        work.await
    }

    async fn work(self, context: RunContext, stop: Stop) -> Result<()> {
        let _turn = match &self.shared.turns {
            Some(turns) => tokio::select! {
                turn = turns.acquire() => turn.ok(),
                reason = stop.stopped() => return Err(Error::Stopped { reason }),
            },
            None => None,
        };
        let start_time = Local::now();
        let (result, digest) = self.attempts(&context, &stop).await;
        if result.is_err() {
            self.view().mark_dirty();
        }
        if let Err(Error::Stopped { .. } | Error::NotPermitted { .. }) = result {
            return result.map(drop);
        }
        let event = Event {
            id: Uuid::new_v4(),
            success: result.is_ok(),
            start_time,
            end_time: Local::now(),
            task_name: self.task.name.clone(),
            error: result.as_ref().err().map(|error| EventError { message: chain(error) }),
            config: EventConfig::of(&self.task),
            changes: result.as_ref().ok().and_then(changes),
        };
        let mut batch = vec![Change::AddEvent(Box::new(event))];
        if let (Ok(_), Some(digest)) = (&result, digest) {
            batch.push(Change::SetApplied(self.task.name.clone(), digest));
        }
        self.shared.ledger.commit(&batch, &stop).await?;
        result.map(drop)
    }

    /// Applies, and tries again as the policy says, each time with the newest inputs.
    async fn attempts(
        &self,
        context: &RunContext,
        stop: &Stop,
    ) -> (Result<Outcome>, Option<InputsDigest>) {
        if self.only_if_dirty && !self.view().is_dirty() {
            tracing::info!(task.name = %self.task.name, "scheduled task triggered but had no changes");
            return (Ok(Outcome::Unchanged), None);
        }
        let mut failures: Option<Error> = None;
        for attempt in 0.. {
            let inputs = self.view().take_inputs();
            let inputs = inputs.unwrap_or_default();
            let error = match self.apply(&inputs, context).await {
                Ok(outcome) => return (Ok(outcome), Some(InputsDigest::of(&inputs))),
                Err(error) => error,
            };
            let delay = self.retry.delay(attempt, self.shared.random());
            let retryable = error.is_retryable();
            let error = accumulate(failures.take(), attempt, error);
            match delay.filter(|_| retryable) {
                None => return (Err(error), None),
                Some(delay) => self.announce(attempt, delay, &error),
            }
            tokio::select! {
                () = tokio::time::sleep(delay.unwrap_or_default()) => {}
                reason = stop.stopped() => return (Err(Error::Stopped { reason }), None),
            }
            failures = Some(error);
        }
        (Err(failures.unwrap_or(Error::Stopped { reason: StopReason::Shutdown })), None)
    }

    /// Applies once, and follows an apply that waits for a person.
    async fn apply(&self, inputs: &TaskInputs, context: &RunContext) -> Result<Outcome> {
        let mut outcome = self.driver.apply(ApplyRequest::Inputs(inputs), context).await?;
        while let Outcome::Waiting { ticket, url } = outcome {
            tracing::info!(task.name = %self.task.name, url, "waiting for a person to act");
            outcome = self.driver.follow(&ticket, context).await?;
        }
        Ok(outcome)
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first retry is silent.
    fn announce(&self, attempt: u32, delay: Duration, error: &Error) {
        if attempt > 0 {
            tracing::warn!(
                task.name = %self.task.name,
                attempt = attempt + 1,
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                error = error as &dyn std::error::Error,
                "retrying"
            );
        }
    }
}

/// Puts the failure of a retry before those that came earlier, as upstream does.
fn accumulate(earlier: Option<Error>, attempt: u32, error: Error) -> Error {
    match earlier {
        None => error,
        Some(_) if matches!(error, Error::Stopped { .. } | Error::NotPermitted { .. }) => error,
        Some(earlier) => {
            let retryable = error.is_retryable();
            let message =
                format!("retry attempt #{attempt} failed '{}': {}", chain(&error), chain(&earlier));
            Error::Driver { message, retryable, source: None }
        }
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn changes(outcome: &Outcome) -> Option<Changes> {
    match outcome {
        Outcome::Applied(changes) => Some(changes.clone()),
        Outcome::Unchanged => Some(Changes::default()),
        Outcome::Superseded | Outcome::Waiting { .. } => None,
    }
}
