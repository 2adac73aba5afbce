//! The work queue: each key once, one worker at a key, delays, backoff.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::backoff::exponential;

/// Something to be worked at.
pub trait QueueItem: Clone + Send + Sync + 'static {
    /// Items of one key are the same work.
    fn key(&self) -> String;
}

/// A queue that holds each key once.
///
/// A key is never worked at twice at the same time: what is added meanwhile
/// waits until [`WorkQueue::done`].
///
/// Source: `agent/consul/controller/queue`, Consul 1.21.
/// Deviation: deferred items come at their time, without a tick.
#[derive(Debug)]
pub struct WorkQueue<T> {
    base: Duration,
    max: Duration,
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    ready: VecDeque<T>,
    /// Keys that are in `ready`, or were added while they are worked at.
    dirty: HashSet<String>,
    processing: HashSet<String>,
    /// By due time, then by order of adding.
    deferred: BTreeMap<(Instant, u64), T>,
    due: HashMap<String, (Instant, u64)>,
    failures: HashMap<String, u32>,
    counter: u64,
    shut_down: bool,
}

impl<T: QueueItem> WorkQueue<T> {
    /// An empty queue whose rate limited items wait `base`, doubled with each
    /// failure, at most `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            processing: HashSet::new(),
            deferred: BTreeMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            counter: 0,
            shut_down: false,
        };
        Self { base, max, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Adds an item, unless its key waits already: then the first one stays.
    pub fn add(&self, item: T) {
        self.lock().add(item);
        self.changed.notify_one();
    }

    /// Adds an item after a delay; none means now. A delayed item of the same
    /// key stays unless the new one comes earlier, or `replace` is set.
    pub fn add_after(&self, item: T, delay: Duration, replace: bool) {
        if delay.is_zero() {
            return self.add(item);
        }
        self.lock().defer(item, Instant::now() + delay, replace);
        self.changed.notify_one();
    }

    /// Adds an item after a delay that doubles with each call, until
    /// [`WorkQueue::forget`].
    pub fn add_rate_limited(&self, item: T) {
        let mut state = self.lock();
        let failures = state.failures.entry(item.key()).or_default();
        let delay = exponential(self.base, self.max, *failures);
        *failures = failures.saturating_add(1);
        drop(state);
        self.add_after(item, delay, false);
    }

    /// Forgets the failures of a key.
    pub fn forget(&self, item: &T) {
        self.lock().failures.remove(&item.key());
    }

    /// Waits for an item to work at; none after a shutdown, when nothing is
    /// left. Several workers may wait. Dropping the future loses nothing.
    pub async fn get(&self) -> Option<T> {
        loop {
            let next_due = {
                let mut state = self.lock();
                state.add_due(Instant::now());
                let item = state.take();
                if item.is_some() || state.shut_down {
                    // One call may have stood for several: the next worker looks, too.
                    if state.shut_down || !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return item;
                }
                state.deferred.keys().next().map(|(due, _)| *due)
            };
            match next_due {
                Some(due) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(due) => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    /// Ends the work at an item. If its key was added meanwhile, it is next in
    /// line.
    pub fn done(&self, item: T) {
        self.lock().done(item);
        self.changed.notify_one();
    }

    /// Lets [`WorkQueue::get`] end once nothing is ready.
    pub fn shut_down(&self) {
        self.lock().shut_down = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: QueueItem> State<T> {
    fn add(&mut self, item: T) {
        let key = item.key();
        if !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return;
        }
        self.ready.push_back(item);
    }

    fn take(&mut self) -> Option<T> {
        let item = self.ready.pop_front()?;
        let key = item.key();
        // What is added from here on is news: `done` makes the key ready once more.
        self.dirty.remove(&key);
        self.processing.insert(key);
        Some(item)
    }

    fn done(&mut self, item: T) {
        let key = item.key();
        self.processing.remove(&key);
        if self.dirty.contains(&key) {
            self.ready.push_back(item);
        }
    }

    fn defer(&mut self, item: T, at: Instant, replace: bool) {
        let key = item.key();
        if let Some(place) = self.due.get(&key) {
            if !replace && place.0 <= at {
                return;
            }
            self.deferred.remove(place);
        }
        self.counter += 1;
        let place = (at, self.counter);
        self.due.insert(key, place);
        self.deferred.insert(place, item);
    }

    /// Moves what is due to where work is taken from.
    fn add_due(&mut self, now: Instant) {
        while let Some(first) = self.deferred.first_entry() {
            if first.key().0 > now {
                return;
            }
            let item = first.remove();
            self.due.remove(&item.key());
            self.add(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Item(&'static str, u32);

    impl QueueItem for Item {
        fn key(&self) -> String {
            self.0.to_owned()
        }
    }

    fn queue() -> WorkQueue<Item> {
        WorkQueue::new(Duration::from_millis(1), Duration::from_secs(1000))
    }

    async fn nothing_within(queue: &WorkQueue<Item>, time: Duration) {
        assert!(tokio::time::timeout(time, queue.get()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_and_keeps_its_first_payload() {
        let queue = queue();
        queue.add(Item("a", 1));
        queue.add(Item("a", 2));
        queue.add(Item("b", 3));
        assert_eq!(queue.get().await, Some(Item("a", 1)));
        assert_eq!(queue.get().await, Some(Item("b", 3)));
        nothing_within(&queue, Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_at_by_one() {
        let queue = queue();
        queue.add(Item("a", 1));
        let first = queue.get().await.unwrap();
        queue.add(Item("a", 2));
        nothing_within(&queue, Duration::from_secs(1)).await;
        queue.done(first);
        assert_eq!(queue.get().await, Some(Item("a", 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn deferred_items_come_at_their_time() {
        let queue = queue();
        queue.add_after(Item("a", 1), Duration::from_secs(10), false);
        queue.add_after(Item("a", 2), Duration::from_secs(20), false);
        queue.add_after(Item("b", 3), Duration::from_secs(5), false);
        queue.add_after(Item("b", 4), Duration::from_secs(30), true);
        let start = Instant::now();
        assert_eq!(queue.get().await, Some(Item("a", 1)));
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(queue.get().await, Some(Item("b", 4)));
        assert_eq!(start.elapsed().as_secs(), 30);
        queue.add_after(Item("c", 5), Duration::ZERO, false);
        assert_eq!(queue.get().await, Some(Item("c", 5)));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_double_the_delay_until_forgotten() {
        let queue = queue();
        for expected in [1, 2, 4, 8, 16] {
            let start = Instant::now();
            queue.add_rate_limited(Item("a", 0));
            let item = queue.get().await.unwrap();
            assert_eq!(start.elapsed().as_millis(), expected);
            queue.done(item);
        }
        queue.forget(&Item("a", 0));
        let start = Instant::now();
        queue.add_rate_limited(Item("a", 0));
        queue.add_rate_limited(Item("b", 0));
        queue.get().await.unwrap();
        queue.get().await.unwrap();
        assert_eq!(start.elapsed().as_millis(), 1, "each key has its own delay");
    }

    #[tokio::test(start_paused = true)]
    async fn every_worker_hears_of_a_shutdown() {
        let queue = queue();
        queue.add(Item("a", 1));
        let workers = async { tokio::join!(queue.get(), queue.get(), queue.get()) };
        let ending = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            queue.shut_down();
        };
        let all = async { tokio::join!(workers, ending).0 };
        let got = tokio::time::timeout(Duration::from_mins(1), all).await.unwrap();
        assert_eq!(got, (Some(Item("a", 1)), None, None));
    }

    #[tokio::test]
    async fn a_shut_down_queue_gives_what_it_has() {
        let queue = queue();
        queue.add(Item("a", 1));
        queue.shut_down();
        assert_eq!(queue.get().await, Some(Item("a", 1)));
        assert_eq!(queue.get().await, None);
    }
}
