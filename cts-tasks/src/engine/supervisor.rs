//! The workers of a running engine, and orders about its tasks.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use consul_watch::error_chain;
use tokio::{
    sync::mpsc,
    task::{Id, JoinError, JoinSet},
};

use super::{
    Engine,
    caught::panic_text,
    command::{FirstRun, Handle, Order, Reply, answer},
    worker::{Left, Worker},
};
use crate::{Change, Deletion, Error, Inspection, Result, Retry, Stop, StopReason, Task, TaskName};

/// Starts the workers of a running engine, and takes orders about its tasks.
///
/// Long work goes on in jobs, so that an order about one task never waits for
/// another task. A name is taken from the moment its task is begun until its
/// worker has ended.
pub(crate) struct Supervisor {
    engine: Engine,
    /// The engine's own stop, which this ends itself after an error.
    stop: Stop,
    jobs: JoinSet<Done>,
    /// Task names of the jobs, by job id.
    names: HashMap<Id, TaskName>,
    slots: BTreeMap<TaskName, Slot>,
    /// Tasks of the configuration or the store that have not run yet.
    first: VecDeque<Task>,
    /// The first run that is under way; the others wait.
    first_running: Option<TaskName>,
    result: Result<()>,
}

/// Pause before a task whose worker has failed gets another one.
const REVIVAL: Duration = Duration::from_secs(1);

enum Slot {
    /// The worker is being made, or the task is only inspected.
    Starting,
    Running(Handle),
    /// The worker has ended, and the store is being informed.
    Leaving,
}

/// The results of jobs.
enum Done {
    First { worker: Result<Box<Worker>> },
    Created { name: TaskName, worker: Result<Box<Worker>>, reply: Reply<()> },
    Inspected { name: TaskName, inspection: Result<Inspection>, reply: Reply<Inspection> },
    Marked { name: TaskName, spare: bool, result: Result<()>, reply: Reply<()> },
    Revived { worker: Result<Box<Worker>> },
    Ended { name: TaskName, result: Result<Left> },
    Deleted { name: TaskName, result: Result<()> },
}

impl Supervisor {
    pub(crate) fn new(engine: Engine, tasks: Vec<Task>, stop: Stop) -> Self {
        Self {
            engine,
            stop,
            jobs: JoinSet::new(),
            names: HashMap::new(),
            slots: BTreeMap::new(),
            first: tasks.into(),
            first_running: None,
            result: Ok(()),
        }
    }

    /// Works until the stop, or an error that concerns the whole engine, and
    /// all jobs have ended.
    pub(crate) async fn run(mut self, mut orders: mpsc::Receiver<Order>) -> Result<()> {
        self.start_next();
        loop {
            let stopping = self.stop.reason().is_some();
            tokio::select! {
                Some(done) = self.jobs.join_next_with_id() => match done {
                    Ok((id, done)) => {
                        self.names.remove(&id);
                        self.settle(done);
                    }
                    Err(error) => self.revive(error),
                },
                Some(order) = orders.recv(), if !stopping => self.handle(order),
                _ = self.stop.stopped(), if !stopping => {}
                // Only after the stop, when the last job has ended.
                else => return self.result,
            }
        }
    }

    /// Starts the next task of the first runs, one after the other.
    fn start_next(&mut self) {
        if self.stop.reason().is_some() {
            return;
        }
        let Some(task) = self.first.pop_front() else {
            if self.engine.shared.options.allow_failed_first_runs {
                tracing::info!("attempted to run all tasks once");
            } else {
                tracing::info!("all tasks ran once, watching for changes");
            }
            self.engine.shared.watching.send_replace(true);
            return;
        };
        let name = task.name.clone();
        let deletion = self.engine.state(|state| state.deletions.get(&name).copied());
        if let Some(Deletion { spare }) = deletion {
            // Somebody was told that it will go, before this engine ran.
            self.watch(worker_of(&self.engine, task).0);
            self.retire(&name, Some(Deletion { spare }));
            return self.start_next();
        }
        self.slots.insert(name.clone(), Slot::Starting);
        self.first_running = Some(name.clone());
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        self.spawn(name, async move {
            let worker = first_run(&engine, task, &stop).await;
            Done::First { worker }
        });
    }

    fn spawn(&mut self, name: TaskName, job: impl Future<Output = Done> + Send + 'static) {
        let id = self.jobs.spawn(job).id();
        self.names.insert(id, name);
    }

