//! Integration tests: the watcher over the double in memory with paused time,
//! and the parity suite over the double and a real Consul.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "fixtures of tests"
)]

mod caught_up;
mod comforts;
mod conformance;
mod connections;
mod corners;
mod decoders;
mod faults;
mod follower;
mod http2;
mod live;
mod mesh_watches;
mod odd_values;
mod parity;
mod real;
mod scale;
mod self_signed;
mod sharing;
mod soak;
#[cfg(feature = "metrics")]
mod telemetry;
mod watching;
mod wire;
