//! Deals out a watcher's budget of connections.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

mod place;

use crate::{Error, Result, telemetry::Held, watch::telemetry};
use place::Event;

pub(super) use place::Place;

/// Requests that watches hold at a time when one HTTP/2 connection carries them
/// all. Consul allows 250; what is not a watch's needs some too.
const STREAMS: usize = 200;
/// Broad queries of the catalog, and one reader that lists nodes.
const CATALOG: usize = 4;
/// With fewer connections no share would be left for the watches themselves.
const FEWEST: usize = 12;
/// Within this time each watch in turn is asked, as long as turns are not
/// shorter than [`SHORTEST_TURN`].
const ROUND: Duration = Duration::from_secs(10);
const SHORTEST_TURN: Duration = Duration::from_secs(1);
/// Requests of a watch that has had its connection for less than this block for [`SHORT_BLOCK`]
/// only. Consul counts a connection that is closed within a request until the time of the request
/// is over: when many watches are made at once, the first ones get connections that they soon
/// have to give back, and there would be no room for the broad queries for a whole minute.
const YOUNG: Duration = Duration::from_secs(2);
const SHORT_BLOCK: Duration = Duration::from_secs(1);
/// Up to this part of the connections may be closed at once without harm.
const HARMLESS: usize = 8;
/// After this time a change counts half as much for a watch's place.
const HALF_LIFE: Duration = Duration::from_mins(1);
/// A covered watch this busy may take the place of a quiet one: about two changes a minute.
const BUSY: f64 = 3.0;
/// Factor by which a watch must be busier than the other one, so that they do not
/// change places to and fro.
const BUSIER: f64 = 2.0;

/// Recent changes of a watch: their sum, in which each halves in [`HALF_LIFE`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Activity {
    score: f64,
    at: Option<Instant>,
}

impl Activity {
    fn at(self, now: Instant) -> f64 {
        let age = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        // Decays when it is read, so that quiet watches cost nothing.
        self.score * 0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64())
    }

    /// Counts a change.
    pub(super) fn changed(&mut self, now: Instant) {
        *self = Self { score: self.at(now) + 1.0, at: Some(now) };
    }
}

/// Division of a budget of connections once the watches outnumber it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    /// Number of all connections, which no moment exceeds.
    pub(super) budget: usize,
    /// Number of all connections that are not for reads: each watch has its own
    /// until there are more.
    pub(super) total: usize,
    /// Watches that keep their own once there were more than `total`.
    pub(super) own: usize,
    /// Targeted reads at the same time.
    pub(super) reads: usize,
    /// Watches in turn at the same time.
    pub(super) turns: usize,
    /// Broad queries of KV prefixes.
    pub(super) prefixes: usize,
}

impl Shares {
    pub(super) fn of(budget: usize) -> Self {
        let budget = budget.max(FEWEST);
        let part = (budget / 16).max(1);
        let (reads, turns, prefixes) = (part.min(8), (budget / 8).max(1), part);
        let total = budget - reads;
        let own = total.saturating_sub(CATALOG + turns + prefixes);
        Self { budget, total, own, reads, turns, prefixes }
    }

    /// Returns the time for which one of `count` watches in turn may block.
    fn turn(self, count: usize) -> Duration {
        let crowd = f64::from(u32::try_from(count.max(1)).unwrap_or(u32::MAX));
        let slots = f64::from(u32::try_from(self.turns).unwrap_or(u32::MAX));
        ROUND.mul_f64((slots / crowd).min(1.0)).max(SHORTEST_TURN)
    }
}

/// Deals out a budget of connections.
///
/// Up to the whole budget (but for its share of reads) each watch gets its own. The first watch past it
/// makes the pool crowded: the broad queries, targeted reads and turns get
/// their shares, and watches beyond [`Shares::own`] give their connections
/// back, first those that a broad query can stand in for. The pool stays
/// crowded, also with fewer than [`Shares::total`] watches, until no more than
/// [`Shares::own`] remain: then all have their own, and what the others shared
/// is free again. So the budget holds throughout, and a watch that comes and
/// goes at its edge does not make all others change places.
///
/// In a crowd those keep a connection that change most ([`Activity`]). Quiet ones give way first,
/// and a watch whose request ended hands its connection on to a covered one that is much busier
/// ([`Claim::hand_over`]). It does so between two requests: Consul 1.8 counts a connection that is
/// closed within one until the time of that request is over.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) shares: Shares,
    state: Mutex<State>,
    reads: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    /// Wakes one covered watch when a connection became free.
    room: Notify,
    turning: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    crowded: bool,
    multiplexed: bool,
    holders: HashMap<u64, Holder>,
    /// Covered watches that change often and have not been handed a connection.
    busy: HashMap<u64, Busy>,
    /// Covered watches that were handed a connection and have not taken it up: they are holders.
    handed: HashMap<u64, CancellationToken>,
    covered: usize,
    turning: usize,
    /// Connections for broad queries of nodes, beyond the share of broad queries.
    nodes: usize,
    /// Connections that Consul has refused.
    refused: usize,
}

