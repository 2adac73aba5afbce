//! Tenancy units that are left out, unknown, or on their way out.

use resource_store::{
    Code::InvalidArgument,
    StaticTenancies,
    demo::{v1, v2},
    pb::{self, Id, ListRequest, Tenancy},
};

use crate::support::*;

fn partial_tenancies() -> Vec<(pb::Resource, Option<Tenancy>)> {
    vec![
        (artist("korn"), Some(Tenancy::new("", "default"))),
        (artist("korn"), Some(Tenancy::new("default", ""))),
        (artist("korn"), Some(Tenancy::new("", ""))),
        (artist("korn"), None),
        (label("roadrunner"), Some(Tenancy::new("", ""))),
        (label("roadrunner"), None),
    ]
}

/// Spec: RS16
#[tokio::test]
async fn missing_units_mean_the_default() {
    for (resource, tenancy) in partial_tenancies() {
        let full = id(&resource).tenancy;
        let partial = pb::Resource {
            id: Some(Id { tenancy: tenancy.clone(), ..id(&resource) }),
            ..resource.clone()
        };
        let service = service();
        assert_eq!(id(&service.dry_run(partial.clone()).await.unwrap()).tenancy, full);
        let stored = service.put(partial.clone()).await.unwrap();
        assert_eq!(id(&stored).tenancy, full);
        assert_eq!(service.get(&id(&partial)).await.unwrap(), stored);

        let with_uid = Id { tenancy, ..id(&stored) };
        let child = pb::Resource { owner: stored.id.clone(), ..artist("child") };
        let child = service.put(child).await.unwrap();
        assert_eq!(service.children(&with_uid).await.unwrap(), [child]);
        let changed = service.set_status(&with_uid, "", "key", status_of(&stored)).await.unwrap();
        assert_eq!(id(&changed).tenancy, full);
        service.remove(&id(&partial), "").await.unwrap();
        assert!(service.get(&id(&stored)).await.is_err());
    }
}

/// Spec: RS17
#[tokio::test]
async fn lists_and_watches_default_what_they_leave_out() {
    let namespaced = [("", "default"), ("default", ""), ("", ""), ("*", ""), ("", "*")];
    let partitioned = [("", ""), ("*", ""), ("*", "*")];
    let clustered = [("", ""), ("*", "*")];
    // The same type elsewhere: an empty unit is the default one, and not any.
    let others = [elsewhere("foo", "bar"), elsewhere("default", "other"), {
        let mut label = label("roadrunner");
        label.id.as_mut().unwrap().tenancy = Some(Tenancy::new("foo", ""));
        label
    }];
    let mut rows = Vec::new();
    rows.extend(namespaced.map(|units| (artist("korn"), units)));
    rows.extend(partitioned.map(|units| (label("roadrunner"), units)));
    rows.extend(clustered.map(|units| (executive("ceo"), units)));
    for (resource, (partition, namespace)) in rows {
        let tenancies = StaticTenancies::default()
            .with_namespace("foo", "bar")
            .with_namespace("default", "other");
        let service = builder().tenancies(tenancies).build();
        let stored = service.put(resource.clone()).await.unwrap();
        let r#type = id(&resource).r#type;
        let mut expected = vec![stored];
        for other in &others {
            let other = service.put(other.clone()).await.unwrap();
            let matches = |asked: &str, unit: &str| {
                asked == "*" || unit == if asked.is_empty() { "default" } else { asked }
            };
            let other_id = id(&other);
            let partitioned = other_id.namespace().is_empty();
            if other_id.r#type == r#type
                && matches(partition, other_id.partition())
                && (partitioned || matches(namespace, other_id.namespace()))
            {
                expected.push(other);
            }
        }
        let tenancy = Some(Tenancy::new(partition, namespace));
        let list = ListRequest {
            r#type: r#type.clone(),
            tenancy: tenancy.clone(),
            name_prefix: String::new(),
        };
        let found = service.list(&anonymous(), list).await.unwrap();
        assert_eq!(found, expected, "list {partition}/{namespace}");
        let watch = pb::WatchListRequest { r#type, tenancy, name_prefix: String::new() };
        let mut watch = service.watch_list(&anonymous(), watch).await.unwrap();
        assert_eq!(snapshot(&mut watch).await, expected, "watch {partition}/{namespace}");
    }
}

/// Spec: RS18
#[tokio::test]
async fn a_watch_without_tenancy_sees_every_partition() {
    let service = service();
    let here = service.put(label("here")).await.unwrap();
    let mut elsewhere = label("there");
    elsewhere.id.as_mut().unwrap().tenancy = Some(Tenancy::new("foo", ""));
    let there = service.put(elsewhere).await.unwrap();
    let mut watch = service.follow::<v1::RecordLabel>(None).await.unwrap();
    assert_eq!(snapshot(&mut watch).await, [here, there]);
}

fn elsewhere(partition: &str, namespace: &str) -> pb::Resource {
    let mut resource = artist("korn");
    resource.id.as_mut().unwrap().tenancy = Some(Tenancy::new(partition, namespace));
    resource
}

/// Spec: RS19
#[tokio::test]
async fn writes_into_unknown_tenancies_are_refused() {
    let rows = [
        (elsewhere("bogus", "default"), "partition not found: bogus"),
        (elsewhere("default", "bogus"), "namespace not found: bogus"),
    ];
    for (resource, text) in rows {
        assert_fails(service().put(resource.clone()).await, InvalidArgument, text);
        assert_fails(service().dry_run(resource).await, InvalidArgument, text);
    }
}

#[tokio::test]
async fn reads_of_unknown_tenancies_find_nothing() {
    let result = service().get(&id(&elsewhere("bogus", "default"))).await;
    assert_fails(result, resource_store::Code::NotFound, "partition not found: bogus");
    let unknown = id(&elsewhere("default", "bogus"));
    service().remove(&unknown, "").await.unwrap();
    let status = pb::Status {
        observed_generation: "01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned(),
        ..Default::default()
    };
    let result = service().set_status(&unknown.with_uid("u"), "", "key", status).await;
    assert_fails(result, InvalidArgument, "namespace not found: bogus");
}

/// Spec: RS20
#[tokio::test]
async fn owners_in_unknown_tenancies_own_nothing() {
    for (partition, namespace) in [("bogus", "default"), ("default", "bogus")] {
        let owner = id(&elsewhere(partition, namespace)).with_uid("u");
        assert_eq!(service().children(&owner).await.unwrap(), []);
    }
}

/// Spec: RS21
#[tokio::test]
async fn nothing_is_created_where_all_is_to_go() {
    let rows = [
        (elsewhere("going", "default"), "tenancy marked for deletion: going/default"),
        (elsewhere("default", "going"), "tenancy marked for deletion: default/going"),
        (
            pb::Resource {
                id: Some(Id { tenancy: Some(Tenancy::new("going", "")), ..id(&label("x")) }),
                ..label("x")
            },
            "tenancy marked for deletion: going/",
        ),
    ];
    for (resource, text) in rows {
        let tenancies = StaticTenancies::default()
            .with_namespace("going", "default")
            .with_marked_partition("going")
            .with_marked_namespace("default", "going");
        let service = builder().tenancies(tenancies).build();
        assert_fails(service.put(resource.clone()).await, InvalidArgument, text);
        assert_fails(service.dry_run(resource).await, InvalidArgument, text);
    }
    assert!(service().all::<v2::Artist>("").await.unwrap().is_empty());
}
