//! Deleting, finalizers and tombstones.

use resource_store::{
    Code::{Aborted, InvalidArgument},
    Parity, ResourceData as _, decode_data,
    metadata::DELETION_TIMESTAMP,
    pb::{self, Id, Tenancy, Tombstone},
    registry::tombstone_type,
};

use crate::support::*;

fn tombstone_id(of: &pb::Resource) -> Id {
    let name = format!("tombstone-{}-{}", of.name(), of.uid().to_lowercase());
    Id::new(tombstone_type(), id(of).tenancy.unwrap(), &name)
}

async fn tombstones(service: &resource_store::ResourceService) -> usize {
    let request = pb::ListRequest {
        r#type: Some(tombstone_type()),
        tenancy: Some(Tenancy::new("*", "*")),
        name_prefix: String::new(),
    };
    service.list(&anonymous(), request).await.unwrap().len()
}

/// Spec: RS51
#[tokio::test]
async fn every_form_of_delete_leaves_a_tombstone() {
    for (with_uid, with_version) in [(true, true), (false, true), (true, false), (false, false)] {
        let service = service();
        let stored = service.put(artist("korn")).await.unwrap();
        let target = if with_uid { id(&stored) } else { id(&stored).without_uid() };
        let version = if with_version { stored.version.as_str() } else { "" };
        service.remove(&target, version).await.unwrap();
        assert!(service.get(&id(&stored)).await.is_err());
        let tombstone = service.get(&tombstone_id(&stored)).await.unwrap();
        assert_eq!(decode_data::<Tombstone>(&tombstone).unwrap().owner, stored.id);
        assert!(tombstone.metadata.contains_key("generated_at"));
    }
}

/// Spec: RS52
#[tokio::test]
async fn deleting_what_is_not_there_is_fine() {
    for (uid, version) in [("u", "v"), ("", "v"), ("u", ""), ("", "")] {
        let service = service();
        service.remove(&id(&artist("korn")).with_uid(uid), version).await.unwrap();
        assert_eq!(tombstones(&service).await, 0);
    }
}

/// Spec: RS53
#[tokio::test]
async fn a_wrong_version_aborts_a_delete() {
    let service = service();
    let stored = service.put(artist("korn")).await.unwrap();
    assert_fails(service.remove(&id(&stored), "wrong").await, Aborted, CAS_FAILED);
    assert!(service.get(&id(&stored)).await.is_ok());
}

/// A version is compared though no uid is given, or finalizers hold the
/// resource back, unless the service does as Consul does.
#[tokio::test]
async fn a_version_always_counts() {
    for parity in [Parity::Corrected, Parity::Upstream] {
        let service = builder().parity(parity).build();
        let mut held = artist("held");
        held.add_finalizer("f1");
        let held = service.put(held).await.unwrap();
        let free = service.put(artist("free")).await.unwrap();
        for (target, left) in [(id(&held), true), (id(&free).without_uid(), false)] {
            let result = service.remove(&target, "wrong").await;
            if parity == Parity::Corrected {
                assert_fails(result, Aborted, CAS_FAILED);
                assert!(!service.get(&target).await.unwrap().is_marked_for_deletion());
            } else {
                result.unwrap();
                assert_eq!(service.get(&target).await.is_ok(), left);
            }
        }
    }
}

/// Spec: RS54
#[tokio::test]
async fn a_deleted_tombstone_leaves_none() {
    let service = service();
    let stored = service.put(artist("korn")).await.unwrap();
    service.remove(&id(&stored), "").await.unwrap();
    assert_eq!(tombstones(&service).await, 1);
    service.remove(&tombstone_id(&stored), "").await.unwrap();
    assert_eq!(tombstones(&service).await, 0);
}

async fn marked(service: &resource_store::ResourceService, finalizers: &[&str]) -> pb::Resource {
    let mut held = artist("korn");
    for name in finalizers {
        held.add_finalizer(name);
    }
    let stored = service.put(held).await.unwrap();
    service.remove(&id(&stored), "").await.unwrap();
    pb::Resource::clone(&*service.get(&id(&stored)).await.unwrap())
}

