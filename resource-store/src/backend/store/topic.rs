//! A bounded log of events that many readers follow at their own pace.
//!
//! Each event has a name, and each reader follows the names with one prefix. The
//! log is shared: a reader costs a position, not a queue. The writer never waits.
//!
//! | a reader | an event that it follows | any other event |
//! |---|---|---|
//! | waits | wakes it, and from here on it is behind | passes it by |
//! | is behind | stays in the log until it is read | stays in the log until it is passed |
//!
//! So an event costs as much as there are readers that wait for it, however many
//! follow other names. What nobody is behind of is dropped.
//!
//! A reader that is behind by more than the log holds, in events or in bytes, has
//! lagged and ends. Only while it spills, what the log has no room for moves into
//! a queue of its own, which may merge events. All such queues of a log together
//! are bounded; past that bound readers lag as others do.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    task::{Context, Poll, Waker},
};

use super::sync::{Arc, Mutex, lock};

/// Number of events that may stay although every reader has read them: looking
/// for the slowest reader at each event would cost as much as waking it.
const SLACK: usize = 64;
/// Upper bound of what the events of one log take, in bytes; the newest event
/// is kept however large it is.
const MOST_BYTES: usize = 64 << 20;
/// Upper bound of what the readers of one log have spilled, all together, in
/// bytes.
const MOST_SPILLED_BYTES: usize = 64 << 20;

/// Number of events that one reader spills at a time, so that no event waits while
/// many readers spill all that they have not read.
const SPILLED_AT_ONCE: usize = 64;

/// Why a reader got no more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The reader was too slow; events are gone.
    Lagged,
    /// The topic was closed.
    Closed,
}

/// A queue that takes over events which the log has no room for.
pub(crate) trait Spill<E> {
    /// Takes an event in, after all those before it. It may merge with them, and
    /// what the reader does not follow is left out.
    fn push(&mut self, event: E);

    /// Takes the oldest event out.
    fn pop(&mut self) -> Option<E>;

    /// Approximate size of all events in the queue, in bytes.
    fn bytes(&self) -> usize;
}

/// A bounded log of events.
#[derive(Debug)]
pub(crate) struct Topic<E, S> {
    capacity: usize,
    state: Mutex<State<E, S>>,
}

#[derive(Debug)]
struct State<E, S> {
    /// The position of the oldest event that is still there.
    first: u64,
    events: VecDeque<Kept<E>>,
    /// The sum of what the events take.
    bytes: usize,
    /// Number of events at which to look for those that all have read.
    trim_at: usize,
    /// No reader that spills has a position before this one.
    spills_from: u64,
    /// The sum of what the readers have spilled.
    spilled: usize,
    closed: bool,
    /// The readers, by number. A tree, because it gives memory back when a crowd
    /// of readers leaves.
    readers: BTreeMap<u64, Subscriber<S>>,
    /// The number of the next reader.
    next: u64,
    /// Number of readers that do not wait.
    behind: usize,
    /// The readers that wait, by the prefix that they follow, so that publishing
    /// visits only those that it wakes.
    waiting: BTreeMap<Box<[u8]>, Vec<u64>>,
}

/// An event, and about how many bytes it takes.
#[derive(Debug)]
struct Kept<E> {
    event: E,
    bytes: usize,
}

#[derive(Debug)]
struct Subscriber<S> {
    prefix: Box<[u8]>,
    place: Place,
    /// Events for which the log had no room; all of them are older than what is
    /// there.
    spill: Option<Box<S>>,
    /// Size of what is spilled, in bytes.
    spilled: usize,
    /// `true` while more may be spilled.
    spills: bool,
}

/// The next event of a reader.
#[derive(Debug)]
enum Place {
    /// The event of this position; if that is gone, the reader has lagged.
    Behind(u64),
    /// The next event that it follows.
    Waiting {
        waker: Waker,
        /// Index of the reader among those that wait with the same prefix.
        index: usize,
    },
}

