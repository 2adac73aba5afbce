//! The token that the clients of a cluster share.

use std::sync::atomic::{AtomicU8, Ordering};

use acl_controller::{Reconciler as _, Writer};
use consul_watch::types::{AclLink, AclPolicy, AclTokenRequest};

use crate::scene::{ROOT, Scene, check, pass, prepare, read, shown, try_pass, write};

crate::scene::cases![
    an_empty_secret_gets_a_token,
    what_is_there_is_left_alone,
    an_existing_policy_is_kept,
    ids_that_consul_does_not_know_are_replaced,
    a_deleted_token_is_made_again,
    an_overwritten_secret_is_put_right,
    a_secret_that_is_not_ours_or_not_there_is_an_error,
    a_policy_or_a_link_that_was_deleted_comes_back,
    a_management_token_in_the_secret_is_not_taken,
    the_token_of_another_clusters_clients_is_not_taken,
    a_cleanup_finds_a_token_without_its_policy,
    a_second_token_goes_with_the_tasks_that_may_have_it,
];

fn reconciler(scene: &Scene) -> acl_controller::ServiceTokens {
    let mut settings = scene.settings();
    settings.client_secret = Some(secret(scene));
    scene.service_tokens_with(settings)
}

fn secret(scene: &Scene) -> String {
    scene.name("clients")
}

fn policy(scene: &Scene) -> String {
    format!("{}-consul-client-policy", scene.prefix)
}

/// Case ACL1: an empty secret and no policy: both policy and token are created, and the secret
/// holds the ids.
async fn an_empty_secret_gets_a_token(scene: &Scene) {
    scene.secrets.put(secret(scene), "{}");
    prepare(&reconciler(scene)).await.unwrap();
    let (accessor, token) = scene.ids(&secret(scene)).await;
    let made = scene.token(&accessor).await.unwrap();
    assert_eq!(made.description, "ECS Consul client Token");
    assert_eq!(made.policies.len(), 1);
    assert_eq!(made.policies[0].name, policy(scene));
    let own = scene.client.with_token(Some(token.as_str().into())).unwrap();
    assert_eq!(own.acl_token_self(&read()).await.unwrap().value.accessor_id, accessor);
    let policies = scene.policies().await;
    assert_eq!(policies[&policy(scene)].description, "Consul Client Token Policy for ECS");
    assert_eq!(scene.tokens().await.len(), 1);
}

/// Case ACL2: a secret with the ids of an existing token: nothing is written.
async fn what_is_there_is_left_alone(scene: &Scene) {
    scene.secrets.put(secret(scene), "{}");
    prepare(&reconciler(scene)).await.unwrap();
    let before = scene.ids(&secret(scene)).await;
    assert_eq!(prepare(&reconciler(scene)).await.unwrap(), Vec::<String>::new());
    assert_eq!(scene.ids(&secret(scene)).await, before);
}

/// Case ACL3: an existing policy and an empty secret: the policy stays, token and secret are
/// written.
async fn an_existing_policy_is_kept(scene: &Scene) {
    let mine = AclPolicy::new(policy(scene), "node_prefix \"\" { policy = \"read\" }");
    let mine = scene.client.acl_policy_create(&mine, &write()).await.unwrap();
    scene.secrets.create(secret(scene));
    prepare(&reconciler(scene)).await.unwrap();
    let kept = scene.client.acl_policy(&mine.id, &read()).await.unwrap().value.unwrap();
    assert_eq!(kept.rules, mine.rules);
    let (accessor, _) = scene.ids(&secret(scene)).await;
    assert_eq!(scene.token(&accessor).await.unwrap().policies[0].id, mine.id);
}

