//! Integration tests of the Terraform driver.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod commands;
mod consul;
mod crash;
mod fixtures;
mod golden;
mod permit;
mod properties;
mod real;
mod root_module;
mod site;
mod tool;
