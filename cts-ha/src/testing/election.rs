//! Contract of every [`Elector`]: one function for each sentence of it.
//!
//! Implement [`Arena`] for a place where your candidates can meet and be cut off, and pass each
//! function a fresh one. All functions work with a paused clock if the arena does.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true)
//! #     .build().unwrap().block_on(async {
//! use std::{sync::Arc, time::Duration};
//! use consul_watch::{Clock, testing::TestClock};
//! use cts_ha::{Elector, Timing, testing::{Ballot, InProcessElector, election::{self, Arena}}};
//!
//! struct Here(Ballot);
//! struct One(InProcessElector);
//!
//! impl Arena for Here {
//!     fn candidate(&self, id: &str, clock: Arc<dyn Clock>) -> Box<dyn election::Contender> {
//!         Box::new(One(self.0.candidate(id, clock)))
//!     }
//!     fn clock(&self) -> Arc<dyn Clock> { Arc::new(TestClock::default()) }
//!     fn failover(&self) -> Duration { Duration::from_secs(25) }
//! }
//! impl election::Contender for One {
//!     fn elector(&self) -> Arc<dyn Elector> { Arc::new(self.0.clone()) }
//!     fn cut(&self, cut: bool) { self.0.cut(cut) }
//! }
//!
//! let timing = Timing::new(Duration::from_secs(10), Duration::ZERO).unwrap();
//! election::at_most_one_leads(&Here(Ballot::new(timing, Duration::ZERO))).await;
//! # });
//! ```
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a suite fails by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use consul_watch::Clock;
use tokio::{task::JoinSet, time::timeout};

use super::OddClock;
use crate::{Elector, ElectorExt as _, FencingToken, Leadership, Loss};

/// Place where candidates meet.
pub trait Arena: Send + Sync {
    /// Creates a candidate that measures its lease with `clock`.
    fn candidate(&self, id: &str, clock: Arc<dyn Clock>) -> Box<dyn Contender>;

    /// Returns the clock of a candidate whose clock is right.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Returns the longest time until another leads after a leader has died.
    fn failover(&self) -> Duration;
}

/// Candidate that can be cut off.
pub trait Contender: Send + Sync {
    /// Returns its elector.
    fn elector(&self) -> Arc<dyn Elector>;

    /// Cuts it off from the others without notifying anyone, or reconnects it.
    fn cut(&self, cut: bool);
}

fn sound(arena: &dyn Arena, id: &str) -> Box<dyn Contender> {
    arena.candidate(id, arena.clock())
}

async fn lead(arena: &dyn Arena, elector: &dyn Elector) -> Leadership {
    timeout(arena.failover(), elector.campaign())
        .await
        .expect("somebody leads within the bound")
        .expect("the candidate may stand")
}

/// Campaigns and resigns, without the wait of a failover: nobody else leads.
async fn takes_over(elector: &dyn Elector) {
    let campaign = timeout(Duration::from_secs(5), elector.campaign());
    campaign.await.expect("soon").expect("the candidate may stand").resign().await;
}

/// Checks that at no moment two lead, and that all candidates get to lead.
pub async fn at_most_one_leads(arena: &dyn Arena) {
    let leading = Arc::new(AtomicUsize::new(0));
    let mut candidates = JoinSet::new();
    for id in ["one", "two", "three"] {
        let elector = sound(arena, id).elector();
        let leading = Arc::clone(&leading);
        candidates.spawn(async move {
            for _turn in 0..3 {
                let leadership = elector.campaign().await.expect("the candidate may stand");
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                for _step in 0..20 {
                    tokio::task::yield_now().await;
                    assert!(leadership.check().is_ok());
                }
                assert_eq!(leading.fetch_sub(1, Ordering::SeqCst), 1);
                leadership.resign().await;
            }
        });
    }
    while let Some(ended) = candidates.join_next().await {
        ended.expect("a candidate comes to its turns");
    }
}

