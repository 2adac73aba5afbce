//! The end of running work after a stop.

use std::sync::Arc;

use super::{Engine, Shared};
use crate::{Result, RunContext, Stop, StopReason, TaskName};

impl Shared {
    /// Does work that changes something outside. A stop gives it the grace of
    /// the options to end by itself and then tells it to; leadership that is
    /// lost gives none.
    pub(super) async fn with_grace<T, F: Future<Output = Result<T>> + Send>(
        self: &Arc<Self>,
        name: &TaskName,
        stop: &Stop,
        work: impl FnOnce(RunContext) -> F + Send,
    ) -> Result<T> {
        let _working = Arc::clone(&self.working);
        // The work sees a stop of its own, which comes only when its grace is over.
        let inner = Stop::new();
        let work = work(self.context(name, &inner));
        tokio::pin!(work);
        let reason = tokio::select! {
            done = &mut work => return done,
            reason = stop.stopped() => reason,
        };
        tracing::info!(task.name = %name, %reason, "waiting for the running task to end");
        // No grace without leadership: the new leader may begin the same work at once.
        if reason != StopReason::LeadershipLost {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(self.options.stop_grace) => {}
                () = stop.urgent() => {}
            }
        }
        inner.stop(reason);
        tokio::select! {
            done = &mut work => return done,
            () = stop.urgent() => inner.stop_now(reason),
        }
        work.await
    }

    /// Builds the context of a call of a task's driver.
    pub(super) fn context(self: &Arc<Self>, task: &TaskName, stop: &Stop) -> RunContext {
        RunContext::new(stop.clone())
            .with_permit(Arc::clone(&self.options.permit))
            .with_progress(self.progress_of(task))
    }
}

impl Engine {
    /// Returns `true` while a step of a task runs that changes something outside.
    pub fn is_running_a_task(&self) -> bool {
        // One is the engine's own.
        Arc::strong_count(&self.shared.working) > 1
    }
}
