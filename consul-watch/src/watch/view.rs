//! The task of one upstream read, and what it shows to its subscribers.

use std::{
    any::{Any, TypeId},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::{
    Answer, Error, Query, Result,
    query::{Position, QueryKey},
    watch::{
        Snapshot, WatchError,
        inner::Inner,
        plan::{Next, Plan, Publish, Settings, Timing},
        scheduler::{NextAction, Scheduler},
        shared::Shared,
        summary::Occasion,
        telemetry::{self, Happened},
    },
};

/// An upstream read: asks, lets the [`Plan`] decide, and shows the outcome.
pub(super) struct View<Q: Query> {
    watcher: Arc<Inner>,
    query: Q,
    id: (TypeId, QueryKey),
    number: u64,
    sender: Arc<watch::Sender<Shared<Q::Value>>>,
    plan: Plan,
    scheduler: Scheduler,
    came: Arc<Notify>,
    started: Instant,
    failures: u64,
    /// The last attempt brought a snapshot.
    published: bool,
}

impl<Q: Query> View<Q> {
    pub(super) fn new(
        watcher: Arc<Inner>,
        query: Q,
        id: (TypeId, QueryKey),
        number: u64,
        sender: Arc<watch::Sender<Shared<Q::Value>>>,
        came: Arc<Notify>,
        settings: &Settings,
    ) -> Self {
        let plan = Plan::new(query.mode(), settings);
        let (slots, broad_queries) =
            (Arc::clone(&watcher.slots), Arc::clone(&watcher.broad_queries));
        let repairs = Arc::clone(&sender.borrow().repairs);
        let scheduler =
            Scheduler::new(slots, broad_queries, query.scope(), query.mode(), number, repairs);
        Self {
            watcher,
            query,
            id,
            number,
            sender,
            plan,
            scheduler,
            came,
            started: Instant::now(),
            failures: 0,
            published: false,
        }
    }

    /// Runs until nobody listens, the watcher stops or an error is final.
    /// Whatever ends it, the request under way is dropped with it.
    pub(super) async fn run(mut self) {
        let watcher = Arc::clone(&self.watcher);
        let (id, number) = (self.id.clone(), self.number);
        let (sender, came) = (Arc::clone(&self.sender), Arc::clone(&self.came));
        // Also runs when the runtime drops this task, or a query panics.
        let _retire = Retire { watcher: Arc::clone(&watcher), id: id.clone(), number };
        let _counted = telemetry::view(&id.1);
        tracing::debug!("watch starts");
        tokio::select! {
            biased;
            () = watcher.stop.cancelled() => {}
            () = abandoned(&watcher, &sender, &came, &id, number) => {}
            () = self.follow_tokens() => {}
        }
        tracing::debug!("watch ends");
    }

    /// Follows the query, from the start again when the client's token changes: another
    /// token may see other data at the same index.
    async fn follow_tokens(&mut self) {
        let mut tokens = self.watcher.client.token_watch().await;
        loop {
            tokio::select! {
                biased;
                // The request under way is dropped with `follow`: its answer would be what the old
                // token may see.
                () = tokens.changed() => self.plan.restart(),
                () = self.follow() => return,
            }
        }
    }

    async fn follow(&mut self) {
        loop {
            let action = self.scheduler.next_action(self.plan.position(), self.watcher.wait).await;
            let next = match action {
                NextAction::Failed(error) => self.failed(error),
                NextAction::Block(wait, revoked, permit) => {
                    // On the heap: whatever passes a future on keeps room for it again.
                    let attempt = Box::pin(self.attempt(wait, self.block(wait)));
                    let Some((outcome, timing)) = revoked.run_until_cancelled(attempt).await else {
                        continue;
                    };
                    drop(permit);
                    self.ended(outcome, timing)
                }
                NextAction::Read { compare, permit } => {
                    if compare {
                        self.plan.restart();
                    }
                    self.scheduler.begin();
                    let (outcome, timing) =
                        Box::pin(self.attempt(Duration::ZERO, self.read(compare))).await;
                    drop(permit);
                    // An answer without an index may show anything.
                    let index = outcome.as_ref().map(|it| it.meta.index.unwrap_or(u64::MAX)).ok();
                    let next = self.ended(outcome, timing);
                    let told_for = self.scheduler.end(index, self.published);
                    if let Some(took) = told_for {
                        telemetry::delay(&self.id.1, took);
                    }
                    next
                }
            };
            match next {
                Next::End => return,
                Next::After(delay) if delay.is_zero() => {}
                Next::After(delay) => tokio::time::sleep(delay).await,
            }
        }
    }

    async fn attempt(
        &self,
        wait: Duration,
        fetch: impl Future<Output = Result<Answer<Q::Value>>>,
    ) -> (Result<Answer<Q::Value>>, Timing) {
        let started = self.started.elapsed();
        // Subscribers are not woken for a count.
        self.sender.send_if_modified(|shared| {
            shared.state.requests += 1;
            shared.state.connection = self.scheduler.connection();
            false
        });
        // A query of a user's own that panics must not leave a watch behind that shows old data
        // for ever and looks alive.
        let outcome = AssertUnwindSafe(fetch).catch_unwind().await;
        let outcome = outcome.unwrap_or_else(|panic| Err(panicked(&*panic)));
        // After each attempt, since only answers tell: a proxy may come to speak HTTP/2, or cease
        // to.
        self.watcher.slots.multiplex(self.watcher.client.is_multiplexed());
        self.watcher.slots.make_do(self.watcher.budget.shortfall());
        (outcome, Timing { started, ended: self.started.elapsed(), wait })
    }

    /// Reads at the leader, for an order among reads; at one that is known to have caught up, if
    /// what was read before does not count.
    async fn read(&self, compare: bool) -> Result<Answer<Q::Value>> {
        let confirm = compare || self.plan.is_doubtful();
        let client = if confirm { &self.watcher.confirmed } else { &self.watcher.ordered };
        self.query.fetch(client, &Position::Start, self.watcher.wait).await
    }

    async fn block(&self, wait: Duration) -> Result<Answer<Q::Value>> {
        let position = self.plan.position();
        if self.plan.is_doubtful() {
            return self.query.fetch(&self.watcher.confirmed, position, wait).await;
        }
        let Some((stale, limit)) = &self.watcher.stale else {
            return self.query.fetch(&self.watcher.bounded, position, wait).await;
        };
        let answer = self.query.fetch(stale, position, wait).await?;
        if answer.meta.last_contact <= *limit {
            return Ok(answer);
        }
        // Repeating it at the same index could block a second time, and an agent
        // may be set to answer from any server unless told not to.
        self.query.fetch(&self.watcher.ordered, &Position::Start, wait).await
    }

    fn ended(&mut self, outcome: Result<Answer<Q::Value>>, timing: Timing) -> Next {
        match outcome {
            Ok(answer) => self.answered(answer, timing),
            Err(error) => self.failed(Arc::new(error)),
        }
    }

    fn answered(&mut self, answer: Answer<Q::Value>, timing: Timing) -> Next {
        // Cloned, which is cheap: the comparison runs code of a user's, and must hold no lock.
        let last = self.sender.borrow().snapshot.clone();
        let same = || last.as_ref().is_some_and(|last| self.query.same(&last.data, &answer.value));
        let before = self.plan.history();
        let step =
            catch_unwind(AssertUnwindSafe(|| self.plan.answered(&answer.meta, timing, same)));
        let step = match step {
            Ok(step) => step,
            Err(panic) => return self.failed(Arc::new(panicked(&*panic))),
        };
        if self.plan.history() != before {
            tracing::debug!("Consul's history was replaced");
            self.watcher.summary.add(Occasion::Replaced, &self.id.1, None);
            telemetry::event(&self.id.1, Happened::Reset);
        }
        self.published = step.publish == Publish::Data;
        if self.published {
            self.scheduler.changed();
            telemetry::event(&self.id.1, Happened::Update);
        } else if timing.is_early() {
            telemetry::event(&self.id.1, Happened::Unchanged);
        }
        let now = self.watcher.clock.now();
        let (position, history) = (self.plan.position().clone(), self.plan.history());
        if self.sender.borrow().state.consecutive_failures > 0 {
            tracing::debug!("watch works again");
            self.watcher.summary.add(Occasion::Recovered, &self.id.1, None);
        }
        self.sender.send_if_modified(|shared| {
            shared.state.succeeded(now);
            shared.state.position = position;
            shared.failure = None;
            if step.publish != Publish::Data {
                // Equal data may come with other headers: filtered by ACLs, or not.
                if let Some(snapshot) = &mut shared.snapshot {
                    snapshot.meta = answer.meta;
                }
                return false;
            }
            let seq = shared.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq) + 1;
            shared.snapshot =
                Some(Snapshot { data: Arc::new(answer.value), meta: answer.meta, seq, history });
            true
        });
        step.next
    }

    fn failed(&mut self, error: Arc<Error>) -> Next {
        let step = self.plan.failed(&error);
        telemetry::event(&self.id.1, Happened::Error);
        let last = step.next == Next::End;
        let error = WatchError::new(self.id.1.clone(), error, last);
        self.published = false;
        if let Next::After(delay) = step.next {
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            let cause = error.cause() as &dyn std::error::Error;
            tracing::debug!(error = cause, delay_ms, "watch failed and will try again");
            // The first of a row is news; the state has the others.
            if self.sender.borrow().state.consecutive_failures == 0 {
                self.watcher.summary.add(Occasion::Failed, &self.id.1, Some(error.shared()));
            }
        } else {
            // Whoever asks from now on gets a fresh read instead of this end.
            self.watcher.retire(&self.id, self.number);
        }
        self.failures += 1;
        let number = self.failures;
        self.sender.send_if_modified(|shared| {
            shared.state.failed(&error);
            shared.state.position = Position::Start;
            if step.publish == Publish::Nothing {
                return false;
            }
            shared.failure = Some((number, error));
            true
        });
        step.next
    }
}

/// The error that stands for a panic in a query's code.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let source = format!("the query panicked: {}", text.unwrap_or("without a text"));
    Error::Other { operation: "watch", retryable: true, source: source.into() }
}

/// Ends when nobody has listened for the linger time. `came` tells of those who come back.
async fn abandoned<T: Send + Sync>(
    watcher: &Inner,
    sender: &watch::Sender<Shared<T>>,
    came: &Notify,
    id: &(TypeId, QueryKey),
    number: u64,
) {
    loop {
        // Ends at once if nobody has subscribed yet; `retire_unused` looks again under the lock.
        sender.closed().await;
        // Whoever came since may have left again: the time starts again.
        if !watcher.linger.is_zero()
            && tokio::time::timeout(watcher.linger, came.notified()).await.is_ok()
        {
            continue;
        }
        if watcher.retire_unused(id, number, || sender.is_closed()) {
            return;
        }
    }
}

struct Retire {
    watcher: Arc<Inner>,
    id: (TypeId, QueryKey),
    number: u64,
}

impl Drop for Retire {
    fn drop(&mut self) {
        self.watcher.retire(&self.id, self.number);
    }
}
