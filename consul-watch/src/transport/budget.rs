//! The connections that a watcher's requests use together, and what a refusal teaches about them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// A refusal never lowers the budget below this, which a watcher needs to work at all.
const FEWEST: usize = 12;
/// This long after a refusal the budget grows by a part, and so on: what filled the server may be
/// gone, such as requests of before a pause, which it counts until their time is over. A part that
/// is refused doubles the time, up to [`LONGEST_REGROWTH`]: then the limit is really lower.
const REGROWTH: Duration = Duration::from_secs(30);
const LONGEST_REGROWTH: Duration = Duration::from_mins(8);
/// A limit that is really lower shows at once after a growth. What is refused later than this has
/// another cause, such as one more pause of the server.
const AT_ONCE: Duration = Duration::from_secs(10);
/// A part of the budget, by which it grows.
const PART: usize = 8;

/// Limits how many connections exchanges use together.
///
/// It travels in the extensions of a request. A transport with connections of its own
/// gives a part of it to each exchange, and takes it back when the exchange's
/// connection is idle or closed, not before. Over HTTP/2, where exchanges share a
/// connection, it is not asked.
///
/// Consul serves a number of connections for each client address, 200 by default, and refuses
/// more. The address may have other programs, and the operator another limit: so a refusal
/// lowers the budget to less than there was when it came.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    parts: Arc<Semaphore>,
    limit: Arc<Mutex<Limit>>,
}

#[derive(Debug)]
struct Limit {
    most: usize,
    now: usize,
    /// Parts that are lent and not to be lent again.
    debt: usize,
    /// Time at which it was last lowered, or grew.
    changed: Instant,
    /// Time from then to the next growth.
    regrowth: Duration,
    /// `true` if it grew after it was lowered last.
    grown: bool,
}

impl Budget {
    pub(crate) fn new(connections: usize) -> Self {
        // `Semaphore::new` panics beyond that.
        let most = connections.min(Semaphore::MAX_PERMITS);
        let limit = Limit {
            most,
            now: most,
            debt: 0,
            changed: Instant::now(),
            regrowth: REGROWTH,
            grown: false,
        };
        Self { parts: Arc::new(Semaphore::new(most)), limit: Arc::new(Mutex::new(limit)) }
    }

    fn state(&self) -> MutexGuard<'_, Limit> {
        // Nothing that holds the lock can leave the numbers half changed.
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of connections by which the budget is smaller than it was made.
    pub(crate) fn shortfall(&self) -> usize {
        let state = self.state();
        state.most - state.now
    }

