//! The built binaries, as an operator uses them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bad_input;
mod cluster;
#[cfg(feature = "ecs")]
mod ecs;
mod end_to_end;
mod kill;
#[cfg(feature = "ecs")]
mod mesh;
mod operator;
mod parts;
mod reload;
#[cfg(feature = "resource-store")]
mod resource;
#[cfg(feature = "resource-store")]
mod resource_server;
mod secured;
#[cfg(all(feature = "elect", feature = "resource-store"))]
mod singleton;
mod sync;
#[cfg(feature = "terraform-sync")]
mod tfc;
#[cfg(feature = "terraform-sync")]
mod tfc_trouble;
mod trouble;
#[cfg(feature = "resource-store")]
mod wire;
mod world;
