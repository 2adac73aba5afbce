//! What logins need, set up on a Consul that knows `aws-iam`, which is the double.

use acl_controller::{LoginTokenSettings, LoginTokens, Reconciler as _, Registration, Writer};
use consul_watch::{
    client::AclTokenFilter,
    testing::{Behaviour, Fault, LoginAttempt, LoginIdentity},
    types::{AclLogin, AclPolicy, AclRole, BindType, CatalogDeregistration, JsonObject},
};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::{
    log::logged,
    scene::{Scene, check, pass, read, shown, write},
};

const METHOD: &str = "iam-ecs-service-token";

fn scene() -> Scene {
    Scene::double(Behaviour::Current)
}

async fn prepare(reconciler: &LoginTokens) -> Vec<String> {
    let writer = Writer::new();
    reconciler.prepare(&writer).await.unwrap();
    shown(writer)
}

fn with(scene: &Scene, change: impl FnOnce(&mut LoginTokenSettings)) -> LoginTokens {
    let mut settings = LoginTokenSettings::new(&scene.cluster, "10.0.0.9");
    change(&mut settings);
    let consul = std::sync::Arc::new(scene.client.clone());
    LoginTokens::new(consul, std::sync::Arc::new(scene.tasks.clone()), settings).unwrap()
}

/// That everything is there, and nothing twice.
async fn assert_set_up(scene: &Scene) {
    let client = &scene.client;
    let mut roles: Vec<String> =
        client.acl_roles(&read()).await.unwrap().value.into_iter().map(|role| role.name).collect();
    roles.sort();
    assert_eq!(
        roles,
        [
            "consul-ecs-api-gateway-role",
            "consul-ecs-mesh-gateway-role",
            "consul-ecs-terminating-gateway-role"
        ]
    );
    let methods = client.acl_auth_methods(&read()).await.unwrap().value;
    assert_eq!(methods.iter().map(|method| method.name.as_str()).collect::<Vec<_>>(), [METHOD]);
    let rules = client.acl_binding_rules(Some(METHOD), &read()).await.unwrap().value;
    assert_eq!(rules.len(), 4);
    let policies = client.acl_policies(&read()).await.unwrap().value;
    let mut names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    names.retain(|name| name.starts_with("consul-ecs-"));
    names.sort_unstable();
    assert_eq!(names, ["consul-ecs-api-gateway-policy", "consul-ecs-mesh-gateway-policy"]);
    let node = client.catalog_node(&scene.cluster, &read()).await.unwrap().value.unwrap();
    assert_eq!(node.node.meta["synthetic-node"], "true");
    let role = client.acl_role_by_name("consul-ecs-mesh-gateway-role", &read()).await.unwrap();
    assert_eq!(role.value.unwrap().policies[0].name, "consul-ecs-mesh-gateway-policy");
}

/// Case ACL34: a second set-up changes nothing, and restores whatever was deleted.
#[tokio::test]
async fn what_was_deleted_is_made_again() {
    let scene = scene();
    let reconciler = scene.login_tokens();
    let first = prepare(&reconciler).await;
    assert_eq!(first.len(), 2 + 3 + 1 + 4 + 2 + 1, "{first:?}");
    assert_set_up(&scene).await;
    // The node is registered anew, which changes nothing.
    assert_eq!(prepare(&reconciler).await, [format!("create node {}", scene.cluster)]);
    assert_set_up(&scene).await;

    let client = &scene.client;
    let policies = async || {
        for policy in client.acl_policies(&read()).await.unwrap().value {
            if policy.name.starts_with("consul-ecs-") {
                client.acl_policy_delete(&policy.id, &write()).await.unwrap();
            }
        }
    };
    let roles = async || {
        for role in client.acl_roles(&read()).await.unwrap().value {
            client.acl_role_delete(&role.id, &write()).await.unwrap();
        }
    };
    let method = async || client.acl_auth_method_delete(METHOD, &write()).await.unwrap();
    let rules = async || {
        for rule in client.acl_binding_rules(Some(METHOD), &read()).await.unwrap().value {
            client.acl_binding_rule_delete(&rule.id, &write()).await.unwrap();
        }
    };
    let node = async || {
        let node = CatalogDeregistration::node(&scene.cluster);
        client.catalog_deregister(&node).await.unwrap();
    };
    // Once at a start, once by the slower check of a controller that runs.
    for running in [false, true] {
        for which in 0..6 {
            if which == 0 || which == 5 {
                policies().await;
            }
            if which == 1 || which == 5 {
                roles().await;
            }
            if which == 2 || which == 5 {
                method().await;
            }
            if which == 3 || which == 5 {
                rules().await;
            }
            if which == 4 || which == 5 {
                node().await;
            }
            let changes = if running {
                check(&reconciler).await
            } else {
                prepare(&scene.login_tokens()).await
            };
            assert!(!changes.is_empty(), "{which}");
            assert_set_up(&scene).await;
        }
    }
}

