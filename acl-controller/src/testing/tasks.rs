//! A task source that a test sets.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;

use crate::{
    Error, Result, TaskSource,
    task::{Task, TaskListing, Undescribed},
};

/// Tasks that a test sets. Cheap to clone; clones share the same tasks.
#[derive(Debug, Clone, Default)]
pub struct MemoryTasks {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    listings: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    tasks: BTreeMap<String, Task>,
    undescribed: Vec<Undescribed>,
    failures: Vec<Error>,
}

impl MemoryTasks {
    /// Creates a source without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task; one with the same ARN is replaced.
    pub fn set(&self, task: Task) {
        self.state().tasks.insert(task.arn.clone(), task);
    }

    /// Removes a task.
    pub fn remove(&self, arn: &str) {
        self.state().tasks.remove(arn);
    }

    /// Removes all tasks.
    pub fn clear(&self) {
        self.state().tasks.clear();
    }

    /// Sets the tasks that are listed without a description.
    pub fn set_undescribed(&self, undescribed: Vec<Undescribed>) {
        self.state().undescribed = undescribed;
    }

    /// Makes the next listing fail.
    pub fn fail_next(&self, error: Error) {
        self.state().failures.push(error);
    }

    /// Returns the number of listings so far.
    pub fn listings(&self) -> usize {
        self.inner.listings.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl TaskSource for MemoryTasks {
    async fn tasks(&self) -> Result<TaskListing> {
        self.inner.listings.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        if let Some(error) = state.failures.pop() {
            return Err(error);
        }
        let mut listing = TaskListing::new(state.tasks.values().cloned().collect());
        listing.undescribed.clone_from(&state.undescribed);
        Ok(listing)
    }
}
