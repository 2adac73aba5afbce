//! Applies of a task that wait for a person in another system.

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Local};
use futures::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};

use super::run::{End, Run, superseded};
use crate::{Change, Error, Event, InputsDigest, Outcome, Result, RunContext, Stop, StopReason};

/// Applies of one task that wait for a person outside this process.
///
/// Runs add to it; the worker follows what they added.
#[derive(Debug, Default)]
pub(crate) struct PendingApprovals {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Number of applies that have begun; the last one's number.
    applies: u64,
    /// The number of the apply that waits, unless a newer one has begun.
    open: Option<u64>,
    unfollowed: Vec<Waits>,
}

/// An apply that waits.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) number: u64,
    pub(super) ticket: String,
    pub(super) inputs: InputsDigest,
    pub(super) start_time: DateTime<Local>,
}

impl PendingApprovals {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an apply begins, which takes the place of one that waits.
    pub(super) fn begin(&self) -> u64 {
        let mut known = self.known();
        known.applies += 1;
        known.open = None;
        known.applies
    }

    /// Returns `true` if the newest apply waits still.
    pub(super) fn is_open(&self) -> bool {
        self.known().open.is_some()
    }

    /// Notes that an apply waits.
    pub(super) fn add(&self, waits: Waits) {
        let mut known = self.known();
        known.open = Some(waits.number);
        known.unfollowed.push(waits);
    }

    fn ended(&self, number: u64) {
        self.known().open.take_if(|open| *open == number);
    }

    fn is_newest(&self, number: u64) -> bool {
        self.known().applies == number
    }
}

/// The applies of one worker that are followed. All but the newest end soon,
/// because a driver discards what waits before it makes something newer wait.
pub(super) struct Following {
    engine: Stop,
    stop: Stop,
    applies: FuturesUnordered<BoxFuture<'static, Result<()>>>,
}

impl Following {
    /// Nothing yet; everything ends with the engine.
    pub(super) fn new(engine: &Stop) -> Self {
        Self { engine: engine.clone(), stop: engine.child(), applies: FuturesUnordered::new() }
    }

    /// Follows what runs left waiting; `run` gives what is needed for each.
    pub(super) fn take_up(&self, pending: &PendingApprovals, run: impl Fn() -> Run) {
        for waits in std::mem::take(&mut pending.known().unfollowed) {
            self.applies.push(Box::pin(run().follow(waits, self.stop.clone())));
        }
    }

    /// Waits for the result of the followed apply; `None` when nothing is followed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call waits for the same applies.
    pub(super) async fn next(&mut self) -> Option<Result<()>> {
        self.applies.next().await
    }

    /// Ends everything that is followed, and returns what that came to.
    pub(super) async fn end(&mut self, reason: StopReason) -> Vec<Result<()>> {
        self.stop.stop(reason);
        let mut ended = Vec::new();
        while let Some(result) = self.applies.next().await {
            ended.push(result);
        }
        // The old one is spent; what is followed from now on needs another.
        self.stop = self.engine.child();
        ended
    }
}

impl Run {
    /// Follows an apply until nobody has to act any more, and stores its event.
    ///
    /// # Errors
    ///
    /// What it failed with, which is an event by then; also a stop, the
    /// store's, or a permit that is gone.
    async fn follow(self, waits: Waits, stop: Stop) -> Result<()> {
        let context = self.context(&stop);
        let followed =
            self.retrying(&context, &stop, || self.follow_ticket(&waits.ticket, &context)).await;
        self.pending_approvals.ended(waits.number);
        let newest = self.pending_approvals.is_newest(waits.number);
        // An apply that gave way to a newer one has not failed. Without a newer one, somebody
        // has discarded it in the other system, and the task is not as it should be.
        let result = match followed {
            Ok(Outcome::Superseded) if newest => Err(superseded()),
            Ok(Outcome::Superseded) => Ok(End::Superseded),
            Ok(outcome) => Ok(End::Applied(outcome, waits.inputs)),
            Err(error) => Err(error),
        };
        if result.is_err() && newest {
            self.view().mark_dirty();
        }
        if let Err(Error::Stopped { .. } | Error::NotPermitted { .. }) = result {
            return result.map(drop);
        }
        let event = self.event(waits.start_time, &result);
        let event = Event { notes: context.notes.lines(), ..event };
        let mut batch = vec![Change::AddEvent(Box::new(event))];
        // An older apply that ends late does not say what was applied last.
        if let Ok(End::Applied(_, inputs)) = &result
            && newest
        {
            let applied = self.view().mark_applied(inputs);
            batch.push(Change::SetApplied(self.task.name.clone(), applied));
        }
        self.shared.cached_store.commit(&batch, &stop).await?;
        self.report(result?);
        Ok(())
    }

    async fn follow_ticket(&self, ticket: &str, context: &RunContext) -> Result<Outcome> {
        let followed = self.driver.follow(ticket, context).await?;
        self.follow_to_end(followed, context).await
    }
}