async fn config(scene: &Scene) -> JsonObject {
    let method = scene.client.acl_auth_method(METHOD, &read()).await.unwrap().value.unwrap();
    method.config.expose().clone()
}

/// Case ACL35: an auth method gets missing ARNs and tags, merged and sorted; none missing, nothing
/// is written.
#[tokio::test]
async fn an_auth_method_gets_what_it_lacks_and_keeps_the_rest() {
    let scene = scene();
    let reconciler = scene.login_tokens();
    prepare(&reconciler).await;
    let own = "arn:aws:iam::123456789012:role/consul-ecs/*";
    let complete = json!([
        "consul.hashicorp.com.gateway-kind",
        "consul.hashicorp.com.namespace",
        "consul.hashicorp.com.service-name"
    ]);
    let made = config(&scene).await;
    assert_eq!(
        (&made["BoundIAMPrincipalARNs"], &made["IAMEntityTags"]),
        (&json!([own]), &complete)
    );
    let other = "arn:aws:iam::999999999999:role/consul-ecs/*";
    let cases = [
        // Only the ARNs differ.
        (json!([other]), complete.clone(), json!([own, other]), complete.clone(), true),
        // Only the tags.
        (
            json!([own]),
            json!(["z", "consul.hashicorp.com.namespace"]),
            json!([own]),
            json!([
                "consul.hashicorp.com.gateway-kind",
                "consul.hashicorp.com.namespace",
                "consul.hashicorp.com.service-name",
                "z"
            ]),
            true,
        ),
        // Both.
        (
            json!([other]),
            json!(["consul.hashicorp.com.namespace"]),
            json!([own, other]),
            complete.clone(),
            true,
        ),
        // Neither.
        (json!([own, other]), complete.clone(), json!([own, other]), complete.clone(), false),
    ];
    for (arns, tags, merged_arns, merged_tags, changes) in cases {
        let found = scene.client.acl_auth_method(METHOD, &read()).await.unwrap();
        let mut method = found.value.unwrap();
        let mut config = method.config.expose().clone();
        config.insert("BoundIAMPrincipalARNs".into(), arns);
        config.insert("IAMEntityTags".into(), tags);
        config.insert("STSEndpoint".into(), json!("https://sts.example"));
        method.config = config.into();
        scene.client.acl_auth_method_update(&method, &write()).await.unwrap();
        let written = prepare(&reconciler).await;
        assert_eq!(
            written.contains(&format!("update auth-method {METHOD}")),
            changes,
            "{written:?}"
        );
        let after = self::config(&scene).await;
        assert_eq!(after["BoundIAMPrincipalARNs"], merged_arns);
        assert_eq!(after["IAMEntityTags"], merged_tags);
        // Upstream drops what an operator has set.
        assert_eq!(after["STSEndpoint"], "https://sts.example");
        assert_eq!(after["EnableIAMEntityDetails"], true);
    }
}

/// Case ACL39: roles and policies of gateways are created if missing, and stay if not.
/// Case ACL41: an existing role without policies gets its policy.
#[tokio::test]
async fn policies_and_roles_of_gateways_are_made_kept_or_joined() {
    let scene = scene();
    let client = &scene.client;
    let mine = AclPolicy::new("consul-ecs-api-gateway-policy", "mesh = \"write\"");
    let mine = client.acl_policy_create(&mine, &write()).await.unwrap();
    // A role without policies gets one.
    let role =
        client.acl_role_create(&AclRole::new("consul-ecs-mesh-gateway-role"), &write()).await;
    let role = role.unwrap();
    prepare(&scene.login_tokens()).await;
    assert_set_up(&scene).await;
    let kept = client.acl_policy(&mine.id, &read()).await.unwrap().value.unwrap();
    assert_eq!(kept.rules, mine.rules);
    let joined = client.acl_role(&role.id, &read()).await.unwrap().value.unwrap();
    assert_eq!(joined.policies[0].name, "consul-ecs-mesh-gateway-policy");
    let made = client.acl_role_by_name("consul-ecs-api-gateway-role", &read()).await.unwrap();
    let made = made.value.unwrap();
    assert_eq!(
        (made.policies[0].id.as_str(), made.description.as_str()),
        (mine.id.as_str(), "API Gateway Role for ECS")
    );
    // Both exist: both are kept.
    prepare(&scene.login_tokens()).await;
    assert_eq!(client.acl_role(&made.id, &read()).await.unwrap().value, Some(made));
}

