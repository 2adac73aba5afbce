//! Integration tests of `resource-store`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::clone_on_ref_ptr,
    reason = "tests panic to fail, and their fixtures, which the exemption of tests misses, do so, too"
)]

mod api;
#[cfg(all(feature = "grpc", feature = "client", feature = "http", feature = "http-client"))]
mod clients;
mod controller;
mod derive;
#[cfg(feature = "durable")]
mod durable_backend;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod etcd_backend;
#[cfg(feature = "hcl")]
mod files;
#[cfg(all(feature = "grpc", feature = "client"))]
mod grpc;
mod history;
mod hostile;
#[cfg(feature = "http")]
mod http;
mod memory_backend;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_backend;
#[cfg(feature = "raft")]
mod raft_backend;
#[cfg(all(feature = "program", feature = "http-client"))]
mod records;
mod service;
mod support;
mod test_kit;
mod topic_model;
mod transfer;
mod wire_model;
