//! mesh-init as a whole, in both generations.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use consul_watch::{
    Client, QueryOptions,
    testing::{
        ServedConsul, TestConsul,
        parts::{Part, Suite},
        real::Consul,
    },
    types::HealthStatus,
};
use ecs_mesh_init::{Error, registration::RetryPolicy};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{body_partial_json, header, method, path},
};

use crate::volume::{Counted, NODE, Volume};

const SUITE: Suite = Suite("ecs-mesh-init mesh-init");

const EARLY: &str = r#"{"bootstrapDir":"$DIR","service":{"port":8080},"healthSyncContainers":["app"],
    "proxy":{"config":{"envoy_prometheus_bind_addr":"0.0.0.0:9102"}}}"#;

async fn joins_through_an_agent(client: &Client) {
    let volume = Volume::new();
    let vars = [("CONSUL_HTTP_ADDR", client.address().to_owned())];
    let mut bootstraps = Vec::new();
    for _again in 0..2 {
        volume.run(EARLY, &vars).run(CancellationToken::new()).await.unwrap();
        bootstraps.push(volume.read("envoy-bootstrap.json"));
    }
    assert_eq!(bootstraps[0], bootstraps[1]);
    assert_eq!((volume.mode("envoy-bootstrap.json"), volume.mode("consul-ecs")), (0o444, 0o755));
    let services = client.agent_services(&QueryOptions::default()).await.unwrap();
    assert_eq!(services.len(), 2);
    assert_eq!(
        services["web-abcdef-sidecar-proxy"].service.proxy.destination_service_id,
        "web-abcdef"
    );
    let checks = client.agent_checks(&QueryOptions::default()).await.unwrap();
    assert_eq!(checks.len(), 3);
    assert_eq!(checks["web-abcdef-app-consul-ecs"].status, HealthStatus::Critical);
    let bootstrap = &bootstraps[0];
    assert_eq!(bootstrap["node"]["id"], "web-abcdef-sidecar-proxy");
    assert_eq!(bootstrap["node"]["cluster"], "web");
    assert_eq!(
        bootstrap["static_resources"]["listeners"][0]["name"],
        "envoy_prometheus_metrics_listener"
    );
    let address = &bootstrap["static_resources"]["clusters"][0]["loadAssignment"]["endpoints"][0]["lbEndpoints"]
        [0];
    assert_eq!(address["endpoint"]["address"]["socket_address"]["port_value"], 8502);
}

async fn double() -> ServedConsul {
    SUITE.double("consul");
    TestConsul::new().serve().await.unwrap()
}

#[tokio::test]
async fn an_agent_that_is_a_double() {
    let consul = double().await;
    joins_through_an_agent(&consul.client()).await;
}

#[tokio::test]
async fn an_agent_that_is_real() {
    for part in SUITE.parts("consul", "mesh-init through an agent") {
        let consul = Consul::start(&part.path).await.unwrap();
        joins_through_an_agent(&consul.client()).await;
    }
}

/// A program that embeds the crate has a client already, and no variables.
#[tokio::test]
async fn a_given_client_is_used_in_both_generations() {
    let consul = TestConsul::new();
    for config in [
        r#"{"bootstrapDir":"$DIR","service":{"name":"early","port":1}}"#,
        r#"{"bootstrapDir":"$DIR","consulServers":{"hosts":"nowhere.invalid"},
            "service":{"name":"current","port":1},"transparentProxy":{"enabled":false}}"#,
    ] {
        let volume = Volume::new();
        let mut run = volume.run(config, &[]);
        run.client = Some(consul.client());
        run.run(CancellationToken::new()).await.unwrap();
    }
    let services = consul.client().catalog_services(&QueryOptions::default()).await.unwrap().value;
    for name in ["early", "early-sidecar-proxy", "current", "current-sidecar-proxy"] {
        assert!(services.contains_key(name), "{services:?}");
    }
}

/// A configuration of the current generation for a server at this address.
pub(crate) fn current(address: &str, extra: &str) -> String {
    let port = address.rsplit_once(':').unwrap().1;
    format!(
        r#"{{"bootstrapDir":"$DIR","consulServers":{{"hosts":"127.0.0.1","defaults":{{"tls":false}},
        "http":{{"https":false,"port":{port}}}}}{extra}}}"#
    )
}

