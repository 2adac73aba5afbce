//! Partitions and namespaces, on the double of them.

use std::sync::Arc;

use acl_controller::{
    LoginTokenSettings, LoginTokens, MemorySecrets, Reconciler as _, SecretStore as _,
    ServiceTokenSettings, ServiceTokens, Writer,
    task::Task,
    testing::{EnterpriseConsul, MemoryTasks},
};
use consul_watch::{
    client::AclTokenFilter,
    testing::{LoginAttempt, LoginIdentity, TestConsul},
    types::{
        AclAuthMethod, AclBindingRule, AclLogin, AclPolicy, AclTokenEntry, BindType,
        CatalogRegistration, Service,
    },
};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::scene::{ROOT, chains, check, pass, read, shown, try_pass, write};

const CLUSTER: &str = "arn:aws:ecs:us-east-1:123456789012:cluster/c1";

struct Enterprise {
    consul: EnterpriseConsul,
    tasks: MemoryTasks,
    secrets: Arc<MemorySecrets>,
}

impl Enterprise {
    fn new() -> Self {
        let consul = EnterpriseConsul::new(ROOT);
        Self { consul, tasks: MemoryTasks::new(), secrets: Arc::default() }
    }

    fn service_tokens(&self, partition: Option<&str>) -> ServiceTokens {
        let mut settings = ServiceTokenSettings::new(CLUSTER, "pre");
        settings.partition = partition.map(str::to_owned);
        settings.concurrency = 1;
        let consul = Arc::new(self.consul.client());
        let secrets = Arc::clone(&self.secrets);
        ServiceTokens::new(consul, Arc::new(self.tasks.clone()), secrets, settings).unwrap()
    }

    fn login_tokens(&self, partition: &str) -> LoginTokens {
        let mut settings = LoginTokenSettings::new(CLUSTER, "10.0.0.9");
        settings.partition = Some(partition.to_owned());
        let consul = Arc::new(self.consul.client());
        LoginTokens::new(consul, Arc::new(self.tasks.clone()), settings).unwrap()
    }

    fn task(id: &str, service: &str, partition: Option<&str>, namespace: Option<&str>) -> Task {
        let arn = format!("arn:aws:ecs:us-east-1:123456789012:task/c1/{id}");
        let family = format!("arn:aws:ecs:us-east-1:123456789012:task-definition/{service}:3");
        let mut task = Task::new(arn, family).with_tag("consul.hashicorp.com/mesh", "true");
        if let Some(partition) = partition {
            task = task.with_tag("consul.hashicorp.com/partition", partition);
        }
        if let Some(namespace) = namespace {
            task = task.with_tag("consul.hashicorp.com/namespace", namespace);
        }
        task
    }

    fn start(&self, id: &str, service: &str, partition: &str, namespace: &str) {
        self.tasks.set(Self::task(id, service, Some(partition), Some(namespace)));
        self.secrets.put(format!("pre-{service}-{namespace}-{partition}"), "{}");
    }

    fn scope(&self, partition: &str, namespace: &str) -> TestConsul {
        self.consul.scope(partition, namespace).expect("the namespace exists")
    }

    async fn policies(&self, partition: &str, namespace: &str) -> Vec<AclPolicy> {
        let client = self.scope(partition, namespace).client();
        let mut policies = client.acl_policies(&read()).await.unwrap().value;
        // Those that every server has of its own accord; the second from 1.17 on.
        policies.retain(|policy| {
            policy.name != "global-management" && !policy.name.starts_with("builtin/")
        });
        policies.sort_by(|a, b| a.name.cmp(&b.name));
        policies
    }

    async fn policy_names(&self, partition: &str, namespace: &str) -> Vec<String> {
        self.policies(partition, namespace).await.into_iter().map(|policy| policy.name).collect()
    }

    async fn tokens(&self, partition: &str, namespace: &str) -> Vec<AclTokenEntry> {
        let client = self.scope(partition, namespace).client();
        let mut tokens =
            client.acl_tokens(&AclTokenFilter::default(), &read()).await.unwrap().value;
        tokens.retain(|token| token.description.contains("cluster"));
        tokens
    }

