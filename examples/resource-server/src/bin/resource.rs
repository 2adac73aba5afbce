//! Reads, lists, applies and deletes resources, from files in HCL or JSON, over
//! HTTP or gRPC.
//!
//! Needs a server: `resource-server`, or any that speaks Consul's protocol and
//! has the demo types. Run it with
//! `cargo run -p resource-server --bin resource -- apply-grpc -f korn.hcl`;
//! without arguments it lists its commands and flags.

use std::process::ExitCode;

use resource_store::{command::Command, demo};

fn main() -> ExitCode {
    Command::new(demo::register).run()
}
