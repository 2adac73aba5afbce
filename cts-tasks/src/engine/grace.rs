//! The end of running work after a stop.

use std::{future::pending, sync::Arc};

use tokio::time::{Instant, sleep, sleep_until};

use super::{Engine, Shared};
use crate::{Result, RunContext, Stop, StopReason, Task, TaskName};

impl Shared {
    /// Does work that changes something outside. A stop gives it the grace of
    /// the options to end by itself and then tells it to; leadership that is
    /// lost gives none. After the task's `shutdown_timeout` it is ended by force, even if the
    /// stop is not urgent yet.
    pub(super) async fn with_grace<T, F: Future<Output = Result<T>> + Send>(
        self: &Arc<Self>,
        task: &Task,
        stop: &Stop,
        work: impl FnOnce(RunContext) -> F + Send,
    ) -> Result<T> {
        let _working = Arc::clone(&self.working);
        // The work sees a stop of its own, which comes only when its grace is over.
        let inner = Stop::new();
        let name = &task.name;
        let work = work(self.context(name, &inner));
        tokio::pin!(work);
        let reason = tokio::select! {
            done = &mut work => return done,
            reason = stop.stopped() => reason,
        };
        tracing::info!(task.name = %name, %reason, "waiting for the running task to end");
        let force_at = task.shutdown_timeout.map(|most| Instant::now() + most);
        // No grace without leadership: the new leader may begin the same work at once.
        if reason != StopReason::LeadershipLost {
            let grace = self.options.stop_grace;
            let grace = task.shutdown_timeout.map_or(grace, |most| most.min(grace));
            tokio::select! {
                done = &mut work => return done,
                () = sleep(grace) => {}
                () = stop.urgent() => {}
            }
        }
        inner.stop(reason);
        tokio::select! {
            done = &mut work => return done,
            () = stop.urgent() => {}
            () = reached(force_at) => {
                tracing::warn!(
                    task.name = %name,
                    "the running task did not end within its shutdown_timeout and is ended now"
                );
            }
        }
        inner.stop_now(reason);
        work.await
    }

    /// Builds the context of a call of a task's driver.
    pub(super) fn context(self: &Arc<Self>, task: &TaskName, stop: &Stop) -> RunContext {
        RunContext::new(stop.clone())
            .with_permit(Arc::clone(&self.options.permit))
            .with_progress(self.progress_of(task))
    }
}

/// Waits until then, or for ever.
async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

impl Engine {
    /// Returns `true` while a step of a task runs that changes something outside.
    pub fn is_running_a_task(&self) -> bool {
        // One is the engine's own.
        Arc::strong_count(&self.shared.working) > 1
    }
}
