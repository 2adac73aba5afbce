use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use consul_watch::watch::{Buffer, BufferTimer, WatchError};
use futures::future::{BoxFuture, FutureExt, OptionFuture};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Shared,
    feeds::{Feeds, FirstFailure},
    run::{Run, chain},
    schedule::Schedule,
    view::View,
    want::{Feed, Want},
};
use crate::{
    Driver, DriverFactory, Error, Plan, PlanPurpose, Result, Retry, RunContext, Stop, Task,
};

/// Owns one task: its watches, its driver, and when it runs.
pub(crate) struct Worker {
    task: Task,
    driver: Arc<dyn Driver>,
    view: Arc<Mutex<View>>,
    feeds: Feeds,
    shared: Arc<Shared>,
}

/// What makes a task run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Change,
    Schedule,
}

/// How long a task may take until everything it needs was read once.
///
/// Source: Consul-Terraform-Sync 0.9, task creation.
const FIRST_DATA: Duration = Duration::from_mins(1);

impl Worker {
    /// Makes everything ready for a first run: everything that the task needs
    /// was read from Consul once, and its driver is prepared.
    ///
    /// # Errors
    ///
    /// The first answer of Consul that is an error, the driver's error, or a
    /// stop.
    pub(crate) async fn prepare(
        task: Task,
        factory: &dyn DriverFactory,
        shared: Arc<Shared>,
        stop: &Stop,
    ) -> Result<Self> {
        let view = View::new(&task).map_err(|error| Error::Other {
            operation: "compiling a regular expression",
            retryable: false,
            source: error.into(),
        })?;
        let driver = factory.driver(&task)?;
        let feeds = Feeds::new(shared.watcher.clone());
        let mut worker = Self { task, driver, view: Arc::new(Mutex::new(view)), feeds, shared };
        tokio::select! {
            read = timeout(FIRST_DATA, worker.read_everything()) => match read {
                Ok(read) => read?,
                Err(_) => return Err(worker.no_data()),
            },
            reason = stop.stopped() => return Err(Error::Stopped { reason }),
        }
        worker.driver.prepare(&worker.context(stop)).await?;
        Ok(worker)
    }

    /// Reads until everything that is wanted was answered; an error ends it.
    async fn read_everything(&mut self) -> Result<()> {
        let wants = self.view().wants();
        self.feeds.set(&wants);
        while !self.view().is_complete() {
            let (want, answer) = self.feeds.next().await;
            let feed = answer.map_err(|source| Error::Consul {
                what: want.to_string(),
                retryable: !source.is_fatal(),
                source: FirstFailure(source).into(),
            })?;
            self.take(&want, &feed);
        }
        Ok(())
    }

    fn no_data(&self) -> Error {
        let missing = self.view().missing().iter().map(Want::to_string).collect::<Vec<_>>();
        Error::Other {
            operation: "error initializing task",
            retryable: true,
            source: format!(
                "no answer from Consul within {} s to: {}",
                FIRST_DATA.as_secs(),
                missing.join(", ")
            )
            .into(),
        }
    }

    /// Runs the task for the first time, without a second try.
    ///
    /// # Errors
    ///
    /// What the run failed with; its event is stored.
    pub(crate) async fn first_run(&mut self, stop: &Stop) -> Result<()> {
        if !self.task.enabled {
            tracing::debug!(task.name = %self.task.name, "task is disabled, it is not run");
            return Ok(());
        }
        tracing::info!(task.name = %self.task.name, "executing task");
        self.run(Retry::NEVER, false).finish(stop).await
    }

    /// What a run would change now.
    ///
    /// # Errors
    ///
    /// The driver's error, or a stop.
    pub(crate) async fn inspect(&mut self, stop: &Stop) -> Result<Option<Plan>> {
        if !self.task.enabled {
            return Ok(None);
        }
        let inputs = self.view().take_inputs().unwrap_or_default();
        self.driver.plan(&inputs, PlanPurpose::Inspect, &self.context(stop)).await.map(Some)
    }