#[derive(Debug)]
struct Holder {
    coverable: bool,
    revoked: CancellationToken,
    activity: Activity,
}

/// A covered watch that changes often.
#[derive(Debug)]
struct Busy {
    activity: Activity,
    /// Tells it that it was handed a connection.
    call: Arc<Notify>,
}

impl State {
    fn limit(&self, shares: Shares) -> usize {
        let more = if self.multiplexed { STREAMS.saturating_sub(shares.total) } else { 0 };
        // Part by part: what Consul refused is missing from the watches' connections, and what
        // nodes need is taken out of what is left.
        let all = if self.crowded { shares.own } else { shares.total };
        // One at least: it is asked like all others, and waits for its part of the budget.
        (more + all.saturating_sub(self.refused).max(1)).saturating_sub(self.nodes)
    }

    /// Takes connections back until `keep` are left; coverable ones first, of those the ones that
    /// changed least, then the youngest.
    fn revoke_down_to(&mut self, keep: usize) {
        let now = Instant::now();
        let mut order: Vec<(bool, f64, u64)> = self
            .holders
            .iter()
            .map(|(number, holder)| (!holder.coverable, holder.activity.at(now), *number))
            .collect();
        // `total_cmp`, since activities are floats; the youngest last by number, so that a new
        // watch does not push out one that has been there for long.
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then_with(|| b.2.cmp(&a.2))
        });
        for (_, _, number) in order.into_iter().take(self.holders.len().saturating_sub(keep)) {
            self.revoke(number);
        }
    }

    /// The coverable holder that changed least.
    fn quietest(&self) -> Option<u64> {
        let now = Instant::now();
        let coverable = self.holders.iter().filter(|(_number, holder)| holder.coverable);
        coverable
            .map(|(number, holder)| (holder.activity.at(now), *number))
            .min_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(&a.1)))
            .map(|(_score, number)| number)
    }

    /// The busiest covered watch, if it is much busier than this; those that have become quiet
    /// are forgotten.
    fn busier_than(&mut self, score: f64, now: Instant) -> Option<u64> {
        self.busy.retain(|_number, busy| busy.activity.at(now) >= BUSY);
        let busiest = self.busy.iter().map(|(number, busy)| (busy.activity.at(now), *number));
        let busiest = busiest.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(&a.1)))?;
        (busiest.0 > BUSIER * score).then_some(busiest.1)
    }

    fn revoke(&mut self, number: u64) {
        if let Some(holder) = self.holders.remove(&number) {
            holder.revoked.cancel();
        }
    }

    fn hold(&mut self, number: u64, coverable: bool, activity: Activity) -> CancellationToken {
        let revoked = CancellationToken::new();
        self.holders.insert(number, Holder { coverable, revoked: revoked.clone(), activity });
        revoked
    }
}

