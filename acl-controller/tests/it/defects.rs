//! Known defects of upstream, which are not copied.

use acl_controller::task::Undescribed;
use consul_watch::types::{AclPolicy, AclTokenRequest, CatalogRegistration, Service};

use crate::scene::{Running, Scene, pass, try_pass, write};

crate::scene::cases![
    a_cluster_whose_name_begins_alike_keeps_its_tokens,
    a_stopping_task_keeps_its_token,
    a_stopping_task_keeps_its_login,
    one_bad_entry_does_not_block_the_clean_up,
    a_policy_of_another_cluster_is_neither_used_nor_deleted,
    a_task_that_cannot_be_described_keeps_its_token,
    tasks_that_cannot_be_described_hold_nothing_up_for_ever,
    a_task_whose_tags_change_keeps_its_token,
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
    let Running { web, reconciler, .. } = scene.running().await;
    for status in ["DEACTIVATING", "STOPPING", "DEPROVISIONING"] {
        scene.tasks.set(scene.task("t1", &web).with_last_status(status));
        assert_eq!(pass(&reconciler).await, Vec::<String>::new(), "{status}");
    }
    scene.tasks.set(scene.task("t1", &web).with_last_status("STOPPED"));
    assert_eq!(pass(&reconciler).await.len(), 3);
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
    let Running { task, reconciler, .. } = scene.running().await;
    let login_tokens = scene.login_tokens();
    let login = scene.login_task("t1", &scene.cluster).await;
    scene.tasks.remove(&task);
    scene.tasks.set_undescribed(vec![Undescribed::new(&task, "MISSING")]);
    for _ in 0..3 {
        // Who has seen the task knows what it needs; for others it may need anything.
        let (report, changes) = try_pass(&reconciler, false).await;
        assert_eq!((report.postponed, changes.len()), (0, 0));
        let (report, changes) = try_pass(&scene.service_tokens(), false).await;
        assert_eq!((report.postponed, changes.len()), (1, 0));
        try_pass(&login_tokens, false).await;
        assert!(scene.token(&login).await.is_some());
    }
    // Not for ever.
    assert_eq!(pass(&reconciler).await.len(), 3);
    pass(&login_tokens).await;
    assert!(scene.token(&login).await.is_none());
}

/// Others may come in each pass, and would put deletions off for ever.
async fn tasks_that_cannot_be_described_hold_nothing_up_for_ever(scene: &Scene) {
    let Running { web, task, reconciler, .. } = scene.running().await;
    let api = scene.name("api");
    scene.secret(&api);
    scene.start("t2", &api);
    scene.tasks.remove(&task);
    let unknown = |pass: u32| {
        let arn = format!("arn:aws:ecs:us-east-1:123456789012:task/c/unknown-{pass}");
        scene.tasks.set_undescribed(vec![Undescribed::new(arn, "MISSING")]);
    };
    for number in 0..10 {
        unknown(number);
        let (report, changes) = try_pass(&reconciler, false).await;
        assert_eq!(report.postponed, 1, "pass {number}");
        assert_eq!(changes.len(), if number == 0 { 3 } else { 0 }, "what is to be made is made");
    }
    unknown(10);
    let (report, changes) = try_pass(&reconciler, false).await;
    assert_eq!((report.postponed, changes.len()), (0, 3), "{web}: {changes:?}");
}

/// Upstream deletes the token of a running task when another service is named.
async fn a_task_whose_tags_change_keeps_its_token(scene: &Scene) {
    let Running { web, secret, task, reconciler } = scene.running().await;
    let ids = scene.ids(&secret).await;
    let api = scene.name("api");
    scene.secret(&api);
    let renamed =
        scene.task("t1", &web).with_tag("consul.hashicorp.com/service-name", api.as_str());
    scene.tasks.set(renamed);
    assert_eq!(pass(&reconciler).await.len(), 3, "the other service gets its own");
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
    assert!(scene.may_register(&ids.1, &web).await);
    // Without the tag of the mesh it is no task of the mesh, and keeps neither.
    let mut untagged = scene.task("t1", &web);
    untagged.tags.clear();
    scene.tasks.set(untagged);
    assert_eq!(pass(&reconciler).await.len(), 6, "two secrets, tokens and policies");
    assert!(scene.tokens().await.is_empty());
    scene.tasks.remove(&task);
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
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
