//! Times of renewals and leases that follow from a session's TTL and lock-delay.

use std::time::Duration;

use crate::{Error, Result};

/// Times at which a session is renewed, and for which its keys are believed to be held.
///
/// Consul may give a lock to another no earlier than one TTL after the last renewal that it has
/// seen, or one lock-delay after the session has ended for another reason. The lease is four fifths
/// of the shorter one, counted from the *start* of the last successful renewal. Renewals are due at
/// half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// TTL of the session.
    pub ttl: Duration,
    /// Time for which a renewal is valid.
    pub lease: Duration,
    /// Time from a renewal to the next one.
    pub interval: Duration,
    /// Time limit of a renewal.
    pub timeout: Duration,
    /// Pause after a failed renewal.
    pub retry: Duration,
}

/// Longest lock-delay that a server enforces.
///
/// Source: Consul `agent/consul/state/delay_ce.go`; measured on Consul 1.8.7.
pub(crate) const LONGEST_LOCK_DELAY: Duration = Duration::from_mins(1);

/// Longest TTL of a session.
const LONGEST_TTL: Duration = Duration::from_hours(24);

impl Timing {
    /// Computes the times for a session with this TTL and lock-delay.
    ///
    /// Without a lock-delay the lease follows the TTL alone. Then nothing covers a session that
    /// ends early (destroyed by an operator, or on a node that gossip considers failed) while its
    /// holder cannot reach Consul.
    ///
    /// Deviation: if the lock-delay is shorter than the TTL, Consul's own client renews at half of
    /// the TTL; here renewals come often enough for the shorter lease.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a TTL that is zero or above 24 h, and a lock-delay above 60 s. The
    /// lower limit of TTLs is the server's, whose error names it.
    pub fn new(ttl: Duration, lock_delay: Duration) -> Result<Self> {
        if ttl.is_zero() || ttl > LONGEST_TTL {
            return Err(Error::Setting {
                setting: "session_ttl",
                problem: format!("{ttl:?} is out of range: more than 0s, at most 24h"),
            });
        }
        if lock_delay > LONGEST_LOCK_DELAY {
            return Err(Error::Setting {
                setting: "lock_delay",
                problem: format!("{lock_delay:?} is out of range: 0s to 60s"),
            });
        }
        let safe = if lock_delay.is_zero() { ttl } else { ttl.min(lock_delay) };
        Ok(Self {
            ttl,
            lease: safe / 5 * 4,
            interval: safe / 2,
            // A renewal and one retry fit into the lease: 1/2 + 1/8 + 1/10 < 4/5.
            timeout: (safe / 8).max(Duration::from_secs(1).min(safe / 6)),
            retry: Duration::from_secs(1).min(safe / 10),
        })
    }

    /// Returns the least time between the end of a lease and the moment at which Consul may give
    /// the lock to another.
    pub fn margin(&self) -> Duration {
        self.lease / 4
    }

    /// Returns the part of the [`margin`](Timing::margin) in which work may end by itself after a
    /// loss. The rest is for ending it by force.
    ///
    /// With it no side effect of a deposed leader comes after the TTL, counted from the start of
    /// the last renewal that Consul has confirmed:
    ///
    /// ```text
    /// lease + wind_up + time of a kill <= lease + margin <= min(TTL, lock-delay)
    /// ```
    pub fn wind_up(&self) -> Duration {
        self.margin() / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(ttl: u64, delay: u64) -> Timing {
        Timing::new(Duration::from_secs(ttl), Duration::from_secs(delay)).unwrap()
    }

    #[test]
    fn the_default_renews_at_half_of_the_ttl_and_believes_for_four_fifths() {
        let timing = timing(15, 15);
        assert_eq!(timing.interval, Duration::from_millis(7_500));
        assert_eq!(
            (timing.lease, timing.margin()),
            (Duration::from_secs(12), Duration::from_secs(3))
        );
        assert!(timing.timeout <= timing.ttl / 4);
        assert_eq!(timing.retry, Duration::from_secs(1));
    }

    #[test]
    fn a_lease_outlasts_neither_ttl_nor_lock_delay_and_survives_one_lost_renewal() {
        for ttl in [1, 2, 10, 15, 30, 3600] {
            for delay in [0, 1, 2, 15, 60] {
                let timing = timing(ttl, delay);
                let safe = if delay == 0 { ttl } else { ttl.min(delay) };
                assert!(timing.lease + timing.margin() <= Duration::from_secs(safe), "{timing:?}");
                let kill = timing.margin().checked_sub(timing.wind_up()).unwrap();
                assert!(kill >= timing.margin() / 4, "{timing:?}");
                let second_try = timing.interval + timing.timeout + timing.retry;
                assert!(second_try < timing.lease, "{timing:?}");
            }
        }
    }

    #[test]
    fn what_no_server_takes_is_refused() {
        assert!(Timing::new(Duration::ZERO, Duration::ZERO).is_err());
        assert!(Timing::new(Duration::from_hours(25), Duration::ZERO).is_err());
        assert!(Timing::new(Duration::from_secs(15), Duration::from_secs(61)).is_err());
    }
}