impl Slots {
    pub(super) fn new(total: usize) -> Self {
        let shares = Shares::of(total);
        Self {
            shares,
            state: Mutex::default(),
            reads: Arc::new(Semaphore::new(shares.reads)),
            turns: Arc::new(Semaphore::new(shares.turns)),
            room: Notify::new(),
            turning: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the watch with this number, which has none yet.
    pub(super) fn claim(
        self: &Arc<Self>,
        number: u64,
        coverable: bool,
        activity: Activity,
    ) -> Claim {
        let mut state = self.state();
        // All at once rather than one by one: the shares of a crowd have to be free before the
        // broad queries begin, or together they would exceed the budget.
        if state.holders.len() >= state.limit(self.shares) && !state.crowded {
            state.crowded = true;
            let keep = state.limit(self.shares);
            state.revoke_down_to(keep);
        }
        let full = state.holders.len() >= state.limit(self.shares);
        // A broad query can stand in for that one, but not for this one.
        let other = if full && !coverable { state.quietest() } else { None };
        if let Some(other) = other {
            state.revoke(other);
        }
        let event =
            if full { Event::Full { coverable, displaces: other.is_some() } } else { Event::Free };
        let place = place::next(None, event).unwrap_or(Place::RoundRobin);
        let revoked = match place {
            Place::Own => state.hold(number, coverable, activity),
            Place::Covered => {
                state.covered += 1;
                CancellationToken::new()
            }
            Place::RoundRobin => {
                state.turning += 1;
                CancellationToken::new()
            }
        };
        self.turning.store(state.turning, Ordering::Relaxed);
        drop(state);
        let counted = telemetry::place(place.name());
        let slots = Arc::clone(self);
        let made = Instant::now();
        Claim { slots, made, number, coverable, place, revoked, activity, call: None, counted }
    }

    /// Makes do with so many connections less than the budget.
    pub(super) fn make_do(&self, less: usize) {
        let mut state = self.state();
        // Called after every attempt; only a change takes more than the lock.
        if std::mem::replace(&mut state.refused, less) == less {
            return;
        }
        if state.holders.len() > state.limit(self.shares) {
            state.crowded = true;
            let keep = state.limit(self.shares);
            state.revoke_down_to(keep);
        }
        let room = state.covered > 0 && state.holders.len() < state.limit(self.shares);
        drop(state);
        if room {
            self.room.notify_one();
        }
    }

    /// Sets if one connection carries all requests: then the budget is one of
    /// streams.
    pub(super) fn multiplex(&self, multiplexed: bool) {
        let mut state = self.state();
        if std::mem::replace(&mut state.multiplexed, multiplexed) == multiplexed {
            return;
        }
        if state.holders.len() > state.limit(self.shares) {
            state.crowded = true;
            // The limit of a crowd, and not its share alone: nodes keep their connections, and
            // those that Consul refused are still missing.
            let keep = state.limit(self.shares);
            state.revoke_down_to(keep);
        }
        let room = state.covered > 0 && state.holders.len() < state.limit(self.shares);
        drop(state);
        if room {
            self.room.notify_one();
        }
    }

    /// Makes room for a broad query of each of so many nodes, and returns `true`, if an eighth of
    /// the connections of watches is left to them. With 0, or `false`, there is no such room.
    pub(super) fn reserve_nodes(&self, count: usize) -> bool {
        // The lists of checks and services, and the reader of nodes, are not needed then.
        let nodes = count.saturating_sub(CATALOG - 1);
        let fits = nodes <= self.most_nodes();
        self.reserve(if fits { nodes } else { 0 });
        fits
    }

    /// Makes room for as many nodes as there can be.
    pub(super) fn reserve_most(&self) {
        self.reserve(self.most_nodes());
    }

    fn most_nodes(&self) -> usize {
        let mut state = self.state();
        // The limit without the present reservation, which the new one replaces.
        let nodes = std::mem::take(&mut state.nodes);
        let all = state.limit(self.shares);
        state.nodes = nodes;
        all - all.div_ceil(8)
    }

    fn reserve(&self, nodes: usize) {
        let mut state = self.state();
        state.nodes = nodes;
        let limit = state.limit(self.shares);
        if state.holders.len() > limit {
            state.revoke_down_to(limit);
        }
        let room = state.covered > 0 && state.holders.len() < limit;
        drop(state);
        if room {
            self.room.notify_one();
        }
    }

    /// Returns `true` if there is room for a connection of each watch.
    pub(super) fn is_spacious(&self) -> bool {
        let state = self.state();
        state.holders.len() + state.covered + state.turning <= self.shares.own
    }

    /// Waits until a covered watch may try to get its own connection.
    pub(super) async fn room(&self) {
        self.room.notified().await;
    }

    /// A connection for a read that does not block.
    pub(super) async fn read(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.reads).acquire_owned().await.map_err(|_closed| closed())
    }

    /// A connection for one turn, and how long it may block.
    pub(super) async fn turn(&self) -> Result<(OwnedSemaphorePermit, Duration)> {
        let permit = Arc::clone(&self.turns).acquire_owned().await.map_err(|_closed| closed())?;
        Ok((permit, self.shares.turn(self.turning.load(Ordering::Relaxed))))
    }

    /// Returns the number of watches in each place: own, covered, in turn.
    pub(super) fn figures(&self) -> (usize, usize, usize) {
        let state = self.state();
        (state.holders.len(), state.covered, state.turning)
    }
}

fn closed() -> Error {
    let source = "the connection pool was closed".into();
    Error::Other { operation: "watch", retryable: true, source }
}

/// A watch's place; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Claim {
    slots: Arc<Slots>,
    made: Instant,
    number: u64,
    coverable: bool,
    place: Place,
    revoked: CancellationToken,
    activity: Activity,
    /// Told when this watch, covered and busy, was handed a connection.
    call: Option<Arc<Notify>>,
    counted: Held,
}

impl Claim {
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Returns `true` if the watch has lost its place, and has to ask for another one.
    pub(super) fn is_lost(&self) -> bool {
        self.revoked.is_cancelled() && place::next(Some(self.place), Event::Revoked).is_none()
    }

    /// Goes to the place that the event leads to; a place that is lost stays until the claim is
    /// dropped.
    fn move_on(&mut self, event: Event) {
        if let Some(place) = place::next(Some(self.place), event) {
            self.place = place;
            self.counted = telemetry::place(place.name());
        }
    }

