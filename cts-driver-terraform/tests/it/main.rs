//! Integration tests of the Terraform driver.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod fixtures;
mod golden;
mod properties;
mod root_module;
