//! The time that the work of one task may take.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use super::Shared;
use crate::{Error, Result, RunContext, StopReason, Task};

/// Time from the request to end to the end by force, for a task without a `shutdown_timeout`.
const WINDING_UP: Duration = Duration::from_secs(30);

impl Shared {
    /// Does work that has to end within the task's `timeout`. What takes longer is asked to end,
    /// and, after the task's `shutdown_timeout` or half a minute, ended by force.
    ///
    /// # Errors
    ///
    /// The work's; [`Error::TimedOut`] or [`Error::NoTimeLeft`], with the work's, for work that
    /// failed after it was asked to end. What ends well in spite of that counts.
    pub(super) async fn within_timeout<T, F: Future<Output = Result<T>> + Send>(
        self: &Arc<Self>,
        task: &Task,
        context: &RunContext,
        work: impl FnOnce(RunContext) -> F + Send,
    ) -> Result<T> {
        let Some(limit) = task.timeout else { return work(context.clone()).await };
        let mut limited = context.clone();
        let stop = context.stop.child();
        limited.stop = stop.clone();
        let work = work(limited);
        tokio::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            // Whoever stops it also says how long it may wind up.
            _ = context.stop.stopped() => return work.await,
            () = sleep(limit) => {}
        }
        tracing::warn!(
            task.name = %task.name,
            timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            "the task runs longer than its timeout and is asked to end"
        );
        let force_at = Instant::now() + task.shutdown_timeout.unwrap_or(WINDING_UP);
        stop.stop(StopReason::TimeLimit);
        let done = tokio::select! {
            biased;
            done = &mut work => done,
            () = sleep_until(force_at) => {
                stop.stop_now(StopReason::TimeLimit);
                work.await
            }
        };
        match done {
            Err(error) if error.concerning_all().is_none() => Err(at_the_limit(task, limit, error)),
            done => done,
        }
    }
}

/// Returns the error of work that was asked to end at its limit, with what it failed with.
fn at_the_limit(task: &Task, limit: Duration, error: Error) -> Error {
    let task = task.name.clone();
    match error {
        error @ Error::NoTimeLeft { .. } => error,
        Error::Stopped { .. } => Error::TimedOut { task, limit, source: None },
        error => Error::TimedOut { task, limit, source: Some(Box::new(error)) },
    }
}
