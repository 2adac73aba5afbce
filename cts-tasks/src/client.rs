//! A typed client of the HTTP API.
//!
//! Here against an API in the same process, on an in-process Consul:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use std::sync::Arc;
//! use consul_watch::{Watcher, testing::TestConsul, types::HealthStatus};
//! use cts_tasks::{
//!     ApiServer, Engine, EngineOptions, Single, Status, Stop, StopReason,
//!     client::{Client, ClientConfig},
//!     testing::{RecordingDriver, task},
//! };
//!
//! let consul = TestConsul::new();
//! consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Passing);
//! let driver = Arc::new(RecordingDriver::default());
//! let engine = Engine::new(Watcher::new(consul.client()), driver, EngineOptions::default());
//! let stop = Stop::new();
//! engine.load(vec![task("web")], &stop).await?;
//! engine.once(&stop).await?;
//! let api = ApiServer::bind("127.0.0.1:0".parse()?, engine, Arc::new(Single)).await?;
//!
//! let mut config = ClientConfig::default();
//! config.address = format!("http://{}", api.local_addr()?);
//! let serving = tokio::spawn(api.serve(stop.clone()));
//! let client = Client::new(&config)?;
//! assert_eq!(client.status().await?.task_summary.status.successful, 1);
//! assert_eq!(client.task_status("web", false).await?.status, Status::Successful);
//! let error = client.task("other").await.unwrap_err();
//! assert_eq!(error.status().map(|status| status.as_u16()), Some(404));
//!
//! stop.stop(StopReason::Shutdown);
//! serving.await??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod error;
mod exchange;
mod follow;

use std::collections::BTreeMap;

use http::Method;

pub use config::{ClientConfig, TlsConfig};
pub use error::{Error, Result};
pub use exchange::Answered;
use exchange::{Call, Exchange};
pub use follow::{EventFilter, Following};

use crate::{
    FirstRun, PlanId, Status,
    wire::{
        ClusterStatus, CreatedTask, InputsDocument, InputsMessage, OverallStatus, PlanDocument,
        PlanMessage, RanTask, TaskDocument, TaskList, TaskMessage, TaskStatus, TaskUpdate,
        UpdatedTask,
    },
};

/// Talks to the HTTP API of one instance. Clones share connections.
///
/// It retries nothing. Methods whose request may take effect give an
/// [`Answered`], which names the request in the server's log.
///
/// # Cancel safety
///
/// Dropping a future ends the exchange; what the server has begun goes on.
#[derive(Debug, Clone)]
pub struct Client {
    exchange: Exchange,
}

/// A preview of a run, as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspected {
    /// `true` if the run would change anything.
    pub changes_present: bool,
    /// For people.
    pub plan: String,
    /// URL of the plan, for a person.
    pub url: Option<String>,
}

impl Client {
    /// A client that has read its certificates, and connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an address or for TLS files that cannot be used.
    pub fn new(config: &ClientConfig) -> Result<Self> {
        Ok(Self { exchange: Exchange::new(config)? })
    }

    /// Checks that the instance is healthy.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 503 if not, else as any request: see [`Error`].
    pub async fn health(&self) -> Result<()> {
        let call = Call::new("health", Method::GET, "/v1/health");
        self.exchange.send::<serde::de::IgnoredAny>(call).await.map(drop)
    }

