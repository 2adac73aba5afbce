//! The log of changes under every schedule that a model checker comes up with.
//!
//! The same source file as in the crate, with the checker's locks.

mod sync {
    use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::{Arc, Mutex};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

#[path = "../../src/backend/store/topic.rs"]
mod topic;

use std::{collections::VecDeque, future::poll_fn};

use shuttle::{future::block_on, thread};
use sync::{Arc, Mutex, lock};
use topic::{Ended, Spill};

type Topic = topic::Topic<u64, Queue>;
type Reader = topic::Reader<u64, Queue>;

/// What a reader has spilled, each event by itself.
#[derive(Debug, Default)]
struct Queue(VecDeque<u64>);

impl Spill<u64> for Queue {
    fn push(&mut self, event: u64) {
        self.0.push_back(event);
    }

    fn pop(&mut self) -> Option<u64> {
        self.0.pop_front()
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }
}

async fn read(reader: &mut Reader) -> Result<Vec<u64>, Ended> {
    let mut got = VecDeque::new();
    poll_fn(|cx| reader.poll_read(cx, &mut got, 2)).await?;
    Ok(got.into())
}

/// Reads until `last`, and gives everything that was read.
fn follow(mut reader: Reader, last: u64) -> Result<Vec<u64>, Ended> {
    block_on(async {
        let mut seen = Vec::new();
        while seen.last() != Some(&last) {
            seen.extend(read(&mut reader).await?);
        }
        Ok(seen)
    })
}

#[test]
fn every_reader_gets_every_event_in_order() {
    shuttle::check_random(
        || {
            let topic = Arc::new(Topic::new(16));
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let reader = topic.subscribe(b"");
                    thread::spawn(move || follow(reader, 4))
                })
                .collect();
            for event in 0..5 {
                topic.publish(b"a", event, 1);
            }
            for reader in readers {
                assert_eq!(reader.join().unwrap(), Ok(vec![0, 1, 2, 3, 4]));
            }
            assert!(topic.is_idle());
        },
        2_000,
    );
}

#[test]
fn a_reader_gets_a_gapless_run_or_is_told_that_it_lagged() {
    shuttle::check_random(
        || {
            let topic = Arc::new(Topic::new(2));
            let reader = topic.subscribe(b"");
            let reader = thread::spawn(move || follow(reader, 4));
            for event in 0..5 {
                topic.publish(b"a", event, 1);
            }
            match reader.join().unwrap() {
                Ok(seen) => assert_eq!(seen, [0, 1, 2, 3, 4]),
                Err(ended) => assert_eq!(ended, Ended::Lagged),
            }
        },
        2_000,
    );
}

/// What the log has no room for comes before what is there, also where it ends to
/// spill in between.
#[test]
fn a_reader_that_spills_gets_every_event_in_order() {
    shuttle::check_random(
        || {
            let topic = Arc::new(Topic::new(2));
            let mut reader = topic.subscribe(b"");
            reader.spill_into(Queue::default());
            let reader = thread::spawn(move || {
                let mut seen = Vec::new();
                while seen.last() != Some(&7) {
                    match block_on(read(&mut reader)) {
                        Ok(events) => seen.extend(events),
                        Err(ended) => return (seen, Err(ended)),
                    }
                    if seen.len() >= 4 {
                        reader.spill_no_more();
                    }
                }
                (seen, Ok(()))
            });
            for event in 0..8 {
                topic.publish(b"a", event, 1);
            }
            let (seen, end) = reader.join().unwrap();
            let expected: Vec<u64> = (0..seen.len() as u64).collect();
            assert_eq!(seen, expected);
            assert!(end == Ok(()) || end == Err(Ended::Lagged) && seen.len() >= 4, "{end:?}");
            assert!(topic.is_idle());
        },
        5_000,
    );
}

/// A reader of some names gets each of their events, and does not lag behind
/// others.
#[test]
fn a_reader_misses_nothing_among_events_that_it_does_not_follow() {
    shuttle::check_random(
        || {
            let topic = Arc::new(Topic::new(2));
            let mut reader = topic.subscribe(b"a");
            // Once it waits, what it does not follow passes it by.
            let waits = block_on(async {
                poll_fn(|cx| {
                    let read = reader.poll_read(cx, &mut VecDeque::new(), 1);
                    std::task::Poll::Ready(read.is_pending())
                })
                .await
            });
            assert!(waits);
            let reader = thread::spawn(move || {
                block_on(async {
                    let mut seen = Vec::new();
                    while seen.last() != Some(&1) {
                        let events = read(&mut reader).await.unwrap();
                        seen.extend(events.into_iter().filter(|event| *event < 10));
                    }
                    seen
                })
            });
            for other in 10..14 {
                topic.publish(b"b", other, 1);
            }
            topic.publish(b"ab", 0, 1);
            topic.publish(b"a", 1, 1);
            assert_eq!(reader.join().unwrap(), [0, 1]);
            assert!(topic.is_idle());
        },
        2_000,
    );
}

