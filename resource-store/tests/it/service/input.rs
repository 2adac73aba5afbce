//! What malformed requests are told.

use resource_store::{
    Code::InvalidArgument,
    RpcError,
    demo::v2,
    pb::{self, Id, ListByOwnerRequest, ListRequest, Tenancy, WatchListRequest},
};

use crate::support::*;

/// Sends an identity through every call that takes one; gives the prefix of the
/// field in each message, and what came of it.
async fn send_id(id: Option<&Id>) -> Vec<(&'static str, Result<(), RpcError>)> {
    let service = service();
    let id = id.cloned();
    let resource = Some(pb::Resource { id: id.clone(), ..artist("korn") });
    let owner = id.clone().map(|id| if id.uid.is_empty() { id.with_uid("u") } else { id });
    let at = &anonymous();
    let ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned();
    let status = pb::Status { observed_generation: ulid, ..pb::Status::default() };
    let write_status = pb::WriteStatusRequest {
        id: owner.clone(),
        key: "key".to_owned(),
        status: Some(status),
        version: String::new(),
    };
    vec![
        ("id", service.read(at, pb::ReadRequest { id: id.clone() }).await.map(drop)),
        ("id", service.delete(at, pb::DeleteRequest { id, version: String::new() }).await),
        (
            "resource.id",
            service.write(at, pb::WriteRequest { resource: resource.clone() }).await.map(drop),
        ),
        (
            "resource.id",
            service
                .mutate_and_validate(at, pb::MutateAndValidateRequest { resource })
                .await
                .map(drop),
        ),
        ("owner", service.list_by_owner(at, ListByOwnerRequest { owner }).await.map(drop)),
        ("id", service.write_status(at, write_status).await.map(drop)),
    ]
}

async fn send_list(request: ListRequest) -> Result<(), RpcError> {
    service().list(&anonymous(), request).await.map(drop)
}

async fn send_watch(request: WatchListRequest) -> Result<(), RpcError> {
    service().watch_list(&anonymous(), request).await.map(drop)
}

fn korn() -> Id {
    id(&artist("korn"))
}

/// Spec: RS1
#[tokio::test]
async fn missing_identities_are_named() {
    for (field, result) in send_id(None).await {
        assert_fails(result, InvalidArgument, &format!("{field} is required"));
    }
    let result = service().write(&anonymous(), pb::WriteRequest::default()).await;
    assert_fails(result, InvalidArgument, "resource is required");
    let result =
        service().mutate_and_validate(&anonymous(), pb::MutateAndValidateRequest::default()).await;
    assert_fails(result, InvalidArgument, "resource is required");
}

