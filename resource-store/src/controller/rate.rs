//! The rate at which a controller reconciles: a token bucket.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// A limit of the reconciles of one controller: so many at once, and then one in each
/// interval.
///
/// A bucket of tokens, which is full at the start: each reconcile takes one, and each
/// interval brings one back, up to the burst. Every reconcile counts, also one after a
/// failure, which waits for its backoff first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct RateLimit {
    interval: Duration,
    burst: NonZeroU32,
}

impl RateLimit {
    /// Allows one reconcile in each interval.
    pub fn every(interval: Duration) -> Self {
        Self { interval, burst: NonZeroU32::MIN }
    }

    /// Allows so many reconciles a second, spread evenly.
    pub fn per_second(reconciles: NonZeroU32) -> Self {
        Self::every(Duration::from_secs(1) / reconciles.get())
    }

    /// Sets how many reconciles may follow each other at once, after as long a pause; one, if
    /// this is not called.
    pub fn with_burst(mut self, reconciles: NonZeroU32) -> Self {
        self.burst = reconciles;
        self
    }
}

/// The bucket of one controller, which lasts through its runs: one that fails again and
/// again does not get a full bucket each time.
#[derive(Debug)]
pub(super) struct Bucket {
    limit: RateLimit,
    /// The time at which the bucket is full again; `None` before the first reconcile.
    full_at: Mutex<Option<Instant>>,
    /// Held by the worker that waits for a token and then for work: nobody else takes the
    /// token meanwhile.
    turn: tokio::sync::Mutex<()>,
}

impl Bucket {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self { limit, full_at: Mutex::new(None), turn: tokio::sync::Mutex::new(()) }
    }

    /// Waits for a token and then for work, and takes the token with the work: none is taken
    /// by who has nothing to do.
    ///
    /// The token comes first. What was taken out of a queue before would wait with it, while
    /// more urgent work passes, and would be worked at once more for a change meanwhile.
    pub(super) async fn take<T>(&self, work: impl Future<Output = Option<T>>) -> Option<T> {
        let _turn = self.turn.lock().await;
        if let Some(at) = self.next_token() {
            tokio::time::sleep_until(at).await;
        }
        let item = work.await?;
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        *full_at = Some(full_at.map_or(now, |at| at.max(now)) + self.limit.interval);
        Some(item)
    }

    /// The time at which there is a token.
    fn next_token(&self) -> Option<Instant> {
        let full_at = (*self.full_at.lock().unwrap_or_else(PoisonError::into_inner))?;
        let others = self.limit.interval.saturating_mul(self.limit.burst.get() - 1);
        // A burst that takes longer to fill than the clock goes back is never used up.
        full_at.checked_sub(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    /// Takes so many tokens for work that is there; gives the milliseconds at which it got them.
    async fn times(bucket: &Bucket, since: Instant, count: usize) -> Vec<u128> {
        let mut times = Vec::new();
        for _ in 0..count {
            bucket.take(async { Some(()) }).await.unwrap();
            times.push(since.elapsed().as_millis());
        }
        times
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_one_in_each_interval() {
        let bucket = Bucket::new(RateLimit::per_second(number(10)).with_burst(number(3)));
        let start = Instant::now();
        assert_eq!(times(&bucket, start, 6).await, [0, 0, 0, 100, 200, 300]);
        // Two tokens came back, and no more than the burst after long.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(times(&bucket, start, 3).await, [500, 500, 600]);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(times(&bucket, start, 4).await, [60_600, 60_600, 60_600, 60_700]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_work_takes_no_token() {
        let bucket = Bucket::new(RateLimit::every(Duration::from_secs(1)));
        let start = Instant::now();
        for _ in 0..3 {
            let nothing = tokio::time::timeout(
                Duration::from_millis(10),
                bucket.take(std::future::pending::<Option<()>>()),
            );
            assert!(nothing.await.is_err());
        }
        assert_eq!(bucket.take(async { None::<()> }).await, None);
        assert_eq!(times(&bucket, start, 2).await, [30, 1030]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_without_end_never_waits() {
        let limit = RateLimit::every(Duration::from_secs(u64::from(u32::MAX)));
        let bucket = Bucket::new(limit.with_burst(NonZeroU32::MAX));
        assert_eq!(times(&bucket, Instant::now(), 5).await, [0; 5]);
    }
}
