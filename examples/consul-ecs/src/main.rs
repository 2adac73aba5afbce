//! The containers of an ECS task that is in a Consul service mesh.
//!
//! A drop-in for upstream's binary: same subcommands, flags, exit codes and texts. It runs inside a
//! task, where ECS gives it the metadata and `CONSUL_ECS_CONFIG_JSON` says what to do. Outside of one
//! `cargo run -p consul-ecs -- net-dial 127.0.0.1:8500` works.
//!
//! With the feature `acl-controller` it is also the controller of their ACL tokens.

use std::process::ExitCode;

use ecs_mesh_init::program::Program;

fn main() -> ExitCode {
    let program = Program::new(env!("CARGO_PKG_VERSION"));
    #[cfg(feature = "acl-controller")]
    let program = program.commands(acl_controller::program::Controllers);
    program.run()
}
