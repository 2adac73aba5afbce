//! Creating and updating.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use resource_store::{
    Code::{Aborted, FailedPrecondition, InvalidArgument},
    Parity, Resource, ResourceData as _,
    backend::{self, Backend, Consistency, Query, ResourceStream, Watch, memory::MemoryBackend},
    decode_data,
    demo::{self, v1, v2},
    metadata::FINALIZERS,
    pb::{self, Id},
};

use crate::support::*;

/// Spec: RS22
#[tokio::test]
async fn a_creation_gets_version_uid_and_generation() {
    let stored = service().put(artist("korn")).await.unwrap();
    assert!(
        !stored.version.is_empty() && !stored.uid().is_empty() && !stored.generation.is_empty()
    );
    assert_eq!(stored.uid().len(), 26);
}

/// Spec: RS23
#[tokio::test]
async fn an_update_keeps_the_uid_and_changes_version_and_generation() {
    let service = service();
    let first = service.put(artist("korn")).await.unwrap();
    let mut changed = pb::Resource::clone(&first);
    changed.metadata.insert("foo".to_owned(), "bar".to_owned());
    let second = service.put(changed).await.unwrap();
    assert_eq!(second.uid(), first.uid());
    assert_ne!(second.version, first.version);
    assert_ne!(second.generation, first.generation);
    assert_eq!(service.get(&id(&first)).await.unwrap(), second);
}

/// Spec: RS24
#[tokio::test]
async fn a_wrong_version_aborts() {
    let service = service();
    let wrong = pb::Resource { version: "wrong-version".to_owned(), ..artist("korn") };
    assert_fails(service.put(wrong.clone()).await, Aborted, CAS_FAILED);
    service.put(artist("korn")).await.unwrap();
    assert_fails(service.put(wrong).await, Aborted, CAS_FAILED);
}

/// Spec: RS25
#[tokio::test]
async fn a_wrong_uid_is_refused() {
    for parity in [Parity::Corrected, Parity::Upstream] {
        let service = builder().parity(parity).build();
        let stored = service.put(artist("korn")).await.unwrap();
        let wrong = pb::Resource {
            id: Some(id(&stored).with_uid("wrong-uid")),
            version: String::new(),
            ..artist("korn")
        };
        let text = "write failed because the given uid doesn't match what is stored";
        assert_fails(service.put(wrong).await, FailedPrecondition, text);
    }
}

/// Spec: RS26
#[tokio::test]
async fn uid_and_version_may_be_left_out() {
    let service = service();
    let stored = service.put(artist("korn")).await.unwrap();
    let without_uid =
        pb::Resource { id: Some(id(&stored).without_uid()), ..pb::Resource::clone(&stored) };
    let second = service.put(without_uid).await.unwrap();
    let without_version = pb::Resource { version: String::new(), ..pb::Resource::clone(&second) };
    let third = service.put(without_version).await.unwrap();
    assert_eq!(third.uid(), stored.uid());
}

/// A write that names the uid of a deleted incarnation is refused, unless the
/// service does as Consul does.
#[tokio::test]
async fn a_deleted_incarnation_does_not_come_back() {
    for (parity, refused) in [(Parity::Corrected, true), (Parity::Upstream, false)] {
        let service = builder().parity(parity).build();
        let stored = service.put(artist("korn")).await.unwrap();
        service.remove(&id(&stored), "").await.unwrap();
        let again = pb::Resource { version: String::new(), ..pb::Resource::clone(&stored) };
        let result = service.put(again).await;
        if refused {
            let text = "write failed because the given uid doesn't match what is stored";
            assert_fails(result, FailedPrecondition, text);
            let with_version = service.put(pb::Resource::clone(&stored)).await;
            assert_fails(with_version, Aborted, CAS_FAILED);
        } else {
            assert_ne!(result.unwrap().uid(), stored.uid());
        }
    }
}

/// Spec: RS27
#[tokio::test]
async fn statuses_cannot_be_written() {
    let service = service();
    let text = "resource.status can only be set using the WriteStatus endpoint";
    let with_status = |mut resource: pb::Resource| {
        resource.status.insert("other".to_owned(), pb::Status::default());
        resource
    };
    assert_fails(service.put(with_status(artist("korn"))).await, InvalidArgument, text);
    let stored = service.put(artist("korn")).await.unwrap();
    let stored = service.set_status(&id(&stored), "", "key", status_of(&stored)).await.unwrap();
    let more = with_status(pb::Resource::clone(&stored));
    assert_fails(service.put(more).await, InvalidArgument, text);
}

