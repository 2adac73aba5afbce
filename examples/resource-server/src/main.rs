//! A resource server with the demo types: gRPC, and HTTP under `/api`, on one
//! port. What it holds is in memory, with `--data-dir` in a file, or
//! with `--etcd` in an etcd.
//!
//! Needs nothing. Run it with `cargo run -p resource-server`; the
//! address to listen at may follow (`127.0.0.1:8502` if not). It prints where it
//! listens, and stops at Ctrl-C or SIGTERM. With `--raft` it is one node of
//! several that keep the resources together. Beyond this machine it serves with
//! TLS and tokens only (`--cert`, `--key`, and `--tokens` or `--consul-acl`).
//! `resource-server export` and
//! `resource-server import` move resources from one store to another.

use std::process::ExitCode;

use resource_store::{demo, program::ServerProgram};

// Gives memory back after a burst of connections and watches, which that of glibc
// does in part only.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ServerProgram::new("resource-server", demo::register).demo(demo::controller).run()
}
