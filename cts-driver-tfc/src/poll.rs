//! The waits between two looks at a run: short while it goes on, long while it waits, to spare the
//! rate limit of the platform.

use std::time::Duration;

use consul_watch::{Backoff, Jitter};

use crate::types::{Phase, RunStatus};

/// Waits between two looks at a run.
///
/// The wait grows by half from `poll_min` to `poll_max` while the run goes on. A run that waits for
/// a person, or in the queue longer than 60 times `poll_min`, is looked at after 15 and then 30
/// times `poll_min`. Each wait is up to a fifth shorter or longer.
#[derive(Debug)]
pub(crate) struct Polls {
    active: Backoff,
    slow: Backoff,
    min: Duration,
    queued: Duration,
}

/// A fifth less, to which the jitter adds up to half: 0.8 to 1.2 of the wait.
const LESS: f64 = 0.8;

impl Polls {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        let backoff = |first: Duration, last: Duration, factor| {
            Backoff::default()
                .with_initial(first.mul_f64(LESS))
                .with_factor(factor)
                .with_cap(last.mul_f64(LESS))
                .with_jitter(Jitter::Extra(0.5))
        };
        Self {
            active: backoff(min, max, 1.5),
            slow: backoff(min * 15, min * 30, 2.0),
            min,
            queued: Duration::ZERO,
        }
    }

    /// Returns the wait after a look that found the run like this.
    pub(crate) fn next(&mut self, status: &RunStatus, phase: Phase) -> Duration {
        // Behind other runs of the workspace, or for a worker of the platform.
        let queued = matches!(status, RunStatus::Pending | RunStatus::PlanQueued);
        let slow = phase == Phase::Waiting || (queued && self.queued > self.min * 60);
        let wait = if slow { self.slow.next_delay() } else { self.active.next_delay() };
        // By the waits that were given out, which needs no clock.
        if queued {
            self.queued += wait;
        } else {
            self.queued = Duration::ZERO;
            // Only then: a run that still waits goes on with the long waits.
            if !slow {
                self.slow.reset();
            }
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(wait: Duration, seconds: f64) -> bool {
        (seconds * 0.79..=seconds * 1.21).contains(&wait.as_secs_f64())
    }

    #[test]
    fn waits_grow_to_the_most_while_a_run_goes_on() {
        let mut polls = Polls::new(Duration::from_secs(1), Duration::from_secs(5));
        for expected in [1.0, 1.5, 2.25, 3.375, 5.0, 5.0] {
            let wait = polls.next(&RunStatus::Planning, Phase::Planning);
            assert!(near(wait, expected), "{wait:?} for {expected}");
        }
    }

    #[test]
    fn a_run_that_waits_for_a_person_is_looked_at_less_often() {
        let mut polls = Polls::new(Duration::from_secs(1), Duration::from_secs(5));
        for expected in [15.0, 30.0, 30.0] {
            let wait = polls.next(&RunStatus::Planned, Phase::Waiting);
            assert!(near(wait, expected), "{wait:?} for {expected}");
        }
    }

    #[test]
    fn a_long_queue_is_looked_at_less_often() {
        let mut polls = Polls::new(Duration::from_secs(1), Duration::from_secs(5));
        let waits: Vec<Duration> =
            (0..40).map(|_| polls.next(&RunStatus::Pending, Phase::Queued)).collect();
        let slow = waits.iter().position(|wait| *wait > Duration::from_secs(7)).unwrap();
        let before: Duration = waits.iter().take(slow).sum();
        assert!(before > Duration::from_mins(1) && before < Duration::from_secs(70), "{before:?}");
        assert!(near(*waits.last().unwrap(), 30.0));
    }
}
