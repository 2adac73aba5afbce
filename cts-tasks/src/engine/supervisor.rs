use std::collections::{BTreeMap, VecDeque};

use tokio::{sync::mpsc, task::JoinSet};

use super::{
    Engine,
    command::{FirstRun, Handle, Order, Reply, answer},
    worker::{Left, Worker},
};
use crate::{Change, Error, Inspection, Result, Retry, Stop, StopReason, Task, TaskName};

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
    slots: BTreeMap<TaskName, Slot>,
    /// Tasks of the configuration or the store that have not run yet.
    first: VecDeque<Task>,
    result: Result<()>,
}

enum Slot {
    /// Its worker is being made, or it is only looked at.
    Starting,
    Running(Handle),
    /// Its worker has ended, and the store is told so.
    Leaving,
}

/// What a job came to.
enum Done {
    First { name: TaskName, worker: Result<Option<Box<Worker>>> },
    Created { name: TaskName, worker: Result<Box<Worker>>, reply: Reply<()> },
    Inspected { name: TaskName, inspection: Result<Inspection>, reply: Reply<Inspection> },
    Ended { name: TaskName, result: Result<Left> },
    Deleted { name: TaskName, result: Result<()> },
}

impl Supervisor {
    pub(crate) fn new(engine: Engine, tasks: Vec<Task>, stop: Stop) -> Self {
        Self {
            engine,
            stop,
            jobs: JoinSet::new(),
            slots: BTreeMap::new(),
            first: tasks.into(),
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
                Some(done) = self.jobs.join_next() => match done {
                    Ok(done) => self.settle(done),
                    Err(error) => self.fail(Error::Other {
                        operation: "watching a task",
                        retryable: false,
                        source: error.into(),
                    }),
                },
                Some(order) = orders.recv(), if !stopping => self.obey(order),
                _ = self.stop.stopped(), if !stopping => {}
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
        self.slots.insert(task.name.clone(), Slot::Starting);
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        self.jobs.spawn(async move {
            let name = task.name.clone();
            let worker = first_run(&engine, task, &stop).await;
            Done::First { name, worker }
        });
    }

    fn settle(&mut self, done: Done) {
        match done {
            Done::First { worker: Ok(Some(worker)), .. } => {
                self.watch(*worker);
                self.start_next();
            }
            Done::First { name, worker: Ok(None) } => {
                self.slots.remove(&name);
                self.start_next();
            }
            Done::First { worker: Err(error), .. } => self.fail(error),
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
                if matches!(self.slots.get(&name), Some(Slot::Leaving)) {
                    self.slots.remove(&name);
                }
                self.end_with(result);
            }
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
        self.jobs.spawn(async move {
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
        self.jobs.spawn(async move {
            let batch = [Change::DeleteTask(name.clone())];
            let result = engine.shared.ledger.commit(&batch, &stop).await;
            tracing::info!(task.name = %name, deleted = result.is_ok(), "task was taken away");
            Done::Deleted { name, result }
        });
    }

    fn obey(&mut self, order: Order) {
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
                let found = match self.slots.get(&name) {
                    Some(Slot::Leaving) => Ok(()),
                    _ => self.running(&name).map(|handle| handle.retire(spare)),
                };
                answer(reply, found);
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

    fn create(&mut self, task: Task, first_run: FirstRun, reply: Reply<()>) {
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        self.jobs.spawn(async move {
            let name = task.name.clone();
            let start = async {
                let worker = engine.worker(task.clone(), &stop).await?;
                let put = Change::PutTask(Box::new(task));
                if first_run == FirstRun::Now && worker.is_enabled() {
                    let mut run = worker.run(Retry::NEVER, false);
                    run.also_commit = Some(put);
                    run.record_failure = false;
                    run.finish(&stop).await?;
                } else {
                    engine.shared.ledger.commit(&[put], &stop).await?;
                }
                Ok(Box::new(worker))
            };
            let worker = start.await;
            Done::Created { name, worker, reply }
        });
    }

    fn inspect(&mut self, task: Task, reply: Reply<Inspection>) {
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        self.jobs.spawn(async move {
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

/// Makes a task's worker and runs it once; `None` when the worker cannot be
/// made and the others are to go on without it.
///
/// Source: Consul-Terraform-Sync 0.9, `controller/once.go` and
/// `controller/tasks_manager.go` (`TaskCreateAndRunAllowFail`).
async fn first_run(engine: &Engine, task: Task, stop: &Stop) -> Result<Option<Box<Worker>>> {
    let name = task.name.clone();
    let goes_on = |error: &Error| {
        engine.shared.options.allow_failed_first_runs
            && error.concerning_all().is_none()
            && !matches!(error, Error::Stopped { .. })
    };
    let mut worker = match engine.worker(task, stop).await {
        Ok(worker) => Box::new(worker),
        Err(error) if goes_on(&error) => {
            tracing::error!(
                task.name = %name,
                error = &error as &dyn std::error::Error,
                "error creating driver for task. delete the task and create it again once the \
                 cause is mended, or let another instance lead"
            );
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    match worker.first_run(stop).await {
        Err(error) if goes_on(&error) => tracing::error!(
            task.name = %name,
            error = &error as &dyn std::error::Error,
            "error while running task once after creation. will still add task to CTS"
        ),
        ran => ran?,
    }
    Ok(Some(worker))
}
