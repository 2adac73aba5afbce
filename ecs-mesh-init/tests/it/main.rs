//! Tests of the crate as a whole, by what it gives and does.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod acl;
mod entrypoint;
mod envoy;
mod golden;
mod health_sync;
#[cfg(feature = "iam-auth")]
mod login;
mod lookup;
mod mesh_init;
mod metadata;
mod namespace;
mod registrar;
mod schema;
mod servers;
mod settings;
mod volume;