    fn namespaces(&self, partition: &str) -> Vec<String> {
        let found = self.consul.namespaces(partition);
        found.iter().map(|namespace| namespace["Name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Case ACL9: with partitions, only one of the tags for partition and namespace is an error;
/// without, both are ignored.
#[tokio::test]
async fn partition_and_namespace_come_together_or_not_at_all() {
    for enabled in [true, false] {
        let world = Enterprise::new();
        world.tasks.set(Enterprise::task("1", "a", Some("default"), None));
        world.tasks.set(Enterprise::task("2", "b", None, Some("ns-1")));
        for service in ["a", "b"] {
            world.secrets.put(format!("pre-{service}"), "{}");
        }
        let reconciler = world.service_tokens(enabled.then_some("default"));
        let (report, _) = try_pass(&reconciler, false).await;
        assert!(report.errors.is_empty(), "{:?}", chains(&report));
        if enabled {
            assert_eq!((report.skipped, report.resources), (2, 0));
        } else {
            assert_eq!((report.skipped, report.resources), (0, 2));
            assert_eq!(world.policy_names("default", "default").await, ["a-service", "b-service"]);
        }
    }
}

/// Case ACL10: with partitions and neither tag, a task is in `default`/`default`.
#[tokio::test]
async fn without_tags_partition_and_namespace_are_default() {
    let world = Enterprise::new();
    world.tasks.set(Enterprise::task("1", "web", None, None));
    world.secrets.put("pre-web-default-default", "{}");
    pass(&world.service_tokens(Some("default"))).await;
    assert_eq!(
        world.policy_names("default", "default").await,
        ["cross-namespace-read", "web-default-service"]
    );
    let tokens = world.tokens("default", "default").await;
    assert_eq!(
        tokens[0].description,
        format!(
            "Token for web service\nconsul.hashicorp.com/cluster: {CLUSTER}\nconsul.hashicorp.com/partition: default\nconsul.hashicorp.com/namespace: default"
        )
    );
}

/// Case ACL18: a service in two namespaces has two tokens and policies; foreign partitions and
/// tasks outside the mesh have none.
#[tokio::test]
async fn one_service_in_two_namespaces_is_two() {
    let world = Enterprise::new();
    world.consul.create_partition("p2");
    world.start("1", "web", "default", "ns-1");
    world.start("2", "web", "default", "ns-2");
    world.start("3", "web", "p2", "ns-1");
    let plain = Enterprise::task("4", "db", Some("default"), Some("ns-1"));
    world.tasks.set(plain.with_tag("consul.hashicorp.com/mesh", "false"));
    let reconciler = world.service_tokens(Some("default"));
    pass(&reconciler).await;
    let own = ["web-ns-1-service", "web-ns-2-service"];
    assert_eq!(world.policy_names("default", "default").await[1..], own);
    let tokens = world.tokens("default", "default").await;
    assert_eq!(tokens.len(), 2);
    for token in &tokens {
        let mut links: Vec<&str> = token.policies.iter().map(|link| link.name.as_str()).collect();
        links.sort_unstable();
        assert!(links[0] == "cross-namespace-read" && own.contains(&links[1]), "{links:?}");
    }
    assert!(world.tokens("p2", "default").await.is_empty());
    let secret = world.secrets.get("pre-web-ns-1-default").await.unwrap().unwrap().value.unwrap();
    assert!(secret.expose_secret().contains("accessor_id"));
    let client = world.scope("default", "default").client();
    let policy =
        client.acl_policy_by_name("web-ns-1-service", &read()).await.unwrap().value.unwrap();
    assert!(
        policy
            .rules
            .starts_with("partition \"default\" {\n  namespace \"ns-1\" {\n    service \"web\""),
        "{}",
        policy.rules
    );
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
    world.tasks.clear();
    assert_eq!(pass(&world.service_tokens(Some("default"))).await.len(), 6);
    assert!(world.tokens("default", "default").await.is_empty());
    assert_eq!(world.policy_names("default", "default").await, ["cross-namespace-read"]);
    assert_eq!(world.namespaces("default"), ["default", "ns-1", "ns-2"], "namespaces stay");
}

/// Case ACL20: without partitions no call about namespaces is made.
#[tokio::test]
async fn without_partitions_nothing_is_asked_about_them() {
    let world = Enterprise::new();
    world.tasks.set(Enterprise::task("1", "web", Some("p9"), Some("ns-9")));
    world.secrets.put("pre-web", "{}");
    let reconciler = world.service_tokens(None);
    reconciler.prepare(&Writer::new()).await.unwrap();
    pass(&reconciler).await;
    for request in world.consul.requests() {
        assert!(
            !["namespace", "partition", "ns="].iter().any(|word| request.contains(word)),
            "{request}"
        );
    }
    assert_eq!(world.tokens("default", "default").await.len(), 1);
}

/// Case ACL21: with the namespace `default` alone the policy for reads across namespaces exists,
/// and is among its defaults.
#[tokio::test]
async fn tokens_of_the_default_namespace_may_read_in_the_others() {
    let world = Enterprise::new();
    world.start("1", "web", "default", "default");
    let reconciler = world.service_tokens(Some("default"));
    pass(&reconciler).await;
    let policy = &world.policies("default", "default").await[0];
    assert_eq!(
        (policy.name.as_str(), policy.description.as_str()),
        (
            "cross-namespace-read",
            "Allow service and node reads across namespaces within the partition"
        )
    );
    let default = &world.consul.namespaces("default")[0];
    assert_eq!(default["ACLs"]["PolicyDefaults"], json!([{ "Name": "cross-namespace-read" }]));
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
}

/// Case ACL22: each needed namespace is created once, with the default policy.
#[tokio::test]
async fn each_missing_namespace_is_made_once() {
    let world = Enterprise::new();
    world.start("1", "a", "default", "ns-1");
    world.start("2", "b", "default", "ns-1");
    world.start("3", "c", "default", "ns-2");
    let changes = pass(&world.service_tokens(Some("default"))).await;
    let made: Vec<&String> =
        changes.iter().filter(|change| change.starts_with("create namespace")).collect();
    assert_eq!(made, ["create namespace ns-1", "create namespace ns-2"]);
    for namespace in &world.consul.namespaces("default")[1..] {
        assert_eq!(
            namespace["ACLs"]["PolicyDefaults"],
            json!([{ "Name": "cross-namespace-read" }]),
            "{namespace}"
        );
    }
}

/// Case ACL23: namespaces are created in the controller's partition, not in `default`.
#[tokio::test]
async fn namespaces_are_made_in_the_controllers_partition() {
    let world = Enterprise::new();
    world.start("1", "web", "part-1", "ns-1");
    let reconciler = world.service_tokens(Some("part-1"));
    let writer = Writer::new();
    reconciler.prepare(&writer).await.unwrap();
    assert_eq!(shown(writer), ["create partition part-1"]);
    pass(&reconciler).await;
    assert_eq!(world.namespaces("part-1"), ["default", "ns-1"]);
    assert_eq!(world.namespaces("default"), ["default"]);
    assert_eq!(
        world.policy_names("part-1", "default").await,
        ["cross-namespace-read", "web-ns-1-service"]
    );
    assert!(world.policy_names("default", "default").await.is_empty());
    let writer = Writer::new();
    reconciler.prepare(&writer).await.unwrap();
    assert!(shown(writer).is_empty());
}

/// A token of a task of the cluster, in a namespace.
async fn login(consul: &TestConsul, task: &str) -> String {
    let verify =
        |_: &LoginAttempt<'_>| Ok(LoginIdentity::aws_iam("arn:aws:iam::1:role/x", "web", "A", "1"));
    consul.set_login_verifier("aws-iam", verify);
    let client = consul.client();
    let config = json!({ "BoundIAMPrincipalARNs": ["arn:aws:iam::1:role/*"] });
    let method = AclAuthMethod::new("m", "aws-iam", config.as_object().cloned().unwrap());
    if client.acl_auth_method("m", &read()).await.unwrap().value.is_none() {
        client.acl_auth_method_create(&method, &write()).await.unwrap();
        let rule = AclBindingRule::new("m", BindType::Service, "${entity_name}");
        client.acl_binding_rule_create(&rule, &write()).await.unwrap();
    }
    let mut login = AclLogin::new("m", "x".into());
    login.meta.insert("consul.hashicorp.com/task-id".into(), task.into());
    login.meta.insert("consul.hashicorp.com/cluster".into(), CLUSTER.into());
    let client = client.with_token(None).unwrap();
    client.acl_login(&login, &write()).await.unwrap().accessor_id
}

/// Case ACL29: with partitions, tasks and tokens of others are ignored.
/// Case ACL31: tokens and services of a task that is not found are removed, others stay.
#[tokio::test]
async fn only_tokens_and_tasks_of_the_partition_count() {
    let world = Enterprise::new();
    for (partition, namespaces) in [("p1", ["ns-1", "ns-2"]), ("p2", ["ns-1", "ns-2"])] {
        world.consul.create_partition(partition);
        for namespace in namespaces {
            world.consul.create_namespace(partition, namespace);
        }
    }
    let untagged = Enterprise::task("t-unmeshed", "web", Some("p1"), Some("ns-1"));
    world.tasks.set(untagged.with_tag("consul.hashicorp.com/mesh", "x"));
    world.tasks.set(Enterprise::task("t-other", "web", Some("p2"), Some("ns-1")));
    world.tasks.set(Enterprise::task("t-half", "web", Some("p1"), None));
    world.tasks.set(Enterprise::task("t-kept", "web", Some("p1"), Some("ns-2")));
    let in_p1 = world.scope("p1", "ns-1");
    let gone = login(&in_p1, "t-gone").await;
    let other = login(&world.scope("p2", "ns-1"), "t-gone").await;
    let kept = login(&world.scope("p1", "ns-2"), "t-kept").await;
    let reconciler = world.login_tokens("p1");
    // A service of each task, in its namespace.
    let client = world.consul.client();
    for (id, task, namespace) in
        [("w1", "t-gone", "ns-1"), ("w2", "t-kept", "ns-2"), ("w1", "t-kept", "default")]
    {
        let mut service = Service::new("web", id);
        service.meta.insert("task-id".into(), task.into());
        service.namespace = Some(namespace.into());
        let mut registration = CatalogRegistration::new(CLUSTER, "10.0.0.9").with_service(service);
        registration.partition = Some("p1".into());
        client.catalog_register(&registration).await.unwrap();
    }
    let (report, changes) = try_pass(&reconciler, false).await;
    assert!(report.errors.is_empty(), "{:?}", chains(&report));
    assert_eq!((report.tasks, report.skipped, report.resources), (1, 1, 2));
    let removed: Vec<&String> =
        changes.iter().filter(|change| change.starts_with("delete")).collect();
    assert_eq!(removed, [&format!("delete token {gone}"), &"delete service w1".to_owned()]);
    let client = |partition: &str, namespace: &str| world.scope(partition, namespace).client();
    let has = async |partition: &str, namespace: &str, token: &str| {
        client(partition, namespace).acl_token(token, &read()).await.unwrap().value.is_some()
    };
    assert!(!has("p1", "ns-1", &gone).await);
    assert!(has("p2", "ns-1", &other).await && has("p1", "ns-2", &kept).await);
    let services = async |namespace: &str| {
        let node = client("p1", namespace).catalog_node(CLUSTER, &read()).await.unwrap().value;
        node.map(|node| node.services.len())
    };
    assert_eq!(
        (services("ns-1").await, services("ns-2").await, services("default").await),
        (Some(0), Some(1), Some(1))
    );
}

/// Case ACL34: a second set-up changes nothing, and restores whatever was deleted.
/// Case ACL42: mesh gateways outside the default partition get no rule about other partitions.
#[tokio::test]
async fn logins_are_set_up_in_the_partition() {
    let world = Enterprise::new();
    let reconciler = world.login_tokens("part-1");
    let writer = Writer::new();
    reconciler.prepare(&writer).await.unwrap();
    assert!(shown(writer).contains(&"create partition part-1".to_owned()));
    let client = world.scope("part-1", "default").client();
    let mesh = client.acl_policy_by_name("consul-ecs-mesh-gateway-policy", &read()).await.unwrap();
    assert_eq!(mesh.value.unwrap().rules, "mesh = \"write\"\npeering = \"read\"");
    assert_eq!(client.acl_roles(&read()).await.unwrap().value.len(), 3);
    assert!(client.catalog_node(CLUSTER, &read()).await.unwrap().value.is_some());
    let mut options = read();
    options.partition = Some("part-1".into());
    let method = world.consul.client().acl_auth_method("iam-ecs-service-token", &options).await;
    let method = method.unwrap().value.unwrap();
    assert_eq!(
        serde_json::to_value(&method.namespace_rules).unwrap(),
        json!([{
            "Selector": "entity_tags[\"consul.hashicorp.com.namespace\"] != \"\"",
            "BindNamespace": "${entity_tags.consul.hashicorp.com.namespace}",
        }])
    );
    // The anonymous token is there once for all partitions.
    let default = world.scope("default", "default").client();
    let anonymous = default.acl_policy_by_name("anonymous-token-policy", &read()).await.unwrap();
    assert!(anonymous.value.unwrap().rules.starts_with("\npartition_prefix"));
    let writer = Writer::new();
    reconciler.prepare(&writer).await.unwrap();
    assert_eq!(shown(writer), [format!("create node {CLUSTER}")]);
    let writer = Writer::new();
    world.login_tokens("default").prepare(&writer).await.unwrap();
    let mesh = default.acl_policy_by_name("consul-ecs-mesh-gateway-policy", &read()).await.unwrap();
    assert!(mesh.value.unwrap().rules.contains("partition_prefix"));
}

/// Somebody deletes the partition with everything in it.
///
/// Case ACL34: a second set-up changes nothing, and restores whatever was deleted.
#[tokio::test]
async fn a_partition_that_was_deleted_is_made_again_with_all_that_was_in_it() {
    let world = Enterprise::new();
    world.start("1", "web", "part-1", "ns-1");
    let (logins, services) = (world.login_tokens("part-1"), world.service_tokens(Some("part-1")));
    logins.prepare(&Writer::new()).await.unwrap();
    // Once at a start, once by the slower check of a controller that runs.
    for running in [false, true] {
        world.consul.delete_partition("part-1");
        if running {
            check(&logins).await;
        } else {
            let logins = world.login_tokens("part-1");
            logins.prepare(&Writer::new()).await.unwrap();
            pass(&logins).await;
        }
        let client = world.scope("part-1", "default").client();
        assert_eq!(client.acl_roles(&read()).await.unwrap().value.len(), 3);
        assert_eq!(client.acl_auth_methods(&read()).await.unwrap().value.len(), 1);
        let method = Some("iam-ecs-service-token");
        assert_eq!(client.acl_binding_rules(method, &read()).await.unwrap().value.len(), 4);
        let names = world.policy_names("part-1", "default").await;
        let gateways = names.iter().filter(|name| name.ends_with("-gateway-policy"));
        assert_eq!(gateways.count(), 2, "{names:?}");
        assert!(client.catalog_node(CLUSTER, &read()).await.unwrap().value.is_some());
        assert_eq!(world.namespaces("part-1"), ["default", "ns-1"]);

        world.consul.delete_partition("part-1");
        check(&services).await;
        assert_eq!(world.tokens("part-1", "default").await.len(), 1);
        assert_eq!(world.namespaces("part-1"), ["default", "ns-1"]);
        logins.prepare(&Writer::new()).await.unwrap();
    }
}

/// Upstream lets services overwrite each other's secrets when their names join to the same one.
#[tokio::test]
async fn services_whose_secret_would_be_the_same_do_not_overwrite_each_other() {
    let world = Enterprise::new();
    world.start("1", "a-b", "default", "c");
    let reconciler = world.service_tokens(Some("default"));
    pass(&reconciler).await;
    // Also what a slower check notes in the secret.
    try_pass(&reconciler, true).await;
    let stored = async || {
        let stored = world.secrets.get("pre-a-b-c-default").await.unwrap().unwrap();
        stored.value.unwrap().expose_secret().to_owned()
    };
    let ids = stored().await;
    world.tasks.set(Enterprise::task("2", "a", Some("default"), Some("b-c")));
    for check in [false, true] {
        // Also a controller that has seen neither.
        for reconciler in [&reconciler, &world.service_tokens(Some("default"))] {
            let (report, changes) = try_pass(reconciler, check).await;
            let errors = chains(&report);
            if report.postponed == 0 {
                let expected = "a (default/b-c): its secret pre-a-b-c-default would also be that of service a-b (default/c)";
                assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:?}");
            }
            assert!(changes.iter().all(|change| change.contains("namespace")), "{changes:?}");
            assert_eq!(stored().await, ids);
        }
    }
    assert_eq!(world.tokens("default", "default").await.len(), 1);
    // When none of them has a token, none gets one.
    world.tasks.clear();
    pass(&world.service_tokens(Some("default"))).await;
    let retired = stored().await;
    world.tasks.set(Enterprise::task("2", "a", Some("default"), Some("b-c")));
    world.tasks.set(Enterprise::task("3", "a-b", Some("default"), Some("c")));
    let (report, _) = try_pass(&world.service_tokens(Some("default")), false).await;
    assert_eq!(report.errors.len(), 2, "{:?}", chains(&report));
    assert!(world.tokens("default", "default").await.is_empty());
    assert_eq!(stored().await, retired);
    // One goes, the other gets it.
    world.tasks.remove(&Enterprise::task("3", "", None, None).arn);
    pass(&world.service_tokens(Some("default"))).await;
    assert_eq!(world.tokens("default", "default").await.len(), 1);
}
