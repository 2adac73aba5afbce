//! The containers of an ECS task that is in a Consul service mesh.
//!
//! A drop-in for upstream's binary: same subcommands, flags, exit codes and texts. It runs inside a
//! task, where ECS gives it the metadata and `CONSUL_ECS_CONFIG_JSON` says what to do. Elsewhere
//! `cargo run -p examples --features ecs --bin consul-ecs -- net-dial 127.0.0.1:8500` works.
//!
//! With the feature `acl-controller` it is also the controller of their ACL tokens.

mod commands;
#[cfg(feature = "acl-controller")]
mod controllers;
mod failure;
mod logging;
mod usage;

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let subcommand = arguments.next().map(|name| name.to_string_lossy().into_owned());
    let rest: Vec<OsString> = arguments.collect();
    match commands::run(subcommand.as_deref(), rest) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code())
        }
    }
}