    /// Returns one connection's part of it, as soon as there is one; those who wait get it in
    /// their order.
    pub(crate) async fn part(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            // Here rather than on a timer: a budget that nobody asks for has no need to grow.
            self.grow();
            // It is never closed.
            let permit = Arc::clone(&self.parts).acquire_owned().await.ok()?;
            let mut state = self.state();
            if state.debt == 0 {
                return Some(permit);
            }
            state.debt -= 1;
            // The parts that were lent when the budget shrank come back one by one, and end here.
            permit.forget();
        }
    }

    /// Lowers the budget, because connections within it were refused while the server served
    /// `served`: to an eighth less, which leaves room for others.
    pub(crate) fn refused(&self, served: usize) {
        let mut state = self.state();
        // Others may have come between, so that a repetition lowers it in any case.
        let now = (served - served / 8).min(state.now - state.now / 8);
        let now = now.max(FEWEST.min(state.most)).min(state.now);
        if now == state.now {
            return;
        }
        let lasted = state.changed.elapsed();
        if std::mem::take(&mut state.grown) {
            let at_once = lasted < AT_ONCE;
            state.regrowth =
                if at_once { (state.regrowth * 2).min(LONGEST_REGROWTH) } else { REGROWTH };
        }
        let less = state.now - now;
        // Only free parts can be taken away at once.
        let forgotten = self.parts.forget_permits(less);
        state.debt += less - forgotten;
        (state.now, state.changed) = (now, Instant::now());
        tracing::warn!(
            connections = now,
            "Consul refuses connections of this address: fewer are used from now on"
        );
    }

    fn grow(&self) {
        let mut state = self.state();
        if state.now == state.most || state.changed.elapsed() < state.regrowth {
            return;
        }
        let more = (state.most / PART).max(1).min(state.most - state.now);
        // Debt first: a part that is owed was never taken out of the semaphore.
        let owed = state.debt.min(more);
        state.debt -= owed;
        self.parts.add_permits(more - owed);
        (state.now, state.changed, state.grown) = (state.now + more, Instant::now(), true);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_lowers_it_and_time_raises_it_again() {
        let budget = Budget::new(160);
        let mut held = Vec::new();
        for _ in 0..100 {
            held.push(budget.part().await);
        }
        budget.refused(100);
        assert_eq!(budget.shortfall(), 160 - 88);
        // Those that are lent beyond it are not lent again.
        held.truncate(88);
        let next = tokio::time::timeout(Duration::from_secs(1), budget.part()).await;
        assert!(next.is_err(), "all 88 are lent");
        held.truncate(87);
        held.push(budget.part().await);
        sleep(REGROWTH).await;
        held.push(budget.part().await);
        assert_eq!(budget.shortfall(), 160 - 108);
        for _ in 0..3 {
            sleep(REGROWTH).await;
            drop(budget.part().await);
        }
        assert_eq!(budget.shortfall(), 0);
        assert_eq!(budget.parts.available_permits() + held.len(), 160);
    }

    /// Asserts that a budget in use grows back to its full size within four minutes.
    async fn is_whole_within_minutes(budget: &Budget) {
        let begun = Instant::now();
        while budget.shortfall() > 0 {
            sleep(Duration::from_secs(1)).await;
            drop(budget.part().await);
        }
        assert!(begun.elapsed() < Duration::from_mins(4), "after {:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_refused_once_is_back_within_minutes() {
        let budget = Budget::new(64);
        budget.refused(1);
        assert_eq!(budget.shortfall(), 64 - FEWEST);
        is_whole_within_minutes(&budget).await;
    }

    #[tokio::test(start_paused = true)]
    async fn faults_that_come_again_and_again_do_not_keep_it_low() {
        let budget = Budget::new(64);
        for _fault in 0..10 {
            budget.refused(1);
            sleep(Duration::from_secs(45)).await;
            drop(budget.part().await);
            sleep(Duration::from_secs(20)).await;
        }
        is_whole_within_minutes(&budget).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_stays_lower_is_tried_rarely() {
        let (budget, limit) = (Budget::new(160), 100);
        let (begun, mut refusals) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_hours(10) {
            drop(budget.part().await);
            if 160 - budget.shortfall() > limit {
                refusals += 1;
                budget.refused(limit);
            }
            sleep(Duration::from_secs(1)).await;
        }
        // One each eight minutes, the first ones at shorter times.
        assert!(refusals < 600 / 8 + 10, "{refusals} refusals in ten hours");
    }

    #[tokio::test(start_paused = true)]
    async fn each_refusal_lowers_it_though_others_were_served_meanwhile() {
        let budget = Budget::new(160);
        budget.refused(300);
        assert_eq!(budget.shortfall(), 20);
        budget.refused(160);
        assert_eq!(budget.shortfall(), 20 + 17);
    }

    #[tokio::test(start_paused = true)]
    async fn it_never_falls_below_what_a_watcher_needs() {
        let budget = Budget::new(160);
        for served in [160, 300, 1, 1] {
            budget.refused(served);
        }
        assert_eq!(budget.shortfall(), 160 - FEWEST);
        let small = Budget::new(4);
        small.refused(1);
        assert_eq!(small.shortfall(), 0);
    }
}
