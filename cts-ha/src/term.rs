//! The life of a held term: what ends it, and what is left behind for the next leader.
//!
//! | state | event | next state | action |
//! |---|---|---|---|
//! | held | renewed in time | held | postpone the deadline |
//! | held | deadline passed | lease expired | abandon the session |
//! | held | session ended | session ended | abandon the session |
//! | held | key taken | taken | abandon the session |
//! | held | key unwatched | unwatched | abandon the session |
//! | held | write refused | refused | abandon the session |
//! | held | resigned | resigned | release the lock, destroy the session |
//! | held | keeper gone | abandoned | abandon the session |
//! | ended | any | ended | keep the first reason |
//!
//! A [`Lease`](crate::Lease) is the state: `held` until its [`Loss`] is set, which is one of the
//! other states, for ever. To abandon a session is to leave it to its TTL and lock-delay: a release
//! after a loss would let another lead while this leader's last step may still be running. Only who
//! resigned has ended its work before, and may make room at once.

use crate::Loss;

/// The fate of lock and session at the end of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The lock is released, then the session destroyed: another may lead at once.
    Release,
    /// Both are left to the session's TTL and the lock-delay.
    Abandon,
}

impl Closing {
    /// Returns what becomes of lock and session of a term that ended like this.
    pub(crate) fn of(loss: Loss) -> Self {
        match loss {
            Loss::Resigned => Self::Release,
            Loss::LeaseExpired
            | Loss::SessionEnded
            | Loss::Taken
            | Loss::Unwatched
            | Loss::Refused
            | Loss::Abandoned => Self::Abandon,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::{Duration, SystemTime},
    };

    use consul_watch::Clock;
    use futures::future::BoxFuture;
    use proptest::prelude::*;

    use super::*;
    use crate::Lease;

    /// State of a term, as the table has it: the model that a lease is compared with.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Term {
        /// This process leads.
        Held,
        /// It leads no more, for this reason.
        Ended(Loss),
    }

    /// An event in a term.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Event {
        /// A renewal was answered before the deadline.
        Renewed,
        /// Something ends it.
        Ends(Loss),
    }

    impl Term {
        /// Returns the state after an event.
        fn after(self, event: Event) -> Self {
            match (self, event) {
                (Self::Held, Event::Renewed) => Self::Held,
                (Self::Held, Event::Ends(loss)) => Self::Ended(loss),
                // The first reason is the one that operators need; the later ones follow from it.
                (Self::Ended(first), _) => Self::Ended(first),
            }
        }
    }

    const LOSSES: [(&str, &str, Loss); 7] = [
        ("deadline passed", "lease expired", Loss::LeaseExpired),
        ("session ended", "session ended", Loss::SessionEnded),
        ("key taken", "taken", Loss::Taken),
        ("key unwatched", "unwatched", Loss::Unwatched),
        ("write refused", "refused", Loss::Refused),
        ("resigned", "resigned", Loss::Resigned),
        ("keeper gone", "abandoned", Loss::Abandoned),
    ];

    #[test]
    fn the_code_does_what_the_table_says() {
        let mut rows = 0;
        for line in include_str!("term.rs").lines().filter_map(|line| line.strip_prefix("//! | ")) {
            let cells: Vec<&str> = line.trim_end_matches('|').split(" | ").map(str::trim).collect();
            let [state, event, next, action] = cells[..] else { panic!("{line}") };
            rows += 1;
            if let Some((_, name, loss)) = LOSSES.iter().find(|(name, ..)| *name == event) {
                assert_eq!((state, next), ("held", *name), "{line}");
                assert_eq!(Term::Held.after(Event::Ends(*loss)), Term::Ended(*loss), "{line}");
                let closing = match Closing::of(*loss) {
                    Closing::Release => "release the lock, destroy the session",
                    Closing::Abandon => "abandon the session",
                };
                assert_eq!(action, closing, "{line}");
            } else if event == "renewed in time" {
                assert_eq!((state, next), ("held", "held"), "{line}");
                assert_eq!(Term::Held.after(Event::Renewed), Term::Held, "{line}");
            } else if event == "any" {
                assert_eq!((state, next), ("ended", "ended"), "{line}");
                let ended = Term::Ended(Loss::Taken);
                for event in [Event::Renewed, Event::Ends(Loss::Resigned)] {
                    assert_eq!(ended.after(event), ended, "{line}");
                }
            } else {
                assert_eq!(event, "event", "an unknown event");
                rows -= 1;
            }
        }
        assert_eq!(rows, LOSSES.len() + 2);
    }

    /// A clock that stands still until it is moved.
    #[derive(Debug, Default)]
    struct StillClock(AtomicU64);

    impl Clock for StillClock {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + self.monotonic()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, _duration: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    const LENGTH: Duration = Duration::from_millis(100);

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// The clock goes on, perhaps past the deadline.
        Pass(u64),
        /// The answer to a renewal that was begun so long ago.
        Renew(u64),
        /// Something else ends the term.
        End(Loss),
        /// Somebody asks whether the term is held.
        Check,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..60).prop_map(Step::Pass),
            4 => (0u64..40).prop_map(Step::Renew),
            1 => (0usize..LOSSES.len()).prop_map(|at| Step::End(LOSSES[at].2)),
            2 => Just(Step::Check),
        ]
    }

    proptest! {
        /// Walks a real lease through the table: it is held exactly as long as the table's term.
        #[test]
        fn a_lease_is_held_as_long_as_its_term(steps in proptest::collection::vec(step(), 1..80)) {
            let clock = Arc::new(StillClock::default());
            let lease = Lease::new(Arc::<StillClock>::clone(&clock), LENGTH);
            let (mut term, mut deadline) = (Term::Held, LENGTH);
            for step in steps {
                let now = clock.monotonic();
                let expired = term == Term::Held && now >= deadline;
                match step {
                    Step::Pass(time) => {
                        clock.0.fetch_add(time, Ordering::Relaxed);
                    }
                    Step::Renew(ago) => {
                        // The lease notices first that the answer came too late.
                        let event =
                            if expired { Event::Ends(Loss::LeaseExpired) } else { Event::Renewed };
                        term = term.after(event);
                        let begun = now.saturating_sub(Duration::from_millis(ago));
                        prop_assert_eq!(lease.renew(begun, LENGTH), term == Term::Held);
                        if term == Term::Held {
                            deadline = begun + LENGTH;
                        }
                    }
                    Step::End(loss) => {
                        term = term.after(Event::Ends(loss));
                        prop_assert_eq!(Term::Ended(lease.end(loss)), term);
                    }
                    Step::Check => {
                        if expired {
                            term = term.after(Event::Ends(Loss::LeaseExpired));
                        }
                        let held = lease.check().map_or_else(Term::Ended, |()| Term::Held);
                        prop_assert_eq!(held, term);
                    }
                }
                prop_assert_eq!(lease.loss().map_or(Term::Held, Term::Ended), term);
                prop_assert_eq!(lease.ended().is_cancelled(), term != Term::Held);
            }
        }
    }
}
