//! What the shared reads of one watcher have in common, and the register of those under way.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Backoff, Client, Clock,
    query::QueryKey,
    transport::Budget,
    watch::{
        RateLimit, WatchState, broad_queries::BroadQueries, shared::Shared, slots::Slots,
        subscription::RECEIVERS, summary::Summary,
    },
};

/// Parts of a watcher that its reads use.
pub(super) struct Inner {
    /// Not bound to the budget of connections.
    pub(super) client: Client,
    pub(super) bounded: Client,
    /// Reads from any server, when `max_stale` is set.
    pub(super) stale: Option<(Client, Duration)>,
    pub(super) wait: Duration,
    pub(super) linger: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: CancellationToken,
    /// Reads from the leader only.
    pub(super) ordered: Client,
    /// Reads from a leader that has caught up.
    pub(super) confirmed: Client,
    pub(super) budget: Budget,
    pub(super) slots: Arc<Slots>,
    pub(super) broad_queries: Arc<BroadQueries>,
    pub(super) summary: Arc<Summary>,
    pub(super) rate_limit: RateLimit,
    pub(super) backoff: Backoff,
    pub(super) poll_interval: Duration,
    pub(super) tasks: TaskTracker,
    pub(super) views: Mutex<Views>,
}

/// The reads under way. A read is found by the type of its value and its key.
#[derive(Default)]
pub(super) struct Views {
    pub(super) running: HashMap<(TypeId, QueryKey), Running>,
    /// Numbers reads, so that one that ends does not remove its successor.
    pub(super) made: u64,
    pub(super) random: fastrand::Rng,
}

pub(super) struct Running {
    pub(super) number: u64,
    /// Told when a subscriber joins.
    pub(super) came: Arc<Notify>,
    /// An `Arc<watch::Sender<Shared<T>>>`.
    pub(super) sender: Box<dyn Shows>,
}

/// What a read shows, whatever the type of its data.
pub(super) trait Shows: Send {
    /// The state, and the number of those who look.
    fn state(&self) -> (WatchState, usize);

    fn as_any(&self) -> &dyn Any;
}

impl<T: Send + Sync + 'static> Shows for Arc<watch::Sender<Shared<T>>> {
    fn state(&self) -> (WatchState, usize) {
        let shared = self.borrow();
        let mut state = shared.state.clone();
        state.repairs = shared.repairs.count();
        drop(shared);
        (state, self.receiver_count() / RECEIVERS)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Inner {
    pub(super) fn views(&self) -> MutexGuard<'_, Views> {
        // Nothing that holds the lock can leave the map half changed.
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a read unless somebody has subscribed; says whether it is gone.
    pub(super) fn retire_unused(
        &self,
        id: &(TypeId, QueryKey),
        number: u64,
        unused: impl Fn() -> bool,
    ) -> bool {
        let mut views = self.views();
        // Subscribing takes the same lock, so this cannot change in between.
        if !unused() {
            return false;
        }
        remove(&mut views, id, number);
        true
    }

    /// Removes a read that has ended.
    pub(super) fn retire(&self, id: &(TypeId, QueryKey), number: u64) {
        remove(&mut self.views(), id, number);
    }
}

fn remove(views: &mut Views, id: &(TypeId, QueryKey), number: u64) {
    // A successor may have begun since under the same key.
    if views.running.get(id).is_some_and(|running| running.number == number) {
        views.running.remove(id);
    }
}
