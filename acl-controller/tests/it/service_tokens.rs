//! A token and a policy for each service.

use acl_controller::{Reconciler as _, TokenRights, Writer, task::Task};
use consul_watch::types::AclTokenRequest;
use serde_json::json;

use crate::scene::{Scene, chains, check, pass, read, shown, try_pass, write};

crate::scene::cases![
    tasks_and_tokens_are_joined_by_service,
    a_task_outside_the_mesh_is_ignored,
    a_task_without_a_usable_name_is_passed_over,
    a_service_whose_tasks_are_gone_loses_token_and_policy,
    a_new_service_gets_token_and_policy,
    where_all_is_well_nothing_is_written,
    a_token_that_exists_is_not_made_again,
    ids_of_the_secret_are_those_of_the_token,
    a_token_that_somebody_deleted_is_made_again,
    a_service_that_comes_back_gets_a_token_of_the_same_accessor,
    a_token_may_have_a_service_identity_instead_of_a_policy,
    ids_that_were_never_a_token_are_used,
    nothing_is_made_for_a_service_without_a_secret,
    there_may_be_nothing_to_delete,
    a_missing_or_foreign_secret_stops_no_other_service,
    a_half_filled_secret_is_replaced_entirely,
    a_dry_run_tells_and_changes_nothing,
    a_cleanup_removes_everything_of_the_cluster,
    a_token_of_an_early_release_gets_a_policy,
    an_uppercase_family_is_a_service_of_its_own,
    a_service_whose_secret_would_be_the_clients_is_refused,
];

/// Case ACL5: tasks and tokens are merged by service, whether they overlap or not.
async fn tasks_and_tokens_are_joined_by_service(scene: &Scene) {
    let (web, api, db) = (scene.name("web"), scene.name("api"), scene.name("db"));
    for service in [&web, &api, &db] {
        scene.secret(service);
    }
    let reconciler = scene.service_tokens();
    // No overlap with what Consul has: all are made.
    scene.start("1", &web);
    scene.start("2", &web);
    let gone = scene.start("3", &api);
    let (report, changes) = try_pass(&reconciler, false).await;
    assert_eq!((report.tasks, report.resources), (3, 2), "two tasks of one service are one");
    assert_eq!(changes.len(), 6);
    // Full overlap: merged for each service.
    let (report, changes) = try_pass(&reconciler, false).await;
    assert_eq!((report.resources, changes.len()), (2, 0));
    // Some of each.
    scene.tasks.remove(&gone);
    scene.start("4", &db);
    let (report, _) = try_pass(&reconciler, false).await;
    assert_eq!(report.resources, 3, "one to keep, one to make, one to remove");
    let left: Vec<String> = scene.policies().await.into_keys().collect();
    assert_eq!(left, [format!("{db}-service"), format!("{web}-service")]);
}

/// Case ACL7: a task without the mesh tag, or with another value than `true`, is ignored.
async fn a_task_outside_the_mesh_is_ignored(scene: &Scene) {
    let web = scene.name("web");
    scene.secret(&web);
    let task = scene.task("1", &web);
    scene.tasks.set(task.clone().with_tag("consul.hashicorp.com/mesh", "false"));
    let mut untagged = Task::new("a/2", task.task_definition_arn.clone());
    untagged.tags.clear();
    scene.tasks.set(untagged);
    assert_eq!(pass(&scene.service_tokens()).await, Vec::<String>::new());
    assert!(scene.tokens().await.is_empty() && scene.policies().await.is_empty());
}

/// Case ACL8: the name tag wins over the family of the task definition; an invalid ARN is an error.
async fn a_task_without_a_usable_name_is_passed_over(scene: &Scene) {
    let web = scene.name("web");
    scene.secret(&web);
    let unnamed = Task::new("a/1", "invalid").with_tag("consul.hashicorp.com/mesh", "true");
    scene.tasks.set(unnamed.clone());
    let reconciler = scene.service_tokens();
    let (report, changes) = try_pass(&reconciler, false).await;
    assert_eq!((report.skipped, report.resources, changes.len()), (1, 0, 0));
    scene.tasks.set(unnamed.with_tag("consul.hashicorp.com/service-name", &web));
    pass(&reconciler).await;
    assert_eq!(scene.tokens().await.len(), 1);
}

