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
pub(crate) struct CachedStore {
    store: Arc<dyn TaskStore>,
    /// Below it stored tasks without a working directory of their own have theirs.
    working_dir: Option<PathBuf>,
    committing: Mutex<()>,
    pub(super) history: History,
    state: RwLock<State>,
}

impl CachedStore {
    pub(crate) fn new(store: Arc<dyn TaskStore>, working_dir: Option<PathBuf>) -> Self {
        Self {
            store,
            working_dir,
            committing: Mutex::new(()),
            history: History::default(),
            state: RwLock::default(),
        }
    }

    /// Reads the store, with folders for tasks that have none of their own.
    async fn stored(&self) -> Result<State> {
        let mut state = self.store.load().await?;
        if let Some(working_dir) = &self.working_dir {
            let tasks = std::mem::take(&mut state.tasks).into_iter();
            state.tasks = tasks.map(|task| task.resolved(working_dir)).collect();
        }
        Ok(state)
    }

    /// Reads the store; tasks that it holds win over `configured`.
    pub(crate) async fn open(&self, configured: Vec<Task>, stop: &Stop) -> Result<()> {
        let state = self.stored().await?;
        let stored = !state.tasks.is_empty();
        self.hold(state);
        if stored {
            tracing::info!("tasks are taken from the store, not from the configuration");
            return Ok(());
        }
        let batch: Vec<_> =
            configured.into_iter().map(|task| Change::PutTask(Box::new(task))).collect();
        self.commit(&batch, stop).await
    }

    /// Reads the store, and brings what it holds of the tasks of files in line with them.
    pub(crate) async fn open_beside(&self, files: Vec<Task>, stop: &Stop) -> Result<()> {
        let state = self.stored().await?;
        let batch = taken_over(&state.tasks, files);
        self.hold(state);
        self.commit(&batch, stop).await
    }

    fn hold(&self, state: State) {
        measure::state(&state);
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
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

/// Returns the changes by which the tasks of `files` take the place of those that earlier
/// files left in a store. Tasks that stand in no file stay.
fn taken_over(stored: &[Task], files: Vec<Task>) -> Vec<Change> {
    let is_left = |task: &&Task| {
        task.configured_enabled.is_some() && files.iter().all(|file| file.name != task.name)
    };
    let left = stored.iter().filter(is_left);
    let mut batch: Vec<Change> = left
        .map(|task| {
            tracing::info!(
                task.name = %task.name,
                "the task is no longer in the files and is forgotten; its infrastructure stays"
            );
            Change::DeleteTask(task.name.clone())
        })
        .collect();
    for mut task in files {
        let known = stored.iter().find(|known| known.name == task.name);
        // Whoever has enabled or disabled it counts until the files say something else.
        if let Some(known) = known.filter(|it| it.configured_enabled == task.configured_enabled) {
            task.enabled = known.enabled;
        }
        if known != Some(&task) {
            batch.push(Change::PutTask(Box::new(task)));
        }
    }
    batch
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::testing::task;

    fn of_files(name: &str, enabled: bool) -> Task {
        Task { enabled, configured_enabled: Some(enabled), ..task(name) }
    }

    fn put(task: &Task) -> Change {
        Change::PutTask(Box::new(task.clone()))
    }

    #[test]
    fn files_win_over_what_earlier_files_left() {
        let (made, kept, changed) =
            (task("made"), of_files("kept", true), of_files("changed", true));
        let gone = of_files("gone", true);
        let stored = [made.clone(), kept.clone(), changed.clone(), gone.clone()];
        let now = Task { description: "new".into(), ..changed };
        let batch = taken_over(&stored, vec![kept.clone(), now.clone(), of_files("new", true)]);
        assert_eq!(batch, [Change::DeleteTask(gone.name), put(&now), put(&of_files("new", true))]);
        // A task of the files that has the name of one that was made wins, too.
        let file = of_files("made", true);
        assert_eq!(taken_over(&[made], vec![file.clone()]), [put(&file)]);
        assert_eq!(taken_over(&[], vec![kept.clone()]), [put(&kept)]);
    }

    #[test]
    fn who_disabled_a_task_counts_until_the_files_say_something_else() {
        let on = of_files("one", true);
        let disabled = Task { enabled: false, ..on.clone() };
        assert_eq!(taken_over(std::slice::from_ref(&disabled), vec![on.clone()]), []);
        let off = of_files("one", false);
        assert_eq!(taken_over(std::slice::from_ref(&disabled), vec![off.clone()]), [put(&off)]);
        let enabled = Task { enabled: true, ..off };
        assert_eq!(taken_over(&[enabled], vec![on.clone()]), [put(&on)]);
    }
}
