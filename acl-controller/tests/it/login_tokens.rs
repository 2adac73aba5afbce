//! Clean-up of tokens and services whose tasks are gone.

use std::time::Duration;

use acl_controller::{LoginTokenSettings, Reconciler as _, Writer};
use consul_watch::{
    client::Request,
    types::{AclTokenRequest, CatalogDeregistration, CatalogRegistration, Service},
};
use serde_json::json;

use crate::scene::{Scene, pass, read, shown, try_pass, write};

crate::scene::cases![
    without_tasks_and_tokens_there_is_nothing_to_do,
    tasks_and_tokens_of_others_are_ignored,
    tokens_without_tasks_are_deleted,
    tasks_without_tokens_are_looked_at,
    tasks_with_tokens_and_services_keep_them,
    services_and_tokens_of_a_task_that_is_gone_are_removed,
    a_node_that_was_removed_is_registered_again,
    a_running_task_that_lost_its_tag_keeps_nothing,
    a_token_with_the_clusters_name_is_removed_too,
    a_dry_run_removes_nothing,
    a_cleanup_takes_tokens_services_and_node,
];

async fn services(scene: &Scene, node: &str) -> Vec<String> {
    let node = scene.client.catalog_node(node, &read()).await.unwrap().value;
    node.map(|node| node.services.into_keys().collect()).unwrap_or_default()
}

async fn register(scene: &Scene, node: &str, id: &str, task: &str) {
    let mut service = Service::new("web", id);
    service.meta.insert("task-id".to_owned(), task.to_owned());
    // As mesh-init does it: a node that is there stays as it is.
    let mut registration = CatalogRegistration::new(node, "10.0.0.9").with_service(service);
    registration.skip_node_update =
        scene.client.catalog_node(node, &read()).await.unwrap().value.is_some();
    scene.client.catalog_register(&registration).await.unwrap();
}

/// Case ACL24: without tasks and tokens the state is empty.
/// Case ACL32: nothing of a task to remove: no error.
async fn without_tasks_and_tokens_there_is_nothing_to_do(scene: &Scene) {
    let reconciler = scene.login_tokens();
    let (report, changes) = try_pass(&reconciler, false).await;
    assert_eq!((report.resources, report.tasks), (0, 0));
    assert_eq!(changes, [format!("create node {}", scene.cluster)]);
    let (report, changes) = try_pass(&reconciler, false).await;
    assert!(report.is_complete() && changes.is_empty());
}

/// Case ACL25: tasks outside the mesh, and tokens that are not of logins, are ignored.
async fn tasks_and_tokens_of_others_are_ignored(scene: &Scene) {
    let task = scene.task("t1", "web").with_tag("consul.hashicorp.com/mesh", "no");
    scene.tasks.set(task);
    let plain = AclTokenRequest::new("a token that a person made");
    let plain = scene.client.acl_token_create(&plain, &write()).await.unwrap().accessor_id;
    // Anyone can write a description; only a login makes such a token.
    let posing = format!(
        r#"token created via login: {{"consul.hashicorp.com/task-id":"t9","consul.hashicorp.com/cluster":"{}"}}"#,
        scene.cluster
    );
    let posing = scene.client.acl_token_create(&AclTokenRequest::new(posing), &write()).await;
    let posing = posing.unwrap().accessor_id;
    let other = scene.login_task("t9", "arn:aws:ecs:us-east-1:1:cluster/other").await;
    let longer = scene.login_task("t9", &format!("{}-2", scene.cluster)).await;
    let bare = scene.login(&[]).await;
    let (report, _) = try_pass(&scene.login_tokens(), false).await;
    assert_eq!(report.resources, 0);
    for token in [plain, posing, other, longer, bare] {
        assert!(scene.token(&token).await.is_some());
        scene.client.acl_token_delete(&token, &write()).await.unwrap();
    }
}

