//! Gateways: what they stand for, and how services are reached through them.

use consul_watch::{
    Client, QueryOptions, WriteOptions,
    client::HealthOptions,
    types::{
        CatalogDeregistration, CatalogRegistration, ConfigEntry, GatewayService, HealthCheck,
        HealthStatus, Service, ServiceKind,
    },
};
use serde_json::{Value, json};

use super::{Env, acl::holder, status};

super::cases![
    an_ingress_gateway_leads_to_its_services,
    a_terminating_gateway_stands_for_services,
    wildcards_follow_the_catalog,
    protocols_have_to_match,
    gateways_that_are_refused,
];

mod sealed {
    super::super::cases![sealed: rights_over_gateways];
    use super::rights_over_gateways;
}

fn read() -> QueryOptions {
    QueryOptions::default()
}

async fn configure(env: &Env, kind: &str, name: &str, settings: Value) {
    set(env, kind, name, settings).await.unwrap();
}

async fn set(env: &Env, kind: &str, name: &str, settings: Value) -> consul_watch::Result<bool> {
    let mut entry = ConfigEntry::new(kind, name);
    entry.settings = settings.as_object().cloned().unwrap();
    env.client.config_set(&entry, None, &WriteOptions::default()).await
}

async fn forget(env: &Env, kind: &str, name: &str) {
    env.client.config_delete(kind, name, None, &WriteOptions::default()).await.unwrap();
}

/// Registers an instance with a check on a node of its own; its id is the node's name.
async fn register(env: &Env, kind: ServiceKind, name: &str, node: &str, health: HealthStatus) {
    let mut service = Service::new(name, node);
    (service.kind, service.port) = (kind, 8443);
    let registration = CatalogRegistration::new(node, "10.0.0.9")
        .with_service(service)
        .with_check(HealthCheck::of_service(node, format!("{node}-check"), health));
    env.client.catalog_register(&registration).await.unwrap();
}

async fn deregister(env: &Env, node: &str) {
    env.client.catalog_deregister(&CatalogDeregistration::node(node)).await.unwrap();
}

async fn services(client: &Client, gateway: &str) -> Vec<GatewayService> {
    client.catalog_gateway_services(gateway, &read()).await.unwrap().value
}

/// The ids of the ingress gateways' instances that lead to a service.
async fn ingress(client: &Client, service: &str, passing: bool) -> Vec<String> {
    let mut options = HealthOptions::default();
    options.passing = passing;
    let found = client.health_ingress(service, &options).await.unwrap().value;
    found.into_iter().map(|entry| entry.service.id).collect()
}

async fn an_ingress_gateway_leads_to_its_services(env: &Env) {
    let (gateway, node, web, db) = (env.name("gw"), env.name("n"), env.name("web"), env.name("db"));
    assert!(services(&env.client, &gateway).await.is_empty());
    register(env, ServiceKind::IngressGateway, &gateway, &node, HealthStatus::Warning).await;
    let configured = |port: u16| {
        json!({ "Listeners": [
            { "Port": port, "Services": [{ "Name": web }] },
            { "Port": 9001, "Protocol": "tcp", "Services": [{ "Name": db }] },
        ] })
    };
    let name = gateway.clone();
    let listed = move |client: Client, options: QueryOptions| {
        let name = name.clone();
        async move { client.catalog_gateway_services(&name, &options).await }
    };
    let written = configure(env, "ingress-gateway", &gateway, configured(9000));
    let seen = env.observe(listed.clone(), written).await;
    seen.assert_woken();
    let mut found = seen.last;
    found.sort_by_key(|service| service.port);
    let [one, two] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&one.gateway, &one.service, one.port), (&gateway, &web, 9000));
    assert_eq!((one.protocol.as_str(), one.from_wildcard), ("tcp", false));
    assert_eq!(
        (&one.gateway_kind, one.create_index),
        (&ServiceKind::IngressGateway, one.modify_index)
    );
    assert_eq!((&two.service, two.port), (&db, 9001));

    assert_eq!(ingress(&env.client, &web, false).await, [node.as_str()]);
    assert!(ingress(&env.client, &web, true).await.is_empty(), "its check is warning");
    assert!(ingress(&env.client, &env.name("none"), false).await.is_empty());
    // A change of the gateway wakes who looks for the way to a service.
    let to_web = {
        let web = web.clone();
        move |client: Client, query: QueryOptions| {
            let web = web.clone();
            async move { client.health_ingress(&web, &HealthOptions::from(query)).await }
        }
    };
    let passing =
        register(env, ServiceKind::IngressGateway, &gateway, &node, HealthStatus::Passing);
    env.observe(to_web, passing).await.assert_woken();
    assert_eq!(ingress(&env.client, &web, true).await, [node.as_str()]);

    configure(env, "ingress-gateway", &gateway, configured(9009)).await;
    let ports: Vec<i64> =
        services(&env.client, &gateway).await.iter().map(|service| service.port).collect();
    assert!(ports.contains(&9009) && !ports.contains(&9000), "{ports:?}");
    env.observe(listed, forget(env, "ingress-gateway", &gateway)).await.assert_woken();
    assert!(services(&env.client, &gateway).await.is_empty());
    assert!(ingress(&env.client, &web, false).await.is_empty());
    deregister(env, &node).await;
}

