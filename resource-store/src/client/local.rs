//! The client of a service in the same process.

use std::sync::Arc;

use async_trait::async_trait;

use super::ResourceClient;
use crate::{
    backend::Consistency,
    code::RpcError,
    pb::{
        DeleteRequest, Id, ListByOwnerRequest, ListRequest, MutateAndValidateRequest, ReadRequest,
        Resource, WatchListRequest, WriteRequest, WriteStatusRequest,
    },
    registry::Registry,
    service::{EventStream, RequestContext, ResourceService},
};

/// Uses a service in the same process, with a token of its own.
///
/// Resources are copied, so that what a caller changes is its own; the events
/// of a watch share the store's objects, which nobody can change.
#[derive(Debug, Clone)]
pub struct LocalClient {
    service: ResourceService,
    context: RequestContext,
}

impl LocalClient {
    /// A client without token and with eventual reads.
    pub fn new(service: ResourceService) -> Self {
        Self { service, context: RequestContext::default() }
    }

    /// The same client with another token or consistency.
    #[must_use]
    pub fn with_context(mut self, context: RequestContext) -> Self {
        self.context = context;
        self
    }
}

#[async_trait]
impl ResourceClient for LocalClient {
    async fn read(&self, id: Id) -> Result<Resource, RpcError> {
        self.service
            .read(&self.context, ReadRequest { id: Some(id) })
            .await
            .map(Arc::unwrap_or_clone)
    }

    async fn read_strong(&self, id: Id) -> Result<Resource, RpcError> {
        let context = self.context.clone().with_consistency(Consistency::Strong);
        self.service.read(&context, ReadRequest { id: Some(id) }).await.map(Arc::unwrap_or_clone)
    }

    async fn write(&self, resource: Resource) -> Result<Resource, RpcError> {
        let request = WriteRequest { resource: Some(resource) };
        self.service.write(&self.context, request).await.map(Arc::unwrap_or_clone)
    }

    async fn write_status(&self, request: WriteStatusRequest) -> Result<Resource, RpcError> {
        self.service.write_status(&self.context, request).await.map(Arc::unwrap_or_clone)
    }

    async fn list(&self, request: ListRequest) -> Result<Vec<Resource>, RpcError> {
        let found = self.service.list(&self.context, request).await?;
        Ok(found.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    async fn list_by_owner(&self, owner: Id) -> Result<Vec<Resource>, RpcError> {
        let request = ListByOwnerRequest { owner: Some(owner) };
        let found = self.service.list_by_owner(&self.context, request).await?;
        Ok(found.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    async fn delete(&self, request: DeleteRequest) -> Result<(), RpcError> {
        self.service.delete(&self.context, request).await
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<EventStream, RpcError> {
        self.service.watch_list(&self.context, request).await
    }

    fn registry(&self) -> Option<&Registry> {
        Some(self.service.registry())
    }

    async fn mutate_and_validate(&self, resource: Resource) -> Result<Resource, RpcError> {
        let request = MutateAndValidateRequest { resource: Some(resource) };
        self.service.mutate_and_validate(&self.context, request).await
    }
}
