//! Reading and listing.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use resource_store::{
    Code::{InvalidArgument, NotFound},
    ResourceData as _,
    backend::{self, Backend, Consistency, Query, ResourceStream, Watch, memory::MemoryBackend},
    demo::{self, v1, v2},
    pb::{self, Id, ListRequest, ReadRequest},
};

use crate::support::*;

/// Spec: RS37
#[tokio::test]
async fn a_read_in_another_group_version_says_so() {
    let service = service();
    let stored = service.put(artist("korn")).await.unwrap();
    let older = Id { r#type: Some(v1::Artist::resource_type()), ..id(&stored) };
    for consistency in [Consistency::Eventual, Consistency::Strong] {
        let context = anonymous().with_consistency(consistency);
        let result = service.read(&context, ReadRequest { id: Some(older.clone()) }).await;
        assert_fails(
            result,
            InvalidArgument,
            "resource was requested with GroupVersion=\"v1\", but stored with GroupVersion=\"v2\"",
        );
    }
}

#[tokio::test]
async fn a_read_of_nothing_or_of_another_incarnation_finds_nothing() {
    let service = service();
    assert_fails(service.get(&id(&artist("korn"))).await, NotFound, "resource not found");
    let stored = service.put(artist("korn")).await.unwrap();
    assert_fails(service.get(&id(&stored).with_uid("other")).await, NotFound, "resource not found");
}

/// Notes the consistency of reads and lists.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    inner: MemoryBackend,
    pub(crate) seen: Mutex<Vec<Consistency>>,
}

#[async_trait]
impl Backend for Recorder {
    async fn read(&self, mode: Consistency, id: &Id) -> backend::Result<Arc<pb::Resource>> {
        self.seen.lock().unwrap().push(mode);
        self.inner.read(mode, id).await
    }

    async fn write_cas(&self, resource: pb::Resource) -> backend::Result<Arc<pb::Resource>> {
        self.inner.write_cas(resource).await
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> backend::Result<()> {
        self.inner.delete_cas(id, version).await
    }

    async fn list(
        &self,
        mode: Consistency,
        query: &Query,
    ) -> backend::Result<Vec<Arc<pb::Resource>>> {
        self.seen.lock().unwrap().push(mode);
        self.inner.list(mode, query).await
    }

    async fn list_by_owner(&self, owner: &Id) -> backend::Result<Vec<Arc<pb::Resource>>> {
        self.inner.list_by_owner(owner).await
    }

    async fn watch_list(&self, query: &Query) -> backend::Result<Watch> {
        self.inner.watch_list(query).await
    }

    async fn snapshot(&self) -> backend::Result<ResourceStream> {
        self.inner.snapshot().await
    }

    async fn restore(&self, resources: ResourceStream) -> backend::Result<()> {
        self.inner.restore(resources).await
    }
}

/// Spec: RS38 (the metadata itself: see the gRPC tests)
#[tokio::test]
async fn reads_and_lists_are_as_fresh_as_asked_for() {
    let recorder = Arc::new(Recorder::default());
    let service = builder_over(recorder.clone()).build();
    for consistency in [Consistency::Strong, Consistency::Eventual] {
        let context = anonymous().with_consistency(consistency);
        let id = Some(id(&artist("korn")));
        assert!(service.read(&context, ReadRequest { id }).await.is_err());
        let list = ListRequest {
            r#type: Some(v2::Artist::resource_type()),
            tenancy: Some(default_tenancy()),
            name_prefix: String::new(),
        };
        service.list(&context, list).await.unwrap();
        assert_eq!(std::mem::take(&mut *recorder.seen.lock().unwrap()), [consistency; 2]);
    }
    assert_eq!(anonymous().consistency, Consistency::Eventual);
}

/// Spec: RS41
#[tokio::test]
async fn lists_give_one_group_version_by_prefix_and_order() {
    let service = service();
    assert!(service.all::<v2::Artist>("").await.unwrap().is_empty());
    let mut stored = Vec::new();
    for i in (0..10).rev() {
        stored.insert(0, service.put(artist(&format!("{i}-artist"))).await.unwrap());
    }
    assert_eq!(service.all::<v2::Artist>("").await.unwrap(), stored);
    assert_eq!(service.all::<v2::Artist>("0-").await.unwrap(), stored[..1]);
    assert!(service.all::<v1::Artist>("").await.unwrap().is_empty());
}

/// Spec: RS42
#[tokio::test]
async fn children_are_listed_by_their_owner() {
    let service = service();
    let owner = service.put(artist("owner")).await.unwrap();
    assert!(service.children(&id(&owner)).await.unwrap().is_empty());
    let mut stored = Vec::new();
    for i in 0..10 {
        let album = demo::album(&format!("album-{i}"), &id(&owner)).encode();
        stored.push(service.put(album).await.unwrap());
    }
    assert_eq!(service.children(&id(&owner)).await.unwrap(), stored);
}
