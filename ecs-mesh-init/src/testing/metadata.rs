//! Task metadata that a test sets, fails and counts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    Error, Result,
    metadata::{Task, TaskMetadata},
};

/// Metadata that a test sets.
///
/// ```
/// # async fn example() -> ecs_mesh_init::Result<()> {
/// use ecs_mesh_init::{metadata::TaskMetadata, testing::TestTaskMetadata};
///
/// let metadata = TestTaskMetadata::new(br#"{"Family":"web"}"#)?;
/// assert_eq!(metadata.task().await?.family, "web");
/// metadata.fail(true);
/// assert!(metadata.task().await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TestTaskMetadata {
    state: Mutex<State>,
    calls: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    task: Task,
    fails: bool,
}

impl TestTaskMetadata {
    /// Creates metadata from this document.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`] if it is not the document of a task.
    pub fn new(document: &[u8]) -> Result<Self> {
        let state = Mutex::new(State { task: Task::parse(document)?, fails: false });
        Ok(Self { state, calls: watch::Sender::new(0) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the task.
    pub fn change(&self, change: impl FnOnce(&mut Task)) {
        change(&mut self.state().task);
    }

    /// Makes calls fail from now on, or succeed again.
    pub fn fail(&self, fails: bool) {
        self.state().fails = fails;
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> u64 {
        *self.calls.borrow()
    }

    /// Waits for this number of further calls.
    pub async fn wait_for_calls(&self, more: u64) {
        let mut calls = self.calls.subscribe();
        let due = self.calls().saturating_add(more);
        // The sender lives as long as `self`, so this cannot fail.
        drop(calls.wait_for(|calls| *calls >= due).await);
    }
}

#[async_trait]
impl TaskMetadata for TestTaskMetadata {
    async fn task(&self) -> Result<Task> {
        self.calls.send_modify(|calls| *calls += 1);
        let state = self.state();
        if state.fails {
            let source = "as the test asked".into();
            return Err(Error::Metadata { step: "calling metadata uri".to_owned(), source });
        }
        Ok(state.task.clone())
    }
}