/// Case ACL4: a secret with ids that Consul does not know: a token is created and its ids are in
/// the secret.
async fn ids_that_consul_does_not_know_are_replaced(scene: &Scene) {
    let stale = "b6a6f3f4-7b4e-4b0e-9f1a-0d8f1f6b9c11";
    let text = format!(r#"{{"accessor_id":"{stale}","token":"{stale}"}}"#);
    scene.secrets.put(secret(scene), text);
    prepare(&reconciler(scene)).await.unwrap();
    let (accessor, token) = scene.ids(&secret(scene)).await;
    assert!(accessor != stale && token != stale);
    assert!(scene.token(&accessor).await.is_some() && scene.token(stale).await.is_none());
}

async fn a_deleted_token_is_made_again(scene: &Scene) {
    scene.secrets.put(secret(scene), "{}");
    let reconciler = reconciler(scene);
    prepare(&reconciler).await.unwrap();
    let (accessor, _) = scene.ids(&secret(scene)).await;
    scene.client.acl_token_delete(&accessor, &write()).await.unwrap();
    assert!(!pass(&reconciler).await.is_empty());
    let (accessor, _) = scene.ids(&secret(scene)).await;
    assert!(scene.token(&accessor).await.is_some());
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
}

async fn an_overwritten_secret_is_put_right(scene: &Scene) {
    scene.secrets.put(secret(scene), "{}");
    let reconciler = reconciler(scene);
    prepare(&reconciler).await.unwrap();
    let before = scene.ids(&secret(scene)).await;
    for text in ["{}", "nonsense", "null", ""] {
        scene.secrets.put(secret(scene), text);
        check(&reconciler).await;
        assert_eq!(scene.ids(&secret(scene)).await, before, "{text:?}");
    }
    assert_eq!(scene.tokens().await.len(), 1);
}

async fn a_secret_that_is_not_ours_or_not_there_is_an_error(scene: &Scene) {
    let error = prepare(&reconciler(scene)).await.unwrap_err();
    let text = consul_watch::error_chain(&error);
    assert!(text.contains(&secret(scene)) && text.contains("there is none"), "{text}");
    scene.secrets.put(secret(scene), "planted");
    let error = prepare(&reconciler(scene)).await.unwrap_err();
    let text = consul_watch::error_chain(&error);
    assert!(text.contains("unmarshalling Consul client secret value JSON"), "{text}");
    assert!(!text.contains("planted"));
    // A token that somebody else made is none of the clients'.
    let foreign = AclTokenRequest::new("ECS Consul client Token");
    let foreign = scene.client.acl_token_create(&foreign, &write()).await.unwrap();
    scene.secrets.put(secret(scene), "{}");
    prepare(&reconciler(scene)).await.unwrap();
    assert_ne!(scene.ids(&secret(scene)).await.0, foreign.accessor_id);
    scene.client.acl_token_delete(&foreign.accessor_id, &write()).await.unwrap();
}

/// A reconciler, after it has made a token. Its accessor id.
async fn made(scene: &Scene) -> (acl_controller::ServiceTokens, String) {
    scene.secrets.put(secret(scene), "{}");
    let reconciler = reconciler(scene);
    prepare(&reconciler).await.unwrap();
    let accessor = scene.ids(&secret(scene)).await.0;
    (reconciler, accessor)
}

async fn delete_policy(scene: &Scene) {
    let id = scene.policies().await[&policy(scene)].id.clone();
    scene.client.acl_policy_delete(&id, &write()).await.unwrap();
}

async fn a_policy_or_a_link_that_was_deleted_comes_back(scene: &Scene) {
    let (reconciler, accessor) = made(scene).await;
    let before = scene.ids(&secret(scene)).await;
    let create = format!("create policy {}", policy(scene));
    let update = format!("update token Consul clients ({accessor})");
    let own = scene.client.with_token(Some(before.1.as_str().into())).unwrap();
    let times = AtomicU8::new(1);
    let may_write_nodes = async || {
        // Consul asks for no right where nothing changes.
        let address = format!("10.0.0.{}", times.fetch_add(1, Ordering::Relaxed));
        let node = consul_watch::types::CatalogRegistration::new(scene.name("node"), address);
        own.catalog_register(&node).await.is_ok()
    };
    for slowly in [false, true] {
        let again =
            async || if slowly { check(&reconciler).await } else { pass(&reconciler).await };
        delete_policy(scene).await;
        assert_eq!(again().await, [create.clone(), update.clone()]);
        let bare = AclTokenRequest::new("ECS Consul client Token");
        scene.client.acl_token_update(&accessor, &bare, &write()).await.unwrap();
        assert!(!may_write_nodes().await);
        assert_eq!(again().await, std::slice::from_ref(&update));
        assert!(may_write_nodes().await);
        assert_eq!(again().await, Vec::<String>::new());
    }
    // Also when the secret was overwritten at the same time, and at the next start.
    delete_policy(scene).await;
    scene.secrets.put(secret(scene), "nonsense");
    assert_eq!(check(&reconciler).await.len(), 3);
    assert_eq!(scene.ids(&secret(scene)).await, before);
    delete_policy(scene).await;
    assert_eq!(prepare(&self::reconciler(scene)).await.unwrap(), [create, update]);
    assert!(may_write_nodes().await);
    let gone = consul_watch::types::CatalogDeregistration::node(scene.name("node"));
    scene.client.catalog_deregister(&gone).await.unwrap();
}

/// Otherwise whoever may write the secret could hand any token to all clients, or have it deleted.
async fn a_management_token_in_the_secret_is_not_taken(scene: &Scene) {
    let management = scene.client.acl_token_self(&read()).await.unwrap().value.accessor_id;
    let text = format!(r#"{{"accessor_id":"{management}","token":"{ROOT}"}}"#);
    scene.secrets.put(secret(scene), text.clone());
    let reconciler = reconciler(scene);
    prepare(&reconciler).await.unwrap();
    let own = scene.ids(&secret(scene)).await;
    assert!(own.0 != management && own.1 != ROOT);
    scene.secrets.put(secret(scene), text.clone());
    check(&reconciler).await;
    assert_eq!(scene.ids(&secret(scene)).await, own, "the clients' own is put back");
    scene.secrets.put(secret(scene), text);
    reconciler.cleanup(&Writer::new(), false).await.unwrap();
    assert!(scene.token(&management).await.is_some());
    assert!(scene.tokens().await.is_empty());
}

async fn the_token_of_another_clusters_clients_is_not_taken(scene: &Scene) {
    let mut other = scene.settings();
    other.secret_prefix = scene.name("other");
    other.client_secret = Some(secret(scene));
    let other = scene.service_tokens_with(other);
    scene.secrets.put(secret(scene), "{}");
    prepare(&other).await.unwrap();
    let theirs = scene.ids(&secret(scene)).await;
    let own = reconciler(scene);
    let text = consul_watch::error_chain(&prepare(&own).await.unwrap_err());
    assert!(text.contains("give each cluster a secret of its own"), "{text}");
    assert_eq!(scene.ids(&secret(scene)).await, theirs);
    own.cleanup(&Writer::new(), false).await.unwrap();
    assert!(scene.token(&theirs.0).await.is_some());
    other.cleanup(&Writer::new(), false).await.unwrap();
    assert!(scene.token(&theirs.0).await.is_none());
}

async fn a_cleanup_finds_a_token_without_its_policy(scene: &Scene) {
    let (_, accessor) = made(scene).await;
    delete_policy(scene).await;
    let cleaning = reconciler(scene);
    let writer = Writer::dry_run();
    cleaning.cleanup(&writer, false).await.unwrap();
    let expected = [format!("delete token Consul clients ({accessor})")];
    assert_eq!(shown(writer), expected);
    assert!(scene.token(&accessor).await.is_some(), "it was a dry run");
    let writer = Writer::new();
    assert!(cleaning.cleanup(&writer, false).await.unwrap().is_complete());
    assert_eq!(shown(writer), expected);
    assert!(scene.token(&accessor).await.is_none());
}

/// What a crash between two steps, or a hand, may leave.
async fn a_second_token_goes_with_the_tasks_that_may_have_it(scene: &Scene) {
    let (reconciler, accessor) = made(scene).await;
    let mut second = AclTokenRequest::new("ECS Consul client Token");
    second.policies.push(AclLink::name(policy(scene)));
    let second = scene.client.acl_token_create(&second, &write()).await.unwrap().accessor_id;
    let web = scene.name("web");
    scene.secret(&web);
    let task = scene.start("t1", &web);
    pass(&reconciler).await;
    assert_eq!(pass(&reconciler).await, Vec::<String>::new(), "a task may have it");
    scene.start("t2", &web);
    scene.tasks.remove(&task);
    let (report, changes) = try_pass(&reconciler, false).await;
    assert!(report.is_complete());
    assert_eq!(changes, [format!("delete token Consul clients ({second})")]);
    assert!(scene.token(&accessor).await.is_some() && scene.token(&second).await.is_none());
}