/// Spec: RS2
#[tokio::test]
async fn missing_types_are_named() {
    for (field, result) in send_id(Some(&Id { r#type: None, ..korn() })).await {
        assert_fails(result, InvalidArgument, &format!("{field}.type is required"));
    }
}

/// Spec: RS3
#[tokio::test]
async fn invalid_names_are_refused() {
    for name in ["MixedCase", &"a".repeat(64)] {
        for (field, result) in send_id(Some(&Id { name: name.to_owned(), ..korn() })).await {
            assert_fails(result, InvalidArgument, &name_invalid(&format!("{field}.name"), name));
        }
    }
    let mut results = send_id(Some(&Id { name: String::new(), ..korn() })).await;
    let (_, write_status) = results.pop().unwrap();
    assert_fails(write_status, InvalidArgument, "id.name is required");
    for (field, result) in results {
        assert_fails(result, InvalidArgument, &name_invalid(&format!("{field}.name"), ""));
    }
}

/// The field at fault, its value, and all of the tenancy.
fn bad_tenancies() -> Vec<(&'static str, String, Tenancy)> {
    let mut rows = Vec::new();
    for bad in ["Default".to_owned(), "a".repeat(64)] {
        let (partition, namespace) = (Tenancy::new(&bad, "default"), Tenancy::new("default", &bad));
        rows.push(("tenancy.partition", bad.clone(), partition));
        rows.push(("tenancy.namespace", bad, namespace));
    }
    rows
}

/// Spec: RS4
#[tokio::test]
async fn invalid_tenancy_units_are_refused() {
    let ty = || Some(korn().r#type.unwrap());
    for (unit, bad, tenancy) in bad_tenancies() {
        for (field, result) in send_id(Some(&Id { tenancy: Some(tenancy.clone()), ..korn() })).await
        {
            let expected = name_invalid(&format!("{field}.{unit}"), &bad);
            assert_fails(result, InvalidArgument, &expected);
        }
        let expected = name_invalid(unit, &bad);
        let list = ListRequest {
            r#type: ty(),
            tenancy: Some(tenancy.clone()),
            name_prefix: String::new(),
        };
        assert_fails(send_list(list).await, InvalidArgument, &expected);
        let watch =
            WatchListRequest { r#type: ty(), tenancy: Some(tenancy), name_prefix: String::new() };
        assert_fails(send_watch(watch).await, InvalidArgument, &expected);
    }
    let wild =
        [("partition", Tenancy::new("*", "default")), ("namespace", Tenancy::new("default", "*"))];
    for (unit, wild) in wild {
        for (field, result) in send_id(Some(&Id { tenancy: Some(wild.clone()), ..korn() })).await {
            let expected = name_invalid(&format!("{field}.tenancy.{unit}"), "*");
            assert_fails(result, InvalidArgument, &expected);
        }
    }
}

/// Spec: RS5
#[tokio::test]
async fn owners_are_checked_like_identities() {
    let mut rows =
        vec![("resource.owner.type is required".to_owned(), Id { r#type: None, ..korn() })];
    for name in ["", "MixedCase", &"a".repeat(64)] {
        let text = name_invalid("resource.owner.name", name);
        rows.push((text, Id { name: name.to_owned(), ..korn() }));
    }
    for (unit, bad, tenancy) in bad_tenancies() {
        let owner = Id { tenancy: Some(tenancy), ..korn() };
        rows.push((name_invalid(&format!("resource.owner.{unit}"), &bad), owner));
    }
    for (text, owner) in rows {
        let resource = pb::Resource { owner: Some(owner), ..artist("muse") };
        assert_fails(service().put(resource.clone()).await, InvalidArgument, &text);
        assert_fails(service().dry_run(resource).await, InvalidArgument, &text);
    }
}

/// Spec: RS6
#[tokio::test]
async fn an_owner_without_tenancy_does_not_exist() {
    let service = service();
    let label = service.put(artist("label")).await.unwrap();
    let owner = Id { tenancy: None, uid: String::new(), ..id(&label) };
    let result = service.put(pb::Resource { owner: Some(owner), ..artist("korn") }).await;
    assert_fails(result, InvalidArgument, "resource.owner does not exist");
}

/// Spec: RS7
#[tokio::test]
async fn partition_scoped_resources_have_no_namespace() {
    let mut wrong = id(&label("roadrunner"));
    wrong.tenancy = Some(Tenancy::new("default", "default"));
    for (_, result) in send_id(Some(&wrong)).await {
        assert_fails(
            result,
            InvalidArgument,
            "partition scoped resource demo.v1.RecordLabel cannot have a namespace. got: default",
        );
    }
    let (r#type, tenancy) = (wrong.r#type.clone(), wrong.tenancy.clone());
    let list = ListRequest {
        r#type: r#type.clone(),
        tenancy: tenancy.clone(),
        name_prefix: String::new(),
    };
    assert_fails(
        send_list(list).await,
        InvalidArgument,
        "partition scoped type demo.v1.RecordLabel cannot have a namespace. got: default",
    );
    let watch = WatchListRequest { r#type, tenancy, name_prefix: String::new() };
    assert_fails(
        send_watch(watch).await,
        InvalidArgument,
        "partition scoped resource demo.v1.RecordLabel cannot have a namespace. got: default",
    );
}

/// Spec: RS8 (and every other call, where Consul forgets it)
#[tokio::test]
async fn cluster_scoped_resources_have_no_tenancy() {
    let rows = [
        (
            Tenancy::new("default", ""),
            "cluster scoped resource demo.v1.Executive cannot have a partition: default",
        ),
        (
            Tenancy::new("", "default"),
            "cluster scoped resource demo.v1.Executive cannot have a namespace: default",
        ),
    ];
    for (tenancy, text) in rows {
        let wrong = Id { tenancy: Some(tenancy.clone()), ..id(&executive("ceo")) };
        for (_, result) in send_id(Some(&wrong)).await {
            assert_fails(result, InvalidArgument, text);
        }
        let (r#type, tenancy) = (wrong.r#type.clone(), Some(tenancy));
        let list = ListRequest {
            r#type: r#type.clone(),
            tenancy: tenancy.clone(),
            name_prefix: String::new(),
        };
        assert_fails(send_list(list).await, InvalidArgument, text);
        let watch = WatchListRequest { r#type, tenancy, name_prefix: String::new() };
        assert_fails(send_watch(watch).await, InvalidArgument, text);
    }
}

/// Spec: RS9
#[tokio::test]
async fn lists_need_type_and_tenancy() {
    let list = ListRequest { tenancy: Some(default_tenancy()), ..ListRequest::default() };
    assert_fails(send_list(list).await, InvalidArgument, "type is required");
    let list = ListRequest { r#type: korn().r#type, ..ListRequest::default() };
    assert_fails(send_list(list).await, InvalidArgument, "tenancy is required");
    let watch =
        WatchListRequest { tenancy: Some(default_tenancy()), ..WatchListRequest::default() };
    assert_fails(send_watch(watch).await, InvalidArgument, "type is required");
}

/// Spec: RS10
#[tokio::test]
async fn name_prefixes_are_lower_case() {
    let (r#type, tenancy) = (korn().r#type, Some(default_tenancy()));
    let name_prefix = "Violator".to_owned();
    let text = "name_prefix invalid: must be lowercase alphanumeric, got: Violator";
    let list = ListRequest {
        r#type: r#type.clone(),
        tenancy: tenancy.clone(),
        name_prefix: name_prefix.clone(),
    };
    assert_fails(send_list(list).await, InvalidArgument, text);
    let watch = WatchListRequest { r#type, tenancy, name_prefix };
    assert_fails(send_watch(watch).await, InvalidArgument, text);
}

/// Spec: RS11
#[tokio::test]
async fn owners_to_list_by_need_a_uid() {
    assert_fails(service().children(&korn()).await, InvalidArgument, "owner uid is required");
}

/// Spec: RS12
#[tokio::test]
async fn data_is_of_the_registered_message() {
    let album = resource_store::any(&v2::Album::default());
    let wrong = pb::Resource { data: Some(album), ..artist("korn") };
    let text = "resource.data is of wrong type (expected=\"hashicorp.consul.internal.demo.v2.Artist\", \
                got=\"hashicorp.consul.internal.demo.v2.Album\")";
    assert_fails(service().put(wrong.clone()).await, InvalidArgument, text);
    assert_fails(service().dry_run(wrong).await, InvalidArgument, text);
}

/// Spec: RS13
#[tokio::test]
async fn the_hooks_of_a_type_validate() {
    let mut nameless = resource_store::demo::artist("korn");
    nameless.data.name.clear();
    assert_fails(service().put(nameless.encode()).await, InvalidArgument, "artist.name required");
    assert_fails(
        service().dry_run(nameless.encode()).await,
        InvalidArgument,
        "artist.name required",
    );
}

/// Spec: RS14
#[tokio::test]
async fn unregistered_types_are_refused_by_every_call() {
    let text = "resource type demo.v9.Artist not registered";
    let unknown = pb::Type::new("demo", "v9", "Artist");
    for (_, result) in send_id(Some(&Id { r#type: Some(unknown.clone()), ..korn() })).await {
        assert_fails(result, InvalidArgument, text);
    }
    let (r#type, tenancy) = (Some(unknown), Some(default_tenancy()));
    let list = ListRequest {
        r#type: r#type.clone(),
        tenancy: tenancy.clone(),
        name_prefix: String::new(),
    };
    assert_fails(send_list(list).await, InvalidArgument, text);
    let watch = WatchListRequest { r#type, tenancy, name_prefix: String::new() };
    assert_fails(send_watch(watch).await, InvalidArgument, text);
}