async fn joins_through_the_catalog(client: &Client) {
    let volume = Volume::new();
    let config = current(
        client.address(),
        r#","service":{"port":8080,"tags":["a"],"meta":{"env":"test"}},"healthSyncContainers":["app","log"],
        "transparentProxy":{"enabled":false},"proxy":{"upstreams":[{"destinationName":"b","localBindPort":1}]}"#,
    );
    let mut seen = Vec::new();
    for _again in 0..2 {
        volume.run(&config, &[]).run(CancellationToken::new()).await.unwrap();
        let options = QueryOptions::default();
        let service = client.catalog_service("web", &options).await.unwrap().value;
        let sidecar = client.catalog_service("web-sidecar-proxy", &options).await.unwrap().value;
        let checks = client.health_checks("web", &options).await.unwrap().value;
        seen.push((service, sidecar, checks, volume.read("consul-dataplane.json")));
    }
    assert_eq!(seen[0], seen[1], "a second run changes nothing");
    let (service, sidecar, checks, dataplane) = &seen[0];
    assert_eq!((service.len(), sidecar.len(), checks.len()), (1, 1, 3));
    assert_eq!(service[0].node, NODE);
    assert_eq!((service[0].service_address.as_str(), service[0].service_port), ("10.0.1.7", 8080));
    assert_eq!(
        (service[0].service_tags[0].as_str(), service[0].service_meta["env"].as_str()),
        ("a", "test")
    );
    assert!(checks.iter().all(|check| check.status == HealthStatus::Critical));
    assert_eq!(sidecar[0].service_proxy.upstreams[0].destination_name, "b");
    assert_eq!(
        dataplane["proxy"],
        json!({"nodeName": NODE, "id": "web-abcdef-sidecar-proxy", "namespace": "", "partition": ""})
    );
    assert_eq!((volume.mode("consul-dataplane.json"), volume.mode("consul-ecs")), (0o444, 0o755));
}

/// Case MI16: each feature of a configuration has its registration and its files with their modes,
/// and all checks start critical.
#[tokio::test]
async fn a_catalog_that_is_a_double() {
    let consul = double().await;
    joins_through_the_catalog(&consul.client()).await;
}

/// Case MI16: each feature of a configuration has its registration and its files with their modes,
/// and all checks start critical.
#[tokio::test]
async fn a_catalog_that_is_real() {
    for part in SUITE.parts("consul", "mesh-init through the catalog") {
        let consul = Consul::start(&part.path).await.unwrap();
        joins_through_the_catalog(&consul.client()).await;
    }
}

/// Case MI21: the CA of consul-dataplane is none, the configured path, or a file with the
/// environment's PEM text.
#[tokio::test]
async fn the_authority_is_the_configured_one_or_the_environments() {
    let consul = double().await;
    let address = consul.client().address().to_owned();
    let ca_path = async |grpc: &str, vars: &[(&str, String)]| {
        let volume = Volume::new();
        let port = address.rsplit_once(':').unwrap().1;
        let config = format!(
            r#"{{"bootstrapDir":"$DIR","consulServers":{{"hosts":"127.0.0.1","defaults":{{"caCertFile":"/ca.pem"}},
            "grpc":{{"tls":{grpc}}},"http":{{"https":false,"port":{port}}}}},"service":{{"port":1}},
            "transparentProxy":{{"enabled":false}}}}"#
        );
        volume.run(&config, vars).run(CancellationToken::new()).await.unwrap();
        let path = volume.read("consul-dataplane.json")["consul"]["tls"]["caCertsPath"].clone();
        (volume, path)
    };
    let pem = [("CONSUL_GRPC_CACERT_PEM", "-----BEGIN".to_owned())];
    assert_eq!(ca_path("false", &pem).await.1, Value::Null);
    assert_eq!(ca_path("true", &[]).await.1, "/ca.pem");
    let (volume, path) = ca_path("true", &pem).await;
    assert!(path.as_str().unwrap().ends_with("/consul-grpc-ca-cert.pem"));
    assert_eq!(fs::read_to_string(path.as_str().unwrap()).unwrap(), "-----BEGIN");
    assert_eq!(volume.mode("consul-grpc-ca-cert.pem"), 0o444);
}

