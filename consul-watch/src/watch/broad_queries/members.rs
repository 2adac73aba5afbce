//! The watches that a group of broad queries stands in for, and their signals.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::catalog::Changes;
use crate::{Error, query::Scope, watch::state::Repairs};

/// A difference that a periodic read found is counted if no signal reports it within this time:
/// long enough for the broad queries to come round under churn.
const GRACE: Duration = Duration::from_secs(30);
/// With many broad queries failures come in crowds: watches hear of one in this time.
const FAILURES: Duration = Duration::from_secs(1);

/// An instruction to a covered watch.
#[derive(Debug, Clone)]
pub(crate) enum Signal {
    /// Read again.
    Read {
        /// Compare the data although the index is the same: Consul's history
        /// may be another one.
        compare: bool,
    },
    /// The broad query failed, for this reason: nothing tells of changes any more.
    Failed(Arc<Error>),
}

/// Mailbox of a covered watch for signals.
#[derive(Debug, Default)]
pub(crate) struct RefreshSignal {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    signal: Option<Signal>,
    /// Time at which the signal that waits, or that is being handled, came first.
    told: Option<Instant>,
    /// The index of the last read.
    index: u64,
    reading: bool,
    /// The signal that waits, or the read under way, is the periodic one, and nothing else has
    /// asked for it.
    periodic: bool,
    /// A periodic read found a difference, and no signal has come since.
    found: bool,
    /// Index that the broad queries had passed for certain when the read began; see [`Floor`].
    floor: u64,
}

/// Index up to which every broad query of a group has shown what there was.
///
/// A read whose index is higher may have seen what came, and goes before the next answers: no
/// list will ever have it. Such a read is made again when the floor has passed its index.
#[derive(Debug)]
pub(super) struct Floor(AtomicU64);

impl Default for Floor {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Floor {
    /// Sets it; `None` where whole lists are compared, which name such reads themselves.
    pub(super) fn set(&self, index: Option<u64>) {
        self.0.store(index.unwrap_or(u64::MAX), Ordering::Release);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Consequence of a read of a covered watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    /// A periodic read found a difference.
    Found,
    /// The read is to be made again when the floor has passed this index.
    Again(u64),
}

impl RefreshSignal {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a signal and takes it.
    pub(crate) async fn signal(&self) -> Signal {
        loop {
            let signal = self.state().signal.take();
            if let Some(signal) = signal {
                return signal;
            }
            self.told.notified().await;
        }
    }

    /// Drops the signal that waits, because the watch reads anyway.
    pub(crate) fn clear(&self) {
        self.state().signal = None;
    }

    /// Begins a read: whatever signal comes from now on asks for another one.
    pub(super) fn begin(&self, floor: u64) {
        let mut state = self.state();
        // The floor of this moment, and not of the end: what the broad queries show while the read
        // is under way may be older than what it has seen.
        (state.reading, state.floor) = (true, floor);
    }

    /// Ends the read, with this index if it succeeded; `published` says that it brought a
    /// snapshot.
    pub(super) fn end(&self, index: Option<u64>, published: bool) -> After {
        let mut state = self.state();
        // Set and read under one lock with the signal: one that comes between the read and its end
        // is neither lost nor taken for the cause of what was found.
        state.reading = false;
        state.found = std::mem::take(&mut state.periodic) && published;
        // A signal that waits is not answered by this read: its time goes on.
        if state.signal.is_none() {
            state.told = None;
        }
        if let Some(index) = index {
            state.index = index;
        }
        match index {
            _ if state.found => After::Found,
            Some(index) if published && index > state.floor && index < u64::MAX => {
                After::Again(index)
            }
            _ => After::Nothing,
        }
    }

    /// Returns the time since the signal for what the watch has not yet shown.
    pub(crate) fn told_for(&self) -> Option<Duration> {
        self.state().told.map(|told| told.elapsed())
    }

