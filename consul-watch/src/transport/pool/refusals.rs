//! Tells refused connections from those that end for another reason, and counts what they leave.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// A server that refuses connections answers a crowd of new ones within a few milliseconds. When
/// none was refused for this long, the crowd is counted.
const SETTLED: Duration = Duration::from_millis(50);
/// A count takes no longer than this. One that is older was given up by its caller.
const LONGEST_COUNT: Duration = Duration::from_millis(500);
/// A server that stops ends its connections in any order: one that served before and ended within
/// this time before a refusal says that it stops.
const STOPPING: Duration = Duration::from_millis(100);
/// Time for which the server may count a connection that was closed on this side:
/// within a request that blocks until the time of that is over, which is a second
/// where many are closed at once.
pub(super) const LINGERING: Duration = Duration::from_millis(1500);

/// The open connections of a pool, and which of them the server refused.
///
/// Consul before 1.9 ends a connection over its limit without a word, as a server that stops does
/// with all of them. The two differ in what is left: a limit leaves the connections that were
/// there first, and a stop ends those too. So nothing is concluded from the first refusal; the
/// ends that arrive together are counted as one event.
///
/// The server also counts a closed connection until it has noticed that: who closes many and opens
/// others at once may be refused well below the limit. So refusals say nothing that those closed
/// just before explain.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of the connection that was opened last.
    latest: u64,
    open: usize,
    /// Time at which the server last ended a connection that had served.
    ended: Option<Instant>,
    /// Times at which connections were closed on this side, the last one at the
    /// end.
    closed: VecDeque<Instant>,
    count: Option<Count>,
    /// Connections up to this number had their part in a count that is over.
    counted: u64,
}

/// Refusals that arrive together: one event.
#[derive(Debug)]
struct Count {
    began: Instant,
    /// Time at which the last connection was refused or ended.
    last: Instant,
    /// Connections that were opened later do not belong to it.
    latest: u64,
    open: usize,
    /// Number of connections that were closed just before.
    lingering: usize,
    refused: usize,
}

/// An open connection. It counts as open until this is dropped.
#[derive(Debug)]
pub(super) struct Open {
    connections: Arc<Connections>,
    number: u64,
    served: AtomicBool,
    /// `true` if it is this side that ends it.
    given_up: AtomicBool,
    /// The server has ended it.
    ended: AtomicBool,
}

impl Connections {
    pub(super) fn open(self: &Arc<Self>) -> Arc<Open> {
        let mut state = self.state();
        state.latest += 1;
        state.open += 1;
        let number = state.latest;
        drop(state);
        Arc::new(Open {
            connections: Arc::clone(self),
            number,
            served: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave the numbers half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Notes that the server answered on it, with anything but a refusal.
    pub(super) fn served(&self) {
        self.served.store(true, Ordering::Relaxed);
    }

    /// Notes that what becomes of it from now on is not the server's doing.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Notes that it ended: by the server, unless it was given up.
    pub(super) fn ended(&self) {
        if self.given_up.load(Ordering::Relaxed) {
            return;
        }
        self.ended.store(true, Ordering::Relaxed);
        if !self.served.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let mut state = self.connections.state();
        state.ended = Some(now);
        if let Some(count) = &mut state.count {
            count.last = now;
        }
    }

    /// Counts it as refused, `silent` if the server only ended it.
    ///
    /// Returns how many connections the server serves beside those that it refused. The first of
    /// those that are refused together gets this, a moment later; the others, and those that were
    /// not refused for a limit's sake, get `None`.
    ///
    /// Dropping the future leaves a count that the next refusal begins again.
    pub(super) async fn refused(&self, silent: bool) -> Option<usize> {
        // Before the lock: dropping it must not count it as closed on this side.
        self.ended.store(true, Ordering::Relaxed);
        let connections = &self.connections;
        {
            let now = Instant::now();
            let mut state = connections.state();
            // It was opened before the last count ended, and is part of what that has already
            // concluded.
            if self.number <= state.counted {
                return None;
            }
            if let Some(count) = &mut state.count
                && count.began.elapsed() < LONGEST_COUNT
            {
                count.last = now;
                count.refused += usize::from(self.number <= count.latest);
                return None;
            }
            state.forget_closed(now);
            let (latest, open, lingering) = (state.latest, state.open, state.closed.len());
            state.count =
                Some(Count { began: now, last: now, latest, open, lingering, refused: 1 });
        }
        loop {
            sleep(SETTLED).await;
            let mut state = connections.state();
            let count = state.count.as_ref()?;
            if count.last.elapsed() < SETTLED && count.began.elapsed() < LONGEST_COUNT {
                continue;
            }
            let (began, lingering) = (count.began, count.lingering);
            let served = count.open.saturating_sub(count.refused);
            let explained = count.refused <= lingering;
            // A refusal with words comes from a server that goes on.
            let stopping = silent && state.ended.is_some_and(|ended| ended + STOPPING > began);
            state.count = None;
            state.counted = state.latest;
            // The server may count every closed one: what it serves is at most this.
            return (served > 0 && !stopping && !explained).then_some(served + lingering);
        }
    }
}

impl State {
    fn forget_closed(&mut self, now: Instant) {
        while self.closed.front().is_some_and(|closed| *closed + LINGERING <= now) {
            self.closed.pop_front();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        state.open -= 1;
        // What the server ended it does not count any more.
        if !self.ended.load(Ordering::Relaxed) {
            let now = Instant::now();
            state.forget_closed(now);
            state.closed.push_back(now);
        }
    }
}
