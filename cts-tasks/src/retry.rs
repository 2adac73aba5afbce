//! Delays between the tries of a step.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A limit of retries for a failed step, and the pauses between its tries.
///
/// The delay before retry `n`, counted from 0, is `2^n` times `backoff` and a random
/// part of up to half of that, and never more than `max_backoff`.
///
/// Source: Consul-Terraform-Sync 0.9, `retry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Retry {
    /// Retries after the first try; `None` tries for ever.
    pub limit: Option<u32>,
    /// Delay before the first retry, without its random part; 1 s by default.
    pub backoff: Duration,
    /// The longest delay; 15 minutes by default.
    pub max_backoff: Duration,
}

impl Retry {
    /// No second try.
    pub const NEVER: Self = Self {
        limit: Some(0),
        backoff: Duration::from_secs(1),
        max_backoff: Duration::from_mins(15),
    };
    /// The retries of a task in a daemon: three tries in all.
    pub const TASK: Self = Self { limit: Some(2), ..Self::NEVER };

    /// Returns the same pauses with another number of retries; `None` is no bound.
    #[must_use]
    pub const fn with_limit(self, limit: Option<u32>) -> Self {
        Self { limit, ..self }
    }

    /// The delay before retry `attempt`, counted from 0; `None` when there is
    /// none. `random` is taken from [0, 1).
    #[cfg(feature = "engine")]
    pub(crate) fn delay(self, attempt: u32, random: f64) -> Option<Duration> {
        if self.limit.is_some_and(|limit| attempt >= limit) {
            return None;
        }
        // Beyond that any pause has reached its maximum, and a float stays finite.
        let factor = 2f64.powi(attempt.min(100).try_into().unwrap_or(100));
        let base = self.backoff.as_secs_f64() * factor;
        if base >= self.max_backoff.as_secs_f64() {
            return Some(self.max_backoff);
        }
        Some(Duration::from_secs_f64(base + random * base / 2.0).min(self.max_backoff))
    }
}

#[cfg(all(test, feature = "engine"))]
mod tests {
    use super::*;

    /// Spec: CTS71
    #[test]
    fn delays_double_and_are_capped() {
        let forever = Retry::TASK.with_limit(None);
        let range = |attempt| {
            let low = forever.delay(attempt, 0.0).unwrap().as_secs_f64();
            let high = forever.delay(attempt, 0.999_999).unwrap().as_secs_f64();
            (low, high)
        };
        for (attempt, low, high) in [(0, 1.0, 1.5), (1, 2.0, 3.0), (2, 4.0, 6.0), (9, 512.0, 768.0)]
        {
            let (least, most) = range(attempt);
            assert!((least - low).abs() < 0.001, "attempt {attempt}: {least}");
            assert!((most - high).abs() < 0.01, "attempt {attempt}: {most}");
        }
        for attempt in [10, 11, 1000, u32::MAX] {
            assert_eq!(range(attempt), (900.0, 900.0));
        }
    }

    #[test]
    fn the_limit_counts_retries() {
        assert_eq!(Retry::NEVER.delay(0, 0.0), None);
        assert!(Retry::TASK.delay(1, 0.0).is_some());
        assert_eq!(Retry::TASK.delay(2, 0.0), None);
    }

    #[test]
    fn pauses_of_its_own_grow_from_backoff_to_max_backoff() {
        let own = Retry {
            limit: Some(40),
            backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(3),
        };
        let delays: Vec<_> = (0..5).map(|attempt| own.delay(attempt, 0.0).unwrap()).collect();
        assert_eq!(delays, [500, 1000, 2000, 3000, 3000].map(Duration::from_millis));
        assert_eq!(own.delay(2, 0.999_999), Some(Duration::from_micros(2_999_999)));
        assert_eq!(own.delay(40, 0.0), None);
    }
}
