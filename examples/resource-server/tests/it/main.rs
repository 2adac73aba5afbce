//! The built programs, as an operator uses them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../../../consul-terraform-sync/tests/it/clock.rs"]
mod clock;
mod cluster_disk_full;
mod cluster_identity;
mod cluster_import;
mod cluster_mistakes;
mod cluster_operation;
mod durability;
#[path = "../../../../resource-store/tests/it/etcd/server.rs"]
mod etcd_server;
mod h2spec;
mod hostile;
#[expect(dead_code, reason = "the faults of a server alone are not tried here")]
#[path = "../../../../resource-store/tests/it/postgres/server.rs"]
mod postgres_server;
mod resource;
mod resource_consul;
mod resource_modes;
mod resource_server;
mod slow_disk;
mod store_cluster;
mod wire;

use std::time::Duration;

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
