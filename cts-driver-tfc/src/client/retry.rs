use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::error::is_transient;

/// How often a call is tried again, and after which delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryOptions {
    /// Further tries of a call that failed for a reason that may pass; default
    /// 8. The wait before try `n`, counted from 0, is `2^n` seconds and up to
    /// half of that, and never more than 15 minutes.
    pub limit: u32,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self { limit: 8 }
    }
}

/// How often a call is sent that the rate limit turned away: the platform says
/// itself when it may come again.
const TURNED_AWAY: u32 = 30;
/// Shortest and longest wait after the rate limit.
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_mins(15);

/// What one try came to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tried<'a> {
    /// The platform answered.
    Answer(StatusCode, &'a HeaderMap),
    /// There was no answer.
    Nothing,
}

/// How often a call was tried for each reason.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tries {
    pub(super) failed: u32,
    pub(super) turned_away: u32,
}

/// What to do after a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The answer is what it is.
    Done,
    /// The rate limit: everybody waits, then it is tried again.
    Pause(Duration),
    /// It is tried again after a wait.
    Again(Duration),
}

impl RetryOptions {
    /// Decides; `repeatable` is whether sending it twice does no harm, and
    /// `random` is from [0, 1).
    ///
    /// A call that the rate limit turned away had no effect, so it may always
    /// be sent again.
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

/// `2^n` seconds and up to half of that.
fn step(n: u32, random: f64) -> Duration {
    let base = 2f64.powi(i32::try_from(n.min(10)).unwrap_or(10));
    Duration::from_secs_f64(base + random * base / 2.0).min(MOST)
}

/// When the platform lets requests in again.
fn reset(headers: &HeaderMap) -> Option<Duration> {
    let seconds = |name: &str| {
        let text = headers.get(name)?.to_str().ok()?;
        let seconds: f64 = text.trim().parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    seconds("x-ratelimit-reset").or_else(|| seconds("retry-after"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    /// Spec: TFC15
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