/// Case ACL11: no task, but token and policy: both are deleted.
async fn a_service_whose_tasks_are_gone_loses_token_and_policy(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let task = scene.start("1", &web);
    pass(&scene.service_tokens()).await;
    let ids = scene.ids(&secret).await;
    scene.tasks.remove(&task);
    // Another controller than the one that made them: nothing is kept in memory.
    let changes = pass(&scene.service_tokens()).await;
    assert_eq!(
        changes,
        [
            format!("update secret {secret}"),
            format!("delete token {web} ({})", ids.0),
            format!("delete policy {web}-service")
        ]
    );
    assert!(scene.tokens().await.is_empty() && scene.policies().await.is_empty());
    let next = scene.ids(&secret).await;
    assert!(next.0 == ids.0 && next.1 != ids.1, "the secret has the ids of the next token");
}

/// Case ACL12: a task and nothing else: both are created with the exact descriptions.
async fn a_new_service_gets_token_and_policy(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    scene.start("1", &web);
    let changes = pass(&scene.service_tokens()).await;
    let (accessor, token) = scene.ids(&secret).await;
    assert_eq!(
        changes,
        [
            format!("create policy {web}-service"),
            format!("update secret {secret}"),
            format!("create token {web} ({accessor})"),
        ]
    );
    let made = scene.token(&accessor).await.unwrap();
    let cluster = &scene.cluster;
    assert_eq!(
        made.description,
        format!("Token for {web} service\nconsul.hashicorp.com/cluster: {cluster}")
    );
    let policy = scene.client.acl_policy_by_name(&format!("{web}-service"), &read()).await.unwrap();
    let policy = policy.value.unwrap();
    assert_eq!(
        policy.description,
        format!("Policy for {web} service\nconsul.hashicorp.com/cluster: {cluster}")
    );
    assert_eq!(made.policies.iter().map(|link| &link.id).collect::<Vec<_>>(), [&policy.id]);
    assert!(scene.may_register(&token, &web).await);
    assert!(scene.may_register(&token, &format!("{web}-sidecar-proxy")).await);
    assert!(!scene.may_register(&token, &format!("{web}2")).await);
}

/// Case ACL13: a task and both, or nothing at all: nothing changes.
async fn where_all_is_well_nothing_is_written(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let reconciler = scene.service_tokens();
    assert_eq!(pass(&reconciler).await, Vec::<String>::new(), "nothing and nothing");
    scene.start("1", &web);
    pass(&reconciler).await;
    let ids = scene.ids(&secret).await;
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
    let noted = format!("update secret {secret}");
    assert_eq!(check(&scene.service_tokens()).await, [noted], "that the token is there");
    assert_eq!(check(&scene.service_tokens()).await, Vec::<String>::new());
    assert_eq!(check(&reconciler).await, Vec::<String>::new());
    assert_eq!(scene.ids(&secret).await, ids);
}

/// Case ACL14: an existing token for the ids in the secret: no other is created.
async fn a_token_that_exists_is_not_made_again(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    scene.start("1", &web);
    pass(&scene.service_tokens()).await;
    let ids = scene.ids(&secret).await;
    let policy = scene.policies().await.into_values().next().unwrap();
    scene.client.acl_policy_delete(&policy.id, &write()).await.unwrap();
    let changes = pass(&scene.service_tokens()).await;
    assert_eq!(
        changes,
        [format!("create policy {web}-service"), format!("update token {web} ({})", ids.0)],
        "the link to the policy is lost with it and comes back"
    );
    assert_eq!((scene.ids(&secret).await, scene.tokens().await.len()), (ids.clone(), 1));
    assert!(scene.may_register(&ids.1, &web).await);
}

