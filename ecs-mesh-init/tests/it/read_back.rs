//! What Consul holds after mesh-init, member by member as the specification has it, and what a
//! second run changes of it: nothing.

use consul_watch::{
    Client, QueryOptions,
    client::Request,
    testing::{TestConsul, parts::Suite, real::Consul},
    types::AgentServiceRegistration,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::volume::{NODE, Volume};

const SUITE: Suite = Suite("ecs-mesh-init read back");

const ARN: &str = "arn:aws:ecs:us-east-1:123456789:task/test/abcdef";

/// What both generations say of a service and its sidecar.
fn settings() -> Value {
    json!({
        "bootstrapDir": "$DIR", "healthSyncContainers": ["app", "log"],
        "service": {"name": "frontend", "tags": ["a", "b"], "port": 8080, "enableTagOverride": true,
            "meta": {"env": "test"}, "weights": {"passing": 6, "warning": 5}},
        "proxy": {"publicListenerPort": 21000, "config": {"protocol": "http"},
            "upstreams": [{"destinationName": "backend", "datacenter": "dc2", "localBindAddress": "localhost",
                "localBindPort": 1234, "config": {"connect_timeout_ms": 7}, "meshGateway": {"mode": "local"}}],
            "meshGateway": {"mode": "remote"},
            "expose": {"checks": true, "paths": [{"listenerPort": 20001, "path": "/things", "localPathPort": 8080, "protocol": "http2"}]}},
    })
}

fn meta() -> Value {
    json!({"task-id": "abcdef", "task-arn": ARN, "source": "consul-ecs", "env": "test"})
}

/// The sidecar's settings. The configuration names no type for its upstream.
fn proxy() -> Value {
    json!({
        "DestinationServiceName": "frontend", "DestinationServiceID": "frontend-abcdef", "LocalServicePort": 8080,
        "Config": {"protocol": "http"}, "MeshGateway": {"Mode": "remote"},
        "Upstreams": [{"DestinationType": "service", "DestinationName": "backend", "Datacenter": "dc2",
            "LocalBindAddress": "localhost", "LocalBindPort": 1234, "Config": {"connect_timeout_ms": 7},
            "MeshGateway": {"Mode": "local"}}],
        "Expose": {"Checks": true, "Paths": [{"ListenerPort": 20001, "Path": "/things", "LocalPathPort": 8080, "Protocol": "http2"}]},
    })
}

/// Says where `found` lacks something of `expected`. Lists must be equal in length.
fn lacks(found: &Value, expected: &Value, at: &str) -> Option<String> {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().find_map(|(name, it)| {
                let place = format!("{at}.{name}");
                match found.get(name) {
                    Some(inner) => lacks(inner, it, &place),
                    None => Some(format!("{place} is missing")),
                }
            })
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let mut pairs = found.iter().zip(expected).enumerate();
            pairs.find_map(|(number, (found, it))| lacks(found, it, &format!("{at}.{number}")))
        }
        _ => (found != expected).then(|| format!("{at} is {found}, not {expected}")),
    }
}

#[test]
fn what_is_lacking_is_noticed() {
    let whole = json!({"a": [{"b": 1, "c": 2}]});
    assert_eq!(lacks(&whole, &json!({"a": [{"b": 1}]}), ""), None);
    assert_eq!(lacks(&whole, &json!({"a": [{"b": 2}]}), "").unwrap(), ".a.0.b is 1, not 2");
    assert_eq!(lacks(&whole, &json!({"d": 1}), "").unwrap(), ".d is missing");
    assert!(lacks(&whole, &json!({"a": []}), "").is_some());
}

fn holds(found: &Value, expected: &Value) {
    assert_eq!(lacks(found, expected, ""), None, "{found:#}");
}

async fn read(client: &Client, path: &str, name: &str) -> Value {
    let request = Request::get("test", path);
    let request = if name.is_empty() { request } else { request.segment(name) };
    client.read::<Value>(request).await.unwrap().value
}

async fn run(config: &Value, vars: &[(&str, String)]) {
    Volume::new().run(&config.to_string(), vars).run(CancellationToken::new()).await.unwrap();
}

