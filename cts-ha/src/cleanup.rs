//! Work that is left to do in Consul when a future is dropped half-way.

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// A future that runs in the background if this guard is dropped before
/// [`CleanUp::disarm`] was called.
///
/// Without a runtime nothing runs, and Consul's own time limits have to do.
pub(crate) struct CleanUp<F: Future<Output = ()> + Send + 'static> {
    work: Option<F>,
    tracker: TaskTracker,
}

impl<F: Future<Output = ()> + Send + 'static> CleanUp<F> {
    /// A guard whose work nobody waits for.
    pub(crate) fn new(work: F) -> Self {
        Self::tracked(work, &TaskTracker::new())
    }

    /// A guard whose work `tracker` waits for.
    pub(crate) fn tracked(work: F, tracker: &TaskTracker) -> Self {
        Self { work: Some(work), tracker: tracker.clone() }
    }

    /// Leaves the work undone.
    pub(crate) fn disarm(mut self) {
        drop(self.work.take());
    }
}

impl<F: Future<Output = ()> + Send + 'static> Drop for CleanUp<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
            && let Ok(runtime) = Handle::try_current()
        {
            self.tracker.spawn_on(work, &runtime);
        }
    }
}
