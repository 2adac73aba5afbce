//! The built binaries, as an operator uses them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bad_input;
mod cluster;
#[cfg(feature = "ecs")]
mod ecs;
mod elect;
mod end_to_end;
mod guard;
mod kill;
#[cfg(feature = "ecs")]
mod mesh;
mod operator;
mod parts;
mod reload;
#[cfg(feature = "resource-store")]
mod resource;
mod secured;
mod sync;
#[cfg(feature = "terraform-sync")]
mod tfc;
#[cfg(feature = "terraform-sync")]
mod tfc_trouble;
mod trouble;
mod world;
