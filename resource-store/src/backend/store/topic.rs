//! A bounded log of events that many readers follow at their own pace.
//!
//! The writer never waits. A reader that falls behind by more than the log
//! holds, in events or in bytes, is told so. The log is shared: a reader costs a
//! position, not a queue. What every reader has read is dropped, and where nobody
//! reads nothing is kept.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use super::sync::{Arc, Mutex, lock};

/// Number of events that may stay although every reader has read them: looking
/// for the slowest reader at each event would cost as much as telling it.
const SLACK: usize = 64;
/// Upper bound of what the events of one log take, in bytes; the newest event
/// is kept however large it is.
const MOST_BYTES: usize = 64 << 20;

/// Why a reader got no more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The reader was too slow; events are gone.
    Lagged,
    /// The topic was closed.
    Closed,
}

/// A bounded log of events.
#[derive(Debug)]
pub(crate) struct Topic<E> {
    capacity: usize,
    state: Mutex<State<E>>,
}

#[derive(Debug)]
struct State<E> {
    /// The position of the oldest event that is still there.
    first: u64,
    events: VecDeque<Kept<E>>,
    /// The sum of what the events take.
    bytes: usize,
    /// Number of events at which to look for those that all have read.
    trim_at: usize,
    closed: bool,
    /// Who waits, by seat; every reader has one seat.
    seats: Vec<Seat>,
    free: Vec<usize>,
    /// The seats with a waker, so that publishing visits only those.
    waiting: Vec<usize>,
}

/// An event, and about how many bytes it takes.
#[derive(Debug)]
struct Kept<E> {
    event: E,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Seat {
    waker: Option<Waker>,
    /// The next event that the reader in this seat reads; none if it is empty.
    position: Option<u64>,
}

impl<E: Clone> Topic<E> {
    /// A log that holds `capacity` events, at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            first: 0,
            events: VecDeque::new(),
            bytes: 0,
            trim_at: SLACK,
            closed: false,
            seats: Vec::new(),
            free: Vec::new(),
            waiting: Vec::new(),
        };
        Self { capacity: capacity.max(1), state: Mutex::new(state) }
    }

    /// A reader of all events published from now on.
    pub(crate) fn subscribe(self: &Arc<Self>) -> Reader<E> {
        let mut state = lock(&self.state);
        let position = state.first + state.events.len() as u64;
        let seat = state.free.pop().unwrap_or_else(|| {
            state.seats.push(Seat::default());
            state.seats.len() - 1
        });
        state.move_to(seat, position);
        drop(state);
        Reader { topic: Arc::clone(self), position, seat }
    }

    /// Appends an event that takes about so many bytes, which may push out older
    /// ones.
    pub(crate) fn publish(&self, event: E, bytes: usize) {
        let mut state = lock(&self.state);
        if state.is_idle() {
            return;
        }
        let mut dropped = Vec::new();
        if state.events.len() >= state.trim_at {
            state.trim(&mut dropped);
        }
        while state.events.len() >= self.capacity
            || !state.events.is_empty() && state.bytes.saturating_add(bytes) > MOST_BYTES
        {
            state.drop_oldest(&mut dropped);
        }
        state.bytes += bytes;
        state.events.push_back(Kept { event, bytes });
        let wakers = state.take_waiting();
        drop(state);
        // Freeing what only the log held is not the readers' wait.
        drop(dropped);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends every reader, before events that it has not read.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let wakers = state.take_waiting();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns `true` if nobody reads.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.state).is_idle()
    }
}

impl<E> State<E> {
    fn is_idle(&self) -> bool {
        self.seats.len() == self.free.len()
    }

    fn move_to(&mut self, seat: usize, position: u64) {
        if let Some(place) = self.seats.get_mut(seat) {
            place.position = Some(position);
        }
    }

    /// Drops what the slowest reader has read.
    fn trim(&mut self, dropped: &mut Vec<Kept<E>>) {
        let slowest = self.seats.iter().filter_map(|seat| seat.position).min();
        while !self.events.is_empty() && slowest.is_none_or(|slowest| self.first < slowest) {
            self.drop_oldest(dropped);
        }
        // Each look costs as much as there are seats: so many events later.
        self.trim_at = (2 * self.events.len()).max(self.seats.len()).max(SLACK);
    }

    fn drop_oldest(&mut self, dropped: &mut Vec<Kept<E>>) {
        if let Some(kept) = self.events.pop_front() {
            self.first += 1;
            self.bytes -= kept.bytes;
            dropped.push(kept);
        }
    }

    fn take_waiting(&mut self) -> Vec<Waker> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().filter_map(|seat| self.seats.get_mut(seat)?.waker.take()).collect()
    }

    fn wait(&mut self, seat: usize, waker: &Waker) {
        let Some(place) = self.seats.get_mut(seat) else { return };
        match &mut place.waker {
            Some(known) => known.clone_from(waker),
            empty => {
                *empty = Some(waker.clone());
                self.waiting.push(seat);
            }
        }
    }
}

/// A position in a topic.
#[derive(Debug)]
pub(crate) struct Reader<E> {
    topic: Arc<Topic<E>>,
    position: u64,
    seat: usize,
}

impl<E: Clone> Reader<E> {
    /// Moves up to `most` events into `into`; at least one when ready.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut VecDeque<E>,
        most: usize,
    ) -> Poll<Result<(), Ended>> {
        let mut state = lock(&self.topic.state);
        if state.closed {
            return Poll::Ready(Err(Ended::Closed));
        }
        let Some(skip) = self.position.checked_sub(state.first) else {
            return Poll::Ready(Err(Ended::Lagged));
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let before = into.len();
        into.extend(state.events.iter().skip(skip).take(most).map(|kept| kept.event.clone()));
        let read = into.len() - before;
        if read == 0 {
            state.wait(self.seat, cx.waker());
            return Poll::Pending;
        }
        self.position += read as u64;
        state.move_to(self.seat, self.position);
        Poll::Ready(Ok(()))
    }
}

impl<E> Drop for Reader<E> {
    fn drop(&mut self) {
        let mut state = lock(&self.topic.state);
        let seat = self.seat;
        if state.seats.get_mut(seat).is_some_and(|place| place.waker.take().is_some()) {
            state.waiting.retain(|waiting| *waiting != seat);
        }
        if let Some(place) = state.seats.get_mut(seat) {
            place.position = None;
        }
        state.free.push(seat);
        let mut dropped = Vec::new();
        if state.is_idle() {
            state.trim(&mut dropped);
        }
        drop(state);
        drop(dropped);
    }
}
