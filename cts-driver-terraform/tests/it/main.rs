//! Integration tests of the Terraform driver.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[cfg(feature = "cli")]
mod aws_provider;
#[cfg(feature = "cli")]
mod backends;
#[cfg(all(feature = "vault", feature = "testing"))]
mod bao;
#[cfg(feature = "cli")]
mod commands;
#[cfg(feature = "cli")]
mod conformance;
#[cfg(feature = "cli")]
mod consul;
#[cfg(feature = "cli")]
mod crash;
mod cut_state;
#[cfg(all(feature = "vault", feature = "testing"))]
mod dynamic;
#[cfg(feature = "cli")]
mod env;
#[cfg(feature = "settings")]
mod files_only;
mod fixtures;
mod forced;
mod golden;
#[cfg(feature = "cli")]
mod guard;
#[cfg(feature = "testing")]
mod handler;
#[cfg(feature = "download")]
mod install;
#[cfg(all(feature = "vault", feature = "testing"))]
mod leases;
#[cfg(feature = "cli")]
mod left_state;
#[cfg(feature = "cli")]
mod model;
#[cfg(feature = "panos")]
mod panos;
#[cfg(feature = "cli")]
mod permit;
mod properties;
#[cfg(feature = "cli")]
mod real;
mod root_module;
#[cfg(feature = "testing")]
mod scripted;
#[cfg(feature = "cli")]
mod secrets;
#[cfg(feature = "cli")]
mod servers;
#[cfg(feature = "cli")]
mod site;
#[cfg(feature = "cli")]
mod tool;
