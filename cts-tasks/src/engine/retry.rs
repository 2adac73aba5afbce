//! Delays between the tries of a step.

use std::time::Duration;

/// A limit of retries for a failed step.
///
/// The delay before retry `n`, counted from 0, is `2^n` seconds and a random
/// part of up to half of that, and never more than 15 minutes.
///
/// Source: Consul-Terraform-Sync 0.9, `retry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// Retries after the first try; `None` tries for ever.
    pub limit: Option<u32>,
}

/// The longest delay between two tries.
const LONGEST: Duration = Duration::from_mins(15);

impl Retry {
    /// No second try.
    pub const NEVER: Self = Self { limit: Some(0) };
    /// The retries of a task in a daemon: three tries in all.
    pub const TASK: Self = Self { limit: Some(2) };

    /// The delay before retry `attempt`, counted from 0; `None` when there is
    /// none. `random` is taken from [0, 1).
    pub(crate) fn delay(self, attempt: u32, random: f64) -> Option<Duration> {
        if self.limit.is_some_and(|limit| attempt >= limit) {
            return None;
        }
        let base = 2f64.powi(attempt.min(10).try_into().unwrap_or(10));
        if base >= LONGEST.as_secs_f64() {
            return Some(LONGEST);
        }
        Some(Duration::from_secs_f64(base + random * base / 2.0).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: CTS71
    #[test]
    fn delays_double_and_are_capped() {
        let forever = Retry { limit: None };
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
}
