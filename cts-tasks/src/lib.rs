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
//! Features, all off by default: `api` serves the HTTP API (`ApiServer`),
//! `client` is its typed client, `program` is the whole command line of a program
//! (`program::Program`), `testing` brings a driver that records its calls.
//!
//! Source: Consul-Terraform-Sync 0.9 and its documentation.
#![forbid(unsafe_code)]

#[cfg(feature = "api")]
mod api;
mod applied;
#[cfg(feature = "client")]
pub mod client;
mod cluster_kind;
pub mod config;
mod cron;
mod daemon;
mod diagnostic;
mod drift;
mod driver;
mod engine;
mod error;
mod event;
mod finding;
mod guard;
mod inputs;
mod literal;
mod measure;
mod permit;
#[cfg(feature = "program")]
pub mod program;
mod registration;
mod stop;
mod store;
mod stream_event;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
#[cfg(any(feature = "api", feature = "client"))]
pub mod wire;

#[cfg(feature = "api")]
pub use api::{ApiServer, Exposition};
pub use applied::{AppliedInputs, InputSummary};
pub use cluster_kind::{ClusterKind, ClusterSettings};
pub use config::{Config, ConfigValue, ConsulConfig, ProviderBlock};
pub use cron::{Cron, InvalidCron};
pub use daemon::{Daemon, DaemonOptions, Reloaded};
pub use diagnostic::{Diagnostic, Place, Severity, Source};
pub use drift::DriftCheck;
pub use driver::{
    Action, ApplyRequest, Changes, Driver, DriverFactory, DriverKind, DriverSettings, Notes,
    Outcome, Plan, PlanId, PlanPurpose, Progress, RunContext, Silent,
};
pub use engine::{
    CurrentInputs, Engine, EngineOptions, FirstRun, Follower, Inspection, ProgressLine, Retry,
    UnderWay, WorkStep,
};
pub use error::{BoxError, Error, Result};
pub use event::{Event, EventConfig, EventError, Status};
pub use finding::{Finding, Verdict};
pub use guard::{Guard, Objection, Waiting};
pub use inputs::{KvEntry, ServiceInstance, TaskInputs};
pub use literal::{InvalidNumber, Literal, NotLiteral, Number};
pub use permit::{Cluster, Member, Permit, Role, Single};
pub use stop::{Stop, StopReason};
pub use store::{
    Change, Deletion, EVENTS_PER_TASK, FileStore, InputsDigest, MemoryStore, State, TaskStore,
};
pub use stream_event::{StreamEvent, StreamEventKind};
pub use task::{
    BufferPeriod, CatalogServicesSelection, Condition, InvalidRegexp, InvalidTaskName, KvSelection,
    MatchingServices, ModuleInput, NamedService, ServiceSelection, Task, TaskName,
};

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
