//! Repeating a read-modify-write while others are faster.

use std::{future::Future, time::Duration};

use crate::{
    backend,
    code::{Code, RpcError},
};

/// Number of attempts of a write without a version.
const ATTEMPTS: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(75);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Why one attempt did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The backend refused.
    Backend(backend::Error),
    /// The answer is settled.
    Answer(RpcError),
}

impl From<backend::Error> for Failure {
    fn from(error: backend::Error) -> Self {
        Self::Backend(error)
    }
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::Answer(error)
    }
}

impl Failure {
    /// The answer to the caller; `what` names what failed for other reasons.
    pub(super) fn into_answer(self, what: &str) -> RpcError {
        match self {
            Self::Answer(error) => error,
            Self::Backend(error @ backend::Error::CasFailure) => {
                RpcError::new(Code::Aborted, error.to_string())
            }
            Self::Backend(error @ backend::Error::WrongUid) => {
                RpcError::new(Code::FailedPrecondition, error.to_string())
            }
            Self::Backend(error) => backend_failure(&error, what),
        }
    }
}

/// Answers for a backend that did not do its part; `what` names the call.
///
/// | backend | code | what a caller may do |
/// |---|---|---|
/// | no leader or majority, or a failure that passes | `UNAVAILABLE` | repeat the call |
/// | more is under way than it takes | `RESOURCE_EXHAUSTED` | repeat the call after a while |
/// | the outcome of a change is unknown | `UNKNOWN` | read, then decide |
/// | any other failure | `INTERNAL` | nothing; an operator has to look |
///
/// Deviation: upstream answers `INTERNAL` for all of them.
pub(super) fn backend_failure(error: &backend::Error, what: &str) -> RpcError {
    let code = match error {
        backend::Error::OutcomeUnknown { .. } => Code::Unknown,
        backend::Error::Overloaded { .. } => Code::ResourceExhausted,
        error if error.is_retryable() => Code::Unavailable,
        _ => Code::Internal,
    };
    RpcError::new(code, format!("{what}: {error}"))
}

/// Runs `attempt` once if the caller gave a version, else until it ends in
/// anything but a lost race, five times at the most.
pub(super) async fn retry_cas<T, F>(version: &str, attempt: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    if !version.is_empty() {
        return attempt().await;
    }
    let mut failures = 0;
    loop {
        let result = attempt().await;
        if !matches!(result, Err(Failure::Backend(backend::Error::CasFailure))) {
            return result;
        }
        failures += 1;
        tokio::time::sleep(delay(failures, fastrand::f64())).await;
        if failures == ATTEMPTS {
            return result;
        }
    }
}

/// The delay after the given number of failures; `random` from 0 to 1 adds up
/// to half of it.
fn delay(failures: u32, random: f64) -> Duration {
    let doubled = FIRST_DELAY * 2_u32.saturating_pow(failures.saturating_sub(1));
    let base = doubled.min(LONGEST_DELAY);
    base + base.mul_f64(random.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn delays_double_up_to_a_second_and_add_up_to_half() {
        let millis: Vec<_> = (1..=5).map(|n| delay(n, 0.0).as_millis()).collect();
        assert_eq!(millis, [75, 150, 300, 600, 1000]);
        assert_eq!(delay(5, 1.0).as_millis(), 1500);
    }

    #[tokio::test(start_paused = true)]
    async fn lost_races_are_repeated_five_times_unless_a_version_is_given() {
        for (version, expected) in [("", 5), ("7", 1)] {
            let count = Cell::new(0);
            let result: Result<(), _> = retry_cas(version, || {
                count.set(count.get() + 1);
                async { Err(backend::Error::CasFailure.into()) }
            })
            .await;
            assert_eq!(count.get(), expected);
            let answer = result.unwrap_err().into_answer("failed");
            assert_eq!(answer.code(), Code::Aborted);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_failures_end_it_at_once() {
        let count = Cell::new(0);
        let result: Result<(), _> = retry_cas("", || {
            count.set(count.get() + 1);
            async { Err(backend::Error::WrongUid.into()) }
        })
        .await;
        assert_eq!(count.get(), 1);
        assert_eq!(result.unwrap_err().into_answer("failed").code(), Code::FailedPrecondition);
    }
}