/// Checks that a leader that resigns has ended before another leads, and that this is at once.
pub async fn a_leader_that_resigns_is_followed_at_once(arena: &dyn Arena) {
    let (one, two) = (sound(arena, "one").elector(), sound(arena, "two").elector());
    let first = lead(arena, &*one).await;
    let follower = Arc::clone(&two);
    let waiting = tokio::spawn(async move { follower.campaign().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "one leads");
    first.resign().await;
    assert_eq!(first.loss(), Some(Loss::Resigned));
    assert!(first.check().is_err() && first.ended().is_cancelled());
    let second = timeout(Duration::from_secs(1), waiting)
        .await
        .expect("within a second")
        .expect("no panic")
        .expect("two may stand");
    assert!(second.check().is_ok());
    second.resign().await;
}

/// Checks that later leaderships have larger tokens.
pub async fn tokens_grow(arena: &dyn Arena) {
    let (one, two) = (sound(arena, "one").elector(), sound(arena, "two").elector());
    let mut before = FencingToken::default();
    for elector in [&one, &one, &two, &one] {
        let leadership = lead(arena, &**elector).await;
        assert!(leadership.token() > before, "{} after {before}", leadership.token());
        before = leadership.token();
        leadership.resign().await;
    }
}

/// Checks that a leader that is cut off has ended before another leads, and that it can lead again
/// afterwards.
pub async fn a_leader_cut_off_ends_before_another_leads(arena: &dyn Arena) {
    let (one, two) = (sound(arena, "one"), sound(arena, "two"));
    let first = lead(arena, &*one.elector()).await;
    one.cut(true);
    let second = lead(arena, &*two.elector()).await;
    assert!(first.loss().is_some(), "by its own clock, before anyone asked it");
    assert!(first.check().is_err());
    assert!(second.token() > first.token());
    one.cut(false);
    second.resign().await;
    lead(arena, &*one.elector()).await.resign().await;
}

/// Checks that leadership lasts whenever it is gained, also long after the candidate has last
/// renewed its session.
pub async fn leadership_lasts_whenever_it_is_gained(arena: &dyn Arena) {
    let (one, two) = (sound(arena, "one").elector(), sound(arena, "two").elector());
    for part in [8, 4, 2] {
        let first = lead(arena, &*one).await;
        let lease = first.lease().remaining().expect("a lease that ends");
        let follower = Arc::clone(&two);
        let waiting = tokio::spawn(async move { follower.campaign().await });
        tokio::time::sleep(lease / part).await;
        first.resign().await;
        let second = waiting.await.expect("no panic").expect("two may stand");
        tokio::time::sleep(lease).await;
        assert_eq!(second.loss(), None, "gained after a {part}th of a lease");
        second.resign().await;
    }
}

/// Checks that a short cut changes nothing.
pub async fn a_short_cut_is_survived(arena: &dyn Arena) {
    let one = sound(arena, "one");
    let first = lead(arena, &*one.elector()).await;
    let lease = first.lease().remaining().expect("a lease that ends");
    one.cut(true);
    tokio::time::sleep(lease / 20).await;
    one.cut(false);
    tokio::time::sleep(lease * 3).await;
    assert_eq!(first.loss(), None);
    first.resign().await;
}

/// Checks that a leader whose clock runs at half speed ends before another leads.
pub async fn a_slow_clock_ends_in_time(arena: &dyn Arena) {
    let clock = OddClock::new(arena.clock());
    clock.set_rate(0.5);
    let slow = arena.candidate("slow", Arc::new(clock));
    let two = sound(arena, "two");
    let first = lead(arena, &*slow.elector()).await;
    slow.cut(true);
    let second = lead(arena, &*two.elector()).await;
    assert!(first.loss().is_some() && first.check().is_err());
    slow.cut(false);
    second.resign().await;
}

/// Checks that a leader that was suspended past its lease notices at its first check.
pub async fn a_suspended_leader_knows_it_at_once(arena: &dyn Arena) {
    let clock = OddClock::new(arena.clock());
    let one = arena.candidate("one", Arc::new(clock.clone()));
    let first = lead(arena, &*one.elector()).await;
    let lease = first.lease().remaining().expect("a lease that ends");
    clock.jump(lease + Duration::from_millis(1));
    assert!(first.check().is_err(), "without any time for a timer to run");
    assert_eq!(first.loss(), Some(Loss::LeaseExpired));
    first.resign().await;
}

/// Checks that dropping the last clone of a leadership resigns.
pub async fn a_leadership_dropped_is_given_up(arena: &dyn Arena) {
    let (one, two) = (sound(arena, "one").elector(), sound(arena, "two").elector());
    let first = lead(arena, &*one).await;
    let clone = first.clone();
    drop(first);
    assert!(clone.check().is_ok());
    drop(clone);
    takes_over(&*two).await;
}

/// Checks that candidates see who leads, and that nobody does.
pub async fn the_leader_is_known(arena: &dyn Arena) {
    let one = sound(arena, "one").elector();
    let first = lead(arena, &*one).await;
    assert_eq!(one.leader().map(|leader| leader.id).as_deref(), Some("one"));
    first.resign().await;
    assert_eq!(one.leader(), None);
}

/// Checks that `run` drops work when leadership is lost, starts it again at the next one, and
/// returns its result.
pub async fn work_runs_while_leading(arena: &dyn Arena) {
    let one = sound(arena, "one");
    let started = Arc::new(AtomicUsize::new(0));
    let work = Arc::clone(&started);
    let result = one
        .elector()
        .run(|leadership| {
            let count = work.fetch_add(1, Ordering::SeqCst);
            if count == 0 {
                one.cut(true);
            } else {
                one.cut(false);
            }
            async move {
                if count == 0 {
                    leadership.ended().cancelled().await;
                    // The work of a deposed leader is dropped after the margin.
                    let healed = async {
                        tokio::time::sleep(leadership.margin() * 20).await;
                        "too late"
                    };
                    healed.await
                } else {
                    leadership.check().expect("it leads");
                    "done"
                }
            }
        })
        .with_healing(&*one, arena)
        .await;
    assert_eq!(result, "done");
    assert_eq!(started.load(Ordering::SeqCst), 2);
}

/// Checks that work that a suspend kept beyond its margin is not polled again.
pub async fn work_does_not_outlast_a_suspend(arena: &dyn Arena) {
    let clock = OddClock::new(arena.clock());
    let one = arena.candidate("one", Arc::new(clock.clone()));
    let (started, woken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (started, woken) = (&started, &woken);
    let elector = one.elector();
    let result = elector.run(|leadership| {
        let count = started.fetch_add(1, Ordering::SeqCst);
        if count == 0 {
            let lease = leadership.lease().remaining().expect("a lease that ends");
            clock.jump(lease + leadership.margin() + Duration::from_millis(1));
        }
        async move {
            if count == 0 {
                leadership.ended().cancelled().await;
                woken.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    timeout(arena.failover(), result).await.expect("soon").expect("the candidate may stand");
    assert_eq!(started.load(Ordering::SeqCst), 2);
    assert_eq!(woken.load(Ordering::SeqCst), 0, "another may lead");
}

/// Checks that `run` resigns if it is dropped, or its work panics, also if something else keeps its
/// leadership, and that another leads soon.
pub async fn work_that_is_dropped_or_panics_is_given_up(arena: &dyn Arena) {
    let (one, two) = (sound(arena, "one").elector(), sound(arena, "two").elector());
    for panics in [false, true] {
        let (keep, kept) = tokio::sync::oneshot::channel();
        let mut keep = Some(keep);
        let elector = Arc::clone(&one);
        let running = tokio::spawn(async move {
            let work = |leadership| {
                let told = keep.take().expect("once").send(leadership).is_ok();
                async move {
                    assert!(told && !panics, "the fault of the work");
                    std::future::pending::<()>().await;
                }
            };
            elector.run(work).await
        });
        let kept = timeout(arena.failover(), kept).await.expect("in time").expect("it leads");
        if !panics {
            assert!(kept.check().is_ok());
            running.abort();
        }
        let ended = running.await.expect_err("it came to nothing");
        assert_eq!(ended.is_panic(), panics);
        assert_eq!(kept.loss(), Some(Loss::Resigned));
        assert!(kept.check().is_err());
        takes_over(&*two).await;
    }
}

/// Reconnection of the leader in [`work_runs_while_leading`] after it has ended.
trait Healing<T> {
    fn with_healing(self, one: &dyn Contender, arena: &dyn Arena) -> impl Future<Output = T>;
}

impl<T, F: Future<Output = crate::Result<T>>> Healing<T> for F {
    async fn with_healing(self, one: &dyn Contender, arena: &dyn Arena) -> T {
        let healing = async {
            tokio::time::sleep(arena.failover()).await;
            one.cut(false);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            done = self => done.expect("the candidate may stand"),
            () = healing => unreachable_in_time(),
        }
    }
}

#[expect(clippy::panic, reason = "a suite fails by panicking")]
fn unreachable_in_time<T>() -> T {
    panic!("healing never ends by itself")
}
