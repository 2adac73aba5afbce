//! The built binaries, as an operator uses them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[cfg(feature = "acl-controller")]
mod acl;
#[cfg(feature = "terraform-sync")]
mod bad_input;
#[cfg(feature = "terraform-sync")]
mod clock;
#[cfg(feature = "terraform-sync")]
mod cluster;
#[cfg(all(feature = "resource-store", feature = "terraform-sync"))]
mod cluster_import;
#[cfg(all(feature = "resource-store", feature = "terraform-sync"))]
mod cluster_mistakes;
#[cfg(feature = "terraform-sync")]
mod daemon;
#[cfg(all(feature = "resource-store", feature = "terraform-sync"))]
mod durability;
#[cfg(feature = "ecs")]
mod ecs;
#[cfg(all(feature = "elect", feature = "terraform-sync"))]
mod elect;
#[cfg(feature = "terraform-sync")]
mod end_to_end;
#[cfg(feature = "resource-store")]
#[path = "../../../resource-store/tests/it/etcd/server.rs"]
mod etcd_server;
#[cfg(feature = "terraform-sync")]
mod guard;
#[cfg(feature = "resource-store")]
mod h2spec;
#[cfg(feature = "resource-store")]
mod hostile;
#[cfg(feature = "terraform-sync")]
mod kill;
#[cfg(feature = "ecs")]
mod mesh;
#[cfg(feature = "terraform-sync")]
#[path = "../../../cts-ha/tests/it/faults/proxy.rs"]
#[expect(dead_code, reason = "cts-ha also delays answers")]
mod network;
#[cfg(feature = "terraform-sync")]
mod operator;
#[cfg(feature = "terraform-sync")]
mod parts;
#[cfg(feature = "terraform-sync")]
mod reload;
#[cfg(feature = "resource-store")]
mod resource;
#[cfg(feature = "resource-store")]
mod resource_consul;
#[cfg(all(feature = "resource-store", feature = "terraform-sync"))]
mod resource_modes;
#[cfg(all(feature = "resource-store", feature = "terraform-sync"))]
mod resource_server;
#[cfg(feature = "terraform-sync")]
mod secured;
#[cfg(feature = "terraform-sync")]
mod shutdown;
#[cfg(all(feature = "elect", feature = "resource-store", feature = "terraform-sync"))]
mod singleton;
#[cfg(feature = "resource-store")]
mod slow_disk;
#[cfg(feature = "resource-store")]
mod store_cluster;
#[cfg(feature = "terraform-sync")]
mod sync;
#[cfg(feature = "terraform-sync")]
mod tfc;
#[cfg(feature = "terraform-sync")]
mod tfc_trouble;
#[cfg(feature = "terraform-sync")]
mod trouble;
#[cfg(all(feature = "resource-store", feature = "terraform-sync"))]
mod wire;
#[cfg(feature = "terraform-sync")]
mod world;
