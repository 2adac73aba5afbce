//! The built program, as an operator uses it.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bad_input;
#[cfg(feature = "ui")]
mod browser;
mod clock;
mod cluster;
mod daemon;
mod end_to_end;
mod guard;
mod kill;
mod lasting;
mod look;
#[path = "../../../../cts-ha/tests/it/faults/proxy.rs"]
#[expect(dead_code, reason = "cts-ha also delays answers")]
mod network;
mod operator;
mod parts;
mod readme;
mod reload;
mod secured;
mod shutdown;
#[cfg(feature = "ui")]
mod status_page;
mod sync;
mod tfc;
mod tfc_trouble;
mod trouble;
mod world;
