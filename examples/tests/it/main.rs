//! The built binaries, as an operator uses them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bad_input;
#[cfg(feature = "ecs")]
mod ecs;
mod end_to_end;
mod kill;
mod operator;
mod parts;
mod reload;
mod sync;
#[cfg(feature = "terraform-sync")]
mod tfc;
#[cfg(feature = "terraform-sync")]
mod tfc_trouble;
mod trouble;
