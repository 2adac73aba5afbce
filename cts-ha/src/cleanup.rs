//! Clean-up in Consul that still has to happen when a future is dropped half-way.

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Guard that runs a future in the background if it is dropped before [`CleanUp::disarm`].
///
/// Without a runtime nothing runs, and Consul's own time limits have to suffice.
pub(crate) struct CleanUp<F: Future<Output = ()> + Send + 'static> {
    work: Option<F>,
    tracker: TaskTracker,
}

impl<F: Future<Output = ()> + Send + 'static> CleanUp<F> {
    /// Creates a guard whose work nobody waits for.
    pub(crate) fn new(work: F) -> Self {
        Self::tracked(work, &TaskTracker::new())
    }

    /// Creates a guard whose work `tracker` waits for.
    pub(crate) fn tracked(work: F, tracker: &TaskTracker) -> Self {
        Self { work: Some(work), tracker: tracker.clone() }
    }

    /// Drops the guard without running its work.
    pub(crate) fn disarm(mut self) {
        drop(self.work.take());
    }
}

impl<F: Future<Output = ()> + Send + 'static> Drop for CleanUp<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
            // Outside a runtime there is nothing to spawn on.
            && let Ok(runtime) = Handle::try_current()
        {
            self.tracker.spawn_on(work, &runtime);
        }
    }
}