async fn a_terminating_gateway_stands_for_services(env: &Env) {
    let (gateway, node, db) = (env.name("gw"), env.name("n"), env.name("db"));
    let settings = json!({ "Services": [
        { "Name": db, "CAFile": "/ca", "CertFile": "/cert", "KeyFile": "/key", "SNI": "db.x" },
    ] });
    configure(env, "terminating-gateway", &gateway, settings).await;
    let found = services(&env.client, &gateway).await;
    let [one] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&one.service, &one.gateway_kind), (&db, &ServiceKind::TerminatingGateway));
    let files = [&one.ca_file, &one.cert_file, &one.key_file, &one.sni];
    assert_eq!(files, ["/ca", "/cert", "/key", "db.x"]);
    // The gateway is how the mesh reaches the service.
    let reach = async || {
        let found = env.client.health_connect(&db, &HealthOptions::default()).await.unwrap().value;
        found.into_iter().map(|entry| entry.service.id).collect::<Vec<_>>()
    };
    assert!(reach().await.is_empty());
    register(env, ServiceKind::TerminatingGateway, &gateway, &node, HealthStatus::Passing).await;
    assert_eq!(reach().await, [node.as_str()]);
    let listed = env.client.catalog_connect(&db, &read()).await.unwrap().value;
    assert_eq!(listed.len(), 1);
    assert!(ingress(&env.client, &db, false).await.is_empty());
    forget(env, "terminating-gateway", &gateway).await;
    assert!(reach().await.is_empty());
    deregister(env, &node).await;
}

async fn wildcards_follow_the_catalog(env: &Env) {
    let (gateway, web, api) = (env.name("gw"), env.name("web"), env.name("api"));
    let (one, two, proxy) = (env.name("one"), env.name("two"), env.name("proxy"));
    register(env, ServiceKind::Typical, &web, &one, HealthStatus::Passing).await;
    let settings = json!({ "Services": [{ "Name": "*", "CAFile": "/any" }, { "Name": api, "CAFile": "/own" }] });
    configure(env, "terminating-gateway", &gateway, settings).await;
    // Others register services on the same server at the same time.
    let own = async || {
        let found = services(&env.client, &gateway).await;
        assert!(found.iter().all(|found| found.service != "*" && found.service != "consul"));
        let mut found: Vec<_> = found
            .into_iter()
            .filter(|found| [&web, &api, &two, &proxy].contains(&&found.service))
            .map(|found| (found.service, found.ca_file, found.from_wildcard))
            .collect();
        found.sort();
        found
    };
    let explicit = (api.clone(), "/own".to_owned(), false);
    let by_wildcard = |name: &String| (name.clone(), "/any".to_owned(), true);
    let mut expected = [explicit, by_wildcard(&web)];
    expected.sort();
    assert_eq!(own().await, expected);
    // A new service comes in, and proxies do not count. An instance of a service that is
    // configured by name makes the wildcard hold for it.
    register(env, ServiceKind::Typical, &two, &two, HealthStatus::Passing).await;
    register(env, ServiceKind::Typical, &api, &api, HealthStatus::Passing).await;
    register(env, ServiceKind::MeshGateway, &proxy, &proxy, HealthStatus::Passing).await;
    let mut expected = [&web, &two, &api].map(by_wildcard);
    expected.sort();
    assert_eq!(own().await, expected);
    for node in [&one, &two, &api, &proxy] {
        deregister(env, node).await;
    }
    assert_eq!(own().await, []);
    forget(env, "terminating-gateway", &gateway).await;
}

async fn protocols_have_to_match(env: &Env) {
    let (gateway, web) = (env.name("gw"), env.name("web"));
    let listener = json!({ "Listeners": [
        { "Port": 9000, "Protocol": "http", "Services": [{ "Name": web, "Hosts": ["web.x"] }] },
    ] });
    let error = set(env, "ingress-gateway", &gateway, listener.clone()).await.unwrap_err();
    let problem = format!(
        "service {web:?} has protocol \"tcp\", which does not match defined listener protocol \"http\""
    );
    assert!(error.to_string().contains(&problem), "{error}");
    configure(env, "service-defaults", &web, json!({ "Protocol": "http" })).await;
    configure(env, "ingress-gateway", &gateway, listener).await;
    let found = services(&env.client, &gateway).await;
    assert_eq!((found[0].protocol.as_str(), &found[0].hosts[..]), ("http", &["web.x".into()][..]));
    forget(env, "ingress-gateway", &gateway).await;
    forget(env, "service-defaults", &web).await;
}

