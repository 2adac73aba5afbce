//! Consul-Terraform-Sync: runs Terraform when what Consul knows changes.
//!
//! A drop-in for upstream's binary: same files, flags, log lines and exit codes.
//! Needs a Consul agent, and `terraform` or `tofu`. Run it with
//! `cargo run --bin consul-terraform-sync -- start -config-file FILE`.

mod arguments;
mod exit;
mod log_format;
mod start;
mod wiring;

use std::process::ExitCode;

use arguments::{Command, Invocation};
use exit::Exit;

fn main() -> ExitCode {
    let exit = match Invocation::parse(std::env::args_os().skip(1)) {
        Ok(Invocation { command: Command::Version, .. }) => {
            print(&arguments::version());
            Exit::Ok
        }
        Ok(Invocation { command: Command::Help(text), .. }) => {
            print(&text);
            Exit::Ok
        }
        Ok(Invocation { command: Command::Start(options), legacy }) => {
            start::start(options, legacy)
        }
        Err(refused) => {
            complain(&refused.message);
            refused.exit
        }
    };
    exit.into()
}

#[expect(clippy::print_stdout, reason = "the answer to a command")]
fn print(text: &str) {
    println!("{text}");
}

/// Tells the operator what is wrong.
#[expect(clippy::print_stderr, reason = "for when there is no log yet")]
fn complain(text: &str) {
    eprintln!("{text}");
}
