//! The command `resource`: reads, lists, applies and deletes resources, from files in HCL or
//! JSON, over HTTP or gRPC.
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

use crate::{Registry, RegistryError};

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

/// The command, for resources of some types.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     resource_store::command::Command::new(resource_store::demo::register).run()
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Command {
    types: fn(&mut Registry) -> Result<(), RegistryError>,
}

impl Command {
    /// Takes what registers the types of the files that can be read, and of the resources
    /// that can be shown.
    pub fn new(types: fn(&mut Registry) -> Result<(), RegistryError>) -> Self {
        Self { types }
    }

    /// Runs what the arguments of the process ask for, to its end.
    #[expect(clippy::print_stderr, reason = "what a command says")]
    pub fn run(self) -> ExitCode {
        let mut arguments = std::env::args().skip(1);
        let command = arguments.next().unwrap_or_default();
        let arguments: Vec<String> = arguments.collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let ended = runtime
            .map_err(|error| format!("cannot start the runtime: {error}"))
            .and_then(|runtime| runtime.block_on(self.execute(&command, &arguments)))
            .and_then(|text| print(&text));
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => {
                eprintln!("{text}");
                ExitCode::FAILURE
            }
        }
    }

    /// Runs a command and gives what it prints, or what went wrong.
    async fn execute(self, command: &str, arguments: &[String]) -> Result<String, String> {
        if matches!(command, "-h" | "-help" | "--help") || flags::asks_for_help(arguments) {
            return Ok(USAGE.to_owned());
        }
        let mut registry = Registry::new().map_err(|error| error.to_string())?;
        (self.types)(&mut registry).map_err(|error| error.to_string())?;
        match command {
            "apply" => http::apply(arguments, registry).await,
            "read" => http::read(arguments, registry).await,
            "list" => http::list(arguments, registry).await,
            "delete" => http::delete(arguments, registry).await,
            "apply-grpc" => grpc::apply(arguments, registry).await,
            "read-grpc" => grpc::read(arguments, registry).await,
            "list-grpc" => grpc::list(arguments, registry).await,
            "delete-grpc" => grpc::delete(arguments, registry).await,
            "" => Err(USAGE.to_owned()),
            _ => Err(format!("unknown command: {command}\n\n{USAGE}")),
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