async fn through_an_agent(client: &Client) {
    let vars = [("CONSUL_HTTP_ADDR", client.address().to_owned())];
    let mut entries = Vec::new();
    for round in 0..2 {
        run(&settings(), &vars).await;
        agent_has_all(client).await;
        // The agent brings all that it changed to the catalog before, or together with, this one.
        let marker = format!("marker-{round}");
        client.agent_register_service(&AgentServiceRegistration::new(&marker)).await.unwrap();
        while read(client, "/v1/catalog/service", &marker).await == json!([]) {
            tokio::task::yield_now().await;
        }
        let service = read(client, "/v1/catalog/service", "frontend").await;
        let sidecar = read(client, "/v1/catalog/service", "frontend-sidecar-proxy").await;
        assert!(service[0]["ModifyIndex"].is_u64() && sidecar[0]["ModifyIndex"].is_u64());
        entries.push((service, sidecar));
    }
    assert_eq!(entries[0], entries[1], "a second run changes nothing, no index either");
}

async fn agent_has_all(client: &Client) {
    let service = read(client, "/v1/agent/service", "frontend-abcdef").await;
    let common = json!({"Tags": ["a", "b"], "Meta": meta(), "EnableTagOverride": true,
        "Weights": {"Passing": 6, "Warning": 5}});
    holds(&service, &common);
    holds(
        &service,
        &json!({"ID": "frontend-abcdef", "Service": "frontend", "Port": 8080, "Address": ""}),
    );
    let sidecar = read(client, "/v1/agent/service", "frontend-abcdef-sidecar-proxy").await;
    holds(&sidecar, &common);
    holds(
        &sidecar,
        &json!({"Kind": "connect-proxy", "ID": "frontend-abcdef-sidecar-proxy",
            "Service": "frontend-sidecar-proxy", "Port": 21000, "Proxy": proxy()}),
    );
    let checks = read(client, "/v1/agent/checks", "").await;
    let checks = checks.as_object().unwrap();
    let own: Vec<&Value> = checks.values().filter(|it| it["ServiceName"] != "").collect();
    assert_eq!(own.len(), 4, "{checks:#?}");
    assert!(own.iter().all(|it| it["Status"] == "critical"), "{checks:#?}");
    for container in ["app", "log"] {
        let notes = format!(
            "consul-ecs created and updates this check because the {container} container is essential and has \
             an ECS health check."
        );
        let expected =
            json!({"Name": "consul ecs synced", "ServiceID": "frontend-abcdef", "Notes": notes});
        holds(&checks[&format!("frontend-abcdef-{container}-consul-ecs")], &expected);
    }
    let names = own.iter().filter(|it| it["ServiceID"] == "frontend-abcdef-sidecar-proxy");
    let mut names: Vec<&str> = names.map(|it| it["Name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["Destination Alias", "Proxy Public Listener"]);
}

/// The same for the catalog of this server.
fn settings_for_servers(client: &Client, transparent: bool) -> Value {
    let port = client.address().rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let mut config = settings();
    config["consulServers"] = json!({"hosts": "127.0.0.1", "defaults": {"tls": false},
        "http": {"https": false, "port": port}});
    config["transparentProxy"] = json!({"enabled": transparent});
    config
}

async fn through_the_catalog(client: &Client) {
    let config = settings_for_servers(client, false);
    let mut entries = Vec::new();
    for _round in 0..2 {
        run(&config, &[]).await;
        let service = read(client, "/v1/catalog/service", "frontend").await;
        let sidecar = read(client, "/v1/catalog/service", "frontend-sidecar-proxy").await;
        let checks = read(client, "/v1/health/checks", "frontend").await;
        let of_sidecar = read(client, "/v1/health/checks", "frontend-sidecar-proxy").await;
        entries.push([service, sidecar, checks, of_sidecar]);
    }
    assert_eq!(entries[0], entries[1], "a second run changes nothing, no index either");
    let [service, sidecar, checks, of_sidecar] = &entries[0];
    let common = json!({"Node": NODE, "NodeMeta": {"synthetic-node": "true"}, "Address": "10.0.1.7",
        "ServiceAddress": "10.0.1.7", "ServiceTags": ["a", "b"], "ServiceMeta": meta(),
        "ServiceEnableTagOverride": true, "ServiceWeights": {"Passing": 6, "Warning": 5}});
    for entry in [service, sidecar] {
        assert_eq!(entry.as_array().unwrap().len(), 1);
        holds(&entry[0], &common);
    }
    holds(&service[0], &json!({"ServiceID": "frontend-abcdef", "ServicePort": 8080}));
    holds(
        &sidecar[0],
        &json!({"ServiceID": "frontend-abcdef-sidecar-proxy", "ServiceKind": "connect-proxy",
            "ServicePort": 21000, "ServiceProxy": proxy()}),
    );
    let dataplane = |owner: &str, service: &str| {
        json!({"CheckID": format!("{owner}-consul-dataplane"), "Name": "Consul dataplane readiness",
            "Type": "consul-ecs-health-check", "ServiceID": owner, "Status": "critical",
            "Output": format!("Service {service} is not ready"),
            "Notes": "consul-ecs created and updates this check to indicate consul-dataplane container's readiness"})
    };
    let container = |name: &str| {
        json!({"CheckID": format!("frontend-abcdef-{name}"), "Name": "Consul ECS health check synced",
            "Type": "consul-ecs-health-check", "ServiceID": "frontend-abcdef", "Status": "critical",
            "Output": "Service frontend is not ready",
            "Notes": format!("consul-ecs created and updates this check because the {name} container has an ECS health check.")})
    };
    let mut sorted = checks.as_array().unwrap().clone();
    sorted.sort_by_key(|check| check["CheckID"].to_string());
    let expected =
        json!([container("app"), dataplane("frontend-abcdef", "frontend"), container("log")]);
    holds(&json!(sorted), &expected);
    let own = dataplane("frontend-abcdef-sidecar-proxy", "frontend-sidecar-proxy");
    holds(of_sidecar, &json!([own]));
    let nodes = client.catalog_nodes(&QueryOptions::default()).await.unwrap().value;
    assert_eq!(nodes.iter().filter(|node| node.name == NODE).count(), 1);
}

/// Consul gives a transparent proxy's upstream a virtual IP only with this address.
async fn with_a_transparent_proxy(client: &Client) {
    run(&settings_for_servers(client, true), &[]).await;
    let tagged = json!({"virtual": {"Address": "10.0.1.7", "Port": 8080}});
    for name in ["frontend", "frontend-sidecar-proxy"] {
        let entry = read(client, "/v1/catalog/service", name).await;
        holds(&entry[0], &json!({"ServiceTaggedAddresses": tagged}));
    }
    let sidecar = read(client, "/v1/catalog/service", "frontend-sidecar-proxy").await;
    holds(&sidecar[0], &json!({"ServiceProxy": {"Mode": "transparent"}}));
}

/// Case MI16: each feature of a configuration has its registration and its files with their modes,
/// and all checks start critical.
/// Case MI17: an upstream without a type is stored as `service`.
#[tokio::test]
async fn through_an_agent_that_is_a_double() {
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    through_an_agent(&consul.client()).await;
}

/// Case MI16: each feature of a configuration has its registration and its files with their modes,
/// and all checks start critical.
/// Case MI17: an upstream without a type is stored as `service`.
#[tokio::test]
async fn through_an_agent_that_is_real() {
    for part in SUITE.parts("consul", "read back from an agent") {
        let consul = Consul::start(&part.path).await.unwrap();
        through_an_agent(&consul.client()).await;
    }
}

/// Case MI16: each feature of a configuration has its registration and its files with their modes,
/// and all checks start critical.
/// Case MI17: an upstream without a type is stored as `service`.
#[tokio::test]
async fn through_the_catalog_that_is_a_double() {
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    through_the_catalog(&consul.client()).await;
    with_a_transparent_proxy(&consul.client()).await;
}

/// Case MI16: each feature of a configuration has its registration and its files with their modes,
/// and all checks start critical.
/// Case MI17: an upstream without a type is stored as `service`.
#[tokio::test]
async fn through_the_catalog_that_is_real() {
    for part in SUITE.parts("consul", "read back from the catalog") {
        let consul = Consul::start(&part.path).await.unwrap();
        through_the_catalog(&consul.client()).await;
        if part.major_minor() < (1, 10) {
            let case = "the address of a transparent proxy";
            SUITE.not_applicable("consul", case, "transparent proxies came with Consul 1.10");
            continue;
        }
        with_a_transparent_proxy(&consul.client()).await;
    }
}