/// Case ACL38: the anonymous token gets its policy in the primary datacenter only; an unknown
/// datacenter is an error.
#[tokio::test]
async fn the_anonymous_token_may_find_services() {
    let scene = scene();
    let changes = prepare(&scene.login_tokens()).await;
    assert!(changes.contains(&"create policy anonymous-token-policy".to_owned()), "{changes:?}");
    assert!(changes.contains(&"update token anonymous".to_owned()), "{changes:?}");
    let nobody = scene.client.with_token(None).unwrap();
    let nodes = nobody.catalog_nodes(&read()).await.unwrap().value;
    assert!(nodes.iter().any(|node| node.name == scene.cluster));
    assert!(nobody.acl_policies(&read()).await.is_err());
    // The policy is there and not attached.
    let id = "00000000-0000-0000-0000-000000000002";
    let bare = consul_watch::types::AclTokenRequest::new("Anonymous Token");
    scene.client.acl_token_update(id, &bare, &write()).await.unwrap();
    let changes = prepare(&scene.login_tokens()).await;
    assert!(changes.contains(&"update token anonymous".to_owned()), "{changes:?}");
    assert!(!changes.iter().any(|change| change.starts_with("create policy")), "{changes:?}");
    let token = scene.token(id).await.unwrap();
    assert_eq!(
        token.policies.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(),
        ["anonymous-token-policy"]
    );
}

/// A task logs in with its role, works, and its token goes when it has gone.
#[tokio::test]
async fn a_login_gets_the_rights_of_its_role_and_ends_with_its_task() {
    let scene = scene();
    let reconciler = scene.login_tokens();
    prepare(&reconciler).await;
    let verify = |attempt: &LoginAttempt<'_>| {
        let shown = attempt.bearer_token.expose_secret();
        let identity = |path: &str| {
            let arn = format!("arn:aws:iam::123456789012:role{path}x");
            LoginIdentity::aws_iam(arn, "x", "AROA1", "123456789012").entity_path(path)
        };
        match shown {
            "service" => {
                Ok(identity("/consul-ecs/").entity_tag("consul.hashicorp.com.service-name", "web"))
            }
            "gateway" => Ok(identity("/consul-ecs/")
                .entity_tag("consul.hashicorp.com.service-name", "gateway")
                .entity_tag("consul.hashicorp.com.gateway-kind", "mesh-gateway")),
            "stranger" => {
                Ok(identity("/other/").entity_tag("consul.hashicorp.com.service-name", "web"))
            }
            _ => Err("unknown".to_owned()),
        }
    };
    scene.double.as_ref().unwrap().set_login_verifier("aws-iam", verify);
    let login = async |bearer: &str, task: &str| {
        let mut login = AclLogin::new(METHOD, bearer.into());
        login.meta.insert("consul.hashicorp.com/task-id".into(), task.into());
        login.meta.insert("consul.hashicorp.com/cluster".into(), scene.cluster.clone());
        scene.client.with_token(None).unwrap().acl_login(&login, &write()).await
    };
    // A path outside of the trusted one is nobody's.
    assert!(login("stranger", "t0").await.is_err());
    let (service, gateway) =
        (login("service", "t1").await.unwrap(), login("gateway", "t2").await.unwrap());
    assert_eq!(service.service_identities[0].service_name, "web");
    assert_eq!(gateway.roles[0].name, "consul-ecs-mesh-gateway-role");
    scene.start("t1", "web");
    pass(&reconciler).await;
    assert!(scene.token(&service.accessor_id).await.is_some());
    assert!(scene.token(&gateway.accessor_id).await.is_none());
    let tokens = scene.client.acl_tokens(&AclTokenFilter::default(), &read()).await.unwrap().value;
    assert_eq!(tokens.iter().filter(|token| token.auth_method == METHOD).count(), 1);
}