/// Case MI16: each feature of a configuration has its registration and its files with their modes,
/// and all checks start critical.
#[tokio::test]
async fn traffic_is_redirected_and_names_are_asked_of_consul() {
    let server = MockServer::start().await;
    let ok = |body: Value| ResponseTemplate::new(200).set_body_json(body);
    Mock::given(path("/v1/status/leader"))
        .respond_with(ok(json!("127.0.0.1:8300")))
        .mount(&server)
        .await;
    Mock::given(method("PUT"))
        .and(path("/v1/catalog/register"))
        .respond_with(ok(json!(true)))
        .expect(2)
        .mount(&server)
        .await;
    let sidecar = json!({"Kind": "connect-proxy", "ID": "web-abcdef-sidecar-proxy", "Service": "web-sidecar-proxy", "Port": 20000});
    let answers = [json!([sidecar]), json!([]), json!([sidecar, sidecar])];
    let volume = Volume::new();
    let rules = volume.path("rules");
    let iptables = volume.path("iptables");
    fs::write(&iptables, format!("#!/bin/sh\necho \"$@\" >>{}\n", rules.display())).unwrap();
    fs::set_permissions(&iptables, fs::Permissions::from_mode(0o755)).unwrap();
    let config = current(
        &server.uri(),
        r#","service":{"port":1},"transparentProxy":{"consulDNS":{"enabled":true}}"#,
    );
    let mut errors = Vec::new();
    for services in answers {
        server.reset().await;
        Mock::given(path("/v1/status/leader"))
            .respond_with(ok(json!("127.0.0.1:8300")))
            .mount(&server)
            .await;
        Mock::given(path("/v1/catalog/register"))
            .respond_with(ok(json!(true)))
            .mount(&server)
            .await;
        let found = ok(json!({"Node": {"Node": NODE}, "Services": services}));
        Mock::given(method("GET")).respond_with(found).mount(&server).await;
        let mut run = volume.run(&config, &[]);
        run.iptables.clone_from(&iptables);
        errors.push(run.run(CancellationToken::new()).await.map_err(|error| error.to_string()));
    }
    assert_eq!(errors[0], Ok(()));
    assert_eq!(
        errors[1],
        Err("proxy service with ID web-abcdef-sidecar-proxy not found".to_owned())
    );
    assert!(errors[2].as_ref().unwrap_err().starts_with("expected to find only one proxy service"));
    let applied = fs::read_to_string(rules).unwrap();
    assert!(
        applied.contains("-t nat -A CONSUL_PROXY_IN_REDIRECT -p tcp -j REDIRECT --to-port 20000")
    );
    assert!(applied.ends_with("-t nat --policy POSTROUTING ACCEPT\n"));
    let resolv = fs::read_to_string(volume.path("resolv.conf")).unwrap();
    assert_eq!(resolv, "nameserver 127.0.0.1\nnameserver 10.0.0.2\n");
}

pub(crate) async fn mount(server: &MockServer, how: &str, at: &str, answer: ResponseTemplate) {
    Mock::given(method(how)).and(path(at)).respond_with(answer).mount(server).await;
}

/// A token in the environment is used as it is: nobody logs in or out, and the dataplane gets it.
///
/// Case MI11: `CONSUL_HTTP_TOKEN` gives static credentials, even with the login enabled.
#[tokio::test]
async fn a_token_in_the_environment_is_used_without_a_login() {
    let server = MockServer::start().await;
    let ok = |body: Value| ResponseTemplate::new(200).set_body_json(body);
    mount(&server, "GET", "/v1/status/leader", ok(json!("127.0.0.1:8300"))).await;
    for at in ["/v1/acl/login", "/v1/acl/logout"] {
        Mock::given(path(at))
            .respond_with(ResponseTemplate::new(500))
            .expect(0)
            .mount(&server)
            .await;
    }
    Mock::given(method("PUT"))
        .and(path("/v1/catalog/register"))
        .and(header("x-consul-token", "planted-static"))
        .respond_with(ok(json!(true)))
        .expect(2)
        .mount(&server)
        .await;
    let volume = Volume::new();
    let config = current(
        &server.uri(),
        r#","service":{"port":1},"transparentProxy":{"enabled":false},"consulLogin":{"enabled":true}"#,
    );
    let vars = [("CONSUL_HTTP_TOKEN", "planted-static".to_owned())];
    volume.run(&config, &vars).run(CancellationToken::new()).await.unwrap();
    assert_eq!(
        volume.read("consul-dataplane.json")["consul"]["credentials"],
        json!({"type": "static", "static": {"token": "planted-static"}})
    );
}

