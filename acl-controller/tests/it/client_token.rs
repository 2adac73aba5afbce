//! The token that the clients of a cluster share.

use consul_watch::types::{AclPolicy, AclTokenRequest};

use crate::scene::{Scene, prepare, write};

crate::scene::cases![
    an_empty_secret_gets_a_token,
    what_is_there_is_left_alone,
    an_existing_policy_is_kept,
    ids_that_consul_does_not_know_are_replaced,
    a_deleted_token_is_made_again,
    an_overwritten_secret_is_put_right,
    a_secret_that_is_not_ours_or_not_there_is_an_error,
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

/// Spec: ACL1
async fn an_empty_secret_gets_a_token(scene: &Scene) {
    scene.secrets.put(secret(scene), "{}");
    prepare(&reconciler(scene)).await.unwrap();
    let (accessor, token) = scene.ids(&secret(scene)).await;
    let made = scene.token(&accessor).await.unwrap();
    assert_eq!(made.description, "ECS Consul client Token");
    assert_eq!(made.policies.len(), 1);
    assert_eq!(made.policies[0].name, policy(scene));
    let own = scene.client.with_token(Some(token.as_str().into())).unwrap();
    assert_eq!(
        own.acl_token_self(&crate::scene::read()).await.unwrap().value.accessor_id,
        accessor
    );
    let policies = scene.policies().await;
    assert_eq!(policies[&policy(scene)].description, "Consul Client Token Policy for ECS");
    assert_eq!(scene.tokens().await.len(), 1);
}

/// Spec: ACL2
async fn what_is_there_is_left_alone(scene: &Scene) {
    scene.secrets.put(secret(scene), "{}");
    prepare(&reconciler(scene)).await.unwrap();
    let before = scene.ids(&secret(scene)).await;
    assert_eq!(prepare(&reconciler(scene)).await.unwrap(), Vec::<String>::new());
    assert_eq!(scene.ids(&secret(scene)).await, before);
}

/// Spec: ACL3
async fn an_existing_policy_is_kept(scene: &Scene) {
    let mine = AclPolicy::new(policy(scene), "node_prefix \"\" { policy = \"read\" }");
    let mine = scene.client.acl_policy_create(&mine, &write()).await.unwrap();
    scene.secrets.create(secret(scene));
    prepare(&reconciler(scene)).await.unwrap();
    let kept =
        scene.client.acl_policy(&mine.id, &crate::scene::read()).await.unwrap().value.unwrap();
    assert_eq!(kept.rules, mine.rules);
    let (accessor, _) = scene.ids(&secret(scene)).await;
    assert_eq!(scene.token(&accessor).await.unwrap().policies[0].id, mine.id);
}

/// Spec: ACL4
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
    assert!(!crate::scene::pass(&reconciler).await.is_empty());
    let (accessor, _) = scene.ids(&secret(scene)).await;
    assert!(scene.token(&accessor).await.is_some());
    assert_eq!(crate::scene::pass(&reconciler).await, Vec::<String>::new());
}

async fn an_overwritten_secret_is_put_right(scene: &Scene) {
    scene.secrets.put(secret(scene), "{}");
    let reconciler = reconciler(scene);
    prepare(&reconciler).await.unwrap();
    let before = scene.ids(&secret(scene)).await;
    for text in ["{}", "nonsense", "null", ""] {
        scene.secrets.put(secret(scene), text);
        crate::scene::check(&reconciler).await;
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
