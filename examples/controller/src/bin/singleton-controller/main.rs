//! A controller that runs in one of several processes: it notes in the metadata
//! of every artist who keeps it.
//!
//! Needs a Consul agent, found as Consul's own tools find it (`CONSUL_HTTP_ADDR`,
//! …), and a running `resource-server`. Run
//! `cargo run -p controller --bin singleton-controller -- NAME`
//! in several terminals; the address of the server may follow (`127.0.0.1:8502`
//! if not). End the one that runs with Ctrl-C, and another one runs at once.
//! Killed or suspended instead, it is replaced within a minute.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "that is what it is for")]

mod keeper;
mod lease;
mod member;

use std::process::ExitCode;

use consul_watch::error_chain;

const USAGE: &str = "Usage: singleton-controller NAME [ADDRESS]

Runs a controller over the resource-server at ADDRESS (127.0.0.1:8502) while NAME
leads in Consul, which is found by CONSUL_HTTP_ADDR and its kin. It stops at
Ctrl-C, and another process takes over.";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments.as_slice() {
        ["-h" | "-help" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        [name] if !name.starts_with('-') => member::run(name, "127.0.0.1:8502").await,
        [name, address] if !name.starts_with('-') => member::run(name, address).await,
        _ => Err(USAGE.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error_chain(&*error));
            ExitCode::FAILURE
        }
    }
}