    /// Asks for a read that nothing was reported for, unless one waits or is under way. A
    /// `periodic` one counts what it finds.
    fn tell_quietly(&self, periodic: bool) {
        let mut state = self.state();
        // A read that is waiting or under way shows the same. One that is made again is different:
        // the read under way is the one that may have seen too little.
        if state.signal.is_some() || (periodic && state.reading) {
            return;
        }
        state.signal = Some(Signal::Read { compare: false });
        state.periodic = periodic;
        drop(state);
        self.told.notify_one();
    }

    fn tell(&self, signal: Signal) {
        let mut state = self.state();
        // Something was reported after all, so that the difference is no repair.
        (state.periodic, state.found) = (false, false);
        // The first of several signals counts: the delay is from there to the snapshot.
        state.told.get_or_insert_with(Instant::now);
        state.signal = Some(match (&state.signal, signal) {
            // What asks for more is kept: after a failure the history may be another one.
            (Some(Signal::Read { compare: true } | Signal::Failed(_)), Signal::Read { .. }) => {
                Signal::Read { compare: true }
            }
            (_, signal) => signal,
        });
        drop(state);
        self.told.notify_one();
    }

    fn is_past(&self, index: u64) -> bool {
        let state = self.state();
        // A read under way counts as past everything: its index is not known yet.
        state.reading || state.index > index
    }
}

/// The watches that a group of broad queries stands in for.
#[derive(Debug, Default)]
pub(super) struct Members {
    all: BTreeMap<u64, Member>,
    services: HashMap<String, HashMap<u64, Arc<RefreshSignal>>>,
    joined: u64,
    /// A change from now on will be signalled.
    settled: bool,
    failing: bool,
    /// The member that was read periodically last.
    cursor: u64,
    /// Members whose periodic read found a difference, and since when.
    found: VecDeque<(Instant, u64)>,
    /// Members to read again when the floor has passed an index.
    again: BTreeSet<(u64, u64)>,
    /// Time at which a failure was reported last.
    failed: Option<Instant>,
}

#[derive(Debug)]
struct Member {
    scope: Scope,
    refresh_signal: Arc<RefreshSignal>,
    repairs: Arc<Repairs>,
}

/// Consul finds services whatever the case of their letters.
fn folded(name: &str) -> String {
    name.to_lowercase()
}

impl Members {
    /// Adds a watch. It gets the signal to read at once if changes after that will be
    /// told, else when this is so.
    pub(super) fn join(
        &mut self,
        scope: &Scope,
        repairs: Arc<Repairs>,
    ) -> (u64, Arc<RefreshSignal>) {
        self.joined += 1;
        let refresh_signal = Arc::new(RefreshSignal::default());
        // While it fails nothing will settle soon, and a watch must not wait for that to show its
        // first data.
        if self.settled || self.failing {
            refresh_signal.tell(Signal::Read { compare: true });
        }
        if let Scope::Service(name) = scope {
            let of_service = self.services.entry(folded(name)).or_default();
            of_service.insert(self.joined, Arc::clone(&refresh_signal));
        }
        let member =
            Member { scope: scope.clone(), refresh_signal: Arc::clone(&refresh_signal), repairs };
        self.all.insert(self.joined, member);
        (self.joined, refresh_signal)
    }

    /// Removes a watch; says whether it was the last.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let left = self.all.remove(&number).map(|member| member.scope);
        if let Some(Scope::Service(name)) = left {
            let name = folded(&name);
            if let Some(of_service) = self.services.get_mut(&name) {
                of_service.remove(&number);
                if of_service.is_empty() {
                    self.services.remove(&name);
                }
            }
        }
        self.all.is_empty()
    }

    /// Number of members.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Lets the next `count` members read, each at its turn, whether there was a signal or not.
    /// Counts the differences that such reads found, and that no signal has reported since.
    pub(super) fn read_periodically(&mut self, count: usize) {
        while let Some((since, number)) = self.found.front()
            && since.elapsed() >= GRACE
        {
            if let Some(member) = self.all.get(number)
                && std::mem::take(&mut member.refresh_signal.state().found)
            {
                member.repairs.add();
            }
            self.found.pop_front();
        }
        // Before that all of them read anyway.
        if !self.settled {
            return;
        }
        for _ in 0..count.min(self.all.len()) {
            // By number rather than by position: members come and go between two rounds.
            let next = (Bound::Excluded(self.cursor), Bound::Unbounded);
            let next = self.all.range(next).next().or_else(|| self.all.iter().next());
            let Some((number, member)) = next else { return };
            self.cursor = *number;
            member.refresh_signal.tell_quietly(true);
        }
    }