    /// Gives a task another worker whose job has panicked: a defect of ours, or
    /// of a store, concerns that task alone.
    fn revive(&mut self, error: JoinError) {
        let name = self.names.remove(&error.id());
        let cause = match error.try_into_panic() {
            Ok(panic) => panic_text(&*panic).to_owned(),
            Err(error) => error.to_string(),
        };
        let message = format!("the work on the task panicked, which is a defect: {cause}");
        let error = Error::Driver { message, retryable: false, source: None };
        let first = self.first_running.take_if(|first| name.as_ref() == Some(first)).is_some();
        let Some(name) =
            name.filter(|_| !first || self.engine.shared.options.allow_failed_first_runs)
        else {
            return self.fail(error);
        };
        let found =
            self.engine.state(|state| state.tasks.iter().find(|task| task.name == name).cloned());
        tracing::error!(task.name = %name, error = error_chain(&error), "task has failed");
        // An order about the task panicked beside its worker, which goes on. Another one would
        // drive the same infrastructure.
        if matches!(self.slots.get(&name), Some(Slot::Running(handle)) if !handle.is_gone()) {
            return;
        }
        match found {
            Some(task) => {
                self.slots.insert(name.clone(), Slot::Starting);
                let (engine, stop) = (self.engine.clone(), self.stop.clone());
                self.spawn(name, async move {
                    tokio::select! {
                        () = tokio::time::sleep(REVIVAL) => {}
                        _ = stop.stopped() => {}
                    }
                    let (mut worker, _) = worker_of(&engine, task);
                    let noted = worker.start_later(&error, &stop).await;
                    Done::Revived { worker: noted.map(|()| Box::new(worker)) }
                });
            }
            None => {
                self.slots.remove(&name);
            }
        }
        if first {
            self.start_next();
        }
    }

    fn settle(&mut self, done: Done) {
        match done {
            Done::First { worker: Ok(worker) } => {
                self.first_running = None;
                self.watch(*worker);
                self.start_next();
            }
            Done::Revived { worker: Ok(worker) } => {
                let name = worker.name().clone();
                self.watch(*worker);
                let deletion = self.engine.state(|state| state.deletions.get(&name).copied());
                self.retire(&name, deletion);
            }
            Done::First { worker: Err(error) } | Done::Revived { worker: Err(error) } => {
                self.fail(error);
            }
            Done::Marked { name, spare, result, reply } => {
                if result.is_ok() {
                    self.retire(&name, Some(Deletion { spare }));
                }
                let ends_all = result.as_ref().err().and_then(Error::concerning_all);
                answer(reply, result);
                self.end_with(ends_all.map_or(Ok(()), Err));
            }
            Done::Created { name, worker: Ok(worker), reply } => {
                tracing::info!(task.name = %name, "task was created");
                self.watch(*worker);
                answer(reply, Ok(()));
            }
            Done::Created { name, worker: Err(error), reply } => {
                self.slots.remove(&name);
                answer(reply, Err(error));
            }
            Done::Inspected { name, inspection, reply } => {
                self.slots.remove(&name);
                answer(reply, inspection);
            }
            Done::Ended { name, result: Ok(Left::Deleted) } => self.delete(name),
            Done::Ended { result: Ok(Left::Stays(worker)), .. } => self.watch(*worker),
            Done::Ended { name, result } => {
                self.slots.remove(&name);
                self.end_with(result.map(drop));
            }
            Done::Deleted { name, result } => {
                // A new task may have taken the name since the state no longer has this one.
                if matches!(self.slots.get(&name), Some(Slot::Leaving)) {
                    self.slots.remove(&name);
                }
                self.end_with(result);
            }
        }
    }

    /// Has a task end its work and go.
    fn retire(&self, name: &TaskName, deletion: Option<Deletion>) {
        if let (Some(Slot::Running(handle)), Some(deletion)) = (self.slots.get(name), deletion) {
            handle.retire(deletion.spare);
        }
    }

