//! Configuration, task engine, events and state of Consul-Terraform-Sync.
#![forbid(unsafe_code)]

#[cfg(feature = "api")]
mod api;
pub mod config;
mod cron;
mod daemon;
mod diagnostic;
mod driver;
mod engine;
mod error;
mod event;
mod inputs;
mod literal;
mod permit;
mod registration;
mod stop;
pub mod store;
mod task;
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "api")]
pub use api::ApiServer;
pub use config::{Config, ConfigValue, ConsulConfig, ProviderBlock};
pub use cron::{Cron, InvalidCron};
pub use daemon::{Daemon, DaemonOptions};
pub use diagnostic::{Diagnostic, Place, Severity, Source};
pub use driver::{
    Action, ApplyRequest, Changes, Driver, DriverFactory, DriverKind, DriverSettings, Outcome,
    Plan, PlanId, PlanPurpose, Progress, RunContext, Silent,
};
pub use engine::{Engine, EngineOptions, Inspection, Retry};
pub use error::{BoxError, Error, Result};
pub use event::{Event, EventConfig, EventError, Status};
pub use inputs::{KvEntry, ServiceInstance, TaskInputs};
pub use literal::{InvalidNumber, Literal, NotLiteral, Number};
pub use permit::{Cluster, Member, Permit, Role, Single};
pub use stop::{Stop, StopReason};
pub use store::{Change, InputsDigest, MemoryStore, State, TaskStore};
pub use task::{
    BufferPeriod, CatalogServicesSelection, Condition, InvalidTaskName, KvSelection,
    MatchingServices, ModuleInput, NamedService, ServiceSelection, Task, TaskName,
};
