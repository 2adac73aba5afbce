use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, Wake, Waker},
};

use proptest::prelude::*;

use super::*;
use crate::{
    backend::store::topic::{Ended, Spill},
    demo,
    pb::{Resource, Tenancy},
    typed::ResourceData as _,
};

/// A waker that counts.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A watch that waits for changes.
struct Waiting {
    reader: ChangeReader,
    wakes: Arc<Wakes>,
}

impl Waiting {
    fn new(topics: &Topics, query: &Query) -> Self {
        let mut waiting = Self { reader: topics.subscribe(query), wakes: Arc::default() };
        assert!(waiting.read().unwrap().is_empty());
        waiting
    }

    /// Reads what there is; waits if that is nothing.
    fn read(&mut self) -> Result<Vec<Change>, Ended> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let mut read = VecDeque::new();
        while let Poll::Ready(end) =
            self.reader.poll_read(&mut Context::from_waker(&waker), &mut read, 2)
        {
            end?;
        }
        Ok(read.into())
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::Relaxed)
    }
}

fn query(partition: &str, namespace: &str, prefix: &str) -> Query {
    let kind = demo::v2::Artist::resource_type().group_kind();
    Query::new(kind, Tenancy::new(partition, namespace)).with_name_prefix(prefix)
}

fn change(index: u64, partition: &str, namespace: &str, name: &str) -> Change {
    let mut resource: Resource = demo::artist(name).encode();
    resource.id.as_mut().unwrap().tenancy = Some(Tenancy::new(partition, namespace));
    Change::write(index, None, Arc::new(resource))
}

#[test]
fn a_change_wakes_the_watches_whose_query_it_matches_and_no_others() {
    let topics = Topics::new(16);
    let queries = [
        ("p", "n", "", true),
        ("p", "n", "good", true),
        ("p", "n", "good-1", true),
        ("p", "*", "good-", true),
        ("*", "n", "g", true),
        ("*", "*", "", true),
        ("p", "n", "good-10", false),
        ("p", "n", "good-2", false),
        ("p", "n", "good!", false),
        ("p", "n", "goods", false),
        ("p", "n", "a", false),
        ("p", "n", "none", false),
        ("*", "*", "none", false),
        ("p", "*", "none", false),
        ("p", "other", "", false),
        ("other", "n", "good-1", false),
        ("*", "other", "", false),
        ("other", "*", "", false),
    ];
    let mut watches: Vec<_> = queries
        .iter()
        .map(|(partition, namespace, prefix, matches)| {
            let query = query(partition, namespace, prefix);
            (Waiting::new(&topics, &query), query, *matches)
        })
        .collect();
    for round in 1..=3 {
        topics.publish(&change(1, "p", "n", "good-1"));
        for (watch, query, matches) in &mut watches {
            assert_eq!(watch.wakes(), if *matches { round } else { 0 }, "{query:?}");
            if *matches {
                assert_eq!(watch.read().unwrap().len(), 1, "{query:?}");
            }
        }
    }
}

/// Changes that it does not match neither wake a watch nor push it out.
#[test]
fn a_watch_does_not_fall_behind_by_what_it_does_not_match() {
    let topics = Topics::new(4);
    let mut watch = Waiting::new(&topics, &query("p", "n", "mine-"));
    for index in 1..=100 {
        topics.publish(&change(index, "p", "n", "other"));
    }
    topics.publish(&change(101, "p", "n", "mine-1"));
    let read = watch.read().unwrap();
    assert_eq!(read.iter().map(|change| change.index).collect::<Vec<_>>(), [101]);
    assert_eq!(watch.wakes(), 1);
}

/// What a reader has spilled, each event by itself, of so many bytes.
#[derive(Debug, Default)]
struct Queue(VecDeque<u64>, usize);

impl Spill<u64> for Queue {
    fn push(&mut self, event: u64) {
        self.0.push_back(event);
    }

    fn pop(&mut self) -> Option<u64> {
        self.0.pop_front()
    }

    fn bytes(&self) -> usize {
        self.0.len() * self.1
    }
}

/// A reader, and what it has to be given.
struct Modelled {
    reader: Reader<u64, Queue>,
    prefix: String,
    spills: bool,
    wakes: Arc<Wakes>,
    /// What it follows and has not read.
    expected: VecDeque<u64>,
    /// Number of times that it has to have been woken.
    expected_wakes: usize,
    waits: bool,
    /// Number of events since it was up to date.
    behind: usize,
}

