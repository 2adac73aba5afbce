//! A resource server with the demo types: gRPC, and HTTP under `/api`, on one
//! port. What it holds is in memory, with `--data-dir` in a file, or
//! with `--etcd` in an etcd.
//!
//! Needs nothing. Run it with
//! `cargo run -p examples --features resource-store --bin resource-server`; the
//! address to listen at may follow (`127.0.0.1:8502` if not). It prints where it
//! listens, and stops at Ctrl-C or SIGTERM. With `--raft` it is one node of
//! several that keep the resources together. Beyond this machine it serves with
//! TLS and tokens only (`--cert`, `--key`, and `--tokens` or `--consul-acl`).
//! `resource-server export` and
//! `resource-server import` move resources from one store to another.

mod access;
mod arguments;
mod consul_acl;
mod etcd;
mod logging;
mod raft;
mod serve;
mod storage;
mod transfer;

use std::process::ExitCode;

use clap::{Parser as _, error::ErrorKind};
use consul_watch::{BoxError, error_chain};

use self::arguments::{Command, CommandLine};

// Gives memory back after a burst of connections and watches, which that of glibc
// does in part only.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "what a command says")]
async fn main() -> ExitCode {
    let parsed = match CommandLine::try_parse_from(arguments::as_clap_reads(std::env::args_os())) {
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
    match run(parsed).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error_chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(command_line: CommandLine) -> Result<(), BoxError> {
    match command_line.command {
        None => serve::serve(command_line.serve).await,
        Some(Command::Export(options)) => transfer::export(&options).await,
        Some(Command::Import(options)) => transfer::import(&options).await,
        Some(Command::Members(options)) => raft::members(&options).await,
        Some(Command::RemoveMember(options)) => raft::remove_member(&options).await,
    }
}
