//! The work queue: each key once, one worker at a resource, two priorities,
//! delays, backoff.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::backoff::exponential;

/// The share of low priority: an item in so many.
const LOW_EVERY: u64 = 8;

/// Something to be worked at.
pub trait QueueItem: Clone + Send + Sync + 'static {
    /// Items of one key are the same work.
    fn key(&self) -> String;

    /// Items of one subject are never worked at by two workers at the same time.
    ///
    /// By default the key. Another one is needed where items of several keys are
    /// about one thing, as requests with and without the uid of a resource.
    fn subject(&self) -> String {
        self.key()
    }

    /// Takes in a newer item of the same key, added while this one waits. By
    /// default the newer one takes its place.
    fn merge(&mut self, newer: Self) {
        *self = newer;
    }
}

/// The order in which a queue gives what is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// After everything else, but for one in eight: what nobody waits for, as the resources that a
    /// watch finds at its start.
    Low,
    /// In the order of adding, before all of low priority.
    #[default]
    Normal,
}

/// A queue that holds each key once.
///
/// A key is never worked at twice at the same time: what is added meanwhile
/// waits until [`WorkQueue::done`]. Nor are two keys of one
/// [subject](QueueItem::subject); the second one waits, and others go before it.
///
/// | a key that is | on `add` | on `get` | on `done` |
/// |---|---|---|---|
/// | nowhere | becomes ready | | |
/// | ready | is merged, and takes the higher priority | is at work, if its subject is not | |
/// | at work | is dirty | | is nowhere |
/// | at work and dirty | is merged | | is ready |
///
/// Source: `agent/consul/controller/queue`, Consul 1.21.
///
/// Deviation: deferred items come at their time, without a tick. Of several
/// payloads of a key upstream gives the first one; here [`QueueItem::merge`]
/// decides, and the last one is never lost.
#[derive(Debug)]
pub struct WorkQueue<T> {
    base: Duration,
    max: Duration,
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    /// Keys in the order in which they became ready. A key that got the higher
    /// priority stays among the others, too, where `take` skips it.
    normal: VecDeque<String>,
    low: VecDeque<String>,
    /// The items that are ready, or were added while they are worked at.
    dirty: HashMap<String, (Priority, T)>,
    processing: HashSet<String>,
    /// The subjects of what is worked at.
    subjects: HashSet<String>,
    /// By due time, then by order of adding.
    deferred: BTreeMap<(Instant, u64), (Priority, T)>,
    due: HashMap<String, (Instant, u64)>,
    failures: HashMap<String, u32>,
    counter: u64,
    /// The number of items that were given, for the share of low priority.
    taken: u64,
    shut_down: bool,
}

