//! Tests of the crate as a whole, by what it does to Consul and to secrets.
//!
//! `Case ACL…` in a comment numbers a case of upstream's own tests: consul-ecs 0.4, 0.6 and 0.10
//! `controller/*_test.go` and `subcommand/*/*_test.go`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

#[cfg(feature = "aws-sdk")]
mod aws;
mod cleanup;
mod client_token;
mod controller;
mod defects;
mod enterprise;
mod interrupted;
mod log;
mod login_setup;
mod login_tokens;
mod noted_secrets;
mod planted;
mod races;
mod random;
mod scale;
mod scene;
mod second_listing;
mod secret_stores;
mod service_tokens;
mod slow_check;
