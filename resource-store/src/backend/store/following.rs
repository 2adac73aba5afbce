//! What one process knows of the changes in a store that it shares with others, for its watches.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::task::AbortOnDropHandle;

use super::{
    change::Change,
    topics::{ChangeReader, Topics},
};
use crate::backend::Query;

/// The changes of one history, `H`, from some moment on: a task reads and publishes them as long
/// as somebody watches.
#[derive(Debug)]
pub(crate) struct Following<H> {
    history: H,
    topics: Topics,
    closed: AtomicBool,
    task: OnceLock<AbortOnDropHandle<()>>,
}

impl<H> Following<H> {
    /// Creates what no task feeds yet; each log holds `buffer` events.
    pub(crate) fn new(history: H, buffer: usize) -> Self {
        Self {
            history,
            topics: Topics::new(buffer),
            closed: AtomicBool::new(false),
            task: OnceLock::new(),
        }
    }

    /// Takes the task that publishes, which ends with this. Called once.
    pub(crate) fn fed_by(&self, task: tokio::task::JoinHandle<()>) {
        // A second task would be aborted here.
        drop(self.task.set(AbortOnDropHandle::new(task)));
    }

    pub(crate) fn history(&self) -> &H {
        &self.history
    }

    pub(crate) fn publish(&self, change: &Change) {
        self.topics.publish(change);
    }

    /// Ends every watch.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.topics.close_all();
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Subscribes to all changes from now on; `None` if the reader would never learn
    /// of the end.
    pub(crate) fn subscribe(&self, query: &Query) -> Option<ChangeReader> {
        let reader = self.topics.subscribe(query);
        (!self.is_closed()).then_some(reader)
    }
}

/// Returns the one that somebody watches, unless it is closed.
pub(crate) fn open<H>(known: &Weak<Following<H>>) -> Option<Arc<Following<H>>> {
    known.upgrade().filter(|following| !following.is_closed())
}
