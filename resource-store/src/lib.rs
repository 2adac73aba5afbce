//! Typed resources with optimistic concurrency, watches and controllers.
//!
//! Declare types in a [`Registry`], keep resources in a backend, and use them
//! through the resource service: in one process, or over Consul's resource
//! protocol.
//!
//! A [`Resource`] is data of a Rust type with an identity, a version and
//! metadata; [`pb::Resource`] is the same with its data encoded, and what the
//! wire carries.
//!
//! ```
//! use resource_store::{Resource, demo};
//!
//! let artist = demo::artist("korn");
//! let encoded = artist.encode();
//! assert_eq!(encoded.id.as_ref().unwrap().to_string(), "demo.v2.Artist/default.default/korn");
//! assert_eq!(Resource::decode(&encoded).unwrap(), artist);
//! ```
//!
//! # Sources
//!
//! Facts about the protocol come from Consul 1.21 (`proto-public/pbresource`,
//! `internal/resource`, `internal/storage`, `internal/controller`) and its
//! `docs/v2-architecture`.

#![forbid(unsafe_code)]

pub mod acl;
mod api;
pub mod backend;
pub mod client;
#[cfg(any(feature = "client", feature = "etcd", feature = "raft"))]
mod client_tls;
mod clock;
mod code;
#[cfg(any(feature = "grpc", feature = "client"))]
mod codec;
#[cfg(feature = "program")]
pub mod command;
pub mod controller;
pub mod demo;
mod equality;
mod error_chain;
#[cfg(feature = "hcl")]
pub mod file;
mod gvk;
#[cfg(feature = "http")]
pub mod http;
mod id;
mod json;
mod lease;
pub mod metadata;
mod name;
pub mod pb;
#[cfg(feature = "program")]
pub mod program;
mod references;
pub mod registry;
mod schema;
#[cfg(feature = "grpc")]
pub mod server;
#[cfg(feature = "grpc")]
mod server_tls;
pub mod service;
mod tenancy;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transfer;
mod typed;
pub mod validation;
#[cfg(any(feature = "grpc", feature = "client"))]
mod wire;

pub use api::{Api, ApiError, ApiEvent, Store};
#[cfg(feature = "client")]
pub use client::{GrpcClient, GrpcClientConfig};
pub use client::{LocalClient, ResourceClient, remove_finalizer, resuming_watch};
pub use clock::{Clock, SystemClock};
pub use code::{Code, RpcError};
pub use equality::equal_status;
pub use gvk::{GroupKind, ParseTypeError};
pub use id::reference_or_id_match;
pub use json::{JsonCodec, JsonError};
pub use name::is_valid_name;
/// The protobuf library that [`resource_data!`] needs.
#[doc(hidden)]
pub use prost;
pub use references::BoundReferences;
pub use registry::{Registration, Registry, RegistryError};
pub use schema::{Schema, SchemaError};
pub use service::{Parity, RequestContext, ResourceService};
pub use tenancy::{
    DEFAULT_UNIT, Scope, StaticTenancies, TenancyBridge, TenancyError, WILDCARD,
    default_reference_tenancy,
};
pub use typed::{DataError, Resource, ResourceData, any, decode_data};

/// The README, so that its example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