/// Case ACL26: login tokens without tasks: each task's tokens are attached to it, and it is not
/// found.
async fn tokens_without_tasks_are_deleted(scene: &Scene) {
    let mut tokens = Vec::new();
    for task in ["t1", "t2", "t3"] {
        for _ in 0..2 {
            tokens.push(scene.login_task(task, &scene.cluster).await);
        }
    }
    let reconciler = scene.login_tokens();
    let (report, changes) = try_pass(&reconciler, false).await;
    assert_eq!(report.resources, 3, "two tokens of each of three tasks");
    assert_eq!(changes.iter().filter(|change| change.starts_with("delete token")).count(), 6);
    for token in &tokens {
        assert!(scene.token(token).await.is_none());
    }
    let (report, changes) = try_pass(&reconciler, false).await;
    assert!(report.resources == 0 && changes.is_empty());
}

/// Case ACL27: tasks without tokens are found.
async fn tasks_without_tokens_are_looked_at(scene: &Scene) {
    for task in ["t1", "t2", "t3"] {
        scene.start(task, "web");
    }
    let (report, changes) = try_pass(&scene.login_tokens(), false).await;
    assert_eq!((report.resources, report.tasks), (3, 3));
    assert_eq!(changes, [format!("create node {}", scene.cluster)]);
}

/// Case ACL28: tokens, services and tasks are merged by task; services of another node are ignored.
/// Case ACL30: tokens and services of a task that is found stay.
async fn tasks_with_tokens_and_services_keep_them(scene: &Scene) {
    let reconciler = scene.login_tokens();
    pass(&reconciler).await;
    let mut tokens = Vec::new();
    for task in ["t1", "t2"] {
        scene.start(task, "web");
        tokens.push(scene.login_task(task, &scene.cluster).await);
        register(scene, &scene.cluster, &format!("web-{task}"), task).await;
    }
    // Another cluster's node, with a service of a task that this cluster does not have.
    let other = format!("{}-other", scene.cluster);
    register(scene, &other, "web-x", "t-x").await;
    let (report, changes) = try_pass(&reconciler, false).await;
    assert_eq!((report.resources, changes.len()), (2, 0), "{changes:?}");
    for token in &tokens {
        assert!(scene.token(token).await.is_some());
    }
    assert_eq!(services(scene, &scene.cluster).await, ["web-t1", "web-t2"]);
    assert_eq!(services(scene, &other).await, ["web-x"]);
}

/// Case ACL31: tokens and services of a task that is not found are removed, others stay.
async fn services_and_tokens_of_a_task_that_is_gone_are_removed(scene: &Scene) {
    let reconciler = scene.login_tokens();
    pass(&reconciler).await;
    scene.start("t1", "web");
    let mut tokens = Vec::new();
    for task in ["t1", "t2"] {
        tokens.push(scene.login_task(task, &scene.cluster).await);
        for id in ["web", "web-sidecar-proxy"] {
            register(scene, &scene.cluster, &format!("{id}-{task}"), task).await;
        }
    }
    let mut changes = pass(&reconciler).await;
    assert_eq!(changes[0], format!("delete token {}", tokens[1]));
    // The order of services is Consul's.
    changes[1..].sort();
    assert_eq!(changes[1..], ["delete service web-sidecar-proxy-t2", "delete service web-t2"]);
    assert!(scene.token(&tokens[0]).await.is_some() && scene.token(&tokens[1]).await.is_none());
    assert_eq!(services(scene, &scene.cluster).await, ["web-sidecar-proxy-t1", "web-t1"]);
}

async fn a_node_that_was_removed_is_registered_again(scene: &Scene) {
    let reconciler = scene.login_tokens();
    pass(&reconciler).await;
    let node = scene.client.catalog_node(&scene.cluster, &read()).await.unwrap().value.unwrap();
    assert_eq!(node.node.meta.get("synthetic-node").map(String::as_str), Some("true"));
    assert_eq!(node.node.address, "10.0.0.9");
    let gone = CatalogDeregistration::node(&scene.cluster);
    scene.client.catalog_deregister(&gone).await.unwrap();
    assert_eq!(pass(&reconciler).await, [format!("create node {}", scene.cluster)]);
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
}