/// The authority in the environment is used as it is, and stays out of the volume, which
/// health-sync may only read.
#[tokio::test]
async fn servers_are_trusted_by_the_authority_in_the_environment() {
    let case = "servers_are_trusted_by_the_authority_in_the_environment";
    for part in SUITE.parts("consul", case) {
        a_server_is_trusted(&part).await;
    }
}

async fn a_server_is_trusted(part: &Part) {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["ca", "create"][..], &["cert", "create", "-server"]] {
        let mut tls = std::process::Command::new(&part.path);
        let made = tls.arg("tls").args(arguments).current_dir(&folder).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let file = |name: &str| folder.path().join(name);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let settings = json!({"ports": {"https": port}, "ca_file": file("consul-agent-ca.pem"),
        "cert_file": file("dc1-server-consul-0.pem"), "key_file": file("dc1-server-consul-0-key.pem")});
    let consul = Consul::start_with(&part.path, settings).await.unwrap();
    let config = format!(
        r#"{{"bootstrapDir":"$DIR","consulServers":{{"hosts":"127.0.0.1","defaults":{{"caCertFile":"/nowhere.pem"}},
        "http":{{"port":{port},"tlsServerName":"server.dc1.consul"}}}},"service":{{"port":1}},
        "transparentProxy":{{"enabled":false}}}}"#
    );
    let pem = fs::read_to_string(file("consul-agent-ca.pem")).unwrap();
    let vars = [("CONSUL_HTTPS_CACERT_PEM", pem)];
    let volume = Volume::new();
    volume.run(&config, &vars).run(CancellationToken::new()).await.unwrap();
    let found = consul.client().catalog_service("web", &QueryOptions::default()).await.unwrap();
    assert_eq!(found.value[0].service_id, "web-abcdef");
    let mut names: Vec<_> = fs::read_dir(volume.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["consul-dataplane.json", "consul-ecs", "program", "resolv.conf", "task.json"]
    );
    let error = volume.run(&config, &[]).run(CancellationToken::new()).await.unwrap_err();
    let text = consul_watch::error_chain(&error);
    assert!(text.contains("consulServers") && text.contains("/nowhere.pem"), "{text}");
}

