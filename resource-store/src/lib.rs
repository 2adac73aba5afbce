//! Typed resources with optimistic concurrency, watches and controllers.
//!
//! Declare types in a [`Registry`], keep resources in a backend, and use them
//! through the resource service: in one process, or over Consul's resource
//! protocol.
//!
//! A [`struct@Resource`] is data of a Rust type with an identity, a version and
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
#[cfg(feature = "derive")]
#[doc(hidden)]
pub mod derived;
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

pub use api::{Api, ApiError, ApiEvent, HasStatus, StatusReport, Store};
#[cfg(feature = "client")]
pub use client::{GrpcClient, GrpcClientConfig};
#[cfg(feature = "http-client")]
pub use client::{HttpClient, HttpClientConfig};
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
pub use registry::{Registration, Registry, RegistryError, ResourceType};
/// Makes a struct with named fields the data of a resource type.
///
/// ```
/// use resource_store::{Registry, Resource, ResourceData as _, registry::HookError};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
/// #[resource(group = "music", version = "v1", scope = "namespace", validate = "check")]
/// struct Album {
///     title: String,
///     year: u32,
/// }
///
/// fn check(album: &Resource<Album>) -> Result<(), HookError> {
///     if album.data.title.is_empty() { Err("album.title required".into()) } else { Ok(()) }
/// }
///
/// let mut registry = Registry::new()?;
/// registry.register_type::<Album>()?;
/// assert_eq!(Album::resource_type().to_string(), "music.v1.Album");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// | attribute | what it says |
/// |---|---|
/// | `group = "…"` | group of the type, in snake case |
/// | `version = "…"` | version of the group, as `v1` or `v2beta1` |
/// | `kind = "…"` | kind, in Pascal case; the name of the struct, if it is left out |
/// | `scope = "…"` | `cluster`, `partition` or `namespace` |
/// | `validate = path` | `fn(&Resource<Self>) -> Result<(), HookError>`, which checks what is written |
/// | `status = Type` | a [`StatusReport`]; implements [`HasStatus`] |
/// | `schema` | the type is a `schemars::JsonSchema`, which [`Registration::json_schema`] shows; needs the feature `schema` |
/// | `message = "…"`, `descriptors = …` | the struct is a message of prost, and its full name and the bytes of a `FileDescriptorSet` that describes it |
/// | `crate = path` | another path of this crate |
///
/// Paths, types and expressions may stand in quotes. Rules that are broken are errors of the
/// compiler, at the attribute:
///
/// ```compile_fail
/// # use resource_store::Resource;
/// # use serde::{Deserialize, Serialize};
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
/// #[resource(group = "Music", version = "v1", scope = "namespace")] // `group` must be in snake_case
/// struct Album {}
/// ```
///
/// ```compile_fail
/// # use resource_store::Resource;
/// # use serde::{Deserialize, Serialize};
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
/// #[resource(group = "music", version = "1", scope = "namespace")] // `version` must … start with `v`
/// struct Album {}
/// ```
///
/// # Data
///
/// A struct of serde is stored as a `google.protobuf.Struct`: as the JSON object that serde
/// makes of it, which every client of the protocol can read and write, over HTTP in JSON. What
/// is written is decoded first, and refused with the name of the field where serde refuses it;
/// fields that the struct does not have are kept, unless it has `deny_unknown_fields`. As in
/// JSON, a float that is no number is null. A number is a `double`: whole numbers beyond 2^53
/// are refused by the client that encodes them, and belong into a string.
#[cfg(feature = "derive")]
pub use resource_store_derive::Resource;
pub use schema::{Schema, SchemaError};
pub use service::{Parity, RequestContext, ResourceService};
pub use tenancy::{
    DEFAULT_UNIT, Scope, StaticTenancies, TenancyBridge, TenancyError, WILDCARD,
    default_reference_tenancy,
};
pub use typed::{DataError, Resource, ResourceData, any, decode_data, try_any};

/// The README, so that its example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
