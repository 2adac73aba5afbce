//! Decides after each attempt of a call whether and when it is repeated.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::error::is_transient;

/// Settings of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryOptions {
    /// Number of retries of a call that failed for a temporary reason; default 8.
    ///
    /// The wait before retry `n`, counted from 0, is `2^n` seconds and up to half of that more, but
    /// at most 15 minutes.
    pub limit: u32,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self { limit: 8 }
    }
}

/// Number of attempts of a call that exceeds the rate limit, higher than for failures because the
/// platform itself announces when it accepts the next.
const TURNED_AWAY: u32 = 30;
/// Shortest and longest wait after exceeding the rate limit.
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_mins(15);

/// Result of one attempt.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tried<'a> {
    /// Answer of the platform.
    Answer(StatusCode, &'a HeaderMap),
    /// No answer.
    Nothing,
}

/// Numbers of attempts by reason.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tries {
    pub(super) failed: u32,
    pub(super) turned_away: u32,
}

/// Next step after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Accept the answer as final.
    Done,
    /// Hold all requests, then repeat: the rate limit.
    Pause(Duration),
    /// Repeat after a wait.
    Again(Duration),
}

impl RetryOptions {
    /// Decides the next step. `repeatable` states that sending twice does no harm; `random` is in
    /// [0, 1).
    ///
    /// A call that exceeded the rate limit had no effect, so it may always be repeated.
    pub(super) fn next(
        self,
        tried: Tried<'_>,
        repeatable: bool,
        tries: &mut Tries,
        random: f64,
    ) -> Next {
        match tried {
            Tried::Answer(StatusCode::TOO_MANY_REQUESTS, headers) => {
                if tries.turned_away >= TURNED_AWAY {
                    return Next::Done;
                }
                tries.turned_away += 1;
                let wait = reset(headers).unwrap_or_else(|| step(tries.turned_away - 1, 0.0));
                // A little more than asked for, so that clients do not return together.
                let jitter = Duration::from_millis(300).mul_f64(random);
                Next::Pause(wait.clamp(LEAST, MOST) + jitter)
            }
            Tried::Answer(status, _) if !is_transient(status) => Next::Done,
            Tried::Answer(..) | Tried::Nothing => {
                if !repeatable || tries.failed >= self.limit {
                    return Next::Done;
                }
                tries.failed += 1;
                Next::Again(step(tries.failed - 1, random))
            }
        }
    }
}

/// Returns `2^n` seconds and a random share of half of that.
fn step(n: u32, random: f64) -> Duration {
    // Above 10 the upper limit applies anyway; the bound keeps the power finite.
    let base = 2f64.powi(i32::try_from(n.min(10)).unwrap_or(10));
    Duration::from_secs_f64(base + random * base / 2.0).min(MOST)
}

/// Returns the time until the platform accepts requests again.
fn reset(headers: &HeaderMap) -> Option<Duration> {
    let seconds = |name: &str| {
        let text = headers.get(name)?.to_str().ok()?;
        let seconds: f64 = text.trim().parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    // The platform's own header first, which has fractions of a second.
    seconds("x-ratelimit-reset").or_else(|| seconds("retry-after"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    /// Case TFC15: 429 is waited for until the limit is reset, and other 4xx are not repeated.
    #[test]
    fn the_rate_limit_is_waited_for_and_other_mistakes_are_final() {
        let retry = RetryOptions::default();
        let away = StatusCode::TOO_MANY_REQUESTS;
        for (pairs, least) in [
            (&[("x-ratelimit-reset", "0.452")][..], 452),
            (&[("x-ratelimit-reset", "0")], 100),
            (&[("retry-after", "3")], 3000),
            (&[("x-ratelimit-reset", "-1")], 1000),
            (&[("x-ratelimit-reset", "1e300")], 1000),
            (&[("x-ratelimit-reset", "never"), ("retry-after", "2")], 2000),
            (&[], 1000),
        ] {
            let headers = headers(pairs);
            for random in [0.0, 0.999] {
                let next =
                    retry.next(Tried::Answer(away, &headers), false, &mut Tries::default(), random);
                let Next::Pause(wait) = next else { panic!("{pairs:?}: {next:?}") };
                let wait = wait.as_millis();
                assert!((least..=least + 300).contains(&wait), "{pairs:?}: {wait}");
            }
        }
        for status in [400, 401, 403, 404, 409, 422, 501] {
            let status = StatusCode::from_u16(status).unwrap();
            let none = headers(&[]);
            let next = retry.next(Tried::Answer(status, &none), true, &mut Tries::default(), 0.5);
            assert_eq!(next, Next::Done, "{status}");
        }
    }

    #[test]
    fn what_may_have_taken_effect_is_not_sent_again() {
        let retry = RetryOptions::default();
        let none = headers(&[]);
        let failed = Tried::Answer(StatusCode::BAD_GATEWAY, &none);
        for tried in [failed, Tried::Nothing] {
            assert_eq!(retry.next(tried, false, &mut Tries::default(), 0.0), Next::Done);
            let again = retry.next(tried, true, &mut Tries::default(), 0.0);
            assert_eq!(again, Next::Again(Duration::from_secs(1)));
        }
    }

    #[test]
    fn tries_are_counted_and_end() {
        let retry = RetryOptions { limit: 3 };
        let mut tries = Tries::default();
        let mut waits = Vec::new();
        while let Next::Again(wait) = retry.next(Tried::Nothing, true, &mut tries, 0.0) {
            waits.push(wait.as_secs());
        }
        assert_eq!(waits, [1, 2, 4]);
        let none = headers(&[]);
        let mut tries = Tries::default();
        let away = Tried::Answer(StatusCode::TOO_MANY_REQUESTS, &none);
        let count = (0..1000)
            .take_while(|_| matches!(retry.next(away, false, &mut tries, 0.0), Next::Pause(_)))
            .count();
        assert_eq!(count, 30);
    }
}