impl<T: QueueItem> WorkQueue<T> {
    /// An empty queue whose rate limited items wait `base`, doubled with each
    /// failure, at most `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        let state = State {
            normal: VecDeque::new(),
            low: VecDeque::new(),
            dirty: HashMap::new(),
            processing: HashSet::new(),
            subjects: HashSet::new(),
            deferred: BTreeMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            counter: 0,
            taken: 1,
            shut_down: false,
        };
        Self { base, max, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Adds an item; one of its key that waits already takes it in.
    pub fn add(&self, item: T) {
        self.add_with(item, Priority::Normal);
    }

    /// Adds an item with a priority. One that waits already keeps the higher one
    /// of both.
    pub fn add_with(&self, item: T, priority: Priority) {
        self.lock().add(item, priority);
        self.changed.notify_one();
    }

    /// Adds an item after a delay; none means now. A delayed item of the same
    /// key stays unless the new one comes earlier, or `replace` is set.
    pub fn add_after(&self, item: T, delay: Duration, replace: bool) {
        self.defer(item, Priority::Normal, delay, replace);
    }

    /// Adds an item of low priority after a delay, in place of a delayed one of
    /// the same key.
    pub(super) fn add_low_after(&self, item: T, delay: Duration) {
        self.defer(item, Priority::Low, delay, true);
    }

    fn defer(&self, item: T, priority: Priority, delay: Duration, replace: bool) {
        if delay.is_zero() {
            return self.add_with(item, priority);
        }
        self.lock().defer(item, priority, Instant::now() + delay, replace);
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
    /// left. Several workers may wait.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn get(&self) -> Option<T> {
        loop {
            let next_due = {
                let mut state = self.lock();
                state.add_due(Instant::now());
                let item = state.take();
                if item.is_some() || state.shut_down {
                    // One call may have stood for several: the next worker looks, too.
                    if state.shut_down || !state.dirty.is_empty() {
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

    /// Ends the work at an item. If its key was added meanwhile, it is ready
    /// again.
    pub fn done(&self, item: &T) {
        self.lock().done(item);
        self.changed.notify_one();
    }

    /// Lets [`WorkQueue::get`] end once nothing is ready.
    pub fn shut_down(&self) {
        self.lock().shut_down = true;
        self.changed.notify_one();
    }

    /// Returns how many keys are ready, or were added while they are worked at;
    /// those that wait for their time are not counted.
    pub fn len(&self) -> usize {
        self.lock().dirty.len()
    }

    /// Returns `true` if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: QueueItem> State<T> {
    fn add(&mut self, item: T, priority: Priority) {
        let key = item.key();
        let moves = match self.dirty.entry(key.clone()) {
            Entry::Vacant(place) => {
                place.insert((priority, item));
                true
            }
            Entry::Occupied(mut place) => {
                let (before, waiting) = place.get_mut();
                waiting.merge(item);
                std::mem::replace(before, priority.max(*before)) < priority
            }
        };
        if moves && !self.processing.contains(&key) {
            self.ready(priority).push_back(key);
        }
    }

    fn ready(&mut self, priority: Priority) -> &mut VecDeque<String> {
        match priority {
            Priority::Low => &mut self.low,
            Priority::Normal => &mut self.normal,
        }
    }

    fn take(&mut self) -> Option<T> {
        // Now and then the other way round: a steady stream of changes must not keep the rest
        // waiting for ever.
        let (first, then) = if self.taken.is_multiple_of(LOW_EVERY) {
            (Priority::Low, Priority::Normal)
        } else {
            (Priority::Normal, Priority::Low)
        };
        let item = self.take_with(first).or_else(|| self.take_with(then))?;
        self.taken = self.taken.wrapping_add(1);
        Some(item)
    }

    /// Takes the first key whose subject nobody works at.
    fn take_with(&mut self, priority: Priority) -> Option<T> {
        let mut ready = std::mem::take(self.ready(priority));
        let dirty = &self.dirty;
        // A place in the queue that a higher priority, or an earlier place, has emptied.
        let stands = |key: &String| dirty.get(key).is_some_and(|(found, _)| *found == priority);
        while ready.front().is_some_and(|key| !stands(key) || self.processing.contains(key)) {
            ready.pop_front();
        }
        let free = |key: &String| {
            stands(key)
                && !self.processing.contains(key)
                && dirty.get(key).is_some_and(|(_, item)| !self.subjects.contains(&item.subject()))
        };
        let key = ready.iter().position(free).and_then(|at| ready.remove(at));
        *self.ready(priority) = ready;
        let key = key?;
        // What is added from here on is news: `done` makes the key ready once more.
        let (_, item) = self.dirty.remove(&key)?;
        self.processing.insert(key);
        self.subjects.insert(item.subject());
        Some(item)
    }

    fn done(&mut self, item: &T) {
        let key = item.key();
        self.processing.remove(&key);
        self.subjects.remove(&item.subject());
        if let Some((priority, _)) = self.dirty.get(&key) {
            let priority = *priority;
            self.ready(priority).push_back(key);
        }
    }

    fn defer(&mut self, item: T, priority: Priority, at: Instant, replace: bool) {
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
        self.deferred.insert(place, (priority, item));
    }

    /// Moves what is due to where work is taken from.
    fn add_due(&mut self, now: Instant) {
        while let Some(first) = self.deferred.first_entry() {
            if first.key().0 > now {
                return;
            }
            let (priority, item) = first.remove();
            self.due.remove(&item.key());
            self.add(item, priority);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    async fn a_key_waits_once_with_its_last_payload() {
        let queue = queue();
        queue.add(Item("a", 1));
        queue.add(Item("a", 2));
        queue.add(Item("b", 3));
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.get().await, Some(Item("a", 2)));
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
        queue.done(&first);
        assert_eq!(queue.get().await, Some(Item("a", 2)));
    }

    /// Two keys of one subject, as a request with and one without a uid.
    #[derive(Debug, Clone, PartialEq)]
    struct Part(&'static str, &'static str);

    impl QueueItem for Part {
        fn key(&self) -> String {
            format!("{}/{}", self.0, self.1)
        }

        fn subject(&self) -> String {
            self.0.to_owned()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_subject_is_worked_at_by_one_and_holds_up_no_other() {
        let queue = WorkQueue::new(Duration::from_millis(1), Duration::from_secs(1));
        for part in [Part("a", "1"), Part("a", "2"), Part("b", "1")] {
            queue.add(part);
        }
        let first = queue.get().await.unwrap();
        assert_eq!(first, Part("a", "1"));
        assert_eq!(queue.get().await, Some(Part("b", "1")));
        let waiting = tokio::time::timeout(Duration::from_secs(1), queue.get()).await;
        assert!(waiting.is_err(), "the other part of what is worked at");
        queue.done(&first);
        assert_eq!(queue.get().await, Some(Part("a", "2")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_comes_later_but_comes() {
        let queue = WorkQueue::new(Duration::from_millis(1), Duration::from_secs(1));
        queue.add_with(Item("low", 1), Priority::Low);
        queue.add_with(Item("promoted", 1), Priority::Low);
        queue.add(Item("first", 1));
        queue.add(Item("promoted", 2));
        for expected in [Item("first", 1), Item("promoted", 2), Item("low", 1)] {
            let item = queue.get().await.unwrap();
            assert_eq!(item, expected);
            queue.done(&item);
        }
        nothing_within(&queue, Duration::from_secs(1)).await;
        queue.add_with(Item("low", 1), Priority::Low);
        let mut normal = 0;
        loop {
            queue.add(Item("first", 1));
            let item = queue.get().await.unwrap();
            queue.done(&item);
            if item.0 == "low" {
                break;
            }
            normal += 1;
        }
        assert!(normal <= LOW_EVERY, "{normal} before it");
    }

    proptest! {
        /// Whatever is added while two workers take turns: each key is given with its last payload
        /// after it was added last, and no subject twice at a time.
        #[test]
        fn nothing_added_is_lost(steps in prop::collection::vec((0..5_usize, 0..4_u8, any::<bool>()), 1..200)) {
            const KEYS: [(&str, &str); 4] = [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")];
            #[derive(Debug, Clone, PartialEq)]
            struct Item(usize, usize);
            impl QueueItem for Item {
                fn key(&self) -> String { format!("{:?}", KEYS[self.0]) }
                fn subject(&self) -> String { KEYS[self.0].0.to_owned() }
            }
            let queue = WorkQueue::<Item>::new(Duration::from_millis(1), Duration::from_secs(1));
            let (mut working, mut last) = (Vec::<Item>::new(), [None; 4]);
            let take = |working: &mut Vec<Item>, last: &mut [Option<usize>; 4]| {
                let taken = queue.lock().take();
                if let Some(item) = &taken {
                    assert!(!working.iter().any(|other| other.subject() == item.subject()));
                    assert_eq!(last[item.0].take(), Some(item.1));
                    working.push(item.clone());
                }
                taken.is_some()
            };
            for (number, (step, key, low)) in steps.into_iter().enumerate() {
                let key = usize::from(key);
                match step {
                    0..3 => {
                        let priority = if low { Priority::Low } else { Priority::Normal };
                        queue.add_with(Item(key, number), priority);
                        last[key] = Some(number);
                    }
                    3 => { take(&mut working, &mut last); }
                    _ if working.is_empty() => {}
                    _ => queue.done(&working.remove(key % working.len())),
                }
            }
            while take(&mut working, &mut last) || !working.is_empty() {
                if let Some(item) = working.pop() {
                    queue.done(&item);
                }
            }
            prop_assert_eq!(last, [None; 4]);
            prop_assert!(queue.is_empty());
        }
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
            queue.done(&item);
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
