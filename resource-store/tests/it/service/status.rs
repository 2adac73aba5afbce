//! Writing statuses.

use resource_store::{
    Code::{Aborted, InvalidArgument, NotFound},
    pb::{self, Condition, Id, Reference, Status, Tenancy, Timestamp, WriteStatusRequest},
};

use crate::support::*;

fn request() -> WriteStatusRequest {
    let condition = Condition {
        r#type: "Accepted".to_owned(),
        resource: Some(id(&artist("other")).to_reference()),
        ..Condition::default()
    };
    let status = Status {
        observed_generation: "01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned(),
        conditions: vec![condition],
        updated_at: None,
    };
    WriteStatusRequest {
        id: Some(id(&artist("korn")).with_uid("u")),
        version: String::new(),
        key: "consul.io/test".to_owned(),
        status: Some(status),
    }
}

async fn refused(change: impl FnOnce(&mut WriteStatusRequest), text: &str) {
    let mut request = request();
    change(&mut request);
    assert_fails(service().write_status(&anonymous(), request).await, InvalidArgument, text);
}

fn of_id(request: &mut WriteStatusRequest) -> &mut Id {
    request.id.as_mut().unwrap()
}

fn of_status(request: &mut WriteStatusRequest) -> &mut Status {
    request.status.as_mut().unwrap()
}

fn of_reference(request: &mut WriteStatusRequest) -> &mut Reference {
    of_status(request).conditions[0].resource.as_mut().unwrap()
}

/// Spec: RS15
#[tokio::test]
async fn missing_fields_are_named() {
    refused(|r| r.id = None, "id is required").await;
    refused(|r| of_id(r).r#type = None, "id.type is required").await;
    refused(|r| of_id(r).name.clear(), "id.name is required").await;
    refused(|r| of_id(r).uid.clear(), "id.uid is required").await;
    refused(|r| r.key.clear(), "key is required").await;
    refused(|r| r.status = None, "status is required").await;
    refused(|r| of_status(r).observed_generation.clear(), "status.observed_generation is required")
        .await;
    refused(|r| of_status(r).conditions[0].r#type.clear(), "status.conditions[0].type is required")
        .await;
    refused(|r| of_reference(r).r#type = None, "status.conditions[0].resource.type is required")
        .await;
    refused(
        |r| of_reference(r).tenancy = None,
        "status.conditions[0].resource.tenancy is required",
    )
    .await;
    refused(|r| of_reference(r).name.clear(), "status.conditions[0].resource.name is required")
        .await;
}

/// Spec: RS15
#[tokio::test]
async fn wrong_values_are_refused() {
    let time = Some(Timestamp::default());
    refused(
        |r| of_status(r).updated_at = time,
        "status.updated_at is automatically set and cannot be provided",
    )
    .await;
    refused(
        |r| "bogus".clone_into(&mut of_status(r).observed_generation),
        "status.observed_generation is not valid",
    )
    .await;
    for bad in ["MixedCase".to_owned(), "a".repeat(64)] {
        let prefix = "status.conditions[0].resource";
        let text = |field| name_invalid(&format!("{prefix}.{field}"), &bad);
        refused(|r| of_reference(r).name = bad.clone(), &text("name")).await;
        refused(
            |r| of_reference(r).tenancy = Some(Tenancy::new(&bad, "default")),
            &text("tenancy.partition"),
        )
        .await;
        refused(
            |r| of_reference(r).tenancy = Some(Tenancy::new("default", &bad)),
            &text("tenancy.namespace"),
        )
        .await;
    }
}

#[tokio::test]
async fn a_later_broken_reference_replaces_an_earlier_one_in_the_message() {
    let broken = Condition {
        r#type: "Other".to_owned(),
        resource: Some(Reference::default()),
        ..Condition::default()
    };
    let nameless = Condition { r#type: String::new(), ..broken.clone() };
    let two = vec![broken.clone(), broken.clone()];
    refused(|r| of_status(r).conditions = two, "status.conditions[1].resource.type is required")
        .await;
    let ended = vec![broken.clone(), nameless, broken];
    refused(|r| of_status(r).conditions = ended, "status.conditions[1].type is required").await;
}

/// References may name resources of other scopes, which have fewer units.
#[tokio::test]
async fn references_to_other_scopes_are_fine() {
    let service = service();
    let stored = service.put(artist("korn")).await.unwrap();
    let mut status = status_of(&stored);
    for other in [label("roadrunner"), executive("ceo")] {
        status.conditions[0].resource = Some(id(&other).to_reference());
        service.set_status(&id(&stored), "", "key", status.clone()).await.unwrap();
    }
}

/// Spec: RS39
#[tokio::test]
async fn keys_are_set_one_by_one() {
    let service = service();
    let created = service.put(artist("korn")).await.unwrap();
    let first = service
        .set_status(&id(&created), &created.version, "a", status_of(&created))
        .await
        .unwrap();
    let second = service.set_status(&id(&created), "", "b", status_of(&created)).await.unwrap();
    assert_eq!(second.status.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(second.generation, created.generation);
    assert_ne!(first.version, created.version);
    assert_ne!(second.version, first.version);
    assert!(second.status.values().all(|status| status.updated_at.is_some()));
    assert_eq!(second.status["a"].conditions, status_of(&created).conditions);
}

/// Spec: RS40
#[tokio::test]
async fn wrong_versions_and_unknown_resources_fail() {
    let service = service();
    let stored = service.put(artist("korn")).await.unwrap();
    let status = || status_of(&stored);
    let wrong = service.set_status(&id(&stored), "nope", "key", status()).await;
    assert_fails(wrong, Aborted, CAS_FAILED);
    let unknown = id(&artist("muse")).with_uid(stored.uid());
    assert_fails(
        service.set_status(&unknown, "", "key", status()).await,
        NotFound,
        "resource not found",
    );
    let other = id(&stored).with_uid("other");
    assert_fails(
        service.set_status(&other, "", "key", status()).await,
        NotFound,
        "resource not found",
    );
}

/// A status of a marked resource can still be written.
#[tokio::test]
async fn marked_resources_take_statuses() {
    let service = service();
    let mut held = artist("korn");
    held.add_finalizer("f1");
    let stored = service.put(held).await.unwrap();
    service.remove(&id(&stored), "").await.unwrap();
    let marked: std::sync::Arc<pb::Resource> =
        service.set_status(&id(&stored), "", "key", status_of(&stored)).await.unwrap();
    assert!(marked.is_marked_for_deletion());
}
