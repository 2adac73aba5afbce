//! What lists do not show is found by the slower check.

use std::sync::Arc;

use acl_controller::ServiceTokens;

use crate::{
    noted_secrets::{Calls, NotedSecrets},
    scene::{Running, Scene, chains, check, pass, read, try_pass, write},
};

crate::scene::cases![
    an_overwritten_secret_is_put_right,
    ids_of_another_token_are_not_taken,
    a_secret_that_was_deleted_is_filled_when_it_is_back,
    changed_rules_are_repaired,
    a_normal_pass_reads_no_secret,
    a_store_that_cannot_list_is_read,
    a_second_token_goes_with_the_tasks_that_may_have_it,
];

async fn an_overwritten_secret_is_put_right(scene: &Scene) {
    let Running { secret, reconciler, .. } = scene.running().await;
    let before = scene.ids(&secret).await;
    let other = uuid::Uuid::new_v4().to_string();
    let half = format!(r#"{{"accessor_id":"{}","token":"{other}"}}"#, before.0);
    let foreign = format!(r#"{{"accessor_id":"{other}","token":"{other}"}}"#);
    for text in ["{}", "nonsense", "", "null", &half, &foreign] {
        scene.secrets.put(&secret, text);
        assert_eq!(pass(&reconciler).await, Vec::<String>::new(), "lists do not show it");
        assert_eq!(check(&reconciler).await, [format!("update secret {secret}")], "{text:?}");
        assert_eq!(scene.ids(&secret).await, before, "{text:?}");
    }
    assert_eq!(scene.tokens().await.len(), 1);
    // So does a controller that was not there when the token was made.
    scene.secrets.put(&secret, "nonsense");
    check(&scene.service_tokens()).await;
    assert_eq!(scene.ids(&secret).await, before);
}

/// Otherwise whoever may write the secret could hand any token to the tasks, or have it deleted.
async fn ids_of_another_token_are_not_taken(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let own = scene.client.acl_token_self(&read()).await.unwrap().value;
    let management = own.accessor_id;
    let text = format!(r#"{{"accessor_id":"{management}","token":"{}"}}"#, crate::scene::ROOT);
    scene.secrets.put(&secret, text.clone());
    let task = scene.start("1", &web);
    pass(&scene.service_tokens()).await;
    assert_ne!(scene.ids(&secret).await.0, management);
    assert_eq!(scene.tokens().await.len(), 1);
    // A token's secret under another accessor id is refused by Consul, and gets new ids too.
    let other = uuid::Uuid::new_v4().to_string();
    scene.tasks.remove(&task);
    pass(&scene.service_tokens()).await;
    let text = format!(r#"{{"accessor_id":"{other}","token":"{}"}}"#, crate::scene::ROOT);
    scene.secrets.put(&secret, text);
    scene.start("1", &web);
    pass(&scene.service_tokens()).await;
    assert_ne!(scene.ids(&secret).await.1, crate::scene::ROOT);
    assert!(scene.token(&management).await.is_some());
}

async fn a_secret_that_was_deleted_is_filled_when_it_is_back(scene: &Scene) {
    let Running { web, secret, reconciler, .. } = scene.running().await;
    let before = scene.ids(&secret).await;
    scene.secrets.remove(&secret);
    let (report, _) = try_pass(&reconciler, true).await;
    assert!(chains(&report)[0].contains("there is none"), "{:?}", chains(&report));
    scene.secret(&web);
    // It does not take a check to find it back.
    for _ in 0..7 {
        pass(&reconciler).await;
    }
    assert_eq!(scene.ids(&secret).await, before);
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
}

async fn changed_rules_are_repaired(scene: &Scene) {
    let Running { web, reconciler, .. } = scene.running().await;
    check(&reconciler).await;
    let name = format!("{web}-service");
    let policy =
        async || scene.client.acl_policy_by_name(&name, &read()).await.unwrap().value.unwrap();
    let right = policy().await.rules;
    let mut wrong = policy().await;
    wrong.rules = "operator = \"write\"".into();
    scene.client.acl_policy_update(&wrong, &write()).await.unwrap();
    assert_eq!(check(&reconciler).await, [format!("update policy {name}")]);
    assert_eq!(policy().await.rules, right);
    assert_eq!(check(&reconciler).await, Vec::<String>::new());
    scene.client.acl_policy_update(&wrong, &write()).await.unwrap();
    assert_eq!(check(&reconciler).await, [format!("update policy {name}")], "and once more");
}

fn counting(scene: &Scene, lists: bool) -> (Calls, ServiceTokens) {
    let calls = Calls::default();
    let inner = Arc::clone(&scene.secrets);
    let secrets = Arc::new(NotedSecrets { inner, calls: Arc::clone(&calls), lists });
    (calls, scene.service_tokens_of(Arc::new(scene.tasks.clone()), secrets, scene.settings()))
}

/// How often a secret was read since the last time.
fn reads(calls: &Calls) -> usize {
    let calls = std::mem::take(&mut *calls.lock().unwrap());
    calls.iter().filter(|call| call.starts_with("secret get ")).count()
}

async fn a_normal_pass_reads_no_secret(scene: &Scene) {
    let (web, api) = (scene.name("web"), scene.name("api"));
    for service in [&web, &api] {
        scene.secret(service);
        scene.start(service, service);
    }
    pass(&scene.service_tokens()).await;
    let (calls, reconciler) = counting(scene, true);
    let reads = || reads(&calls);
    pass(&reconciler).await;
    assert_eq!(reads(), 0, "also of a controller that has just started");
    check(&reconciler).await;
    assert_eq!(reads(), 2, "the first check knows none");
    check(&reconciler).await;
    assert_eq!(reads(), 0, "the list says that they are as they were");
    scene.secrets.put(format!("{}-{web}", scene.prefix), "{}");
    pass(&reconciler).await;
    assert_eq!(reads(), 0);
    check(&reconciler).await;
    assert_eq!(reads(), 1, "only the one that changed");
}

async fn a_store_that_cannot_list_is_read(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    scene.start("1", &web);
    let (calls, reconciler) = counting(scene, false);
    pass(&reconciler).await;
    let before = scene.ids(&secret).await;
    reads(&calls);
    pass(&reconciler).await;
    assert_eq!(reads(&calls), 0);
    scene.secrets.put(&secret, "{}");
    check(&reconciler).await;
    assert_eq!(scene.ids(&secret).await, before);
}

async fn a_second_token_goes_with_the_tasks_that_may_have_it(scene: &Scene) {
    let Running { web, secret, task: old_task, reconciler } = scene.running().await;
    let own = scene.ids(&secret).await.0;
    let own_token = scene.token(&own).await.unwrap();
    let mut second = consul_watch::types::AclTokenRequest::new(own_token.description);
    second.policies = own_token.policies;
    let second = scene.client.acl_token_create(&second, &write()).await.unwrap().accessor_id;
    assert_eq!(pass(&reconciler).await, Vec::<String>::new(), "a task may have it");
    scene.start("2", &web);
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
    scene.tasks.remove(&old_task);
    assert_eq!(pass(&reconciler).await, [format!("delete token {web} ({second})")]);
    assert!(scene.token(&own).await.is_some() && scene.token(&second).await.is_none());
    assert_eq!(scene.ids(&secret).await.0, own);
}
