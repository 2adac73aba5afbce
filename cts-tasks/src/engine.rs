//! Runs tasks when their conditions say so.

mod cached_store;
mod caught;
mod command;
mod control;
mod dependency;
mod dependency_streams;
mod drift;
mod grace;
mod guarded;
mod health;
mod history;
mod inputs;
#[cfg(feature = "ui")]
mod look;
mod pending_approvals;
mod progress;
mod removal;
mod run;
mod schedule;
mod settling;
mod supervisor;
mod time_limit;
mod under_way;
mod update;
mod view;
mod worker;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use consul_watch::{Clock, SystemClock, Watcher};
use tokio::sync::{Semaphore, mpsc, watch};

pub use command::FirstRun;
pub use history::Follower;
pub use inputs::CurrentInputs;
#[cfg(feature = "ui")]
pub(crate) use look::WaitsFor;
pub use progress::ProgressLine;
pub use under_way::{UnderWay, WorkStep};

use crate::{
    DriverFactory, Error, MemoryStore, Permit, Plan, Result, Retry, Single, State, Stop, Task,
    TaskName, TaskStore,
};
use cached_store::CachedStore;
use command::Order;
use control::Open;
use health::Health;
use progress::Lines;
use supervisor::Supervisor;
use worker::Worker;

/// Runs tasks when their conditions say so.
///
/// It owns what triggers, the buffer periods, one run of a task at a time,
/// retries and events. What a run does is the [`crate::Driver`]'s, where state
/// is kept the [`TaskStore`]'s. Clones share one engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    factory: Arc<dyn DriverFactory>,
}

/// Options of an [`Engine`] beside its tasks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Store of the state; in memory by default.
    pub store: Arc<dyn TaskStore>,
    /// Permission of this process to act; always granted by default.
    pub permit: Arc<dyn Permit>,
    /// Retries of a failed run, after the first run of a task.
    pub retry: Retry,
    /// Limit of tasks that run at once; `None`, the default, sets no bound.
    pub concurrency: Option<usize>,
    /// Time that a run may go on after a stop before its driver is asked to end it;
    /// 5 seconds by default.
    pub stop_grace: Duration,
    /// `true` if a task whose first run fails is kept and the next one begun,
    /// instead of ending the engine; off by default. One that cannot even be made
    /// ready is tried again for ever, after growing pauses.
    ///
    /// Source: Consul-Terraform-Sync 0.9, `controller/once.go` (`allowFail`).
    pub allow_failed_first_runs: bool,
    /// `true` if the first run of a task is left out when its inputs are those last
    /// applied, and its newest event is a success; off by default.
    pub skip_unchanged_first_runs: bool,
    /// Working directory of the deployment here: a stored task without one of
    /// its own gets its folder below it, whichever instance stored it. `None`,
    /// the default, leaves stored tasks as they are.
    pub working_dir: Option<PathBuf>,
    /// Clock of the schedules; the system's by default.
    pub clock: Arc<dyn Clock>,
    /// Makes the random part of delays repeatable; `None`, the default, does not.
    pub seed: Option<u64>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            store: Arc::new(MemoryStore::default()),
            permit: Arc::new(Single),
            retry: Retry::TASK,
            concurrency: None,
            stop_grace: Duration::from_secs(5),
            allow_failed_first_runs: false,
            skip_unchanged_first_runs: false,
            working_dir: None,
            clock: Arc::new(SystemClock),
            seed: None,
        }
    }
}

/// The result of one task's inspection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The task.
    pub task: TaskName,
    /// The plan of the next run; `None` for a disabled task.
    pub plan: Option<Plan>,
}

/// State that the workers of one engine share.
pub(crate) struct Shared {
    watcher: Watcher,
    cached_store: CachedStore,
    health: Arc<Health>,
    options: EngineOptions,
    turns: Option<Semaphore>,
    /// Counts steps that change something outside, while they run.
    working: Arc<()>,
    random: Mutex<fastrand::Rng>,
    /// To the supervisor, while the engine runs.
    orders: Mutex<Option<mpsc::Sender<Order>>>,
    /// `true` once every task has had its first run, while the engine runs.
    watching: watch::Sender<bool>,
    lines: Lines,
    work: under_way::AllWork,
    views: inputs::Views,
}

