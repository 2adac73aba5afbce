//! The store with a copy of what it holds.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use consul_watch::Backoff;
use tokio::sync::Mutex;

use super::history::History;
use crate::{Change, Error, Result, State, Stop, Task, TaskStore, measure};

/// The store with a copy of what it holds, so that readers never wait for it.
///
/// Commits are made one after the other; a reader sees a change once the store
/// has acknowledged it.
#[derive(Debug)]
pub(crate) struct Ledger {
    store: Arc<dyn TaskStore>,
    /// Below it stored tasks without a working directory of their own have theirs.
    working_dir: Option<PathBuf>,
    committing: Mutex<()>,
    pub(super) history: History,
    state: RwLock<State>,
}

impl Ledger {
    pub(crate) fn new(store: Arc<dyn TaskStore>, working_dir: Option<PathBuf>) -> Self {
        Self {
            store,
            working_dir,
            committing: Mutex::new(()),
            history: History::default(),
            state: RwLock::default(),
        }
    }

    /// Reads the store; tasks that it holds win over `configured`.
    pub(crate) async fn open(&self, configured: Vec<Task>, stop: &Stop) -> Result<()> {
        let mut state = self.store.load().await?;
        if let Some(working_dir) = &self.working_dir {
            let tasks = std::mem::take(&mut state.tasks).into_iter();
            state.tasks = tasks.map(|task| task.resolved(working_dir)).collect();
        }
        let stored = !state.tasks.is_empty();
        measure::state(&state);
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        if stored {
            tracing::info!("tasks are taken from the store, not from the configuration");
            return Ok(());
        }
        let batch: Vec<_> =
            configured.into_iter().map(|task| Change::PutTask(Box::new(task))).collect();
        self.commit(&batch, stop).await
    }

    /// Commits a batch, and tries again while a retry may help.
    pub(crate) async fn commit(&self, batch: &[Change], stop: &Stop) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        // Batches in another order than the store's would make the copy differ from it.
        let _one_at_a_time = self.committing.lock().await;
        let mut backoff = Backoff::default();
        while let Err(error) = self.store.commit(batch).await {
            if !error.is_retryable() {
                return Err(error);
            }
            let delay = backoff.next_delay();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "cannot store the state, trying again"
            );
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                reason = stop.stopped() => return Err(Error::Stopped { reason }),
            }
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for change in batch {
            state.apply(change);
        }
        measure::state(&state);
        drop(state);
        self.history.committed(batch);
        Ok(())
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}