/// Case ACL15: ids in a secret that Consul does not know: the token is created with these.
async fn ids_of_the_secret_are_those_of_the_token(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let ids = (uuid::Uuid::new_v4().to_string(), uuid::Uuid::new_v4().to_string());
    let text = format!(r#"{{"accessor_id":"{}","token":"{}"}}"#, ids.0, ids.1);
    scene.secrets.put(&secret, text);
    scene.start("1", &web);
    pass(&scene.service_tokens()).await;
    assert_eq!(scene.ids(&secret).await, ids);
    assert_eq!(scene.tokens().await[0].accessor_id, ids.0);
    assert!(scene.may_register(&ids.1, &web).await);
}

async fn a_token_that_somebody_deleted_is_made_again(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    scene.start("1", &web);
    let reconciler = scene.service_tokens();
    pass(&reconciler).await;
    let ids = scene.ids(&secret).await;
    scene.client.acl_token_delete(&ids.0, &write()).await.unwrap();
    let made = [format!("update secret {secret}"), format!("create token {web} ({})", ids.0)];
    assert_eq!(pass(&reconciler).await, made);
    let again = scene.ids(&secret).await;
    assert_eq!(again.0, ids.0);
    assert_ne!(again.1, ids.1, "who deletes a token wants its secret to end");
    assert!(scene.may_register(&again.1, &web).await);
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
    // Another controller knows it from the secret, once a slower check has noted it there.
    assert_eq!(check(&reconciler).await, [format!("update secret {secret}")]);
    assert_eq!(check(&reconciler).await, Vec::<String>::new());
    scene.client.acl_token_delete(&ids.0, &write()).await.unwrap();
    assert_eq!(pass(&scene.service_tokens()).await, made);
    let third = scene.ids(&secret).await;
    assert!(third.0 == ids.0 && third.1 != again.1 && third.1 != ids.1);
}

/// A crash between the two writes is no deletion: the ids that tasks may have got are used.
async fn ids_that_were_never_a_token_are_used(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let ids = (uuid::Uuid::new_v4().to_string(), uuid::Uuid::new_v4().to_string());
    let text =
        json!({"version": 1, "accessor_id": ids.0, "token": ids.1, "made": false}).to_string();
    scene.secrets.put(&secret, text);
    scene.start("1", &web);
    pass(&scene.service_tokens()).await;
    assert_eq!(scene.ids(&secret).await, ids);
    assert!(scene.may_register(&ids.1, &web).await);
}

async fn nothing_is_made_for_a_service_without_a_secret(scene: &Scene) {
    let web = scene.name("web");
    scene.start("1", &web);
    let reconciler = scene.service_tokens();
    let (report, changes) = try_pass(&reconciler, false).await;
    assert_eq!((report.errors.len(), changes), (1, Vec::new()), "it is said once");
    for _ in 0..12 {
        let (report, changes) = try_pass(&reconciler, false).await;
        assert_eq!((report.errors.len(), report.postponed, changes), (0, 1, Vec::new()));
    }
    assert!(scene.policies().await.is_empty() && scene.tokens().await.is_empty());
    scene.secret(&web);
    let mut passes = 0;
    while scene.tokens().await.is_empty() {
        assert!(passes < 10, "it is tried again after a while");
        try_pass(&reconciler, false).await;
        passes += 1;
    }
}

/// As consul-ecs 0.2 and 0.3 had it.
async fn a_token_may_have_a_service_identity_instead_of_a_policy(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let task = scene.start("1", &web);
    let mut settings = scene.settings();
    settings.rights = TokenRights::ServiceIdentity;
    let reconciler = scene.service_tokens_with(settings);
    pass(&reconciler).await;
    let ids = scene.ids(&secret).await;
    assert!(scene.policies().await.is_empty());
    let token = scene.token(&ids.0).await.unwrap();
    assert_eq!(token.service_identities[0].service_name, web);
    assert!(scene.may_register(&ids.1, &web).await);
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
    // Somebody takes its rights away.
    let mut bare = AclTokenRequest::from(&token);
    bare.service_identities.clear();
    scene.client.acl_token_update(&ids.0, &bare, &write()).await.unwrap();
    assert_eq!(pass(&reconciler).await, [format!("update token {web} ({})", ids.0)]);
    assert!(scene.may_register(&ids.1, &web).await);
    scene.tasks.remove(&task);
    pass(&reconciler).await;
    assert!(scene.tokens().await.is_empty());
}

/// Case ACL16: after a deletion a service's next token has the same accessor id.
async fn a_service_that_comes_back_gets_a_token_of_the_same_accessor(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let task = scene.start("1", &web);
    let reconciler = scene.service_tokens();
    pass(&reconciler).await;
    let before = scene.ids(&secret).await;
    scene.tasks.remove(&task);
    assert_eq!(
        pass(&reconciler).await,
        [
            format!("update secret {secret}"),
            format!("delete token {web} ({})", before.0),
            format!("delete policy {web}-service")
        ]
    );
    assert!(scene.tokens().await.is_empty());
    // What a task gets injected that starts before the token is made.
    let injected = scene.ids(&secret).await;
    scene.start("2", &web);
    pass(&reconciler).await;
    assert_eq!(scene.ids(&secret).await, injected);
    assert_eq!(scene.tokens().await[0].accessor_id, before.0);
    assert_ne!(injected.1, before.1, "the deleted secret does not come back");
    assert!(scene.may_register(&injected.1, &web).await);
}

/// Case ACL17: nothing to delete, whatever the secret holds: no error.
async fn there_may_be_nothing_to_delete(scene: &Scene) {
    let (web, api) = (scene.name("web"), scene.name("api"));
    let secrets = [scene.secret(&web), scene.secret(&api)];
    let tasks = [scene.start("1", &web), scene.start("2", &api)];
    let reconciler = scene.service_tokens();
    pass(&reconciler).await;
    // The tokens are gone already; one secret is filled, one empty.
    for secret in &secrets {
        let accessor = scene.ids(secret).await.0;
        scene.client.acl_token_delete(&accessor, &write()).await.unwrap();
    }
    scene.secrets.put(&secrets[1], "{}");
    for task in &tasks {
        scene.tasks.remove(task);
    }
    let changes = pass(&reconciler).await;
    assert_eq!(
        changes,
        [format!("delete policy {api}-service"), format!("delete policy {web}-service")]
    );
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
}

async fn a_missing_or_foreign_secret_stops_no_other_service(scene: &Scene) {
    let names = ["a", "b", "c", "d"].map(|name| scene.name(name));
    let [missing, foreign, null, good] = &names;
    scene.secrets.put(format!("{}-{foreign}", scene.prefix), "planted");
    scene.secrets.put(format!("{}-{null}", scene.prefix), "null");
    scene.secret(good);
    for name in &names {
        scene.start(name, name);
    }
    let reconciler = scene.service_tokens();
    let (report, _) = try_pass(&reconciler, false).await;
    let errors = chains(&report);
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(
        errors[0].contains(&format!("retrieving secret {}-{missing}", scene.prefix)),
        "{errors:?}"
    );
    assert!(errors[1].contains("unmarshalling secret value"), "{errors:?}");
    assert!(errors[2].contains("unmarshalling secret value"), "{errors:?}");
    assert!(!format!("{errors:?}").contains("planted"));
    assert_eq!(scene.tokens().await.len(), 1, "the good one");
    // They are tried again after a while, and what is mended works.
    scene.secret(missing);
    let mut passes = 0;
    while scene.tokens().await.len() < 2 {
        try_pass(&reconciler, false).await;
        passes += 1;
        assert!(passes < 10);
    }
    let before = scene.ids(&format!("{}-{good}", scene.prefix)).await;
    assert_eq!(scene.token(&before.0).await.unwrap().accessor_id, before.0);
}

async fn a_half_filled_secret_is_replaced_entirely(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let half = uuid::Uuid::new_v4().to_string();
    scene.secrets.put(&secret, format!(r#"{{"accessor_id":"{half}"}}"#));
    scene.start("1", &web);
    pass(&scene.service_tokens()).await;
    let (accessor, token) = scene.ids(&secret).await;
    assert!(accessor != half && !token.is_empty());
    assert!(scene.token(&half).await.is_none());
}

async fn a_dry_run_tells_and_changes_nothing(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let task = scene.start("1", &web);
    let reconciler = scene.service_tokens();
    let dry = async || {
        let writer = Writer::dry_run();
        let report = reconciler.pass(&writer, true).await.unwrap();
        assert!(report.errors.is_empty(), "{:?}", chains(&report));
        shown(writer)
    };
    assert_eq!(
        dry().await,
        [
            format!("create policy {web}-service"),
            format!("update secret {secret}"),
            format!("create token {web} (new ids)"),
        ]
    );
    assert!(scene.tokens().await.is_empty() && scene.policies().await.is_empty());
    assert_eq!(scene.ids(&secret).await, (String::new(), String::new()));
    pass(&reconciler).await;
    check(&reconciler).await;
    assert_eq!(dry().await, Vec::<String>::new());
    scene.tasks.remove(&task);
    assert_eq!(dry().await.len(), 3);
    assert_eq!((scene.tokens().await.len(), scene.policies().await.len()), (1, 1));
}

async fn a_cleanup_removes_everything_of_the_cluster(scene: &Scene) {
    let (web, clients) = (scene.name("web"), scene.name("clients"));
    scene.secret(&web);
    scene.secrets.put(&clients, "{}");
    let task = scene.start("1", &web);
    let mut settings = scene.settings();
    settings.client_secret = Some(clients);
    let reconciler = scene.service_tokens_with(settings);
    crate::scene::prepare(&reconciler).await.unwrap();
    pass(&reconciler).await;
    let foreign = AclTokenRequest::new(format!(
        "Token for {web} service\nconsul.hashicorp.com/cluster: other"
    ));
    let foreign = scene.client.acl_token_create(&foreign, &write()).await.unwrap();
    assert_eq!(scene.tokens().await.len(), 2);
    let error = reconciler.cleanup(&Writer::new(), false).await.unwrap_err();
    assert!(error.to_string().contains("1 tasks of the mesh still run"), "{error}");
    assert_eq!(scene.tokens().await.len(), 2);
    scene.tasks.remove(&task);
    let writer = Writer::new();
    let report = reconciler.cleanup(&writer, false).await.unwrap();
    assert!(report.is_complete());
    assert_eq!(shown(writer).len(), 4);
    assert!(scene.tokens().await.is_empty() && scene.policies().await.is_empty());
    assert!(scene.token(&foreign.accessor_id).await.is_some());
    scene.client.acl_token_delete(&foreign.accessor_id, &write()).await.unwrap();
}

/// Releases before 0.4 gave tokens a service identity and no policy.
async fn a_token_of_an_early_release_gets_a_policy(scene: &Scene) {
    let web = scene.name("web");
    let secret = scene.secret(&web);
    let ids = (uuid::Uuid::new_v4().to_string(), uuid::Uuid::new_v4().to_string());
    scene.secrets.put(&secret, format!(r#"{{"accessor_id":"{}","token":"{}"}}"#, ids.0, ids.1));
    let mut early = AclTokenRequest::new(format!(
        "Token for {web} service\nconsul.hashicorp.com/cluster: {}",
        scene.cluster
    ));
    early.accessor_id = Some(ids.0.clone());
    early.secret_id = Some(ids.1.as_str().into());
    early.service_identities.push(consul_watch::types::ServiceIdentity::new(&web));
    scene.client.acl_token_create(&early, &write()).await.unwrap();
    scene.start("1", &web);
    pass(&scene.service_tokens()).await;
    let token = scene.token(&ids.0).await.unwrap();
    assert_eq!((token.policies.len(), token.service_identities.len()), (1, 1));
    assert_eq!(scene.ids(&secret).await, ids);
    assert_eq!(pass(&scene.service_tokens()).await, Vec::<String>::new());
}

async fn an_uppercase_family_is_a_service_of_its_own(scene: &Scene) {
    let (lower, upper) = (scene.name("web"), scene.name("Web"));
    for service in [&lower, &upper] {
        scene.secret(service);
        scene.start(service, service);
    }
    pass(&scene.service_tokens()).await;
    assert_eq!(scene.tokens().await.len(), 2);
}

async fn a_service_whose_secret_would_be_the_clients_is_refused(scene: &Scene) {
    let web = scene.name("web");
    let clients = scene.secret(&web);
    let mut settings = scene.settings();
    settings.client_secret = Some(clients.clone());
    let reconciler = scene.service_tokens_with(settings);
    crate::scene::prepare(&reconciler).await.unwrap();
    let ids = scene.ids(&clients).await;
    scene.start("1", &web);
    let (report, changes) = try_pass(&reconciler, false).await;
    let errors = chains(&report);
    assert!(errors[0].contains("would also be that of the Consul clients"), "{errors:?}");
    assert_eq!((changes.len(), scene.ids(&clients).await), (0, ids));
}
