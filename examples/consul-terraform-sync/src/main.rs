//! Consul-Terraform-Sync: runs Terraform when what Consul knows changes.
//!
//! A drop-in for upstream's binary: same files, commands, flags, log lines and
//! exit codes. Needs a Consul agent, and `terraform` or `tofu`. Run it with
//! `cargo run -p consul-terraform-sync -- start -config-file FILE`.

use std::process::ExitCode;

use cts_driver_terraform::TerraformKind;
use cts_driver_tfc::TfcKind;
use cts_ha::tasks::HighAvailabilityKind;
use cts_tasks::program::Program;

fn main() -> ExitCode {
    Program::new("consul-terraform-sync", env!("CARGO_PKG_VERSION"))
        .about("Watches Consul and runs Terraform when what a task depends on changes.")
        .product("Consul-Terraform-Sync", Some("Terraform"))
        .driver(TerraformKind::default())
        .driver(TfcKind::default())
        .cluster(HighAvailabilityKind)
        .run()
}
