//! The command line of a server of resources: arguments, storage, access, log, signals, and
//! the commands that move resources and manage the nodes of a cluster.

mod access;
mod arguments;
mod cluster;
mod consul_acl;
mod etcd;
mod files;
mod logging;
mod postgres;
mod raft;
mod serve;
mod storage;
mod transfer;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, error::ErrorKind};
use consul_watch::{BoxError, error_chain};

use self::arguments::{Command, CommandLine};
use crate::{Registry, RegistryError, controller::Controller};

/// A program that serves resources of some types over gRPC, and over HTTP under `/api`, on
/// one port: in memory, in a file, in an etcd, in PostgreSQL, or as one node of a cluster.
///
/// ```no_run
/// use resource_store::{demo, program::ServerProgram};
///
/// fn main() -> std::process::ExitCode {
///     ServerProgram::new("resource-server", demo::register).demo(demo::controller).run()
/// }
/// ```
///
/// It starts the runtime and the log by itself, so `main` does nothing else.
#[derive(Debug, Clone)]
pub struct ServerProgram {
    name: &'static str,
    types: fn(&mut Registry) -> Result<(), RegistryError>,
    controllers: Vec<fn() -> Controller>,
    demo: Option<fn() -> Controller>,
}

impl ServerProgram {
    /// Starts a description: the command's own name, and what registers the types that it
    /// serves.
    pub fn new(name: &'static str, types: fn(&mut Registry) -> Result<(), RegistryError>) -> Self {
        Self { name, types, controllers: Vec::new(), demo: None }
    }

    /// Adds a controller, which runs in one of the nodes of a cluster.
    #[must_use]
    pub fn controller(mut self, controller: fn() -> Controller) -> Self {
        self.controllers.push(controller);
        self
    }

    /// Adds a controller that only runs when the flag `--demo` is given.
    #[must_use]
    pub fn demo(mut self, controller: fn() -> Controller) -> Self {
        self.demo = Some(controller);
        self
    }

    /// Runs what the arguments of the process ask for, to its end.
    #[expect(clippy::print_stdout, clippy::print_stderr, reason = "what a command says")]
    pub fn run(self) -> ExitCode {
        let grammar = CommandLine::command()
            .name(self.name)
            .mut_arg("demo", |argument| argument.hide(self.demo.is_none()));
        let matched = grammar.try_get_matches_from(arguments::as_clap_reads(std::env::args_os()));
        let parsed = matched.and_then(|matches| CommandLine::from_arg_matches(&matches));
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(error) if error.kind() == ErrorKind::DisplayHelp => {
                print!("{error}");
                return ExitCode::SUCCESS;
            }
            Err(error) => {
                eprint!("{error}");
                return ExitCode::FAILURE;
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let ended = match runtime {
            Ok(runtime) => runtime.block_on(self.execute(parsed)),
            Err(error) => Err(error.into()),
        };
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}", error_chain(&*error));
                ExitCode::FAILURE
            }
        }
    }

    async fn execute(&self, command_line: CommandLine) -> Result<(), BoxError> {
        match command_line.command {
            None => Box::pin(serve::serve(self, command_line.serve)).await,
            Some(Command::Export(options)) => transfer::export(self, &options).await,
            Some(Command::Import(options)) => transfer::import(&options).await,
            Some(Command::Cluster(command)) => cluster::run(&command).await.map_err(cluster::plain),
            Some(Command::Members(options)) => {
                cluster::members(&options).await.map_err(cluster::plain)
            }
            Some(Command::RemoveMember(options)) => {
                cluster::remove_member(&options).await.map_err(cluster::plain)
            }
        }
    }

    fn registry(&self) -> Result<Registry, BoxError> {
        let mut registry = Registry::new()?;
        (self.types)(&mut registry)?;
        Ok(registry)
    }
}
