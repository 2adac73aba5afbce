//! A backend whose calls fail by a rule, in place of doing what was asked.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use resource_store::{
    backend::{
        self, Backend, Consistency, Error, Query, ResourceStream, Watch, memory::MemoryBackend,
    },
    pb::{self, Id},
};

/// Makes the error of a call, by the name of its method.
type Fault = dyn Fn(&'static str) -> Option<Error> + Send + Sync;

/// Memory whose calls fail with the error that a rule gives for their method.
pub(crate) struct Faulty {
    inner: MemoryBackend,
    fault: Mutex<Option<Arc<Fault>>>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").finish_non_exhaustive()
    }
}

impl Faulty {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { inner: MemoryBackend::new(), fault: Mutex::new(None) })
    }

    /// Fails the calls for which `fault` gives an error.
    pub(crate) fn fail(
        &self,
        fault: impl Fn(&'static str) -> Option<Error> + Send + Sync + 'static,
    ) {
        *self.fault.lock().unwrap() = Some(Arc::new(fault));
    }

    /// Lets every call pass again.
    pub(crate) fn mend(&self) {
        *self.fault.lock().unwrap() = None;
    }

    fn check(&self, method: &'static str) -> backend::Result<()> {
        let fault = self.fault.lock().unwrap().clone();
        fault.and_then(|fault| fault(method)).map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Backend for Faulty {
    async fn read(&self, mode: Consistency, id: &Id) -> backend::Result<Arc<pb::Resource>> {
        self.check("read")?;
        self.inner.read(mode, id).await
    }

    async fn write_cas(&self, resource: pb::Resource) -> backend::Result<Arc<pb::Resource>> {
        self.check("write")?;
        self.inner.write_cas(resource).await
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> backend::Result<()> {
        self.check("delete")?;
        self.inner.delete_cas(id, version).await
    }

    async fn list(
        &self,
        mode: Consistency,
        query: &Query,
    ) -> backend::Result<Vec<Arc<pb::Resource>>> {
        self.check("list")?;
        self.inner.list(mode, query).await
    }

    async fn list_by_owner(&self, owner: &Id) -> backend::Result<Vec<Arc<pb::Resource>>> {
        self.check("list by owner")?;
        self.inner.list_by_owner(owner).await
    }

    async fn watch_list(&self, query: &Query) -> backend::Result<Watch> {
        self.check("watch")?;
        self.inner.watch_list(query).await
    }

    async fn snapshot(&self) -> backend::Result<ResourceStream> {
        self.inner.snapshot().await
    }

    async fn restore(&self, resources: ResourceStream) -> backend::Result<()> {
        self.inner.restore(resources).await
    }
}
