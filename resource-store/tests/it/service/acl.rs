//! Permissions, by the key rules of the demo types and by the default ones.

use resource_store::{
    Code::{NotFound, PermissionDenied},
    Registration, Registry, Resource, ResourceData as _, ResourceService, Scope,
    acl::{Access, SameForAll, StaticRules},
    backend::memory::MemoryBackend,
    demo::{self, v1, v2},
    pb::{self, Type},
};

use crate::support::*;

fn rules(access: Access) -> StaticRules {
    no_rules().with_key_prefix("resource/", access)
}

/// A store with an artist and a label, which nobody had to ask for.
async fn seeded() -> (MemoryBackend, pb::Resource, pb::Resource) {
    let backend = MemoryBackend::new();
    let open = builder_over(std::sync::Arc::new(backend.clone())).build();
    let artist = open.put(artist("korn")).await.unwrap();
    let label = open.put(label("roadrunner")).await.unwrap();
    (backend, pb::Resource::clone(&artist), pb::Resource::clone(&label))
}

/// Spec: RS43
#[tokio::test]
async fn denied_reads_do_not_tell_what_exists() {
    let (backend, korn, _) = seeded().await;
    let service = service_with_rules(&backend, no_rules());
    let text = denied("key:read", "resource/demo.v2.Artist/korn");
    assert_fails(service.get(&id(&korn)).await, PermissionDenied, &text);
    let text = denied("key:read", "resource/demo.v2.Artist/absent");
    assert_fails(service.get(&id(&artist("absent"))).await, PermissionDenied, &text);
}

/// Spec: RS44
#[tokio::test]
async fn permitted_reads_tell() {
    let (backend, korn, _) = seeded().await;
    let service = service_with_rules(&backend, rules(Access::Read));
    assert_eq!(*service.get(&id(&korn)).await.unwrap(), korn);
    assert_fails(service.get(&id(&artist("absent"))).await, NotFound, "resource not found");
}

/// Spec: RS45
#[tokio::test]
async fn hooks_that_need_the_resource_decide_late() {
    let (backend, _, roadrunner) = seeded().await;
    let service = service_with_rules(&backend, no_rules());
    assert_fails(service.get(&id(&label("absent"))).await, NotFound, "resource not found");
    let text = denied("key:read", "resource/demo.v1.RecordLabel/roadrunner");
    assert_fails(service.get(&id(&roadrunner)).await, PermissionDenied, &text);
    let service = service_with_rules(&backend, rules(Access::Read));
    assert_eq!(*service.get(&id(&roadrunner)).await.unwrap(), roadrunner);
}

/// Spec: RS46
#[tokio::test]
async fn changes_need_the_permission_to_write() {
    let (backend, korn, _) = seeded().await;
    let service = service_with_rules(&backend, rules(Access::List));
    let text = denied("key:write", "resource/demo.v2.Artist/korn");
    assert_fails(service.put(artist("korn")).await, PermissionDenied, &text);
    assert_fails(service.dry_run(artist("korn")).await, PermissionDenied, &text);
    assert_fails(service.remove(&id(&korn), "").await, PermissionDenied, &text);
    let status = service.set_status(&id(&korn), "", "key", status_of(&korn)).await;
    assert_fails(status, PermissionDenied, &text);

    let service = service_with_rules(&backend, rules(Access::Write));
    service.put(artist("korn")).await.unwrap();
    service.remove(&id(&korn), "").await.unwrap();
}

/// Spec: RS47
#[tokio::test]
async fn lists_need_the_permission_to_list() {
    let (backend, ..) = seeded().await;
    let service = service_with_rules(&backend, rules(Access::Read));
    let text = denied("key:list", "resource/demo.v2.Artist");
    assert_fails(service.all::<v2::Artist>("").await, PermissionDenied, &text);
    assert_fails(service.follow::<v2::Artist>(None).await.map(drop), PermissionDenied, &text);
}