    /// Returns the time for which a request on the watch's own connection may block, `wait` at most.
    pub(super) fn longest_block(&self, wait: Duration) -> Duration {
        let takes_back = self.coverable
            && self.made.elapsed() < YOUNG
            && self.slots.state().holders.len() > self.slots.shares.total / HARMLESS;
        if takes_back { wait.min(SHORT_BLOCK) } else { wait }
    }

    /// Cancelled when the watch must give its own connection back.
    pub(super) fn revoked(&self) -> &CancellationToken {
        &self.revoked
    }

    /// Returns the watch's recent changes.
    pub(super) fn activity(&self) -> Activity {
        self.activity
    }

    /// Takes note that the watch changed.
    pub(super) fn changed(&mut self) {
        let now = Instant::now();
        self.activity.changed(now);
        if self.place == Place::RoundRobin
            || (self.place == Place::Covered && self.activity.at(now) < BUSY)
        {
            return;
        }
        let mut state = self.slots.state();
        if let Some(holder) = state.holders.get_mut(&self.number) {
            holder.activity = self.activity;
        } else if self.place == Place::Covered {
            let call = self.call.get_or_insert_default();
            let busy = Busy { activity: self.activity, call: Arc::clone(call) };
            state.busy.insert(self.number, busy);
        }
    }

    /// Hands this watch's connection on to a covered one that is much busier, and returns `true`
    /// if there was one: then this watch is covered. Called between two requests.
    pub(super) fn hand_over(&mut self) -> bool {
        let mut state = self.slots.state();
        if self.place != Place::Own
            || !self.coverable
            || self.revoked.is_cancelled()
            // A free connection is for those in turn first.
            || state.turning > 0
        {
            return false;
        }
        let now = Instant::now();
        let Some(other) = state.busier_than(self.activity.at(now), now) else { return false };
        let Some(busy) = state.busy.remove(&other) else { return false };
        state.holders.remove(&self.number);
        // What is busy is coverable. As many are covered as before.
        let revoked = state.hold(other, true, busy.activity);
        state.handed.insert(other, revoked);
        drop(state);
        // Outside of the lock, which the woken watch takes next.
        busy.call.notify_one();
        self.revoked = CancellationToken::new();
        self.move_on(Event::Outpaced);
        true
    }

    /// Waits until this watch was handed a connection.
    pub(super) fn called(&self) -> impl Future<Output = ()> + Send + use<> {
        let call = self.call.clone();
        async move {
            match call {
                Some(call) => call.notified().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Takes up the connection that was handed to this watch, and returns `true` if one was.
    pub(super) fn take_up(&mut self) -> bool {
        let Some(revoked) = self.slots.state().handed.remove(&self.number) else { return false };
        self.revoked = revoked;
        self.move_on(Event::Handed);
        true
    }

    /// Turns a claim to wait into one to a connection, if one is free and
    /// nobody needs it more.
    pub(super) fn upgrade(&mut self) -> bool {
        let mut state = self.slots.state();
        if self.place == Place::Own
            // It has a connection already, and would hold two.
            || state.handed.contains_key(&self.number)
            || state.holders.len() >= state.limit(self.slots.shares)
            // One in turn waits for seconds, a covered one for one request.
            || (self.coverable && state.turning > 0)
        {
            return false;
        }
        self.slots.leave(&mut state, self.place, self.number);
        self.revoked = state.hold(self.number, self.coverable, self.activity);
        let more = state.covered > 0 && state.holders.len() < state.limit(self.slots.shares);
        drop(state);
        self.move_on(Event::Room);
        // One wakes the next, so that as many come as there are connections, and not all at once.
        if more {
            self.slots.room.notify_one();
        }
        true
    }
}

impl Slots {
    fn leave(&self, state: &mut State, place: Place, number: u64) {
        match place {
            Place::Own => {
                state.holders.remove(&number);
            }
            // It has a connection already, unless that was taken back since.
            Place::Covered if state.handed.remove(&number).is_some() => {
                state.holders.remove(&number);
            }
            Place::Covered => {
                state.busy.remove(&number);
                state.covered = state.covered.saturating_sub(1);
            }
            Place::RoundRobin => state.turning = state.turning.saturating_sub(1),
        }
        // A crowd ends only when nobody waits any more: a watch that comes and goes at the edge
        // would make all others change places each time.
        state.crowded &= state.covered + state.turning > 0;
        self.turning.store(state.turning, Ordering::Relaxed);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        // A revoked connection was taken out already.
        if !self.is_lost() {
            self.slots.leave(&mut state, self.place, self.number);
        }
        let room = state.covered > 0 && state.holders.len() < state.limit(self.slots.shares);
        drop(state);
        if room {
            self.slots.room.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