    fn end_with(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.fail(error);
        }
    }

    /// Ends everything; the first error is the engine's.
    fn fail(&mut self, error: Error) {
        self.stop.stop(StopReason::Shutdown);
        if self.result.is_ok() {
            self.result = Err(error);
        }
    }

    fn watch(&mut self, worker: Worker) {
        let (handle, orders) = Handle::new();
        let name = worker.name().clone();
        self.slots.insert(name.clone(), Slot::Running(handle));
        let stop = self.stop.clone();
        self.spawn(name.clone(), async move {
            let result = worker.watch(orders, stop).await;
            Done::Ended { name, result }
        });
    }

    /// Removes a task whose worker has ended for that. As soon as the state
    /// no longer has it, its name is free.
    fn delete(&mut self, name: TaskName) {
        // Whoever leads now has to delete it.
        if self.stop.reason() == Some(StopReason::LeadershipLost) {
            return;
        }
        self.slots.insert(name.clone(), Slot::Leaving);
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        self.spawn(name.clone(), async move {
            let batch = [Change::DeleteTask(name.clone())];
            let result = engine.shared.cached_store.commit(&batch, &stop).await;
            tracing::info!(task.name = %name, deleted = result.is_ok(), "task was taken away");
            Done::Deleted { name, result }
        });
    }

    fn handle(&mut self, order: Order) {
        match order {
            Order::Create { task, first_run, reply } => match self.reserve(&task.name) {
                Ok(()) => self.create(*task, first_run, reply),
                Err(error) => answer(reply, Err(error)),
            },
            Order::InspectNew { task, reply } => match self.reserve(&task.name) {
                Ok(()) => self.inspect(*task, reply),
                Err(error) => answer(reply, Err(error)),
            },
            Order::Delete { name, spare, reply } => {
                let leaves = match self.slots.get(&name) {
                    Some(Slot::Leaving) => Ok(true),
                    _ => self.running(&name).map(Handle::is_retired),
                };
                match leaves {
                    Ok(true) => answer(reply, Ok(())),
                    Ok(false) => self.mark(name, spare, reply),
                    Err(error) => answer(reply, Err(error)),
                }
            }
            Order::ToWorker { name, command } => match self.running(&name) {
                Ok(handle) => handle.send(&name, command),
                Err(error) => command.refuse(error),
            },
        }
    }

    /// Takes a name that no task has, nor one that is being made or deleted.
    fn reserve(&mut self, name: &TaskName) -> Result<()> {
        let kept = self.engine.state(|state| state.tasks.iter().any(|known| known.name == *name));
        // A task that is leaving has its name until the state has forgotten it: `kept` tells.
        let free = matches!(self.slots.get(name), None | Some(Slot::Leaving));
        if kept || !free {
            return Err(Error::TaskExists { task: name.clone() });
        }
        self.slots.insert(name.clone(), Slot::Starting);
        Ok(())
    }

    fn running(&self, name: &TaskName) -> Result<&Handle> {
        match self.slots.get(name) {
            Some(Slot::Running(handle)) => Ok(handle),
            Some(Slot::Starting | Slot::Leaving) | None => {
                Err(Error::NoSuchTask { task: name.to_string() })
            }
        }
    }

    /// Stores that a task is to go before that is acknowledged to anybody: whoever leads
    /// after a crash carries the deletion out.
    fn mark(&mut self, name: TaskName, spare: bool, reply: Reply<()>) {
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        self.spawn(name.clone(), async move {
            let batch = [Change::PutDeletion(name.clone(), Deletion { spare })];
            let result = engine.shared.cached_store.commit(&batch, &stop).await;
            Done::Marked { name, spare, result, reply }
        });
    }

    fn create(&mut self, task: Task, first_run: FirstRun, reply: Reply<()>) {
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        self.spawn(task.name.clone(), async move {
            let name = task.name.clone();
            let start = async {
                let worker = engine.worker(task.clone(), &stop).await?;
                let put = Change::PutTask(Box::new(task));
                if first_run == FirstRun::Now && worker.is_enabled() {
                    let mut run = worker.run(Retry::NEVER, false);
                    // In one commit with the event of its run: a task exists with its first success or
                    // not at all.
                    run.also_commit = Some(put);
                    // An event would outlive the task that was not created.
                    run.record_failure = false;
                    run.finish(&stop).await?;
                } else {
                    engine.shared.cached_store.commit(&[put], &stop).await?;
                }
                Ok(Box::new(worker))
            };
            let worker = start.await;
            Done::Created { name, worker, reply }
        });
    }

    fn inspect(&mut self, task: Task, reply: Reply<Inspection>) {
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        self.spawn(task.name.clone(), async move {
            let name = task.name.clone();
            let inspect = async {
                let mut worker = engine.worker(task, &stop).await?;
                let plan = worker.inspect(&stop).await?;
                Ok(Inspection { task: name.clone(), plan })
            };
            let inspection = inspect.await;
            Done::Inspected { name, inspection, reply }
        });
    }
}

/// Makes the worker of a task, whatever is wrong with it, and says what is.
fn worker_of(engine: &Engine, task: Task) -> (Worker, Result<()>) {
    let shared = || std::sync::Arc::clone(&engine.shared);
    match Worker::new(task.clone(), &*engine.factory, shared()) {
        Ok(worker) => (worker, Ok(())),
        Err(error) => (Worker::unmade(task, &error, shared()), Err(error)),
    }
}

/// Makes a task's worker and runs it once. Where the others are to go on
/// without it, one that cannot be made ready is tried again later.
///
/// Source: Consul-Terraform-Sync 0.9, `controller/once.go` and
/// `controller/tasks_manager.go` (`TaskCreateAndRunAllowFail`).
///
/// Deviation: upstream gives such a task up until it is deleted and created.
async fn first_run(engine: &Engine, task: Task, stop: &Stop) -> Result<Box<Worker>> {
    let name = task.name.clone();
    let goes_on = |error: &Error| {
        engine.shared.options.allow_failed_first_runs
            && error.concerning_all().is_none()
            && !matches!(error, Error::Stopped { .. })
    };
    let (worker, made) = worker_of(engine, task);
    let mut worker = Box::new(worker);
    let ready = match made {
        Ok(()) => worker.make_ready(stop).await,
        Err(error) => Err(error),
    };
    match ready {
        Ok(()) => {}
        Err(error) if goes_on(&error) => {
            worker.start_later(&error, stop).await?;
            return Ok(worker);
        }
        Err(error) => return Err(error),
    }
    match worker.first_run(stop).await {
        Err(error) if goes_on(&error) => {
            worker.note_failure(Some(&error));
            tracing::error!(
                task.name = %name,
                error = &error as &dyn std::error::Error,
                "error while running task once after creation. will still add task to CTS"
            );
        }
        ran => ran?,
    }
    Ok(worker)
}