#[test]
fn closing_wakes_whoever_waits() {
    shuttle::check_random(
        || {
            let topic = Arc::new(Topic::new(2));
            let mut reader = topic.subscribe(b"");
            let reader = thread::spawn(move || block_on(read(&mut reader)));
            topic.close();
            assert_eq!(reader.join().unwrap(), Err(Ended::Closed));
        },
        2_000,
    );
}

/// Commit then publish, subscribe then read: the order that the store keeps
/// makes the state and the events join without a gap.
#[test]
fn a_snapshot_and_what_follows_miss_nothing() {
    shuttle::check_random(
        || {
            let topic = Arc::new(Topic::new(16));
            let state = Arc::new(Mutex::new(0_u64));
            let writer = {
                let (topic, state) = (Arc::clone(&topic), Arc::clone(&state));
                thread::spawn(move || {
                    for index in 1..=4 {
                        *lock(&state) = index;
                        topic.publish(b"a", index, 1);
                    }
                })
            };
            let reader = topic.subscribe(b"");
            let snapshot = *lock(&state);
            let mut seen = vec![snapshot];
            if snapshot < 4 {
                let followed = follow(reader, 4).unwrap();
                seen.extend(followed.into_iter().filter(|index| *index > snapshot));
            }
            writer.join().unwrap();
            let expected: Vec<_> = (snapshot..=4).collect();
            assert_eq!(seen, expected);
        },
        2_000,
    );
}

/// Whether the checker finds a schedule in which `body` fails.
fn is_found(body: impl Fn() + Send + Sync + 'static) -> bool {
    let check = std::panic::AssertUnwindSafe(|| shuttle::check_random(body, 2_000));
    std::panic::catch_unwind(check).is_err()
}

/// The order of [`a_snapshot_and_what_follows_miss_nothing`] turned round on one
/// side: what a reader sees then has a gap.
#[test]
fn planted_wrong_orders_are_found() {
    let snapshot_before_subscribing = || {
        let topic = Arc::new(Topic::new(16));
        let state = Arc::new(Mutex::new(0_u64));
        let writer = {
            let (topic, state) = (Arc::clone(&topic), Arc::clone(&state));
            thread::spawn(move || {
                *lock(&state) = 1;
                topic.publish(b"a", 1, 1);
            })
        };
        let snapshot = *lock(&state);
        let mut reader = topic.subscribe(b"");
        writer.join().unwrap();
        topic.publish(b"a", 2, 1);
        let seen = block_on(read(&mut reader)).unwrap();
        assert_eq!(seen.into_iter().find(|index| *index > snapshot), Some(snapshot + 1));
    };
    assert!(is_found(snapshot_before_subscribing));

    let publish_before_commit = || {
        let topic = Arc::new(Topic::new(16));
        let state = Arc::new(Mutex::new(0_u64));
        let mut reader = topic.subscribe(b"");
        let writer = {
            let (topic, state) = (Arc::clone(&topic), Arc::clone(&state));
            thread::spawn(move || {
                topic.publish(b"a", 1, 1);
                *lock(&state) = 1;
            })
        };
        let seen = block_on(read(&mut reader)).unwrap();
        assert!(*lock(&state) >= seen[0], "a read after an event is older than the event");
        writer.join().unwrap();
    };
    assert!(is_found(publish_before_commit));
}

/// A reader whose waker goes nowhere waits for ever in some schedules.
#[test]
fn planted_lost_wakeups_are_found() {
    let deaf_reader = || {
        let topic = Arc::new(Topic::new(16));
        let mut reader = topic.subscribe(b"");
        let writer = {
            let topic = Arc::clone(&topic);
            thread::spawn(move || topic.publish(b"a", 1, 1))
        };
        let mut got = VecDeque::new();
        let read = poll_fn(|_cx| {
            let mut deaf = std::task::Context::from_waker(std::task::Waker::noop());
            reader.poll_read(&mut deaf, &mut got, 1)
        });
        block_on(read).unwrap();
        writer.join().unwrap();
    };
    assert!(is_found(deaf_reader));
}