    /// Has a member read again when the floor has passed `index`.
    pub(super) fn read_again(&mut self, number: u64, index: u64) {
        self.again.insert((index, number));
    }

    /// Has the watches of services read again that have been read at an index past this one, or
    /// are being read: slowly, because that is next to never of any use.
    pub(super) fn read_past(&mut self, index: u64) {
        let past = self.all.iter().filter(|(_number, member)| member.refresh_signal.is_past(index));
        // Index 0, so that any floor has passed it.
        self.again.extend(past.map(|(number, _member)| (0, *number)));
    }

    /// Returns `true` if some read is to be made again whose index the floor has passed.
    pub(super) fn has_reads_again(&self, floor: u64) -> bool {
        self.again.first().is_some_and(|(index, _number)| *index <= floor)
    }

    /// Lets up to `count` members read again whose index the floor has passed.
    pub(super) fn read_passed(&mut self, floor: u64, count: usize) {
        for _ in 0..count {
            let Some(first) = self.again.first().copied() else { return };
            if first.0 > floor {
                return;
            }
            self.again.remove(&first);
            if let Some(member) = self.all.get(&first.1) {
                member.refresh_signal.tell_quietly(false);
            }
        }
    }

    /// Takes note that a periodic read of a member found a difference.
    pub(super) fn found(&mut self, number: u64) {
        self.found.push_back((Instant::now(), number));
    }

    /// Number of services that are watched.
    pub(super) fn service_count(&self) -> usize {
        self.services.len()
    }

    /// All broad queries have answered: all read, and hear of changes from then on.
    pub(super) fn settle(&mut self) {
        (self.settled, self.failing) = (true, false);
        // All of them read, from now on.
        self.again.clear();
        self.tell_all(&Signal::Read { compare: true });
    }

    /// A broad query lost its place, so changes may go untold until the next
    /// [`Members::settle`].
    pub(super) fn unsettle(&mut self) {
        self.settled = false;
    }

    /// A broad query failed. The first failure is passed on, so that a watch
    /// shows it as if its own request had failed; at further ones the watches
    /// see for themselves.
    pub(super) fn fail(&mut self, error: Arc<Error>) {
        let first = !std::mem::replace(&mut self.failing, true);
        self.settled = false;
        // With a query of each node, a server that goes away fails hundreds at once.
        let lately = self.failed.is_some_and(|at| at.elapsed() < FAILURES);
        if !first && lately {
            return;
        }
        self.failed = Some(Instant::now());
        // An error that no retry cures would end the watches, though their own requests may well
        // succeed.
        if first && error.is_retryable() {
            self.tell_all(&Signal::Failed(error));
        } else {
            self.tell_all(&Signal::Read { compare: true });
        }
    }

    /// Signals all watches whose scope is one of those.
    pub(super) fn moved(&self, concerns: impl Fn(&Scope) -> bool) {
        for member in self.all.values().filter(|member| concerns(&member.scope)) {
            member.refresh_signal.tell(Signal::Read { compare: false });
        }
    }

    /// Signals the watches of services that may have changed.
    pub(super) fn changed(&self, changes: &Changes) {
        if changes.all {
            return self.moved(|scope| matches!(scope, Scope::Service(_)));
        }
        for name in &changes.services {
            for refresh_signal in
                self.services.get(&folded(name)).into_iter().flat_map(HashMap::values)
            {
                refresh_signal.tell(Signal::Read { compare: false });
            }
        }
        let Some(past) = changes.past else { return };
        for refresh_signal in self.services.values().flat_map(HashMap::values) {
            if refresh_signal.is_past(past) {
                refresh_signal.tell(Signal::Read { compare: false });
            }
        }
    }

    fn tell_all(&self, signal: &Signal) {
        for member in self.all.values() {
            member.refresh_signal.tell(signal.clone());
        }
    }
}
