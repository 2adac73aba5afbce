//! Integration tests of the crate, on the double and on real servers.
//!
//! `Case HA…` and `Case CW…` in a comment number cases of Consul's own tests (`api/lock_test.go`,
//! `api/session_test.go`, `agent/consul/state/session_test.go`) and of the documentation of
//! Consul-Terraform-Sync about high availability.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "fixtures of tests"
)]

mod arena;
mod clusters;
mod faults;
mod fencing;
mod locks;
mod place;
mod sessions;
mod shutdowns;
mod stores;
