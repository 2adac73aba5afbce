//! Driving a controller by hand.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    client::ResourceClient,
    code::RpcError,
    controller::{BoxError, Cache, CacheError, Controller, Outcome, Request, Runtime},
    pb::{DeleteRequest, Id, ListRequest, Resource, WatchListRequest, WriteStatusRequest},
    service::EventStream,
};

/// Drives a controller by hand: no watches, no queue, one call at a time.
///
/// What its client writes and deletes shows in its cache at once.
#[derive(Debug)]
pub struct TestController {
    controller: Controller,
    runtime: Runtime,
}

impl TestController {
    /// A controller over a service.
    ///
    /// # Errors
    ///
    /// If two of its indexes or queries have one name.
    pub fn new(controller: Controller, client: impl ResourceClient) -> Result<Self, CacheError> {
        let cache = controller.new_cache()?;
        let client = WriteThrough { inner: Arc::new(client), cache: cache.clone() };
        Ok(Self { controller, runtime: Runtime { client: Arc::new(client), cache } })
    }

    /// Client and cache.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Reconciles one request.
    ///
    /// # Errors
    ///
    /// Those of the reconciler, or if there is none.
    pub async fn reconcile(&self, request: &Request) -> Result<Outcome, BoxError> {
        let reconciler = self.controller.reconciler().ok_or("the controller has no reconciler")?;
        reconciler.reconcile(&self.runtime, request).await
    }

    /// The requests that a changed resource calls for: none for the managed
    /// type.
    ///
    /// # Errors
    ///
    /// Those of the mapper, or if no watch has the type.
    pub async fn dry_run_mapper(&self, resource: &Resource) -> Result<Vec<Request>, BoxError> {
        let ty = resource.resource_type().cloned().unwrap_or_default();
        if ty == *self.controller.managed_type() {
            return Ok(Vec::new());
        }
        let mapper =
            self.controller.mapper(resource).ok_or_else(|| format!("no mapper for type: {ty}"))?;
        mapper.map(&self.runtime, resource).await
    }
}

/// A client whose writes go into a cache as well.
#[derive(Debug)]
struct WriteThrough {
    inner: Arc<dyn ResourceClient>,
    cache: Cache,
}

impl WriteThrough {
    /// Types that the controller does not watch are not cached.
    fn insert(&self, resource: Resource) -> Resource {
        let shared = Arc::new(resource);
        if let Err(error) = self.cache.insert(&shared) {
            tracing::debug!(error = %error, "not cached");
        }
        Arc::unwrap_or_clone(shared)
    }
}

#[async_trait]
impl ResourceClient for WriteThrough {
    async fn read(&self, id: Id) -> Result<Resource, RpcError> {
        self.inner.read(id).await
    }

    async fn read_strong(&self, id: Id) -> Result<Resource, RpcError> {
        self.inner.read_strong(id).await
    }

    async fn write(&self, resource: Resource) -> Result<Resource, RpcError> {
        Ok(self.insert(self.inner.write(resource).await?))
    }

    async fn write_status(&self, request: WriteStatusRequest) -> Result<Resource, RpcError> {
        Ok(self.insert(self.inner.write_status(request).await?))
    }

    async fn list(&self, request: ListRequest) -> Result<Vec<Resource>, RpcError> {
        self.inner.list(request).await
    }

    async fn list_by_owner(&self, owner: Id) -> Result<Vec<Resource>, RpcError> {
        self.inner.list_by_owner(owner).await
    }

    async fn delete(&self, request: DeleteRequest) -> Result<(), RpcError> {
        let id = request.id.clone();
        self.inner.delete(request).await?;
        let deleted = Resource { id, ..Resource::default() };
        if let Err(error) = self.cache.delete(&deleted) {
            tracing::debug!(error = %error, "not cached");
        }
        Ok(())
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<EventStream, RpcError> {
        self.inner.watch_list(request).await
    }

    async fn mutate_and_validate(&self, resource: Resource) -> Result<Resource, RpcError> {
        self.inner.mutate_and_validate(resource).await
    }
}