#[tokio::test]
async fn a_cluster_with_clients_has_an_auth_method_for_them() {
    let scene = scene();
    let reconciler = with(&scene, |settings| settings.registration = Registration::Clients);
    prepare(&reconciler).await;
    let client = &scene.client;
    let mut methods: Vec<String> = client
        .acl_auth_methods(&read())
        .await
        .unwrap()
        .value
        .into_iter()
        .map(|method| method.name)
        .collect();
    methods.sort();
    assert_eq!(methods, ["iam-ecs-client-token", METHOD]);
    let rules =
        client.acl_binding_rules(Some("iam-ecs-client-token"), &read()).await.unwrap().value;
    assert_eq!((rules.len(), &rules[0].bind_type), (1, &BindType::Role));
    assert_eq!(rules[0].bind_name, "consul-ecs-client-role");
    let role = client.acl_role_by_name("consul-ecs-client-role", &read()).await.unwrap();
    assert_eq!(role.value.unwrap().policies[0].name, "consul-ecs-client-policy");
    assert_eq!(
        config(&scene).await["IAMEntityTags"],
        json!(["consul.hashicorp.com.service-name", "consul.hashicorp.com.namespace"])
    );
    assert!(client.catalog_node(&scene.cluster, &read()).await.unwrap().value.is_none());
    assert_eq!(prepare(&reconciler).await, Vec::<String>::new());
    assert_eq!(pass(&reconciler).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_binding_rule_that_was_changed_is_put_right_and_a_second_one_goes() {
    let scene = scene();
    let reconciler = scene.login_tokens();
    prepare(&reconciler).await;
    let rules = scene.client.acl_binding_rules(Some(METHOD), &read()).await.unwrap().value;
    let mut gateway =
        rules.iter().find(|rule| rule.bind_name.contains("api-gateway")).unwrap().clone();
    let right = gateway.selector.clone();
    gateway.selector = String::new();
    scene.client.acl_binding_rule_update(&gateway, &write()).await.unwrap();
    let mut twin = rules.iter().find(|rule| rule.bind_type == BindType::Service).unwrap().clone();
    twin.id = String::new();
    scene.client.acl_binding_rule_create(&twin, &write()).await.unwrap();
    let mut own = twin.clone();
    own.description = "an operator's".into();
    scene.client.acl_binding_rule_create(&own, &write()).await.unwrap();
    prepare(&reconciler).await;
    let rules = scene.client.acl_binding_rules(Some(METHOD), &read()).await.unwrap().value;
    assert_eq!(rules.len(), 5, "four of ours and the operator's");
    let mended = rules.iter().find(|rule| rule.id == gateway.id).unwrap();
    assert_eq!(mended.selector, right);
}

/// Earlier releases trusted every role where no path was given, and what they wrote stays.
#[test]
fn trust_in_every_role_is_warned_of() {
    let wide = "arn:aws:iam::123456789012:role/*";
    let log = logged(async || {
        let scene = scene();
        prepare(&scene.login_tokens()).await;
        let found = scene.client.acl_auth_method(METHOD, &read()).await.unwrap();
        let mut method = found.value.unwrap();
        let mut config = method.config.expose().clone();
        let own = "arn:aws:iam::123456789012:role/consul-ecs/*";
        config.insert("BoundIAMPrincipalARNs".into(), json!([wide, own]));
        method.config = config.into();
        scene.client.acl_auth_method_update(&method, &write()).await.unwrap();
        check(&scene.login_tokens()).await;
        assert_eq!(self::config(&scene).await["BoundIAMPrincipalARNs"], json!([wide, own]));
    });
    let warnings = |log: &str| {
        let lines = log.lines().filter(|line| line.contains("trusts every role"));
        lines.filter(|line| line.contains("WARN") && line.contains(wide)).count()
    };
    assert!(warnings(&log) > 0, "{log}");
    // Who asks for it is not warned.
    let log = logged(async || {
        let scene = scene();
        let reconciler = with(&scene, |settings| settings.iam_role_path = "/".to_owned());
        prepare(&reconciler).await;
        check(&reconciler).await;
        assert_eq!(config(&scene).await["BoundIAMPrincipalARNs"], json!([wide]));
    });
    assert_eq!(warnings(&log), 0, "{log}");
}

#[tokio::test]
async fn what_could_not_be_set_up_is_told_also_when_nothing_can_be_listed() {
    let scene = scene();
    let double = scene.double.clone().unwrap();
    double.inject_always(Some(Fault::status(500, "No cluster leader")));
    let error = scene.login_tokens().pass(&Writer::new(), true).await.unwrap_err().to_string();
    for step in ["reading the agent's configuration", "listing resources"] {
        assert!(error.contains(step), "{error}");
    }
}
