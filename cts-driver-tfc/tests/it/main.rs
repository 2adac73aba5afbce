//! Tests of the client and the driver against the double, and of the double itself.
//!
//! `Case TFC…` in a comment numbers a case of upstream's tests and reports: Consul-Terraform-Sync
//! `config/*_test.go` and its CHANGELOG, go-tfe `*_integration_test.go` and `tfe_test.go`, and the
//! documentation of HCP Terraform's API.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod client_runs;
mod client_wire;
mod client_workspaces;
mod driver_approval;
mod driver_checks;
mod driver_faults;
mod driver_logs;
mod driver_runs;
mod driver_stop;
mod driver_token;
mod driver_workspace;
mod engine;
mod load;
mod properties;
mod scene;
mod secrets;
mod settings;
mod terraform_cli;
mod tls;
