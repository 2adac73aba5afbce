//! A store in memory.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::{Change, State, TaskStore};
use crate::Result;

/// Keeps everything in this process; it is lost when the process ends.
///
/// ```
/// # tokio_test();
/// # fn tokio_test() { tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use cts_tasks::{MemoryStore, TaskStore};
///
/// let store = MemoryStore::default();
/// assert!(store.load().await?.tasks.is_empty());
/// # Ok::<(), cts_tasks::Error>(()) }).unwrap() }
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

impl MemoryStore {
    /// A store that holds `state` already.
    pub fn with_state(state: State) -> Self {
        Self { state: Mutex::new(state) }
    }
}

#[async_trait]
impl TaskStore for MemoryStore {
    async fn load(&self) -> Result<State> {
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn commit(&self, batch: &[Change]) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for change in batch {
            state.apply(change);
        }
        Ok(())
    }
}