/// Spec: RS28
#[tokio::test]
async fn unchanged_and_absent_statuses_are_kept() {
    let service = service();
    let stored = service.put(artist("korn")).await.unwrap();
    let with_status =
        service.set_status(&id(&stored), "", "key", status_of(&stored)).await.unwrap();
    let same = service.put(pb::Resource::clone(&with_status)).await.unwrap();
    assert_eq!(same.status, with_status.status);
    let absent = pb::Resource { status: BTreeMap::new(), ..pb::Resource::clone(&same) };
    assert_eq!(service.put(absent).await.unwrap().status, with_status.status);
}

/// Spec: RS29
#[tokio::test]
async fn a_write_may_change_the_group_version() {
    let service = service();
    let second = service.put(artist("korn")).await.unwrap();
    let data = v1::Artist { name: "Korn".to_owned(), ..v1::Artist::default() };
    let older = Resource::new(demo::default_tenancy(), "korn", data);
    let first = service.put(older.encode()).await.unwrap();
    assert_eq!(first.uid(), second.uid());
    assert_eq!(
        first.resource_type(),
        Some(&v1::Artist::resource_type()),
        "the type follows the data"
    );
    assert_eq!(service.get(&older.id).await.unwrap(), first);
}

/// Writes something itself before the first conditional write or delete of the
/// service.
#[derive(Debug)]
struct Meddler {
    inner: MemoryBackend,
    armed: AtomicBool,
}

impl Meddler {
    async fn meddle(&self, id: &Id) {
        if self.armed.swap(false, Ordering::SeqCst) {
            let stored =
                self.inner.read(Consistency::Strong, &id.clone().without_uid()).await.unwrap();
            let mut other = pb::Resource::clone(&stored);
            let count =
                other.metadata.get("meddled").map_or(0, |count| count.parse::<u32>().unwrap());
            other.metadata.insert("meddled".to_owned(), (count + 1).to_string());
            self.inner.write_cas(other).await.unwrap();
        }
    }
}

#[async_trait]
impl Backend for Meddler {
    async fn read(&self, mode: Consistency, id: &Id) -> backend::Result<Arc<pb::Resource>> {
        self.inner.read(mode, id).await
    }

