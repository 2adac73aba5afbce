//! Setbacks: a task that could not be made ready is tried again, and can receive
//! everything meanwhile; so is a run that failed and may succeed later.

use std::time::Duration;

use chrono::Local;
use consul_watch::error_chain;
use futures::future::{BoxFuture, FutureExt as _};
use tokio::time::Instant;

use super::{Due, Trigger, Worker, orders::Done};
use crate::{
    Condition, Error, Result, Retry, RunContext, Stop, StopReason, WorkStep,
    engine::command::Command,
};

/// Longest pause between two tries of what only needs this machine.
const LONGEST: Duration = Duration::from_mins(5);
/// Tries that a failed run has had: its pauses go on from there, up to 15 minutes.
const TRIED: u32 = 2;

/// A failure after which the task is tried again by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setback {
    /// Failures in a row, up to now.
    failures: u32,
    /// Time of the next try.
    until: Instant,
}

/// The try that goes on, and the command that waits for it.
#[derive(Default)]
pub(super) struct Readying {
    stop: Option<Stop>,
    waiting: Option<Command>,
    /// The command goes on, though the try was cut short or is not needed.
    at_once: bool,
}

impl Readying {
    pub(super) const fn goes_on(&self) -> bool {
        self.stop.is_some()
    }

    /// Returns `true` while a try goes on that was not told to end.
    pub(super) fn is_undisturbed(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.reason().is_none())
    }

    /// Ends the try, if one goes on; another follows.
    pub(super) fn interrupt(&self, reason: StopReason) {
        if let Some(stop) = &self.stop {
            stop.stop(reason);
        }
    }

    /// The command that can be carried out now.
    pub(super) fn take_waiting(&mut self) -> Option<Command> {
        if std::mem::take(&mut self.at_once) { self.waiting.take() } else { None }
    }
}

impl Drop for Readying {
    /// Whoever waits for an answer gets one in any case.
    fn drop(&mut self) {
        if let Some(command) = self.waiting.take() {
            command.refuse(Error::NotRunning);
        }
    }
}

impl Worker {
    /// Takes a command for a task that is not ready.
    ///
    /// One that disables is carried out at once, and so is one that enables,
    /// for that prepares the task itself; all others wait for a try.
    pub(super) fn keep_waiting(&self, command: Command, readying: &mut Readying) {
        if readying.waiting.is_some() {
            return command.refuse(Error::TaskActive { task: self.task.name.clone() });
        }
        if !self.view().is_complete()
            && !matches!(command, Command::SetEnabled { enabled: false, .. })
        {
            return command.refuse(self.no_data());
        }
        readying.at_once = match &command {
            Command::SetEnabled { enabled, .. } => !enabled || !self.task.enabled,
            _ => false,
        };
        if readying.at_once {
            readying.interrupt(StopReason::TaskChanged);
        }
        readying.waiting = Some(command);
    }

