//! High availability for Consul-Terraform-Sync: its state in Consul KV, its
//! cluster, and the checks that its instances fit together.
//!
//! [`HighAvailability`] is the block `high_availability` of a configuration,
//! [`CtsCluster`] what a [`cts_tasks::Daemon`] is given for it.

mod cluster;
mod compat;
mod members;
mod records;
mod settings;
mod store;

pub use cluster::{ClusterOptions, CtsCluster};
pub use compat::{Incompatible, check as check_compatibility};
pub use settings::{FailoverRun, HighAvailability, HighAvailabilityKind};
pub use store::{KvTaskStore, StoreOptions};
