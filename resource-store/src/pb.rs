//! The protobuf types of the resource protocol, generated from `proto/`.
//!
//! They are plain structs with public fields. Methods that make them pleasant
//! to use (names, keys, comparisons, finalizers) are in the modules of this
//! crate that know the rules, and show up in the documentation of each type.
//!
//! Source: `proto-public/pbresource/*.proto`, Consul 1.21.

#[allow(
    clippy::pedantic,
    clippy::large_enum_variant,
    clippy::clone_on_ref_ptr,
    clippy::allow_attributes_without_reason,
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    rustdoc::all,
    dead_code,
    reason = "generated code"
)]
pub(crate) mod generated {
    include!(concat!(env!("OUT_DIR"), "/packages.rs"));

    #[cfg(feature = "etcd")]
    pub(crate) mod etcdserverpb {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
    }
}

pub use generated::hashicorp::consul::resource::{
    Condition, DeleteRequest, DeleteResponse, Id, ListByOwnerRequest, ListByOwnerResponse,
    ListRequest, ListResponse, MutateAndValidateRequest, MutateAndValidateResponse, ReadRequest,
    ReadResponse, Reference, Resource, Status, Tenancy, Tombstone, Type, WatchEvent,
    WatchListRequest, WriteRequest, WriteResponse, WriteStatusRequest, WriteStatusResponse,
    condition, watch_event,
};
pub use prost_types::{Any, Timestamp};

/// The generated gRPC client for tonic.
#[cfg(feature = "client")]
pub use generated::hashicorp::consul::resource::resource_service_client;
/// The generated gRPC server for tonic.
#[cfg(feature = "grpc")]
pub use generated::hashicorp::consul::resource::resource_service_server;

/// The encoded descriptors of every proto file of this crate, with options.
///
/// Serves gRPC reflection and [`Schema`](crate::Schema).
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
