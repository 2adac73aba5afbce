//! Token bucket for the requests of one watch, without a clock of its own.

use std::time::Duration;

/// Rate at which a watch may ask while answers come without blocking.
///
/// A token bucket: `burst` requests at once, then one for each `interval`. A
/// request that Consul held for longer than the interval is never followed by
/// a delay, so a quiet watch reacts at once. Under sustained churn the
/// interval doubles step by step up to `max_interval`.
///
/// Source: Consul API documentation, "Blocking queries", on rate limiting;
/// hcat `rateLimiter` for the 100 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimit {
    /// Requests without delay. Default 2; 0 counts as 1.
    pub burst: u32,
    /// Time for one more request. Default 100 ms.
    pub interval: Duration,
    /// Longest interval, under sustained churn. Default 1 s.
    pub max_interval: Duration,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            burst: 2,
            interval: Duration::from_millis(100),
            max_interval: Duration::from_secs(1),
        }
    }
}

/// Number of delays in a row that are sustained churn.
const SUSTAINED: u32 = 50;

/// The state of one watch's [`RateLimit`]. Times count from the watch's start.
#[derive(Debug)]
pub(super) struct Limiter {
    limit: RateLimit,
    interval: Duration,
    /// Time at which the bucket is full again.
    full_at: Duration,
    delayed: u32,
}

impl Limiter {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self { limit, interval: limit.interval, full_at: Duration::ZERO, delayed: 0 }
    }

    /// Takes a token for the request that comes after one that ran from
    /// `started` to `ended`, and says how long it must wait for it.
    pub(super) fn next(&mut self, started: Duration, ended: Duration) -> Duration {
        if ended.saturating_sub(started) > self.limit.interval {
            self.interval = self.limit.interval;
            self.delayed = 0;
            // A request that was held has paid for itself: the bucket is full again.
            self.full_at = self.full_at.min(ended);
        }
        // One token was taken by the request that ended.
        let room = self.interval.saturating_mul(self.limit.burst.saturating_sub(1));
        self.full_at = self.full_at.max(started).saturating_add(self.interval);
        let delay = self.full_at.saturating_sub(ended).saturating_sub(room);
        if delay.is_zero() {
            return delay;
        }
        self.delayed += 1;
        // Step by step, so that a short burst does not make late what follows it.
        if self.delayed.is_multiple_of(SUSTAINED) {
            self.interval = self
                .interval
                .saturating_mul(2)
                .min(self.limit.max_interval.max(self.limit.interval));
        }
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Runs requests that take `took` each and gives back the delays between them.
    fn delays(
        limiter: &mut Limiter,
        now: &mut Duration,
        took: Duration,
        count: usize,
    ) -> Vec<Duration> {
        (0..count)
            .map(|_| {
                let started = *now;
                let ended = started + took;
                let delay = limiter.next(started, ended);
                *now = ended + delay;
                delay
            })
            .collect()
    }

    /// Spec: CW25
    #[test]
    fn fast_cycles_are_held_to_one_per_interval_after_the_burst() {
        let (mut limiter, mut now) = (Limiter::new(RateLimit::default()), Duration::ZERO);
        let got = delays(&mut limiter, &mut now, MS(1), 20);
        assert_eq!(got[0], Duration::ZERO, "the burst allows a second request at once");
        assert!(
            got[1..].iter().all(|delay| *delay > Duration::ZERO && *delay <= MS(120)),
            "{got:?}"
        );
        assert!(now >= MS(1800), "20 requests in {now:?}");
    }

    /// Spec: CW25
    #[test]
    fn a_request_that_blocked_is_never_followed_by_a_delay() {
        let (mut limiter, mut now) = (Limiter::new(RateLimit::default()), Duration::ZERO);
        delays(&mut limiter, &mut now, MS(1), 300);
        let got = delays(&mut limiter, &mut now, MS(101), 20);
        assert!(got.iter().all(Duration::is_zero), "{got:?}");
    }

    #[test]
    fn sustained_churn_slows_down_to_the_longest_interval_and_recovers() {
        let (mut limiter, mut now) = (Limiter::new(RateLimit::default()), Duration::ZERO);
        let got = delays(&mut limiter, &mut now, MS(1), 400);
        assert_eq!(got.last().copied(), Some(MS(999)));
        delays(&mut limiter, &mut now, MS(500), 1);
        let got = delays(&mut limiter, &mut now, MS(1), 3);
        assert!(got.iter().all(|delay| *delay <= MS(100)), "{got:?}");
    }
}