impl<E: Clone, S: Spill<E>> Topic<E, S> {
    /// Creates a log that holds `capacity` events, at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            first: 0,
            events: VecDeque::new(),
            bytes: 0,
            trim_at: SLACK,
            spills_from: 0,
            spilled: 0,
            closed: false,
            readers: BTreeMap::new(),
            next: 0,
            behind: 0,
            waiting: BTreeMap::new(),
        };
        Self { capacity: capacity.max(1), state: Mutex::new(state) }
    }

    /// Subscribes to all events published from now on whose name begins with
    /// `prefix`. The reader may get others too.
    pub(crate) fn subscribe(self: &Arc<Self>, prefix: &[u8]) -> Reader<E, S> {
        let mut state = lock(&self.state);
        // Behind, though it misses nothing: without a waker it cannot wait yet.
        let place = Place::Behind(state.head());
        state.behind += 1;
        let number = state.next;
        state.next += 1;
        let subscriber =
            Subscriber { prefix: prefix.into(), place, spill: None, spilled: 0, spills: false };
        state.readers.insert(number, subscriber);
        drop(state);
        Reader { topic: Arc::clone(self), number }
    }

    /// Appends an event of this name that takes about so many bytes, which may
    /// push out older ones. Who waits for it is to be woken by `wakers`.
    pub(crate) fn append(&self, name: &[u8], event: E, bytes: usize, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        if state.is_idle() {
            return;
        }
        state.wake(name, wakers);
        let mut dropped = Vec::new();
        if state.behind == 0 {
            state.drop_all(&mut dropped);
        } else {
            if state.events.len() >= state.trim_at {
                state.trim(&mut dropped);
            }
            while state.events.len() >= self.capacity
                || !state.events.is_empty() && state.bytes.saturating_add(bytes) > MOST_BYTES
            {
                // Otherwise no reader would spill the oldest event, and none needs to be visited.
                if state.spills_from <= state.first {
                    state.spill();
                }
                state.drop_oldest(&mut dropped);
            }
            state.bytes += bytes;
            state.events.push_back(Kept { event, bytes });
        }
        drop(state);
        // Freeing what only the log held is not the readers' wait.
        drop(dropped);
    }

    /// Appends an event, and wakes who waits for it.
    #[cfg(test)]
    pub(crate) fn publish(&self, name: &[u8], event: E, bytes: usize) {
        let mut wakers = Vec::new();
        self.append(name, event, bytes, &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends every reader, before events that it has not read.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let mut wakers = Vec::new();
        while let Some((_, readers)) = state.waiting.pop_first() {
            state.take_wakers(&readers, &mut wakers);
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns `true` if nobody reads.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.state).is_idle()
    }
}

impl<E, S> State<E, S> {
    fn is_idle(&self) -> bool {
        self.readers.is_empty()
    }

    /// Returns the position of the next event to be published.
    fn head(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Takes out the wakers of the readers that wait for an event of this name,
    /// which from here on are behind.
    fn wake(&mut self, name: &[u8], wakers: &mut Vec<Waker>) {
        // No prefix of the name that is longer than this is left to look for.
        let mut longest = Some(name);
        while let Some(bound) = longest {
            let below = (Bound::Unbounded, Bound::Included(bound));
            let Some((prefix, _)) = self.waiting.range::<[u8], _>(below).next_back() else { break };
            let shared = prefix.iter().zip(bound).take_while(|(a, b)| a == b).count();
            if shared == prefix.len() {
                longest = shared.checked_sub(1).and_then(|shorter| name.get(..shorter));
                let readers = bound.get(..shared).and_then(|found| self.waiting.remove(found));
                self.take_wakers(&readers.unwrap_or_default(), wakers);
            } else {
                // Prefixes of the name that share more with it come after this
                // one, and there are none up to the bound.
                longest = name.get(..shared);
            }
        }
    }

    fn take_wakers(&mut self, readers: &[u64], wakers: &mut Vec<Waker>) {
        // The event that wakes them is not in the log yet: it will have this position.
        let head = self.head();
        for number in readers {
            let Some(subscriber) = self.readers.get_mut(number) else { continue };
            if let Place::Waiting { waker, .. } =
                std::mem::replace(&mut subscriber.place, Place::Behind(head))
            {
                self.behind += 1;
                wakers.push(waker);
            }
        }
    }

    fn wait(&mut self, number: u64, waker: &Waker) {
        let Some(subscriber) = self.readers.get_mut(&number) else { return };
        match &mut subscriber.place {
            Place::Waiting { waker: known, .. } => known.clone_from(waker),
            Place::Behind(_) => {
                let others = match self.waiting.get_mut(&subscriber.prefix) {
                    Some(others) => others,
                    None => self.waiting.entry(subscriber.prefix.clone()).or_default(),
                };
                subscriber.place = Place::Waiting { waker: waker.clone(), index: others.len() };
                others.push(number);
                self.behind -= 1;
            }
        }
    }

    /// Takes a reader out, and gives what it had spilled.
    fn leave(&mut self, number: u64) -> Option<Box<S>> {
        let subscriber = self.readers.remove(&number)?;
        self.spilled -= subscriber.spilled;
        let Place::Waiting { index, .. } = subscriber.place else {
            self.behind -= 1;
            return subscriber.spill;
        };
        let others = self.waiting.get_mut(&subscriber.prefix)?;
        others.swap_remove(index);
        // The last one has taken its index, and has to know.
        let moved = others.get(index).copied();
        if others.is_empty() {
            self.waiting.remove(&subscriber.prefix);
        } else if others.len() < others.capacity() / 4 {
            others.shrink_to(2 * others.len());
        }
        if let Some(moved) = moved.and_then(|moved| self.readers.get_mut(&moved))
            && let Place::Waiting { index: known, .. } = &mut moved.place
        {
            *known = index;
        }
        subscriber.spill
    }

    /// Drops what every reader has read. One that has lagged reads no more.
    fn trim(&mut self, dropped: &mut Vec<Kept<E>>) {
        let positions = self.readers.values().filter_map(|subscriber| match subscriber.place {
            Place::Behind(position) => Some(position).filter(|position| *position >= self.first),
            Place::Waiting { .. } => None,
        });
        match positions.min() {
            Some(slowest) => {
                while self.first < slowest {
                    self.drop_oldest(dropped);
                }
            }
            None => self.drop_all(dropped),
        }
        // Each look costs as much as there are readers: so many events later.
        self.trim_at = (2 * self.events.len()).max(self.readers.len()).max(SLACK);
    }

    fn drop_all(&mut self, dropped: &mut Vec<Kept<E>>) {
        while !self.events.is_empty() {
            self.drop_oldest(dropped);
        }
    }

    fn drop_oldest(&mut self, dropped: &mut Vec<Kept<E>>) {
        if let Some(kept) = self.events.pop_front() {
            self.first += 1;
            self.bytes -= kept.bytes;
            dropped.push(kept);
        }
    }
}

impl<E: Clone, S: Spill<E>> State<E, S> {
    /// Moves the oldest events that readers which spill have not read out of the
    /// log, so that they can be dropped.
    fn spill(&mut self) {
        // Lowered below by each reader that may need to spill again.
        self.spills_from = self.head();
        for subscriber in self.readers.values_mut() {
            let (Place::Behind(position), Some(spill)) =
                (&mut subscriber.place, &mut subscriber.spill)
            else {
                continue;
            };
            let Some(skip) = position.checked_sub(self.first).filter(|_| subscriber.spills) else {
                continue;
            };
            let skip = usize::try_from(skip).unwrap_or(usize::MAX);
            if skip >= SPILLED_AT_ONCE {
                // It has time until those before it are gone.
                self.spills_from = self.spills_from.min(*position);
                continue;
            }
            let others = self.spilled - subscriber.spilled;
            for kept in self.events.iter().skip(skip).take(SPILLED_AT_ONCE) {
                if others + spill.bytes() > MOST_SPILLED_BYTES {
                    break;
                }
                spill.push(kept.event.clone());
                *position += 1;
            }
            subscriber.spilled = spill.bytes();
            if *position == self.first {
                // There is no room; it has lagged as soon as the event is gone.
                subscriber.spill = None;
                subscriber.spilled = 0;
            } else {
                self.spills_from = self.spills_from.min(*position);
            }
            self.spilled = others + subscriber.spilled;
        }
    }