/// Before, the bearer token went to the server in the clear.
#[tokio::test]
async fn an_early_login_keeps_to_the_tls_that_the_environment_asks_for() {
    let server = MockServer::start().await;
    let volume = Volume::new();
    let config = format!(
        r#"{{"bootstrapDir":"$DIR","consulHTTPAddr":"{}","consulLogin":{{"enabled":true}},"service":{{"port":8080}}}}"#,
        server.address()
    );
    let vars = [
        ("CONSUL_HTTP_ADDR", server.address().to_string()),
        ("CONSUL_HTTP_SSL", "true".to_owned()),
    ];
    let mut run = volume.run(&config, &vars);
    run.bearer_tokens = Some(Arc::new(Counted::default()));
    run.retry = RetryPolicy::default().with_attempts(1);
    run.run(CancellationToken::new()).await.unwrap_err();
    assert!(server.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_early_login_leaves_the_token_in_a_file() {
    let server = MockServer::start().await;
    let ok = |body: Value| ResponseTemplate::new(200).set_body_json(body);
    // By the cluster's ARN, although the metadata have a name: the controller looks for that.
    Mock::given(method("POST"))
        .and(path("/v1/acl/login"))
        .and(body_partial_json(json!({"Meta": {"consul.hashicorp.com/cluster": NODE}})))
        .respond_with(ok(json!({"AccessorID": "a", "SecretID": "planted-token"})))
        .expect(1)
        .mount(&server)
        .await;
    mount(
        &server,
        "GET",
        "/v1/acl/token/self",
        ok(json!({"AccessorID": "a", "SecretID": "planted-token"})),
    )
    .await;
    Mock::given(method("PUT"))
        .and(path("/v1/agent/service/register"))
        .and(header("x-consul-token", "planted-token"))
        .respond_with(ResponseTemplate::new(200))
        .expect(1)
        .mount(&server)
        .await;
    let gateway = json!({"Kind": "mesh-gateway", "ID": "Web-abcdef", "Service": "Web", "Port": 8443, "Datacenter": "dc1"});
    mount(&server, "GET", "/v1/agent/service/Web-abcdef", ok(gateway)).await;
    let volume = Volume::new();
    let config = format!(
        r#"{{"bootstrapDir":"$DIR","consulHTTPAddr":"{}","consulLogin":{{"enabled":true}},"gateway":{{"kind":"mesh-gateway"}}}}"#,
        server.uri()
    );
    let mut run = volume.run(&config, &[("CONSUL_HTTP_ADDR", server.uri())]);
    run.bearer_tokens = Some(Arc::new(Counted::default()));
    run.run(CancellationToken::new()).await.unwrap();
    assert_eq!(fs::read_to_string(volume.path("service-token")).unwrap(), "planted-token");
    assert_eq!(volume.mode("service-token"), 0o644);
    let bootstrap = volume.read("envoy-bootstrap.json");
    // The kind that upstream names to `consul connect envoy`, not the gateway's own name.
    assert_eq!(bootstrap["node"]["cluster"], "mesh-gateway");
    let tags = bootstrap["stats_config"]["stats_tags"].as_array().unwrap();
    let fixed = |name: &str| {
        let tag =
            tags.iter().find(|tag| tag["tag_name"] == name && tag["fixed_value"] != Value::Null);
        tag.map(|tag| tag["fixed_value"].clone()).unwrap()
    };
    assert_eq!(fixed("local_cluster"), "mesh-gateway");
    assert_eq!(fixed("consul.source.service"), "Web");
    let metadata =
        &bootstrap["dynamic_resources"]["ads_config"]["grpc_services"]["initial_metadata"];
    assert_eq!(metadata[0]["value"], "planted-token");
}

#[tokio::test]
async fn what_cannot_be_written_or_asked_is_an_error_and_leaves_no_half_file() {
    let consul = double().await;
    let volume = Volume::new();
    let config = current(
        consul.client().address(),
        r#","service":{"port":1},"transparentProxy":{"enabled":false}"#,
    )
    .replace("$DIR", "$DIR/missing");
    let error = volume.run(&config, &[]).run(CancellationToken::new()).await.unwrap_err();
    assert!(
        matches!(&error, Error::File { path, .. } if path.ends_with("missing/consul-ecs")),
        "{error}"
    );
    fs::write(volume.path("task.json"), "{").unwrap();
    let error = volume.run(&config, &[]).run(CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "unmarshalling metadata uri response");
    fs::remove_file(volume.path("task.json")).unwrap();
    let error = volume.run(&config, &[]).run(CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, Error::Metadata { .. }));
    assert!(!Path::new(&volume.path("missing")).exists());
}

/// The client of the agent wants its authority in any case, as upstream's does.
///
/// Case MI44: a missing CA file or folder is named in the words of the `consul` command.
#[tokio::test]
async fn an_authority_that_is_not_there_is_named_in_upstreams_words() {
    let cases = [
        ("CONSUL_CACERT", "Error loading CA File: open some/path: no such file or directory"),
        ("CONSUL_CAPATH", "lstat some/path: no such file or directory"),
    ];
    for (variable, expected) in cases {
        for address in ["http://127.0.0.1:9", "https://127.0.0.1:9"] {
            let vars =
                [("CONSUL_HTTP_ADDR", address.to_owned()), (variable, "some/path".to_owned())];
            let error =
                Volume::new().run(EARLY, &vars).run(CancellationToken::new()).await.unwrap_err();
            assert!(error.to_string().ends_with(expected), "{error}");
            let stop = CancellationToken::new();
            let error = Volume::new().run(EARLY, &vars).health_sync(&stop).await.unwrap_err();
            assert!(error.to_string().ends_with(expected), "{error}");
        }
    }
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_consul() {
    let volume = Volume::new();
    let stop = CancellationToken::new();
    let mut run = volume.run(EARLY, &[("CONSUL_HTTP_ADDR", "127.0.0.1:9".to_owned())]);
    run.retry = RetryPolicy::default();
    let running = tokio::spawn(run.run(stop.clone()));
    stop.cancel();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert!(!volume.path("envoy-bootstrap.json").exists());
}