async fn a_running_task_that_lost_its_tag_keeps_nothing(scene: &Scene) {
    let token = scene.login_task("t1", &scene.cluster).await;
    let task = scene.task("t1", "web");
    scene.tasks.set(task.clone());
    let reconciler = scene.login_tokens();
    pass(&reconciler).await;
    register(scene, &scene.cluster, "web-t1", "t1").await;
    pass(&reconciler).await;
    assert!(scene.token(&token).await.is_some());
    let error = reconciler.cleanup(&Writer::new(), false).await.unwrap_err();
    assert!(error.to_string().contains("still run"), "{error}");
    assert!(scene.token(&token).await.is_some());
    let mut untagged = task.clone();
    untagged.tags.clear();
    scene.tasks.set(untagged);
    assert_eq!(
        pass(&reconciler).await,
        [format!("delete token {token}"), "delete service web-t1".to_owned()]
    );
    assert!(scene.token(&token).await.is_none());
}

/// On EC2 the metadata has the cluster's name, which logins of consul-ecs 0.5 and 0.6 wrote into
/// their tokens. A cluster of another region may have it, too.
async fn a_token_with_the_clusters_name_is_removed_too(scene: &Scene) {
    let name = scene.cluster.rsplit('/').next().unwrap().to_owned();
    let gone = scene.login_task("gone", &name).await;
    let alive = scene.login_task("alive", &name).await;
    let elsewhere = scene.login_task("elsewhere", &name).await;
    let other = scene.login_task("other", &format!("{name}-2")).await;
    scene.tasks.set(scene.task("alive", "web"));
    let node = scene.name("agent");
    let task = format!("arn:aws:ecs:eu-west-1:123456789012:task/{name}/elsewhere");
    let service = json!({"ID": format!("web-{node}"), "Service": "web",
        "Meta": {"task-id": "elsewhere", "task-arn": task}});
    let registration = json!({"Node": node, "Address": "127.0.0.1", "Service": service});
    let request = Request::put("service", "/v1/catalog/register").json(&registration);
    scene.client.send(request).await.unwrap();

    // A new one may be of a task elsewhere that has not registered its services yet.
    pass(&scene.login_tokens()).await;
    assert!(scene.token(&gone).await.is_some());
    let mut settings = LoginTokenSettings::new(&scene.cluster, "10.0.0.9");
    settings.named_token_age = Duration::ZERO;
    let reconciler = scene.login_tokens_with(settings);
    assert_eq!(pass(&reconciler).await, [format!("delete token {gone}")]);
    for token in [&alive, &elsewhere, &other] {
        assert!(scene.token(token).await.is_some());
    }
    let gone = CatalogDeregistration::node(&node);
    scene.client.catalog_deregister(&gone).await.unwrap();
}

async fn a_dry_run_removes_nothing(scene: &Scene) {
    let token = scene.login_task("t1", &scene.cluster).await;
    let writer = Writer::dry_run();
    scene.login_tokens().pass(&writer, false).await.unwrap();
    assert_eq!(shown(writer).len(), 2);
    assert!(scene.token(&token).await.is_some());
    assert!(services(scene, &scene.cluster).await.is_empty());
}

async fn a_cleanup_takes_tokens_services_and_node(scene: &Scene) {
    let reconciler = scene.login_tokens();
    pass(&reconciler).await;
    let task = scene.start("t1", "web");
    let token = scene.login_task("t1", &scene.cluster).await;
    register(scene, &scene.cluster, "web-t1", "t1").await;
    let error = reconciler.cleanup(&Writer::new(), false).await.unwrap_err();
    assert!(error.to_string().contains("still run"), "{error}");
    scene.tasks.remove(&task);
    let report = reconciler.cleanup(&Writer::new(), false).await.unwrap();
    assert!(report.is_complete());
    assert!(scene.token(&token).await.is_none());
    let node = scene.client.catalog_node(&scene.cluster, &read()).await.unwrap();
    assert!(node.value.is_none());
}