    fn read(
        &mut self,
        number: u64,
        waker: &Waker,
        into: &mut VecDeque<E>,
        most: usize,
    ) -> Poll<Result<(), Ended>> {
        let Some(subscriber) = self.readers.get_mut(&number).filter(|_| !self.closed) else {
            return Poll::Ready(Err(Ended::Closed));
        };
        let start = into.len();
        if let Some(spill) = &mut subscriber.spill {
            into.extend(std::iter::from_fn(|| spill.pop()).take(most));
            self.spilled -= subscriber.spilled;
            subscriber.spilled = spill.bytes();
            self.spilled += subscriber.spilled;
            if into.len() > start {
                return Poll::Ready(Ok(()));
            }
        }
        if let Place::Behind(position) = &mut subscriber.place {
            let Some(skip) = position.checked_sub(self.first) else {
                return Poll::Ready(Err(Ended::Lagged));
            };
            let skip = usize::try_from(skip).unwrap_or(usize::MAX);
            into.extend(self.events.iter().skip(skip).take(most).map(|kept| kept.event.clone()));
            if into.len() > start {
                *position += (into.len() - start) as u64;
                return Poll::Ready(Ok(()));
            }
        }
        self.wait(number, waker);
        Poll::Pending
    }
}

/// A position in a topic.
#[derive(Debug)]
pub(crate) struct Reader<E, S> {
    topic: Arc<Topic<E, S>>,
    number: u64,
}

impl<E: Clone, S: Spill<E>> Reader<E, S> {
    /// Moves up to `most` events into `into`; at least one when ready.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut VecDeque<E>,
        most: usize,
    ) -> Poll<Result<(), Ended>> {
        lock(&self.topic.state).read(self.number, cx.waker(), into, most)
    }

    /// Has the log spill into this queue, which is empty, what it has no room for
    /// until the reader has read it.
    pub(crate) fn spill_into(&mut self, spill: S) {
        let mut state = lock(&self.topic.state);
        let state = &mut *state;
        if let Some(subscriber) = state.readers.get_mut(&self.number) {
            subscriber.spill = Some(Box::new(spill));
            subscriber.spills = true;
            if let Place::Behind(position) = subscriber.place {
                state.spills_from = state.spills_from.min(position);
            }
        }
    }

    /// Has the log spill no more for this reader. What it has spilled is read
    /// before what follows in the log.
    pub(crate) fn spill_no_more(&mut self) {
        if let Some(subscriber) = lock(&self.topic.state).readers.get_mut(&self.number) {
            subscriber.spills = false;
        }
    }
}

impl<E, S> Drop for Reader<E, S> {
    fn drop(&mut self) {
        let mut state = lock(&self.topic.state);
        let spill = state.leave(self.number);
        let mut dropped = Vec::new();
        if state.behind == 0 {
            state.drop_all(&mut dropped);
        }
        drop(state);
        drop((dropped, spill));
    }
}
