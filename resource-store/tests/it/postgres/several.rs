//! Several handles to one store as one backend, so that writers meet in the database.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use resource_store::{
    backend::{
        Backend, Consistency, Query, ResourceStream, Result, Watch, postgres::PostgresBackend,
    },
    pb::{Id, Resource},
};

/// Passes each call to the next of several backends. All reads of this backend are
/// linearizable, so the promises for one process hold for all of them together.
#[derive(Debug)]
pub(crate) struct Several {
    backends: Vec<PostgresBackend>,
    next: AtomicUsize,
}

impl Several {
    pub(crate) fn new(backends: Vec<PostgresBackend>) -> Self {
        Self { backends, next: AtomicUsize::new(0) }
    }

    fn next(&self) -> &PostgresBackend {
        &self.backends[self.next.fetch_add(1, Ordering::Relaxed) % self.backends.len()]
    }
}

#[async_trait]
impl Backend for Several {
    async fn read(&self, consistency: Consistency, id: &Id) -> Result<Arc<Resource>> {
        self.next().read(consistency, id).await
    }

    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
        self.next().write_cas(resource).await
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        self.next().delete_cas(id, version).await
    }

    async fn list(&self, consistency: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        self.next().list(consistency, query).await
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        self.next().list_by_owner(owner).await
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        self.next().watch_list(query).await
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        self.next().snapshot().await
    }

    async fn restore(&self, resources: ResourceStream) -> Result<()> {
        self.next().restore(resources).await
    }
}