    /// Runs the task whenever its condition says so, until the stop.
    ///
    /// Changes that come in during a run lead to exactly one more.
    ///
    /// # Errors
    ///
    /// Only what no later run can cure: a store that refuses this process, or a
    /// permit that is gone.
    pub(crate) async fn watch(mut self, stop: Stop) -> Result<()> {
        let started = Instant::now();
        let mut buffer = BufferTimer::new(Buffer::from(self.task.buffer_period));
        let mut schedule = Schedule::of(&self.task, Arc::clone(&self.shared.options.clock));
        let mut due = None;
        let mut running: OptionFuture<BoxFuture<'static, Result<()>>> = None.into();
        let mut busy = false;
        loop {
            if let Some(trigger) = due.take_if(|_| !busy)
                && self.is_worth_running(trigger)
            {
                // Everything that came in so far is part of this run.
                buffer.reset();
                running = Some(self.start_run(trigger, stop.clone())).into();
                busy = true;
            }
            let rest = buffer.fires_at().map(|at| at.saturating_sub(started.elapsed()));
            tokio::select! {
                biased;
                Some(done) = &mut running, if busy => {
                    busy = false;
                    self.settle(done)?;
                }
                _ = stop.stopped(), if !busy => return Ok(()),
                () = sleep(rest.unwrap_or_default()), if rest.is_some() => {
                    buffer.reset();
                    due = Some(Trigger::Change);
                }
                () = schedule.next() => {
                    if busy {
                        let name = &self.task.name;
                        tracing::warn!("task '{name}' is active and cannot be run at this time");
                    } else {
                        due = Some(Trigger::Schedule);
                    }
                }
                (want, answer) = self.feeds.next() => match answer {
                    Ok(feed) => {
                        if self.take(&want, &feed) {
                            buffer.change(started.elapsed());
                        }
                    }
                    Err(error) => self.warn(&want, &error),
                },
            }
        }
    }

    /// A disabled task does not run, and nor does one that would only do again
    /// what it has done.
    fn is_worth_running(&self, trigger: Trigger) -> bool {
        let task = &self.task.name;
        match trigger {
            Trigger::Schedule if !self.task.enabled => {
                tracing::info!(task.name = %task, "skipping disabled scheduled task");
                false
            }
            Trigger::Schedule => true,
            Trigger::Change if self.task.enabled && self.view().is_dirty() => true,
            Trigger::Change => {
                tracing::trace!(task.name = %task, "nothing to run");
                false
            }
        }
    }

    fn start_run(&self, trigger: Trigger, stop: Stop) -> BoxFuture<'static, Result<()>> {
        tracing::info!(task.name = %self.task.name, "executing task");
        let run = self.run(self.shared.options.retry, trigger == Trigger::Schedule);
        async move { run.finish(&stop).await }.boxed()
    }

    /// Takes an answer; returns whether it triggers.
    fn take(&mut self, want: &Want, feed: &Feed) -> bool {
        self.shared.health.answered(want);
        let update = self.view().update(want, feed);
        if update.wants_changed {
            let wants = self.view().wants();
            self.feeds.set(&wants);
        }
        update.triggers
    }

    /// A failed run is in its event; only what concerns the whole engine goes on.
    fn settle(&self, done: Result<()>) -> Result<()> {
        match done {
            Ok(()) => {
                tracing::info!(task.name = %self.task.name, "task completed");
                Ok(())
            }
            Err(error @ (Error::Fenced { .. } | Error::NotPermitted { .. })) => Err(error),
            Err(Error::Stopped { reason }) => {
                tracing::info!(task.name = %self.task.name, %reason, "task was stopped");
                Ok(())
            }
            Err(error) => {
                tracing::error!(task.name = %self.task.name, error = chain(&error), "error applying task");
                Ok(())
            }
        }
    }

    fn warn(&self, want: &Want, error: &WatchError) {
        self.shared.health.failed(want, error.cause().to_string(), error.is_fatal());
        tracing::warn!(
            task.name = %self.task.name,
            query = %want,
            error = error as &dyn std::error::Error,
            "watching Consul failed"
        );
    }

    fn run(&self, retry: Retry, only_if_dirty: bool) -> Run {
        Run {
            task: self.task.clone(),
            driver: Arc::clone(&self.driver),
            view: Arc::clone(&self.view),
            shared: Arc::clone(&self.shared),
            retry,
            only_if_dirty,
        }
    }

    fn context(&self, stop: &Stop) -> RunContext {
        RunContext::new(stop.clone()).with_permit(Arc::clone(&self.shared.options.permit))
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
