//! Tests of the crate as a whole, by what it gives and does.
//!
//! `Case MI…` in a comment numbers a case of upstream's own tests: consul-ecs 0.6 and 0.10 `subcommand/*/*_test.go` and
//! `config/config_test.go`, Consul 1.20 `command/connect/envoy/envoy_test.go`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod acl;
#[cfg(feature = "server-watch")]
mod control_plane;
mod entrypoint;
mod envoy;
mod first_releases;
mod gateways;
mod golden;
mod grpc;
mod health_start;
mod health_sync;
mod log;
#[cfg(feature = "iam-auth")]
mod login;
mod lookup;
mod mesh_init;
mod metadata;
mod namespace;
mod read_back;
mod registrar;
mod schema;
mod servers;
mod service_defaults;
mod settings;
mod volume;
