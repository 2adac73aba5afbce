use super::Shared;
use crate::{Result, RunContext, Stop, StopReason, TaskName};

impl Shared {
    /// Does work that changes something outside. A stop gives it the grace of
    /// the options to end by itself and then tells it to; leadership that is
    /// lost gives none.
    pub(super) async fn with_grace<T, F: Future<Output = Result<T>> + Send>(
        &self,
        name: &TaskName,
        stop: &Stop,
        work: impl FnOnce(RunContext) -> F + Send,
    ) -> Result<T> {
        let inner = Stop::new();
        let work = work(self.context(name, &inner));
        tokio::pin!(work);
        let reason = tokio::select! {
            done = &mut work => return done,
            reason = stop.stopped() => reason,
        };
        tracing::info!(task.name = %name, %reason, "waiting for the running task to end");
        if reason != StopReason::LeadershipLost
            && let Ok(done) = tokio::time::timeout(self.options.stop_grace, &mut work).await
        {
            return done;
        }
        inner.stop(reason);
        work.await
    }

    /// What each call of a task's driver gets.
    pub(super) fn context(&self, task: &TaskName, stop: &Stop) -> RunContext {
        RunContext::new(stop.clone())
            .with_permit(std::sync::Arc::clone(&self.options.permit))
            .with_progress(self.progress_of(task))
    }
}