    /// Begins another try, if one is due or a command waits for it.
    pub(super) fn begin_readying(
        &self,
        due: &mut Due,
        readying: &mut Readying,
        stop: &Stop,
    ) -> Option<BoxFuture<'static, Done>> {
        if let Some(replacement) = due.replacement.take() {
            return Some(replacement.finish(self.run(Retry::NEVER, false), stop.clone()).boxed());
        }
        due.drift_check = false;
        if !self.view().is_complete() {
            return None;
        }
        let asked = readying.waiting.is_some();
        let woken = due.trigger.take().is_some() && self.task.enabled;
        if !asked && !woken {
            return None;
        }
        let (own, stop) = (stop.child(), stop.clone());
        readying.stop = Some(own.clone());
        let run = self.run(Retry::NEVER, false);
        Some(
            async move {
                let begun = Local::now();
                let _working = run.shared.work.begin(&run.task.name, WorkStep::Prepare);
                let driver = &run.driver;
                let prepare = |context: RunContext| async move { driver.prepare(&context).await };
                let context = run.context(&own);
                let mut result = run.shared.within_timeout(&run.task, &context, prepare).await;
                if let Err(error) = &result
                    && !matches!(error, Error::Stopped { .. } | Error::NotPermitted { .. })
                    && let Err(error) = run.note_setback(begun, error, &stop).await
                {
                    result = Err(error);
                }
                Done::Readied(result)
            }
            .boxed(),
        )
    }

    /// Takes notice of how a try ended.
    ///
    /// # Errors
    ///
    /// An error that concerns the whole engine.
    pub(super) fn settle_readied(
        &mut self,
        result: Result<()>,
        due: &mut Due,
        readying: &mut Readying,
    ) -> Result<()> {
        readying.stop = None;
        match result {
            Ok(()) => {
                self.ready = true;
                self.setback = None;
                readying.at_once = readying.waiting.is_some();
                let options = &self.shared.options;
                if !(options.skip_unchanged_first_runs && self.is_as_applied()) {
                    due.trigger = Some(Trigger::Change);
                }
                tracing::info!(task.name = %self.task.name, "task is ready");
                Ok(())
            }
            Err(Error::Stopped { .. }) => {
                // Cut short by an order; whatever is left is tried again soon.
                self.setback.get_or_insert(Setback { failures: 0, until: Instant::now() });
                Ok(())
            }
            Err(error) => {
                if let Some(error) = error.concerning_all() {
                    return Err(error);
                }
                self.set_back(&error);
                if !readying.at_once
                    && let Some(command) = readying.waiting.take()
                {
                    command.refuse(error);
                }
                Ok(())
            }
        }
    }

    /// Notes a first try that failed, as an event, and tries again later.
    ///
    /// # Errors
    ///
    /// The store's, or a stop.
    pub(crate) async fn start_later(&mut self, error: &Error, stop: &Stop) -> Result<()> {
        self.run(Retry::NEVER, false).note_setback(Local::now(), error, stop).await?;
        self.set_back(error);
        Ok(())
    }

    /// Tries again after a pause that grows from failure to failure, for ever.
    fn set_back(&mut self, error: &Error) {
        self.try_after(error, 0, LONGEST);
    }

    /// Tries again after the pause of this failure, counted from `first`.
    fn try_after(&mut self, error: &Error, first: u32, longest: Duration) {
        let failures = self.setback.map_or(first, |setback| setback.failures);
        let endless = self.retry().with_limit(None);
        let pause = endless.delay(failures, self.shared.random()).unwrap_or(longest).min(longest);
        self.setback =
            Some(Setback { failures: failures.saturating_add(1), until: Instant::now() + pause });
        tracing::error!(
            task.name = %self.task.name,
            error = error_chain(error),
            delay_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "the task cannot run, trying again"
        );
    }

    /// Returns the time of the next try after a setback; `None` while there is none.
    pub(super) fn again_at(&self) -> Option<Instant> {
        let waits_for_consul = !self.ready && !self.view().is_complete();
        self.setback.filter(|_| self.task.enabled && !waits_for_consul).map(|setback| setback.until)
    }

    /// A run that failed and may succeed later is tried again: no change in Consul
    /// would tell that a shortage of this machine has passed, or that a provider
    /// answers again. One that only its schedule may run waits for that.
    ///
    /// Deviation: upstream gives it up after three tries, and what had changed
    /// is lost until the next change.
    pub(crate) fn note_failure(&mut self, error: Option<&Error>) {
        let scheduled = matches!(self.task.condition, Condition::Schedule { .. });
        match error {
            Some(error) if error.is_shortage() => self.set_back(error),
            Some(error) if error.is_retryable() && !error.is_superseded() && !scheduled => {
                self.try_after(error, TRIED, Duration::MAX);
            }
            // Something else than a run may have ended well.
            None if self.view().is_dirty() => {}
            Some(_) | None => self.setback = None,
        }
    }

    /// Makes the task due once more after a setback.
    pub(super) fn try_again(&mut self, due: &mut Due) {
        if self.ready && !self.view().is_dirty() {
            self.setback = None;
            return;
        }
        due.trigger = Some(Trigger::Again);
        if let Some(setback) = &mut self.setback {
            // How this one ends says when the next is.
            setback.until = Instant::now() + LONGEST;
        }
    }
}