impl Shared {
    /// From [0, 1).
    fn random(&self) -> f64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("factory", &self.factory)
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine without tasks, that watches through `watcher` and has
    /// `factory` make the drivers.
    pub fn new(watcher: Watcher, factory: Arc<dyn DriverFactory>, options: EngineOptions) -> Self {
        crate::measure::describe();
        let random = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let shared = Shared {
            watcher,
            cached_store: CachedStore::new(Arc::clone(&options.store), options.working_dir.clone()),
            health: Arc::default(),
            turns: options.concurrency.map(Semaphore::new),
            working: Arc::default(),
            random: Mutex::new(random),
            orders: Mutex::new(None),
            watching: watch::Sender::new(false),
            lines: Lines::default(),
            work: under_way::AllWork::default(),
            views: inputs::Views::default(),
            options,
        };
        Self { shared: Arc::new(shared), factory }
    }

    /// Reads the store, and puts `configured` into it when it holds no tasks.
    ///
    /// # Errors
    ///
    /// The store's, or a stop.
    pub async fn load(&self, configured: Vec<Task>, stop: &Stop) -> Result<()> {
        self.shared.cached_store.open(configured, stop).await
    }

    /// Reads the store, and takes over the tasks of `files`: they win over those that earlier
    /// files left in the store, and tasks of earlier files that are gone are forgotten, their
    /// infrastructure left as it is. Tasks that stand in no file, such as those made through
    /// the API, stay; see [`Task::configured_enabled`].
    ///
    /// # Errors
    ///
    /// The store's, or a stop.
    pub async fn load_files(&self, files: Vec<Task>, stop: &Stop) -> Result<()> {
        self.shared.cached_store.open_beside(files, stop).await
    }

    /// Looks at tasks, events and plans as they stand.
    pub fn state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        self.shared.cached_store.read(look)
    }

    /// Checks that everything that tasks need of Consul can be read.
    ///
    /// # Errors
    ///
    /// What cannot, for a person: a read that failed nine times in a row, or
    /// that no retry cures. It is tried on all the same.
    pub fn health(&self) -> Result<(), String> {
        self.shared.health.check()
    }

    /// Says what a run of each task would change, one after the other, and
    /// changes nothing. Only the tasks in `only`, unless it is empty.
    ///
    /// # Errors
    ///
    /// That of the first task that fails.
    pub async fn inspect(&self, only: &[TaskName], stop: &Stop) -> Result<Vec<Inspection>> {
        let mut found = Vec::new();
        self.inspect_each(only, stop, |inspection| found.push(inspection)).await?;
        Ok(found)
    }

    /// As [`Engine::inspect`], and tells of each inspection as soon as it ends.
    ///
    /// # Errors
    ///
    /// That of the first task that fails, after what came before was told.
    pub async fn inspect_each(
        &self,
        only: &[TaskName],
        stop: &Stop,
        mut report: impl FnMut(Inspection) + Send,
    ) -> Result<()> {
        let tasks = self.tasks();
        if let Some(unknown) =
            only.iter().find(|name| !tasks.iter().any(|task| task.name == **name))
        {
            return Err(Error::NoSuchTask { task: unknown.to_string() });
        }
        for task in tasks.into_iter().filter(|task| only.is_empty() || only.contains(&task.name)) {
            let name = task.name.clone();
            let mut worker = self.worker(task, stop).await?;
            let plan = worker.inspect(stop).await?;
            report(Inspection { task: name, plan });
        }
        Ok(())
    }

    /// Runs every task once, one after the other, without a second try.
    ///
    /// # Errors
    ///
    /// That of the first task that fails; later ones are not run.
    pub async fn once(&self, stop: &Stop) -> Result<()> {
        for task in self.tasks() {
            self.worker(task, stop).await?.first_run(stop).await?;
        }
        Ok(())
    }

    /// Runs every task once, as [`Engine::once`] does, and from then on
    /// whenever its condition says so, until the stop.
    ///
    /// # Errors
    ///
    /// That of the first task that fails in its first run; afterwards only what
    /// no later run can cure: [`Error::Fenced`] or [`Error::NotPermitted`].
    pub async fn run(&self, stop: &Stop) -> Result<()> {
        let (open, orders) = Open::new(&self.shared);
        let supervisor = Supervisor::new(self.clone(), self.tasks(), stop.child());
        let result = supervisor.run(orders).await;
        drop(open);
        match result {
            Err(Error::Stopped { .. }) if stop.reason().is_some() => Ok(()),
            result => result,
        }
    }

    async fn worker(&self, task: Task, stop: &Stop) -> Result<Worker> {
        Worker::prepare(task, &*self.factory, Arc::clone(&self.shared), stop).await
    }

    fn tasks(&self) -> Vec<Task> {
        self.state(|state| state.tasks.clone())
    }
}