    /// All tasks, counted by status.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn status(&self) -> Result<OverallStatus> {
        self.get("status", "/v1/status").await
    }

    /// The tasks' statuses by name; only those of one status, if it is given.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn task_statuses(
        &self,
        include_events: bool,
        only: Option<Status>,
    ) -> Result<BTreeMap<String, TaskStatus>> {
        let mut call = Call::new("task status", Method::GET, "/v1/status/tasks");
        if include_events {
            call = call.parameter("include", "events");
        }
        if let Some(status) = only {
            call = call.parameter("status", status.as_str());
        }
        Ok(self.exchange.send(call).await?.value)
    }

    /// The status of one task.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 404 if there is no such task; else see [`Error`].
    pub async fn task_status(&self, name: &str, include_events: bool) -> Result<TaskStatus> {
        let mut call = Call::new("task status", Method::GET, "/v1/status/tasks").segment(name);
        if include_events {
            call = call.parameter("include", "events");
        }
        let found: BTreeMap<String, TaskStatus> = self.exchange.send(call).await?.value;
        found.into_values().next().ok_or_else(|| Error::answer("task status", "it holds no task"))
    }

    /// The cluster's members, of an instance with high availability.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 405 without it; else see [`Error`].
    pub async fn cluster_status(&self) -> Result<ClusterStatus> {
        self.get("cluster status", "/v1/status/cluster").await
    }

    /// All tasks, as configured.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn tasks(&self) -> Result<Vec<TaskDocument>> {
        let list: TaskList = self.get("list tasks", "/v1/tasks").await?;
        Ok(list.tasks)
    }

    /// Reads the configuration of a task.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 404 if there is no such task; else see [`Error`].
    pub async fn task(&self, name: &str) -> Result<TaskDocument> {
        let call = Call::new("get task", Method::GET, "/v1/tasks").segment(name);
        let answered: Answered<TaskMessage> = self.exchange.send(call).await?;
        Ok(answered.value.task)
    }

    /// Creates a task; with [`FirstRun::Now`] it is run first, and not kept if that fails.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 400 for a task that is wrong or whose
    /// name is taken, 500 when it cannot be made or run; else see [`Error`].
    pub async fn create_task(
        &self,
        task: &TaskDocument,
        first_run: FirstRun,
    ) -> Result<Answered<TaskDocument>> {
        let mut call = Call::new("create task", Method::POST, "/v1/tasks");
        if first_run == FirstRun::Now {
            call = call.parameter("run", "now");
        }
        let call = call.body(&TaskMessage { task: task.clone() })?;
        let answered: Answered<CreatedTask> = self.exchange.send(call).await?;
        Ok(answered.map(|created| created.task))
    }

    /// Previews the first run of a task that does not exist; the task is not kept.
    ///
    /// # Errors
    ///
    /// As [`Client::create_task`], with status 400 also when the inspection fails.
    pub async fn inspect_new_task(&self, task: &TaskDocument) -> Result<Answered<Inspected>> {
        let call = Call::new("inspect new task", Method::POST, "/v1/tasks");
        let call = call.parameter("run", "inspect").body(&TaskMessage { task: task.clone() })?;
        let answered: Answered<CreatedTask> = self.exchange.send(call).await?;
        answered.try_map(|created| {
            let run = created.run.ok_or_else(|| no_plan("inspect new task"))?;
            let (changes_present, url) = (run.changes_present, run.tfc_run_url);
            Ok(Inspected { changes_present, plan: run.plan, url })
        })
    }

    /// Enables or disables a task; with [`FirstRun::Now`] one that is enabled is run.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 404 if there is no such task, 500 while
    /// it runs or when it fails; else see [`Error`].
    pub async fn set_enabled(
        &self,
        name: &str,
        enabled: bool,
        first_run: FirstRun,
    ) -> Result<Answered<()>> {
        let mut call = Call::new("update task", Method::PATCH, "/v1/tasks").segment(name);
        if first_run == FirstRun::Now {
            call = call.parameter("run", "now");
        }
        let call = call.body(&TaskUpdate { enabled })?;
        let answered: Answered<UpdatedTask> = self.exchange.send(call).await?;
        Ok(answered.map(drop))
    }

    /// Previews a run with the task enabled, or disabled; the task itself stays as
    /// it is.
    ///
    /// # Errors
    ///
    /// As [`Client::set_enabled`].
    pub async fn inspect_enabled(&self, name: &str, enabled: bool) -> Result<Answered<Inspected>> {
        let call = Call::new("inspect task", Method::PATCH, "/v1/tasks").segment(name);
        let call = call.parameter("run", "inspect").body(&TaskUpdate { enabled })?;
        let answered: Answered<UpdatedTask> = self.exchange.send(call).await?;
        answered.try_map(|updated| {
            let run = updated.inspect.ok_or_else(|| no_plan("inspect task"))?;
            Ok(Inspected { changes_present: run.changes_present, plan: run.plan, url: run.url })
        })
    }

    /// Runs a task now, whether or not anything changed, and waits for its end.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 404 if there is no such task, 409 while
    /// it is active or disabled, 500 when the run fails; else see [`Error`].
    pub async fn run_task(&self, name: &str) -> Result<Answered<RanTask>> {
        let call = Call::new("run task", Method::POST, "/v1/tasks").segment(name).segment("run");
        self.exchange.send(call).await
    }

    /// Reads the current inputs of a task's module, and how they differ from those
    /// that were last applied.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 404 if there is no such task, 409 of a disabled one;
    /// else see [`Error`].
    pub async fn task_inputs(&self, name: &str) -> Result<InputsDocument> {
        let call = Call::new("get inputs", Method::GET, "/v1/tasks").segment(name);
        let answered: Answered<InputsMessage> = self.exchange.send(call.segment("inputs")).await?;
        Ok(answered.value.inputs)
    }

    /// The plan of a task that waits for approval.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 404 if there is no such task, or no plan
    /// of it waits; else see [`Error`].
    pub async fn waiting_plan(&self, name: &str) -> Result<PlanDocument> {
        let call = Call::new("get plan", Method::GET, "/v1/tasks").segment(name).segment("plan");
        let answered: Answered<PlanMessage> = self.exchange.send(call).await?;
        Ok(answered.value.plan)
    }

    /// Applies the plan that waits, and nothing in its place; waits for its end.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 404 if there is no such task or plan, 409
    /// while the task is active or disabled, or when the plan was out of date
    /// and a new one was made, 500 when the apply fails; else see [`Error`].
    pub async fn approve_plan(&self, name: &str, plan: &PlanId) -> Result<Answered<()>> {
        let call = Call::new("approve plan", Method::POST, "/v1/tasks").segment(name);
        let call = call.segment("plan").segment(plan.as_str()).segment("approve");
        Ok(self.exchange.send::<serde::de::IgnoredAny>(call).await?.map(drop))
    }

    /// Forgets the plan that waits, without applying it.
    ///
    /// # Errors
    ///
    /// As [`Client::approve_plan`].
    pub async fn discard_plan(&self, name: &str, plan: &PlanId) -> Result<Answered<()>> {
        let call = Call::new("discard plan", Method::DELETE, "/v1/tasks").segment(name);
        let call = call.segment("plan").segment(plan.as_str());
        Ok(self.exchange.send::<serde::de::IgnoredAny>(call).await?.map(drop))
    }

    /// Marks a task for deletion, which happens as soon as it does not run.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 404 if there is no such task; else see [`Error`].
    pub async fn delete_task(&self, name: &str) -> Result<Answered<()>> {
        let call = Call::new("delete task", Method::DELETE, "/v1/tasks").segment(name);
        Ok(self.exchange.send::<serde::de::IgnoredAny>(call).await?.map(drop))
    }

    async fn get<T: serde::de::DeserializeOwned>(
        &self,
        operation: &'static str,
        path: &str,
    ) -> Result<T> {
        Ok(self.exchange.send(Call::new(operation, Method::GET, path)).await?.value)
    }
}

fn no_plan(operation: &'static str) -> Error {
    Error::answer(operation, "it holds no plan")
}
