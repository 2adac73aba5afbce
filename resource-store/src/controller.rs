//! Controllers: code that brings the world in line with resources.
//!
//! A [`Controller`] has a managed type, a [`Reconciler`], and watches on other
//! types whose changes [mappers](mapper) turn into requests. A [`Manager`] runs
//! controllers where their [`Lease`] is held, and starts them again when they
//! fail.
//!
//! Each controller reconciles one request at a time, or several of different
//! resources ([`Controller::with_concurrency`]), from a queue that holds each
//! resource once and gives changes before what a watch found at its start, at most as
//! often as a [`RateLimit`] says. It reads a [cache](Cache) that its watches keep, which
//! is complete before the first request.
//!
//! Source: `internal/controller`, `docs/v2-architecture/controller-architecture`,
//! Consul 1.21.

mod backoff;
mod bimapper;
mod builder;
mod cache;
mod dependencies;
mod error;
mod manager;
pub mod mapper;
mod measure;
mod queue;
mod rate;
pub mod reaper;
mod reconciler;
mod runner;
mod supervisor;
mod typed;

pub use crate::lease::{AlwaysHeld, Leadership, Lease};
pub use bimapper::Bimapper;
pub use builder::{Controller, ControllerError, Event, EventMapper, EventSource, Placement};
pub use cache::{Cache, CacheError, Index, Key, NamedQuery, RefOrId};
pub use dependencies::{CircularDependency, Dependencies};
pub use error::BoxError;
pub use manager::{Manager, ManagerError};
pub use mapper::DependencyMapper;
pub use queue::{Priority, QueueItem, WorkQueue};
pub use rate::RateLimit;
pub use reconciler::{Initializer, Outcome, Reconciler, Request, Runtime};
pub use typed::reconcile_with;