/// Spec: RS55
#[tokio::test]
async fn finalizers_hold_a_delete_back() {
    let service = service();
    let first = marked(&service, &["f1"]).await;
    assert!(first.metadata[DELETION_TIMESTAMP].ends_with('Z'));
    service.remove(&id(&first), "").await.unwrap();
    let second = service.get(&id(&first)).await.unwrap();
    assert_eq!(second.version, first.version);
    assert_eq!(tombstones(&service).await, 0);
}

/// What the write answers is what is stored, until the delete.
///
/// Spec: RS56, D11
#[tokio::test]
async fn the_last_finalizer_and_a_delete_end_it() {
    for parity in [Parity::Corrected, Parity::Upstream] {
        let service = builder().parity(parity).build();
        let mut resource = marked(&service, &["f1"]).await;
        let before = resource.version.clone();
        resource.remove_finalizer("f1");
        let answer = service.put(resource.clone()).await.unwrap();
        assert_ne!(answer.version, before);
        assert_eq!(service.get(&id(&resource)).await.unwrap(), answer, "{parity:?}");
        assert_eq!(tombstones(&service).await, 0);
        service.remove(&id(&resource), "").await.unwrap();
        assert!(service.get(&id(&resource)).await.is_err());
        assert_eq!(tombstones(&service).await, 1);
    }
}

/// The helper removes the finalizer, and deletes with the last one.
///
/// Spec: D11
#[tokio::test]
async fn removing_the_last_finalizer_deletes_what_is_marked() {
    let service = service();
    let client = resource_store::LocalClient::new(service.clone());
    let held = marked(&service, &["f1", "f2"]).await;
    let remove = |name| resource_store::remove_finalizer(&client, id(&held), name);
    remove("f3").await.unwrap();
    remove("f1").await.unwrap();
    let left = service.get(&id(&held)).await.unwrap();
    assert!(left.has_finalizer("f2") && !left.has_finalizer("f1"));
    remove("f2").await.unwrap();
    assert!(service.get(&id(&held)).await.is_err());
    assert_eq!(tombstones(&service).await, 1);
    remove("f2").await.unwrap();

    // What is not marked stays.
    let mut free = artist("free");
    free.add_finalizer("f1");
    let free = service.put(free).await.unwrap();
    resource_store::remove_finalizer(&client, id(&free), "f1").await.unwrap();
    assert!(!service.get(&id(&free)).await.unwrap().has_finalizers());
}

/// Spec: RS57
#[tokio::test]
async fn finalizers_of_a_marked_resource_go_one_by_one() {
    let service = service();
    let mut resource = marked(&service, &["f1", "f2"]).await;
    resource.remove_finalizer("f2");
    let stored = service.put(resource).await.unwrap();
    assert!(stored.has_finalizer("f1") && !stored.has_finalizer("f2"));
    assert!(service.get(&id(&stored)).await.is_ok());
}

/// Spec: RS58
#[tokio::test]
async fn a_marked_resource_loses_finalizers_and_nothing_else() {
    let service = service();
    let resource = marked(&service, &["f1"]).await;
    let mut added = resource.clone();
    added.add_finalizer("f3");
    assert_fails(
        service.put(added).await,
        InvalidArgument,
        "expected at least one finalizer to be removed",
    );
    let mut unmarked = resource.clone();
    unmarked.metadata.remove(DELETION_TIMESTAMP);
    assert_fails(service.put(unmarked).await, InvalidArgument, "cannot remove deletionTimestamp");
    let same = service.put(resource).await;
    assert_fails(same, InvalidArgument, "cannot no-op write resource marked for deletion");
    let mut born_marked = artist("muse");
    born_marked.metadata.insert(DELETION_TIMESTAMP.to_owned(), "now".to_owned());
    assert_fails(
        service.put(born_marked).await,
        InvalidArgument,
        "resource.metadata.deletionTimestamp can't be set on resource creation",
    );
}

#[tokio::test]
async fn a_delete_of_another_incarnation_does_nothing() {
    let service = service();
    let stored = service.put(artist("korn")).await.unwrap();
    service.remove(&id(&stored).with_uid("other"), "").await.unwrap();
    assert_eq!(service.get(&id(&stored)).await.unwrap(), stored);
    assert_eq!(Tombstone::resource_type(), tombstone_type());
}
