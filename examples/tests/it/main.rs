//! The built binaries, as an operator uses them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bad_input;
#[cfg(feature = "ecs")]
mod ecs;
mod end_to_end;
mod kill;
#[cfg(feature = "ecs")]
mod mesh;
mod parts;
#[cfg(feature = "resource-store")]
mod resource;
mod sync;
mod trouble;
