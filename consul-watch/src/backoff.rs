//! Delays between attempts: exponential, capped, with jitter.

use std::{fmt, time::Duration};

use ::backoff::{ExponentialBackoff, backoff::Backoff as _};

/// Randomness of a delay.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Jitter {
    /// Exactly the computed delay.
    None,
    /// Anything between nothing and the computed delay, which spreads a crowd best.
    #[default]
    Full,
    /// The computed delay and up to this fraction of it on top: `Extra(0.5)` of 2 s is 2 s to 3 s.
    Extra(f64),
}

/// Growing, jittered, capped delays between attempts.
///
/// The default starts at 500 ms, doubles, is capped at 60 s, has full jitter
/// and never gives up. It counts no time of its own: it only says how long to
/// wait, so it works with a paused clock.
///
/// ```
/// use std::time::Duration;
/// use consul_watch::{Backoff, Jitter};
///
/// let mut delays = Backoff::default().with_initial(Duration::from_secs(1)).with_jitter(Jitter::None);
/// assert_eq!(delays.next_delay(), Duration::from_secs(1));
/// assert_eq!(delays.next_delay(), Duration::from_secs(2));
/// delays.reset();
/// assert_eq!(delays.next_delay(), Duration::from_secs(1));
/// ```
#[derive(Clone)]
pub struct Backoff {
    initial: Duration,
    factor: f64,
    cap: Duration,
    jitter: Jitter,
    random: fastrand::Rng,
    /// The next delay before jitter; `None` at the start.
    current: Option<Duration>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(500),
            factor: 2.0,
            cap: Duration::from_mins(1),
            jitter: Jitter::default(),
            random: fastrand::Rng::new(),
            current: None,
        }
    }
}

impl Backoff {
    /// A copy whose first delay, before jitter, is `initial`.
    #[must_use]
    pub fn with_initial(mut self, initial: Duration) -> Self {
        self.initial = initial;
        self.current = None;
        self
    }

    /// A copy whose delays grow by `factor`. Values below 1, or not finite, count as 1.
    #[must_use]
    pub fn with_factor(mut self, factor: f64) -> Self {
        self.factor = if factor.is_finite() { factor.max(1.0) } else { 1.0 };
        self
    }

    /// A copy whose delays, before jitter, never exceed `cap`.
    #[must_use]
    pub fn with_cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// A copy with another randomness.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// A copy whose jitter follows from `seed`, for tests that must repeat.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.random = fastrand::Rng::with_seed(seed);
        self
    }

    /// Returns the delay before the next attempt; the one after waits longer.
    pub fn next_delay(&mut self) -> Duration {
        // The first delay too: a caller may have set the cap below it.
        let base = self.current.unwrap_or(self.initial).min(self.cap);
        self.current = Some(self.grown(base));
        self.jittered(base)
    }

    /// Starts again with the first delay: call it after a success.
    pub fn reset(&mut self) {
        self.current = None;
    }

    /// The policy's step from one delay to the next, which is all that the
    /// `backoff` crate does for us: no clock, no randomness, no giving up.
    fn grown(&self, base: Duration) -> Duration {
        let mut policy: ExponentialBackoff = ExponentialBackoff {
            current_interval: base,
            initial_interval: base,
            randomization_factor: 0.0,
            multiplier: self.factor,
            max_interval: self.cap,
            // Its default gives up after 15 minutes.
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        policy.next_backoff();
        policy.current_interval.min(self.cap)
    }

    fn jittered(&mut self, base: Duration) -> Duration {
        match self.jitter {
            // The fraction is below 1, so this cannot overflow.
            Jitter::Full => base.mul_f64(self.random.f64()),
            Jitter::Extra(fraction) if fraction.is_finite() && fraction > 0.0 => {
                let extra = base.as_secs_f64() * self.random.f64() * fraction.min(10.0);
                // A delay that no `Duration` can hold is as good as for ever.
                base.saturating_add(Duration::try_from_secs_f64(extra).unwrap_or(Duration::MAX))
            }
            Jitter::None | Jitter::Extra(_) => base,
        }
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff")
            .field("initial", &self.initial)
            .field("factor", &self.factor)
            .field("cap", &self.cap)
            .field("jitter", &self.jitter)
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap() {
        let mut delays = Backoff::default().with_jitter(Jitter::None);
        let got: Vec<u128> = (0..9).map(|_| delays.next_delay().as_millis()).collect();
        assert_eq!(got, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
    }

    #[test]
    fn full_jitter_stays_below_the_delay_and_repeats_with_a_seed() {
        let run = |seed| {
            let mut delays = Backoff::default().with_seed(seed);
            (0..20).map(|_| delays.next_delay()).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!(run(7).iter().all(|delay| *delay <= Duration::from_mins(1)));
        assert!(run(7)[0] <= Duration::from_millis(500));
    }

    #[test]
    fn extra_jitter_only_adds() {
        let mut delays = Backoff::default()
            .with_initial(Duration::from_secs(2))
            .with_cap(Duration::from_secs(2))
            .with_jitter(Jitter::Extra(0.5));
        for _ in 0..100 {
            let delay = delays.next_delay();
            assert!(
                delay >= Duration::from_secs(2) && delay <= Duration::from_secs(3),
                "{delay:?}"
            );
        }
    }

    #[test]
    fn odd_settings_do_not_panic() {
        let mut delays = Backoff::default()
            .with_initial(Duration::MAX)
            .with_cap(Duration::from_secs(u64::MAX / 4))
            .with_factor(f64::NAN)
            .with_jitter(Jitter::Extra(f64::INFINITY));
        for _ in 0..5 {
            delays.next_delay();
        }
        let mut none = Backoff::default().with_initial(Duration::ZERO).with_factor(-1.0);
        assert_eq!(none.next_delay(), Duration::ZERO);
        assert_eq!(none.next_delay(), Duration::ZERO);
    }
}
