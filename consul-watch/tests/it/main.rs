//! Integration tests: the watcher over the double in memory with paused time,
//! and the parity suite over the double and a real Consul.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "fixtures of tests"
)]

mod conformance;
mod parity;
mod real;
mod watching;
mod wire;
