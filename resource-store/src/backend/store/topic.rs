//! A bounded log of events that many readers follow at their own pace.
//!
//! The writer never waits. A reader that falls behind by more than the log
//! holds is told so. The log is shared: a reader costs a position, not a queue.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use super::sync::{Arc, Mutex, lock};

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
    events: VecDeque<E>,
    closed: bool,
    /// Who waits, by seat; every reader has one seat.
    seats: Vec<Seat>,
    free: Vec<usize>,
    /// The seats with a waker, so that publishing visits only those.
    waiting: Vec<usize>,
}

#[derive(Debug, Default)]
struct Seat {
    waker: Option<Waker>,
}

impl<E: Clone> Topic<E> {
    /// A log that holds `capacity` events, at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            first: 0,
            events: VecDeque::new(),
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
        drop(state);
        Reader { topic: Arc::clone(self), position, seat }
    }

    /// Appends an event, which may push out the oldest one.
    pub(crate) fn publish(&self, event: E) {
        let mut state = lock(&self.state);
        let pushed_out = if state.events.len() >= self.capacity {
            state.first += 1;
            state.events.pop_front()
        } else {
            None
        };
        state.events.push_back(event);
        let wakers = state.take_waiting();
        drop(state);
        drop(pushed_out);
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

    /// Whether nobody reads.
    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.seats.len() == state.free.len()
    }
}

impl<E> State<E> {
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
        into.extend(state.events.iter().skip(skip).take(most).cloned());
        let read = into.len() - before;
        if read == 0 {
            state.wait(self.seat, cx.waker());
            return Poll::Pending;
        }
        self.position += read as u64;
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
        state.free.push(seat);
    }
}
