//! Known defects of upstream, which are not copied.

use acl_controller::task::Undescribed;
use consul_watch::types::{AclPolicy, AclTokenRequest, CatalogRegistration, Service};

use crate::scene::{Scene, pass, try_pass, write};

crate::scene::cases![
    a_cluster_whose_name_begins_alike_keeps_its_tokens,
    a_stopping_task_keeps_its_token,
    a_stopping_task_keeps_its_login,
    one_bad_entry_does_not_block_the_clean_up,
    a_policy_of_another_cluster_is_neither_used_nor_deleted,
    a_task_that_cannot_be_described_keeps_its_token,
    every_error_is_told,
];

/// Upstream looks for descriptions that contain the name of the cluster.
async fn a_cluster_whose_name_begins_alike_keeps_its_tokens(scene: &Scene) {
    let web = scene.name("web");
    let description =
        format!("Token for {web} service\nconsul.hashicorp.com/cluster: {}-2", scene.cluster);
    let other = scene.client.acl_token_create(&AclTokenRequest::new(description), &write()).await;
    let other = other.unwrap().accessor_id;
    let mut policy = AclPolicy::new(scene.name("other"), "");
    policy.description =
        format!("Policy for {web} service\nconsul.hashicorp.com/cluster: {}-2", scene.cluster);
    scene.client.acl_policy_create(&policy, &write()).await.unwrap();
    assert_eq!(pass(&scene.service_tokens()).await, Vec::<String>::new());
    assert!(scene.token(&other).await.is_some());
}

/// Upstream deletes a token as soon as its task is to stop, although the task still drains.
async fn a_stopping_task_keeps_its_token(scene: &Scene) {
    let web = scene.name("web");
    scene.secret(&web);
    scene.start("1", &web);
    let reconciler = scene.service_tokens();
    pass(&reconciler).await;
    for status in ["DEACTIVATING", "STOPPING", "DEPROVISIONING"] {
        scene.tasks.set(scene.task("1", &web).with_last_status(status));
        assert_eq!(pass(&reconciler).await, Vec::<String>::new(), "{status}");
    }
    scene.tasks.set(scene.task("1", &web).with_last_status("STOPPED"));
    assert_eq!(pass(&reconciler).await.len(), 2);
}

async fn a_stopping_task_keeps_its_login(scene: &Scene) {
    let token = scene.login_task("t1", &scene.cluster).await;
    scene.tasks.set(scene.task("t1", "web").with_last_status("DEPROVISIONING"));
    let reconciler = scene.login_tokens();
    pass(&reconciler).await;
    assert!(scene.token(&token).await.is_some());
    scene.tasks.set(scene.task("t1", "web").with_last_status("STOPPED"));
    pass(&reconciler).await;
    assert!(scene.token(&token).await.is_none());
}

/// Upstream ends the pass when a service on the node does not say which task it is of.
async fn one_bad_entry_does_not_block_the_clean_up(scene: &Scene) {
    let reconciler = scene.login_tokens();
    pass(&reconciler).await;
    let register = async |id: &str, task: Option<&str>| {
        let mut service = Service::new("web", id);
        if let Some(task) = task {
            service.meta.insert("task-id".to_owned(), task.to_owned());
        }
        let mut registration = CatalogRegistration::new(&scene.cluster, "10.0.0.9");
        registration.skip_node_update = true;
        scene.client.catalog_register(&registration.with_service(service)).await.unwrap();
    };
    register("foreign", None).await;
    register("a-gone", Some("t-gone")).await;
    let token = scene.login_task("t-gone", &scene.cluster).await;
    let odd = scene.login(&[("consul.hashicorp.com/cluster", &scene.cluster)]).await;
    assert_eq!(pass(&reconciler).await.len(), 2);
    let node = scene.client.catalog_node(&scene.cluster, &crate::scene::read()).await.unwrap();
    assert_eq!(node.value.unwrap().services.into_keys().collect::<Vec<_>>(), ["foreign"]);
    assert!(scene.token(&token).await.is_none() && scene.token(&odd).await.is_some());
}

/// Upstream shares `<service>-service` between clusters, and the first that has no task of the
/// service any more deletes it.
async fn a_policy_of_another_cluster_is_neither_used_nor_deleted(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let mut other = AclPolicy::new(format!("{web}-service"), "");
    other.description = format!("Policy for {web} service\nconsul.hashicorp.com/cluster: another");
    let other = scene.client.acl_policy_create(&other, &write()).await.unwrap();
    let task = scene.start("1", &web);
    let reconciler = scene.service_tokens();
    pass(&reconciler).await;
    let (accessor, token) = scene.ids(&secret).await;
    let linked = scene.token(&accessor).await.unwrap().policies;
    assert!(linked.len() == 1 && linked[0].id != other.id, "{linked:?}");
    assert!(linked[0].name.starts_with(&format!("{web}-service-")), "{linked:?}");
    assert!(scene.may_register(&token, &web).await);
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
    scene.tasks.remove(&task);
    pass(&reconciler).await;
    assert!(scene.policies().await.is_empty());
    let kept = scene.client.acl_policy(&other.id, &crate::scene::read()).await.unwrap();
    assert!(kept.value.is_some());
}

/// Upstream ignores what ECS cannot describe, and takes it for gone.
async fn a_task_that_cannot_be_described_keeps_its_token(scene: &Scene) {
    let web = scene.name("web");
    scene.secret(&web);
    let task = scene.start("t1", &web);
    let (service_tokens, login_tokens) = (scene.service_tokens(), scene.login_tokens());
    pass(&service_tokens).await;
    let login = scene.login_task("t1", &scene.cluster).await;
    scene.tasks.remove(&task);
    scene.tasks.set_undescribed(vec![Undescribed::new(&task, "MISSING")]);
    for _ in 0..3 {
        let (report, changes) = try_pass(&service_tokens, false).await;
        assert_eq!((report.postponed, changes.len()), (1, 0));
        try_pass(&login_tokens, false).await;
        assert!(scene.token(&login).await.is_some());
    }
    // Not for ever.
    assert_eq!(pass(&service_tokens).await.len(), 2);
    pass(&login_tokens).await;
    assert!(scene.token(&login).await.is_none());
}

/// Upstream tells the last error only.
async fn every_error_is_told(scene: &Scene) {
    let names = ["a", "b", "c"].map(|name| scene.name(name));
    for name in &names {
        scene.start(name, name);
    }
    let (report, _) = try_pass(&scene.service_tokens(), false).await;
    let error = report.into_error().unwrap().to_string();
    for name in &names {
        assert!(error.contains(&format!("reconciling service {name}")), "{error}");
    }
}
