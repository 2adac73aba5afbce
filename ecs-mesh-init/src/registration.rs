//! Services that are registered for a task: computed by pure functions, written by a [`Registrar`].

mod agent;
mod catalog;
mod mesh_service;
mod plan;
mod registrar;
mod retry;

pub(crate) use agent::synced_check_id;
pub(crate) use catalog::check_id;

pub use agent::{AgentRegistrar, agent_registration};
pub use catalog::{CatalogRegistrar, catalog_registration};
pub use mesh_service::{MeshCheck, MeshService};
pub use plan::TaskPlan;
pub use registrar::Registrar;
pub use retry::{RetryPolicy, retry};
