//! Retries of registration and login, which end only where no waiting can help.

use std::{future::Future, time::Duration};

use consul_watch::{Backoff, Jitter};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{Error, Result};

/// Interval and limits of retries.
///
/// The default is upstream's: one second between attempts, without an end, because the missing part
/// may be a container that starts later. ECS limits the whole by `startTimeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Time between two attempts; up to a tenth of it is added at random. Default 1 s.
    pub delay: Duration,
    /// Largest number of attempts. Default `None`: no limit.
    pub attempts: Option<u32>,
    /// Time after which no further attempt begins. Default `None`: never.
    pub give_up_after: Option<Duration>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { delay: Duration::from_secs(1), attempts: None, give_up_after: None }
    }
}

impl RetryPolicy {
    /// Creates a policy with this delay between attempts, without an end.
    pub fn every(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Returns a copy with at most this number of attempts.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }
}

/// Repeats an operation until it succeeds.
///
/// Every refusal of Consul is retried, also 400 and 403, because tokens, nodes and certificates
/// come into being while a task starts.
///
/// # Errors
///
/// The last error when the policy ends, or one that lies in our own settings and that no retry can
/// cure; [`Error::Stopped`] when `stop` is cancelled.
pub async fn retry<T, F>(
    policy: RetryPolicy,
    operation: &'static str,
    stop: &CancellationToken,
    attempt: impl Fn() -> F + Send + Sync,
) -> Result<T>
where
    F: Future<Output = Result<T>> + Send,
    T: Send,
{
    let work = async {
        let began = Instant::now();
        let mut delays = Backoff::default()
            .with_initial(policy.delay)
            .with_cap(policy.delay)
            // Constant delays: a task waits for its neighbours, not for an overloaded server. The
            // jitter keeps the tasks of one deployment apart.
            .with_factor(1.0)
            .with_jitter(Jitter::Extra(0.1));
        let mut tried = 0_u32;
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            tried = tried.saturating_add(1);
            let delay = delays.next_delay();
            let is_last = policy.attempts.is_some_and(|limit| tried >= limit)
                // Judged before the sleep: an attempt after the limit would be in vain.
                || policy.give_up_after.is_some_and(|limit| began.elapsed() + delay >= limit);
            if is_last || is_hopeless(&error) {
                return Err(error);
            }
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                attempt = tried,
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "{operation} failed; retrying"
            );
            sleep(delay).await;
        }
    };
    // The stop first, so that a cancelled run makes no further attempt.
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Error::Stopped { operation }),
        result = work => result,
    }
}

/// Returns `true` if the error lies in our own settings.
fn is_hopeless(error: &Error) -> bool {
    match error {
        Error::Consul { source, .. } => matches!(
            source,
            consul_watch::Error::Input { .. }
                | consul_watch::Error::Config { .. }
                | consul_watch::Error::MissingFeature { .. }
        ),
        Error::Config { .. } | Error::Input { .. } | Error::Stopped { .. } => true,
        other => !other.is_retryable(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn transient() -> Error {
        Error::Other { operation: "it", retryable: true, source: "not yet".into() }
    }

    async fn tries(policy: RetryPolicy, error: fn() -> Error, works_at: u32) -> (u32, Result<()>) {
        let count = AtomicU32::new(0);
        let result = retry(policy, "it", &CancellationToken::new(), || async {
            if count.fetch_add(1, Ordering::SeqCst) + 1 < works_at { Err(error()) } else { Ok(()) }
        })
        .await;
        (count.into_inner(), result)
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_tried_until_it_works() {
        let began = Instant::now();
        let (count, result) = tries(RetryPolicy::default(), transient, 100).await;
        result.unwrap();
        assert_eq!(count, 100);
        assert!(
            began.elapsed() >= Duration::from_secs(99)
                && began.elapsed() < Duration::from_secs(110)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn limits_hold() {
        let few = RetryPolicy::default().with_attempts(3);
        assert_eq!(tries(few, transient, u32::MAX).await.0, 3);
        let short =
            RetryPolicy { give_up_after: Some(Duration::from_secs(5)), ..RetryPolicy::default() };
        assert!(tries(short, transient, u32::MAX).await.0 <= 5);
        let (count, result) =
            tries(RetryPolicy::default(), || Error::input("wrong"), u32::MAX).await;
        assert_eq!((count, result.unwrap_err().to_string().as_str()), (1, "wrong"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_it_at_once() {
        let stop = CancellationToken::new();
        stop.cancel();
        let result: Result<()> =
            retry(RetryPolicy::default(), "it", &stop, || async { Err(transient()) }).await;
        assert!(matches!(result, Err(Error::Stopped { operation: "it" })));
    }
}
