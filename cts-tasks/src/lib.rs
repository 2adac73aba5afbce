//! The engine of Consul-Terraform-Sync as a library: it runs tasks when what
//! they need of Consul changes.
//!
//! Start with [`Engine`] for the engine alone, with [`config::Loader`] and
//! [`Daemon`] for a whole deployment. What runs a task is a [`Driver`], where
//! state is kept a [`TaskStore`], and whether this process may act a
//! [`Permit`]; each is a trait to implement.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use std::sync::Arc;
//! use consul_watch::{Watcher, testing::TestConsul, types::HealthStatus};
//! use cts_tasks::{Engine, EngineOptions, Stop, testing::{RecordingDriver, task}};
//!
//! let consul = TestConsul::new();
//! consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Passing);
//! let driver = RecordingDriver::default(); // yours runs a tool
//!
//! let watcher = Watcher::new(consul.client());
//! let engine = Engine::new(watcher, Arc::new(driver.clone()), EngineOptions::default());
//! let stop = Stop::new();
//! engine.load(vec![task("web")], &stop).await?; // runs when the service `web` changes
//! engine.once(&stop).await?;
//! assert_eq!(driver.applies("web").len(), 1);
//! # Ok::<(), cts_tasks::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The feature `engine`, on by default, is all of that. Without it only the model of a task
//! remains ([`Task`], [`TaskInputs`], [`Literal`], [`ProviderBlock`]), with few dependencies, for
//! crates that generate or read. Off by default are: `api` serves the HTTP API (`ApiServer`),
//! `ui` a status page beside it,
//! `client` is its typed client, `program` is the whole command line of a program
//! (`program::Program`), `testing` brings a driver that records its calls.
//!
//! Source: Consul-Terraform-Sync 0.9 and its documentation.
#![forbid(unsafe_code)]

#[cfg(feature = "api")]
mod api;
#[cfg(feature = "engine")]
mod applied;
#[cfg(feature = "engine")]
mod changes;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "engine")]
mod cluster_kind;
#[cfg(feature = "engine")]
pub mod config;
mod cron;
#[cfg(feature = "engine")]
mod daemon;
#[cfg(feature = "engine")]
mod diagnostic;
#[cfg(feature = "engine")]
mod drift;
#[cfg(feature = "engine")]
mod driver;
#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "engine")]
mod error;
#[cfg(feature = "engine")]
mod event;
#[cfg(feature = "engine")]
mod finding;
mod guard;
#[cfg(feature = "engine")]
mod hex;
mod inputs;
#[cfg(feature = "engine")]
mod inputs_digest;
mod literal;
#[cfg(feature = "engine")]
mod measure;
#[cfg(feature = "engine")]
mod objection;
#[cfg(feature = "engine")]
mod permit;
mod place;
#[cfg(feature = "engine")]
mod plan;
#[cfg(feature = "engine")]
mod planned;
#[cfg(feature = "program")]
pub mod program;
mod provider;
#[cfg(feature = "engine")]
mod registration;
mod retry;
#[cfg(feature = "engine")]
mod run_context;
#[cfg(feature = "engine")]
mod stop;
#[cfg(feature = "engine")]
mod store;
#[cfg(feature = "engine")]
mod stream_event;
mod task;
mod task_env;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "engine")]
mod time;
#[cfg(feature = "ui")]
mod ui;
#[cfg(any(feature = "api", feature = "client"))]
pub mod wire;

#[cfg(feature = "api")]
pub use api::{ApiServer, Exposition, Pages};
#[cfg(feature = "engine")]
pub use applied::{AppliedInputs, InputSummary};
#[cfg(feature = "engine")]
pub use changes::{Action, Changes};
#[cfg(feature = "engine")]
pub use cluster_kind::{ClusterKind, ClusterSettings};
#[cfg(feature = "engine")]
pub use config::{Config, ConfigValue, ConsulConfig};
pub use cron::{Cron, InvalidCron};
#[cfg(feature = "engine")]
pub use daemon::{Daemon, DaemonOptions, Reloaded};
#[cfg(feature = "engine")]
pub use diagnostic::{Diagnostic, Severity};
#[cfg(feature = "engine")]
pub use drift::DriftCheck;
#[cfg(feature = "engine")]
pub use driver::{ApplyRequest, Driver, DriverFactory, DriverKind, DriverSettings, Outcome};
#[cfg(feature = "engine")]
pub use engine::{
    CurrentInputs, Engine, EngineOptions, FirstRun, Follower, Inspection, ProgressLine, UnderWay,
    WorkStep,
};
#[cfg(feature = "engine")]
pub use error::{BoxError, Error, Result};
#[cfg(feature = "engine")]
pub use event::{Event, EventConfig, EventError, Status};
#[cfg(feature = "engine")]
pub use finding::{Finding, Verdict};
pub use guard::Guard;
pub use inputs::{KvEntry, ServiceInstance, TaskInputs};
#[cfg(feature = "engine")]
pub use inputs_digest::InputsDigest;
#[cfg(feature = "engine")]
pub use literal::NotLiteral;
pub use literal::{InvalidNumber, Literal, Number};
#[cfg(feature = "engine")]
pub use objection::{Objection, Waiting};
#[cfg(feature = "engine")]
pub use permit::{Cluster, Election, Member, Permit, Role, Single};
pub use place::{Place, Source};
#[cfg(feature = "engine")]
pub use plan::{Plan, PlanId, PlanPurpose};
#[cfg(feature = "engine")]
pub use planned::{PlannedResources, ResourceChange, SensitiveMarks};
pub use provider::ProviderBlock;
pub use retry::Retry;
#[cfg(feature = "engine")]
pub use run_context::{Notes, Progress, RunContext, Silent};
#[cfg(feature = "engine")]
pub use stop::{Stop, StopReason};
#[cfg(feature = "engine")]
pub use store::{Change, Deletion, EVENTS_PER_TASK, FileStore, MemoryStore, State, TaskStore};
#[cfg(feature = "engine")]
pub use stream_event::{StreamEvent, StreamEventKind};
pub use task::{
    BufferPeriod, CatalogServicesSelection, Condition, InvalidRegexp, InvalidTaskName, KvSelection,
    MatchingServices, ModuleInput, NamedService, ServiceSelection, Task, TaskName,
};
pub use task_env::{InvalidEnv, TaskEnv};
#[cfg(feature = "ui")]
pub use ui::status_page;

/// The header that names a request in the log of who answers it.
#[cfg(any(feature = "api", feature = "client"))]
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// Answer to plain HTTP from a server that serves TLS, in the words of Go's
/// servers.
#[cfg(any(feature = "api", feature = "client"))]
pub(crate) const PLAIN_TO_TLS: &str = "Client sent an HTTP request to an HTTPS server";

/// The README's code is compiled and run, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The code of the workspace's README, too.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct WorkspaceReadme;