async fn gateways_that_are_refused(env: &Env) {
    let name = env.name("gw");
    let listener = |services: Value, more: Value| {
        let mut listener = json!({ "Port": 9000, "Services": services });
        for (name, value) in more.as_object().unwrap() {
            listener[name] = value.clone();
        }
        json!({ "Listeners": [listener] })
    };
    let two = json!([{ "Name": "a" }, { "Name": "b" }]);
    let any = json!([{ "Name": "*" }]);
    let mut wrong = Vec::new();
    for (kind, settings, problem) in [
        (
            "ingress-gateway",
            listener(any.clone(), json!({})),
            "Wildcard service name is only valid for protocol = 'http' (listener on port 9000)",
        ),
        (
            "ingress-gateway",
            listener(json!([{ "Name": "*", "Hosts": ["x"] }]), json!({ "Protocol": "http" })),
            "Associating hosts to a wildcard service is not supported",
        ),
        (
            "ingress-gateway",
            listener(two, json!({})),
            if env.is_1_8 {
                "Multiple services per listener are only supported for protocol = 'http'"
            } else {
                "Multiple services per listener are only supported for L7 protocols, 'http', 'grpc' and 'http2'"
            },
        ),
        (
            "ingress-gateway",
            listener(any, json!({ "Protocol": "x" })),
            "'x' is an unsupported protocol",
        ),
        (
            "ingress-gateway",
            listener(json!([]), json!({})),
            "No service declared for listener with port 9000",
        ),
        (
            "ingress-gateway",
            json!({ "Listeners": [
                { "Port": 9000, "Services": [{ "Name": "a" }] },
                { "Port": 9000, "Services": [{ "Name": "b" }] },
            ] }),
            "port 9000 declared on two listeners",
        ),
        (
            "terminating-gateway",
            json!({ "Services": [{ "Name": "a" }, { "Name": "a" }] }),
            "Service \"a\" was specified more than once within a namespace",
        ),
        (
            "terminating-gateway",
            json!({ "Services": [{ "Name": "a", "CertFile": "/x" }] }),
            "Service \"a\" must have a CertFile, CAFile, and KeyFile specified",
        ),
    ] {
        let shown = settings.to_string();
        match set(env, kind, &name, settings).await {
            Err(error) if status(&error) == 500 && error.to_string().contains(problem) => {}
            other => wrong.push(format!("{shown}: {other:?} instead of {problem:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // A wildcard is taken for each protocol above TCP, whatever the text says.
    let for_grpc = listener(json!([{ "Name": "*" }]), json!({ "Protocol": "grpc" }));
    configure(env, "ingress-gateway", &name, for_grpc).await;
    forget(env, "ingress-gateway", &name).await;
    configure(env, "terminating-gateway", &name, json!({ "Services": [{ "Name": "a" }] })).await;
    let other = listener(json!([{ "Name": "a" }]), json!({}));
    let error = set(env, "ingress-gateway", &name, other).await.unwrap_err();
    assert!(error.to_string().contains("config entry with that name already exists"), "{error}");
    forget(env, "terminating-gateway", &name).await;
}

async fn rights_over_gateways(env: &Env) {
    let (gateway, node, web, db) = (env.name("gw"), env.name("n"), env.name("web"), env.name("db"));
    register(env, ServiceKind::IngressGateway, &gateway, &node, HealthStatus::Passing).await;
    let settings = json!({ "Listeners": [
        { "Port": 9000, "Services": [{ "Name": web }] },
        { "Port": 9001, "Services": [{ "Name": db }] },
    ] });
    configure(env, "ingress-gateway", &gateway, settings).await;
    let rule = |name: &String| format!("service {name:?} {{ policy = \"read\" }}");
    let nodes = "node_prefix \"\" { policy = \"read\" }".to_owned();
    let who = holder(env, &[rule(&gateway), rule(&web), nodes.clone()]).await;
    let seen = services(&who, &gateway).await;
    assert_eq!(seen.iter().map(|found| &found.service).collect::<Vec<_>>(), [&web]);
    assert_eq!(ingress(&who, &web, false).await, [node.as_str()]);
    let blind = holder(env, &[rule(&web), nodes]).await;
    let error = blind.catalog_gateway_services(&gateway, &read()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    // Who sees the service but not its gateway sees no way to it.
    assert!(ingress(&blind, &web, false).await.is_empty());
    forget(env, "ingress-gateway", &gateway).await;
    deregister(env, &node).await;
}
