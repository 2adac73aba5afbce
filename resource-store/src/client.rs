//! Using a resource service, wherever it runs.

mod finalizer;
#[cfg(feature = "client")]
mod grpc;
#[cfg(feature = "http-client")]
mod http;
mod local;
mod resume;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
pub use finalizer::remove_finalizer;
#[cfg(feature = "client")]
pub use grpc::{GrpcClient, GrpcClientConfig};
#[cfg(feature = "http-client")]
pub use http::{HttpClient, HttpClientConfig};
pub use local::LocalClient;
pub use resume::resuming_watch;

use crate::{
    code::RpcError,
    pb::{DeleteRequest, Id, ListRequest, Resource, WatchListRequest, WriteStatusRequest},
    registry::Registry,
    service::EventStream,
};

/// The calls of the resource service, over whatever transport.
///
/// Resources that come back are the caller's to change; those in the events of
/// a watch are shared. A client carries its token, and how fresh its reads have
/// to be. [`ResourceService`](crate::ResourceService) documents each call.
#[async_trait]
pub trait ResourceClient: fmt::Debug + Send + Sync + 'static {
    /// Reads one resource.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::read`](crate::ResourceService::read), or those of
    /// the transport; so for every call.
    async fn read(&self, id: Id) -> Result<Resource, RpcError>;

    /// Reads one resource linearizably, however fresh the client's other reads
    /// are: one that is not found is not there.
    ///
    /// # Errors
    ///
    /// As [`ResourceClient::read`].
    async fn read_strong(&self, id: Id) -> Result<Resource, RpcError>;

    /// Creates or replaces one resource.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::write`](crate::ResourceService::write).
    async fn write(&self, resource: Resource) -> Result<Resource, RpcError>;

    /// Sets one key of the status of a resource.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::write_status`](crate::ResourceService::write_status).
    async fn write_status(&self, request: WriteStatusRequest) -> Result<Resource, RpcError>;

    /// Lists the resources of a type.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::list`](crate::ResourceService::list).
    async fn list(&self, request: ListRequest) -> Result<Vec<Resource>, RpcError>;

    /// Lists what a resource owns.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::list_by_owner`](crate::ResourceService::list_by_owner).
    async fn list_by_owner(&self, owner: Id) -> Result<Vec<Resource>, RpcError>;

    /// Deletes one resource, or marks it.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::delete`](crate::ResourceService::delete).
    async fn delete(&self, request: DeleteRequest) -> Result<(), RpcError>;

    /// Follows the resources of a type.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::watch_list`](crate::ResourceService::watch_list).
    async fn watch_list(&self, request: WatchListRequest) -> Result<EventStream, RpcError>;

    /// Returns the types that the service knows, where that is known without a call:
    /// of a service in the same process.
    fn registry(&self) -> Option<&Registry> {
        None
    }

    /// Says what a write would store.
    ///
    /// # Errors
    ///
    /// As [`ResourceService::mutate_and_validate`](crate::ResourceService::mutate_and_validate).
    async fn mutate_and_validate(&self, resource: Resource) -> Result<Resource, RpcError>;
}

/// A client that is shared.
#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<C: ResourceClient + ?Sized> ResourceClient for Arc<C> {
    async fn read(&self, id: Id) -> Result<Resource, RpcError> {
        (**self).read(id).await
    }

    async fn read_strong(&self, id: Id) -> Result<Resource, RpcError> {
        (**self).read_strong(id).await
    }

    async fn write(&self, resource: Resource) -> Result<Resource, RpcError> {
        (**self).write(resource).await
    }

    async fn write_status(&self, request: WriteStatusRequest) -> Result<Resource, RpcError> {
        (**self).write_status(request).await
    }

    async fn list(&self, request: ListRequest) -> Result<Vec<Resource>, RpcError> {
        (**self).list(request).await
    }

    async fn list_by_owner(&self, owner: Id) -> Result<Vec<Resource>, RpcError> {
        (**self).list_by_owner(owner).await
    }

    async fn delete(&self, request: DeleteRequest) -> Result<(), RpcError> {
        (**self).delete(request).await
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<EventStream, RpcError> {
        (**self).watch_list(request).await
    }

    fn registry(&self) -> Option<&Registry> {
        (**self).registry()
    }

    async fn mutate_and_validate(&self, resource: Resource) -> Result<Resource, RpcError> {
        (**self).mutate_and_validate(resource).await
    }
}