/// Spec: RS48
#[tokio::test]
async fn lists_leave_out_what_may_not_be_read() {
    let (backend, korn, _) = seeded().await;
    let no_items = rules(Access::List).with_key_prefix("resource/demo.v2.Artist/", Access::Deny);
    for (rules, expected) in [(no_items, vec![]), (rules(Access::List), vec![korn])] {
        let service = service_with_rules(&backend, rules);
        let found = service.all::<v2::Artist>("").await.unwrap();
        assert_eq!(found.iter().map(|r| (**r).clone()).collect::<Vec<_>>(), expected);
        let mut watch = service.follow::<v2::Artist>(None).await.unwrap();
        let seen = snapshot(&mut watch).await;
        assert_eq!(seen.iter().map(|r| (**r).clone()).collect::<Vec<_>>(), expected);
    }
}

/// Spec: RS49
#[tokio::test]
async fn children_show_by_the_permission_on_their_own_type() {
    let (backend, korn, _) = seeded().await;
    let open = service_with_rules(&backend, rules(Access::Write));
    let album = open.put(demo::album("issues", &id(&korn)).encode()).await.unwrap();
    let no_albums = rules(Access::List).with_key_prefix("resource/demo.v2.Album", Access::Deny);
    let service = service_with_rules(&backend, no_albums);
    assert!(service.children(&id(&korn)).await.unwrap().is_empty());
    let service = service_with_rules(&backend, rules(Access::List));
    assert_eq!(service.children(&id(&korn)).await.unwrap(), [album]);
    let service = service_with_rules(&backend, no_rules());
    let text = denied("key:list", "resource/demo.v2.Artist");
    assert_fails(service.children(&id(&korn)).await, PermissionDenied, &text);
}

/// Spec: RS50
#[tokio::test]
async fn default_hooks_ask_for_operator_permissions() {
    let ty = Type::new("test", "v1", "Plain");
    let service_with = |access: Access| {
        let mut registry = Registry::new().unwrap();
        let schema = v1::Concept::schema().unwrap();
        registry.register(Registration::new(ty.clone(), schema, Scope::Namespace)).unwrap();
        let backend = std::sync::Arc::new(MemoryBackend::new());
        ResourceService::builder(registry, backend)
            .authorization(SameForAll::new(no_rules().with_operator(access)))
            .build()
    };
    let plain = pb::Resource::new(pb::Id::new(ty.clone(), demo::default_tenancy(), "x"));
    let list = pb::ListRequest {
        r#type: Some(ty.clone()),
        tenancy: Some(demo::default_tenancy()),
        name_prefix: String::new(),
    };

    let none = service_with(Access::Deny);
    let denied = |permission: &str| {
        format!(
            "Permission denied: anonymous token lacks permission 'operator:{permission}'. The \
             anonymous token is used implicitly when a request does not specify a token."
        )
    };
    let read = denied("read");
    assert_fails(none.get(&id(&plain)).await, PermissionDenied, &read);
    let listed = none.list(&anonymous(), list.clone()).await;
    assert_fails(listed, PermissionDenied, &read);

    let reader = service_with(Access::Read);
    assert_fails(reader.get(&id(&plain)).await, NotFound, "resource not found");
    assert!(reader.list(&anonymous(), list).await.unwrap().is_empty());
    assert_fails(reader.put(plain.clone()).await, PermissionDenied, &denied("write"));
    service_with(Access::Write).put(plain).await.unwrap();
}

/// A failing token system is no denial.
#[tokio::test]
async fn a_token_that_cannot_be_looked_up_is_an_internal_failure() {
    let service = builder().authorization(resource_store::acl::StaticTokens::default()).build();
    let context = anonymous().with_token("unknown".to_owned().into());
    let korn = Resource::<v2::Artist>::new(demo::default_tenancy(), "korn", v2::Artist::default());
    let result = service.read(&context, pb::ReadRequest { id: Some(korn.id) }).await;
    assert_fails(
        result,
        resource_store::Code::Internal,
        "failed getting authorizer: ACL not found",
    );
}
