//! Takes over the tasks of files that were read again.

use std::{collections::BTreeMap, path::Path};

use super::{
    Daemon,
    difference::{Changed, Difference, check_providers, needs_restart},
};
use crate::{
    Config, Error, FirstRun, Result, Task, TaskName,
    config::{Loaded, shared_auto_commit, shared_working_dir},
};

/// The result of a reload; see [`crate::Daemon::reload`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Reloaded {
    /// Tasks that are new in the files.
    pub added: Vec<TaskName>,
    /// Tasks whose definition in the files changed.
    pub changed: Vec<TaskName>,
    /// Tasks that are no longer in the files; their infrastructure stays.
    pub removed: Vec<TaskName>,
    /// Tasks that could not be added or changed. They are as they were, and
    /// the next reload tries again.
    pub failed: BTreeMap<TaskName, Error>,
    /// Blocks and settings that differ and count only after a restart.
    pub needs_restart: Vec<String>,
}

impl Reloaded {
    /// Takes note of one task: `files` then has it as it counts now. What ends
    /// the whole reload goes on as an error.
    pub(crate) fn note(
        &mut self,
        task: &Task,
        done: Result<()>,
        files: &mut Vec<Task>,
    ) -> Result<Option<TaskName>> {
        match done {
            Ok(()) => {
                match files.iter_mut().find(|known| known.name == task.name) {
                    Some(known) => known.clone_from(task),
                    None => files.push(task.clone()),
                }
                Ok(Some(task.name.clone()))
            }
            Err(error @ Error::NotRunning) => Err(error),
            Err(error) => {
                tracing::error!(
                    task.name = %task.name,
                    error = &error as &dyn std::error::Error,
                    "error reloading task"
                );
                self.failed.insert(task.name.clone(), error);
                Ok(None)
            }
        }
    }

    pub(crate) fn tell(&self) {
        tracing::info!(
            added = self.added.len(),
            changed = self.changed.len(),
            removed = self.removed.len(),
            failed = self.failed.len(),
            "the configuration was reloaded"
        );
        if !self.needs_restart.is_empty() {
            tracing::warn!(
                "only tasks are reloaded; a restart is needed for: {}",
                self.needs_restart.join(", ")
            );
        }
    }
}

impl Daemon {
    /// Takes over the tasks of files that were read again, while
    /// [`Daemon::run`] runs: those that are new are added and run, those that
    /// changed take their new definition and run, and those that are gone are
    /// forgotten, with their infrastructure left as it is. A task that was
    /// made through the API stays. Whether a task is enabled stays as somebody
    /// has set it since, unless the files now say something else.
    ///
    /// It begins once every task has had its first run. Files with mistakes
    /// never come here, because [`crate::config::Loader`] refuses them whole.
    ///
    /// # Errors
    ///
    /// [`Error::NotReloaded`] when nothing was changed: under high
    /// availability, where the tasks of the store win; when a new task needs a
    /// provider's block that counts only after a restart; or when a task would
    /// share a provider that commits by itself, or a working directory, with one
    /// of the API's.
    /// [`Error::NotRunning`] when the daemon does not run, or ends meanwhile.
    pub async fn reload(&self, loaded: Loaded) -> Result<Reloaded> {
        let mut files = self.files.lock().await;
        if let Some(cluster) = self.cluster.name() {
            let reason = format!(
                "cluster {cluster:?} keeps its tasks in its store, which wins over the files; \
                 change tasks through the API, or restart with -reset-storage"
            );
            tracing::warn!("the configuration is not reloaded: {reason}");
            return Err(Error::NotReloaded { reason });
        }
        self.engine.watching().await?;
        let now = loaded.config;
        let difference = Difference::between(&files, &now.tasks);
        check_providers(&difference, &self.config, &now)?;
        self.check_sharing(&files, &now, loaded.rules.base_dir())?;
        let needs_restart = needs_restart(&self.config, &now);
        let mut reloaded = Reloaded { needs_restart, ..Reloaded::default() };
        for name in difference.removed {
            match self.engine.forget(&name).await {
                Ok(()) | Err(Error::NoSuchTask { .. }) => {}
                Err(error) => return Err(error),
            }
            files.retain(|task| task.name != name);
            reloaded.removed.push(name);
        }
        for Changed { task, sets_enabled } in difference.changed {
            let done = self.change(&task, sets_enabled).await;
            let name = reloaded.note(&task, done, &mut files)?;
            reloaded.changed.extend(name);
        }
        for task in difference.added {
            let done = self.add(task.clone()).await;
            let name = reloaded.note(&task, done, &mut files)?;
            reloaded.added.extend(name);
        }
        reloaded.tell();
        Ok(reloaded)
    }

    /// Checks that no task of the files shares a provider that commits by itself, or a
    /// working directory, with one that was made through the API. Relative directories
    /// are taken from `base_dir`.
    fn check_sharing(&self, files: &[Task], now: &Config, base_dir: &Path) -> Result<()> {
        let of_files = |task: &Task| files.iter().any(|known| known.name == task.name);
        let mut all = self.engine.state(|state| state.tasks.clone());
        all.retain(|task| !of_files(task));
        all.extend(now.tasks.iter().cloned());
        let shared =
            shared_auto_commit(&all, &now.providers).or_else(|| shared_working_dir(&all, base_dir));
        shared.map_or(Ok(()), |reason| Err(Error::NotReloaded { reason }))
    }

    async fn change(&self, task: &Task, sets_enabled: bool) -> Result<()> {
        let mut task = task.clone();
        if !sets_enabled {
            let known = self.engine.state(|state| {
                let known = state.tasks.iter().find(|known| known.name == task.name);
                known.map(|known| known.enabled)
            });
            task.enabled = known.unwrap_or(task.enabled);
        }
        match self.engine.replace(task.clone()).await {
            // Somebody deleted it; the files want it again.
            Err(Error::NoSuchTask { .. }) => self.add(task).await,
            done => done,
        }
    }

    /// A first run that fails is in the task's events; the task stays.
    async fn add(&self, task: Task) -> Result<()> {
        let name = task.name.clone();
        let enabled = task.enabled;
        self.engine.create(task, FirstRun::WhenTriggered).await?;
        if enabled && let Err(error) = self.engine.run_now(&name).await {
            tracing::error!(task.name = %name, error = &error as &dyn std::error::Error, "error applying task");
        }
        Ok(())
    }
}