    async fn write_cas(&self, resource: pb::Resource) -> backend::Result<Arc<pb::Resource>> {
        if resource.resource_type() == Some(&v2::Artist::resource_type()) {
            self.meddle(&id(&resource)).await;
        }
        self.inner.write_cas(resource).await
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> backend::Result<()> {
        self.meddle(id).await;
        self.inner.delete_cas(id, version).await
    }

    async fn list(
        &self,
        mode: Consistency,
        query: &Query,
    ) -> backend::Result<Vec<Arc<pb::Resource>>> {
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

/// Spec: RS30
#[tokio::test(start_paused = true)]
async fn lost_races_are_repeated() {
    let meddler = Arc::new(Meddler { inner: MemoryBackend::new(), armed: AtomicBool::new(false) });
    let service = builder_over(meddler.clone()).build();
    let stored = service.put(artist("korn")).await.unwrap();
    let arm = || meddler.armed.store(true, Ordering::SeqCst);

    let meddled = || !meddler.armed.load(Ordering::SeqCst);
    let meddling = async || service.get(&id(&stored)).await.unwrap().metadata["meddled"].clone();

    arm();
    let mut renamed = artist("korn");
    renamed.metadata.insert("own".to_owned(), "change".to_owned());
    let written = service.put(renamed).await.unwrap();
    assert!(meddled() && written.metadata["own"] == "change", "on top of the other's change");
    assert_eq!(service.get(&id(&stored)).await.unwrap(), written);

    arm();
    let set = service.set_status(&id(&stored), "", "key", status_of(&stored)).await.unwrap();
    assert!(meddled() && set.status.contains_key("key"));
    assert_eq!(meddling().await, "1", "what the other changed meanwhile is kept");

    arm();
    service.remove(&id(&stored).without_uid(), "").await.unwrap();
    assert!(meddled() && service.get(&id(&stored)).await.is_err());

    // With a version, it is not repeated: the caller has to look.
    let stored = service.put(artist("muse")).await.unwrap();
    arm();
    assert_fails(service.put(pb::Resource::clone(&stored)).await, Aborted, CAS_FAILED);
    arm();
    let now = service.get(&id(&stored)).await.unwrap().version.clone();
    let status = service.set_status(&id(&stored), &now, "key", status_of(&stored)).await;
    assert_fails(status, Aborted, CAS_FAILED);
    arm();
    let now = service.get(&id(&stored)).await.unwrap().version.clone();
    assert_fails(service.remove(&id(&stored), &now).await, Aborted, CAS_FAILED);
}

/// Data that are no message of their type could be read by nobody.
#[tokio::test]
async fn data_that_cannot_be_decoded_is_refused() {
    for (resource, message) in [
        (artist("korn"), "hashicorp.consul.internal.demo.v2.Artist"),
        (label("roadrunner"), "hashicorp.consul.internal.demo.v1.RecordLabel"),
        (executive("ceo"), "hashicorp.consul.internal.demo.v1.Executive"),
    ] {
        let mut broken = resource;
        // A string of 127 bytes, of which there is one.
        broken.data.as_mut().unwrap().value = vec![0x0a, 0x7f, b'x'];
        let service = service();
        for result in [
            service.put(broken.clone()).await.map(drop),
            service.dry_run(broken.clone()).await.map(drop),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.code(), InvalidArgument, "{error}");
            let text = format!("resource.data is malformed (expected=\"{message}\")");
            assert!(error.message().starts_with(&text), "{error}");
        }
        assert!(service.get(&id(&broken)).await.is_err());
    }
}

/// Spec: RS31
#[tokio::test]
async fn resources_may_have_no_data() {
    let concept =
        pb::Resource::new(Id::new(v1::Concept::resource_type(), demo::default_tenancy(), "jazz"));
    let stored = service().put(concept).await.unwrap();
    assert_eq!(stored.data, None);
}

/// Spec: RS32
#[tokio::test]
async fn an_owner_cannot_be_added_changed_or_removed() {
    let service = service();
    let owner = service.put(artist("owner")).await.unwrap();
    let stored = service.put(artist("korn")).await.unwrap();
    let owned = pb::Resource { owner: owner.id.clone(), ..pb::Resource::clone(&stored) };
    assert_fails(service.put(owned).await, InvalidArgument, "owner cannot be changed");

    let owned =
        service.put(pb::Resource { owner: owner.id.clone(), ..artist("muse") }).await.unwrap();
    let orphan = pb::Resource { owner: None, ..pb::Resource::clone(&owned) };
    assert_fails(service.put(orphan).await, InvalidArgument, "owner cannot be changed");
}

/// Spec: RS33
#[tokio::test]
async fn an_owner_with_a_uid_is_taken_as_it_is() {
    let made_up = id(&artist("nobody")).with_uid("made-up");
    let owned = pb::Resource { owner: Some(made_up.clone()), ..artist("korn") };
    assert_eq!(service().put(owned).await.unwrap().owner, Some(made_up));
}

/// Spec: RS34
#[tokio::test]
async fn an_owner_without_a_uid_is_looked_up() {
    let service = service();
    let owned = pb::Resource { owner: Some(id(&artist("owner"))), ..artist("korn") };
    assert_fails(
        service.put(owned.clone()).await,
        InvalidArgument,
        "resource.owner does not exist",
    );
    let owner = service.put(artist("owner")).await.unwrap();
    assert_eq!(service.put(owned).await.unwrap().owner, owner.id);
}

/// Spec: RS35
#[tokio::test]
async fn an_owners_uid_may_be_left_out_of_updates() {
    let service = service();
    let owner = service.put(artist("owner")).await.unwrap();
    let owned =
        service.put(pb::Resource { owner: owner.id.clone(), ..artist("korn") }).await.unwrap();
    let blank = pb::Resource {
        owner: owned.owner.clone().map(Id::without_uid),
        ..pb::Resource::clone(&owned)
    };
    assert_eq!(service.put(blank).await.unwrap().owner, owner.id);
}

/// Spec: RS36
#[tokio::test]
async fn the_hooks_of_a_type_mutate() {
    let mut unstated = demo::artist("korn");
    unstated.data.set_genre(v2::Genre::Unspecified);
    let stored = service().put(unstated.encode()).await.unwrap();
    assert_eq!(decode_data::<v2::Artist>(&stored).unwrap().genre(), v2::Genre::Disco);
    let dry = service().dry_run(unstated.encode()).await.unwrap();
    assert_eq!(decode_data::<v2::Artist>(&dry).unwrap().genre(), v2::Genre::Disco);
}

#[tokio::test]
async fn a_write_without_version_keeps_finalizers_it_does_not_name() {
    let service = service();
    let mut held = artist("korn");
    held.add_finalizer("f1");
    service.put(held).await.unwrap();
    let kept = service.put(artist("korn")).await.unwrap();
    assert_eq!(kept.metadata[FINALIZERS], "f1");
    let mut cleared = artist("korn");
    cleared.metadata.insert(FINALIZERS.to_owned(), String::new());
    assert!(!service.put(cleared).await.unwrap().has_finalizers());
}
