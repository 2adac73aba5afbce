//! Limits on the rate of requests, shared by all tasks of a process, because the platform counts by
//! token.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Limiter that keeps requests below a rate, for all tasks together.
///
/// Callers are served in the order in which they ask; after a pause up to `burst` requests go at
/// once.
#[derive(Debug)]
pub(crate) struct Limiter {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Time that each request takes up; zero without a limit.
    interval: Duration,
    /// Time that may be taken up at once.
    credit: Duration,
    /// Moment until which time is taken up.
    taken: Option<Instant>,
    /// Moment before which nothing goes.
    not_before: Option<Instant>,
}

impl Limiter {
    /// Creates a limiter of `rate` requests a second in the long run, and `burst` at once.
    pub(crate) fn new(rate: f64, burst: f64) -> Self {
        let (interval, credit) = measures(rate, burst);
        Self { state: Mutex::new(State { interval, credit, taken: None, not_before: None }) }
    }

    /// Changes the rate; moments that were given out stay.
    pub(crate) fn set(&self, rate: f64, burst: f64) {
        let (interval, credit) = measures(rate, burst);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.interval, state.credit) = (interval, credit);
    }

    /// Lets nothing go for `length`, after an answer with 429.
    pub(crate) fn pause(&self, length: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + length;
        // The later of two: one of several answers may name a shorter wait.
        state.not_before = Some(state.not_before.map_or(until, |known| known.max(until)));
    }

    /// Waits until the caller may send one request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the moment that was given to it, which only slows others down.
    pub(crate) async fn acquire(&self) {
        tokio::time::sleep_until(self.reserve(Instant::now())).await;
        // A pause may have come in meanwhile.
        loop {
            let until = {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.not_before.filter(|until| *until > Instant::now())
            };
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => return,
            }
        }
    }

    /// Returns the moment at which the next request may go.
    fn reserve(&self, now: Instant) -> Instant {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The generic cell rate algorithm: `taken` is its theoretical arrival time, `credit` its
        // tolerance.
        let free = state.not_before.map_or(now, |until| until.max(now));
        // Never in the past, or idle time would add up to more than one burst.
        let taken = state.taken.map_or(free, |taken| taken.max(free));
        let next = taken + state.interval;
        state.taken = Some(next);
        let waits = next.saturating_duration_since(free).saturating_sub(state.credit);
        free + waits
    }
}

/// Returns the time for one request and for a burst; a rate that is not positive sets no limit.
fn measures(rate: f64, burst: f64) -> (Duration, Duration) {
    if !(rate.is_finite() && rate > 0.0) {
        return (Duration::ZERO, Duration::ZERO);
    }
    // At least one, or nothing would ever go.
    let burst = if burst.is_finite() { burst.max(1.0) } else { 1.0 };
    // A quarter of the maximum, so that sums of it do not overflow.
    let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX / 4);
    (seconds(1.0 / rate), seconds(burst / rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn moments(limiter: &Limiter, count: usize) -> Vec<u128> {
        let start = Instant::now();
        let mut moments = Vec::new();
        for _ in 0..count {
            limiter.acquire().await;
            moments.push(start.elapsed().as_millis());
        }
        moments
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_then_the_rate_holds() {
        let limiter = Limiter::new(20.0, 10.0);
        let moments = moments(&limiter, 110).await;
        assert_eq!(moments[9], 0);
        assert!(moments[10] >= 50, "{moments:?}");
        for window in moments.windows(31) {
            assert!(window[30] - window[0] >= 1000, "more than 30 in a second: {window:?}");
        }
        assert!(*moments.last().unwrap() <= 5001, "the rate is used: {moments:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_holds_everybody() {
        let limiter = Limiter::new(1000.0, 100.0);
        limiter.acquire().await;
        limiter.pause(Duration::from_secs(2));
        let waited = moments(&limiter, 5).await;
        assert!(waited[0] >= 2000 && waited[4] < 2100, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nothing_waits() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let limiter = Limiter::new(rate, rate);
            assert_eq!(*moments(&limiter, 1000).await.last().unwrap(), 0);
        }
    }
}
