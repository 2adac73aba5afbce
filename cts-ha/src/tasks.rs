//! High availability for Consul-Terraform-Sync: state in Consul KV, cluster membership, and
//! compatibility checks of instances.
//!
//! [`HighAvailability`] is the block `high_availability` of a configuration; [`CtsCluster`]
//! implements it for a [`cts_tasks::Daemon`].

mod cluster;
mod compat;
mod kind;
mod members;
mod records;
mod settings;
mod store;

pub use cluster::{ClusterOptions, CtsCluster};
pub use compat::{Incompatible, check as check_compatibility};
pub use kind::HighAvailabilityKind;
pub use settings::{FailoverRun, HighAvailability};
pub use store::{KvTaskStore, StoreOptions};
