//! Reads, lists, applies and deletes resources, from files in HCL or JSON, over
//! HTTP or gRPC.
//!
//! Needs a server: `resource-server`, or any that speaks Consul's protocol and
//! has the demo types. Run it with
//! `cargo run -p examples --features resource-store --bin resource -- apply-grpc -f korn.hcl`;
//! without arguments it lists its commands and flags.
//!
//! Source: `command/resource`, Consul 1.21.

mod flags;
mod grpc;
mod http;
mod input;
mod types;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

const USAGE: &str = "Usage: resource <command> [<args>]

Over HTTP, at -http-addr or CONSUL_HTTP_ADDR (127.0.0.1:8500):
    apply [-f] <file>     Writes the resource of a file; - is the standard input
    read <type> <name>    Shows a resource; also read -f <file>
    list <type>           Shows the resources of a type; also list -f <file>
    delete <type> <name>  Deletes a resource; also delete -f <file>

Over gRPC, at -grpc-addr or CONSUL_GRPC_ADDR (127.0.0.1:8502):
    apply-grpc, read-grpc, list-grpc, delete-grpc

A type is group.version.kind, or the kind alone where it is clear.

Flags of all commands: -f -partition -namespace -stale -token -token-file
    -ca-file -ca-path -client-cert -client-key
Over HTTP also: -http-addr -tls-server-name -datacenter
Over gRPC also: -grpc-addr -grpc-tls, and for list-grpc -p <name prefix>";

#[tokio::main]
#[expect(clippy::print_stderr, reason = "what a command says")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    match run(&command, &arguments).await.and_then(|text| print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line. Whoever reads may stop early, as `head` does.
fn print(text: &str) -> Result<(), String> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("the output cannot be written: {error}"))
        }
        _ => Ok(()),
    }
}

/// Runs a command and gives what it prints, or what went wrong.
async fn run(command: &str, arguments: &[String]) -> Result<String, String> {
    if matches!(command, "-h" | "-help" | "--help") || flags::asks_for_help(arguments) {
        return Ok(USAGE.to_owned());
    }
    match command {
        "apply" => http::apply(arguments).await,
        "read" => http::read(arguments).await,
        "list" => http::list(arguments).await,
        "delete" => http::delete(arguments).await,
        "apply-grpc" => grpc::apply(arguments).await,
        "read-grpc" => grpc::read(arguments).await,
        "list-grpc" => grpc::list(arguments).await,
        "delete-grpc" => grpc::delete(arguments).await,
        "" => Err(USAGE.to_owned()),
        _ => Err(format!("unknown command: {command}\n\n{USAGE}")),
    }
}