impl Modelled {
    fn published(&mut self, name: &str, event: u64) {
        let follows = name.starts_with(&self.prefix);
        if follows {
            self.expected.push_back(event);
        }
        if self.waits && follows {
            self.waits = false;
            self.expected_wakes += 1;
        }
        if !self.waits {
            self.behind += 1;
        }
        assert_eq!(self.wakes.0.load(Ordering::Relaxed), self.expected_wakes);
    }

    /// Reads once; gives `false` once it has ended.
    fn read(&mut self, names: &[String], most: usize, capacity: usize) -> bool {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let mut read = VecDeque::new();
        match self.reader.poll_read(&mut Context::from_waker(&waker), &mut read, most) {
            Poll::Pending => {
                assert!(self.expected.is_empty(), "{:?} were missed", self.expected);
                self.waits = true;
                self.behind = 0;
            }
            Poll::Ready(Ok(())) => {
                assert!((1..=most).contains(&read.len()));
                for event in read {
                    self.behind -= 1;
                    if names[usize::try_from(event).unwrap()].starts_with(&self.prefix) {
                        assert_eq!(self.expected.pop_front(), Some(event));
                    }
                }
            }
            Poll::Ready(Err(ended)) => {
                assert_eq!(ended, Ended::Lagged);
                assert!(!self.spills && self.behind > capacity, "{} events", self.behind);
                return false;
            }
        }
        true
    }
}

/// What slow readers spill is bounded for all of them together, and given back.
#[test]
fn readers_that_spill_too_much_lag() {
    const EACH: usize = 20 << 20;
    let topic = Arc::new(Topic::<u64, Queue>::new(2));
    let read_all = |reader: &mut Reader<u64, Queue>| {
        let (mut read, waker) = (VecDeque::new(), Waker::noop());
        let mut cx = Context::from_waker(waker);
        loop {
            match reader.poll_read(&mut cx, &mut read, 2) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(ended)) => return Err(ended),
                Poll::Pending => return Ok(read.len()),
            }
        }
    };
    let slow = || {
        let mut reader = topic.subscribe(b"");
        reader.spill_into(Queue(VecDeque::new(), EACH));
        reader
    };
    for _ in 0..3 {
        let mut readers = [slow(), slow(), slow()];
        for event in 0..4 {
            topic.publish(b"", event, 1);
        }
        let read: Vec<_> = readers.iter_mut().map(read_all).collect();
        assert!(read.contains(&Ok(4)), "there is room for what one of them spills: {read:?}");
        assert!(read.contains(&Err(Ended::Lagged)), "but not for all: {read:?}");
        // One that is gone gives back what it had.
        drop(readers);
    }
}

proptest! {
    /// Whatever readers follow, and at whatever pace, each gets what it follows in
    /// order, and is woken once for each time that it waits. Only one that is
    /// behind by more than the log holds, and does not spill, lags.
    #[test]
    fn readers_get_what_they_follow(
        capacity in prop_oneof![1_usize..6, 70_usize..90],
        steps in prop::collection::vec((0_u8..8, "[ab]{0,3}", 0_usize..8), 0..600),
    ) {
        let topic = Arc::new(Topic::<u64, Queue>::new(capacity));
        let mut readers: Vec<Modelled> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for (action, text, number) in steps {
            let of_readers = number.checked_rem(readers.len());
            match (action, of_readers) {
                (0, _) => {
                    let mut reader = topic.subscribe(text.as_bytes());
                    let spills = number % 2 == 0;
                    if spills {
                        reader.spill_into(Queue::default());
                    }
                    let (expected, wakes) = (VecDeque::new(), Arc::default());
                    readers.push(Modelled {
                        reader, prefix: text, spills, wakes, expected,
                        expected_wakes: 0, waits: false, behind: 0,
                    });
                }
                (1..=4, _) => {
                    let event = names.len() as u64;
                    topic.publish(text.as_bytes(), event, 1);
                    for reader in &mut readers {
                        reader.published(&text, event);
                    }
                    names.push(text);
                }
                (5, Some(reader)) if text.len() == 3 => drop(readers.swap_remove(reader)),
                (6, Some(reader)) if text.len() == 3 => {
                    readers[reader].reader.spill_no_more();
                    readers[reader].spills = false;
                }
                (_, Some(reader)) => {
                    if !readers[reader].read(&names, text.len() + 1, capacity) {
                        readers.swap_remove(reader);
                    }
                }
                (_, None) => {}
            }
        }
        for reader in &mut readers {
            while !reader.expected.is_empty() && reader.read(&names, 4, capacity) {}
        }
        drop(readers);
        prop_assert!(topic.is_idle());
    }
}
