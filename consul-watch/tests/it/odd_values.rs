//! Values that Consul takes although nobody can use them. One such entry, which any
//! service owner can register, must not hide or stop the others.

use std::time::Duration;

use consul_watch::{
    Client, QueryOptions, Watcher, WriteOptions,
    client::{HealthOptions, Request},
    query::HealthService,
    testing::{TestConsul, parts::Suite, real},
    types::{
        AgentServiceRegistration, CatalogRegistration, ConfigEntry, Service, ServiceAddress,
        Upstream,
    },
};
use serde_json::json;
use tokio::time::timeout;

const SUITE: Suite = Suite("consul-watch with odd values");
const LIMIT: Duration = Duration::from_mins(1);
/// Ports that Consul stores unchecked. Blocking health reads of Consul 1.10 and later go
/// through a stream that keeps the lower 32 bits only.
const PORTS: [i64; 6] = [123_456, -1, 0, 8080, i32::MAX as i64, i32::MIN as i64];

/// Calls `check` with the double and with every Consul that is there.
async fn everywhere(case: &str, check: impl AsyncFn(Client)) {
    SUITE.double("consul");
    check(TestConsul::new().client()).await;
    for part in SUITE.parts("consul", case) {
        let consul = real::Consul::start(&part.path).await.expect("a real Consul");
        check(consul.client()).await;
    }
}

fn instance(id: &str, port: i64) -> Service {
    let mut service = Service::new("web", id);
    service.port = port;
    let address = ServiceAddress { address: "far.example".into(), port };
    service.tagged_addresses.insert("wan".into(), address);
    service.proxy.local_service_port = port;
    let mut upstream = Upstream::default();
    upstream.destination_name = "db".into();
    upstream.local_bind_port = port;
    service.proxy.upstreams.push(upstream);
    service
}

async fn register(client: &Client, service: Service) {
    let registration = CatalogRegistration::new("n", "10.0.0.1").with_service(service);
    client.catalog_register(&registration).await.unwrap();
}

#[tokio::test]
async fn a_port_is_whatever_number_was_registered() {
    everywhere("a_port_is_whatever_number_was_registered", async |client| {
        let watcher = Watcher::new(client.clone());
        let mut watch = watcher.watch(HealthService::new("web"));
        for (number, port) in PORTS.into_iter().enumerate() {
            register(&client, instance(&format!("web-{number}"), port)).await;
        }
        let seen = async {
            loop {
                let snapshot = watch.changed().await.expect("an answer that is understood");
                if snapshot.data.len() == PORTS.len() {
                    return snapshot.data;
                }
            }
        };
        let seen = timeout(LIMIT, seen).await.expect("all instances in time");
        for (entry, port) in seen.iter().zip(PORTS) {
            let service = &entry.service;
            assert_eq!(service.port, port);
            assert_eq!(service.tagged_addresses["wan"].port, port);
            assert_eq!(service.proxy.local_service_port, port);
            assert_eq!(service.proxy.upstreams[0].local_bind_port, port);
        }
        let usable: Vec<_> = seen.iter().filter_map(|entry| entry.service.tcp_port()).collect();
        assert_eq!(usable, [8080]);
        let read = QueryOptions::default();
        let flat = client.catalog_service("web", &read).await.unwrap().value;
        assert!(PORTS.iter().all(|port| flat.iter().any(|found| found.service_port == *port)));
        let node = client.catalog_node("n", &read).await.unwrap().value.unwrap();
        assert_eq!(node.services["web-0"].port, 123_456);
        for port in [i64::MAX, i64::MIN] {
            register(&client, instance("web-0", port)).await;
            let flat = client.catalog_service("web", &read).await.unwrap().value;
            assert!(flat.iter().any(|found| found.service_port == port), "{flat:?}");
        }
        watcher.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn an_agents_ports_are_whatever_was_registered() {
    everywhere("an_agents_ports_are_whatever_was_registered", async |client| {
        for port in [123_456, -1] {
            let mut service = AgentServiceRegistration::new(format!("port{port}"));
            service.port = port;
            client.agent_register_service(&service).await.unwrap();
        }
        let services = client.agent_services(&QueryOptions::default()).await.unwrap();
        assert_eq!(services["port-1"].service.port, -1);
        assert_eq!(services["port123456"].service.port, 123_456);
    })
    .await;
}

#[tokio::test]
async fn a_gateways_ports_are_whatever_was_configured() {
    everywhere("a_gateways_ports_are_whatever_was_configured", async |client| {
        let mut entry = ConfigEntry::new("ingress-gateway", "edge");
        let listeners: Vec<_> = [123_456, -4]
            .into_iter()
            .map(|port| json!({ "Port": port, "Protocol": "tcp", "Services": [{ "Name": format!("s{port}") }] }))
            .collect();
        entry.settings.insert("Listeners".into(), listeners.into());
        assert!(client.config_set(&entry, None, &WriteOptions::default()).await.unwrap());
        let found = client
            .catalog_gateway_services("edge", &QueryOptions::default())
            .await
            .unwrap()
            .value;
        let mut ports: Vec<_> = found.iter().map(|service| service.port).collect();
        ports.sort_unstable();
        assert_eq!(ports, [-4, 123_456]);
    })
    .await;
}

/// Consul stores values that are nested 200 levels deep, and more than decoders follow.
#[tokio::test]
async fn a_setting_nested_too_deep_hides_no_instance() {
    for part in SUITE.parts("consul", "a_setting_nested_too_deep_hides_no_instance") {
        let consul = real::Consul::start(&part.path).await.expect("a real Consul");
        let client = consul.client();
        let deep = (0..200).fold(json!({ "end": 1 }), |inner, _| json!({ "n": inner, "m": 7 }));
        register(&client, Service::new("web", "plain")).await;
        let body = json!({
            "Node": "n", "Address": "10.0.0.1",
            "Service": { "Service": "web", "ID": "deep", "Port": 80, "Proxy": { "Config": deep } },
        });
        client.send(Request::put("test", "/v1/catalog/register").json(&body)).await.unwrap();
        let found = client.health_service("web", &HealthOptions::default()).await.unwrap().value;
        let ports: Vec<_> =
            found.iter().map(|entry| (entry.service.id.as_str(), entry.service.port)).collect();
        assert_eq!(found.len(), 2, "{ports:?}");
        let deep = found.iter().find(|entry| entry.service.id == "deep").unwrap();
        assert_eq!(deep.service.port, 80);
        assert_eq!(deep.service.proxy.config["m"], 7, "what is not too deep is there");
    }
}
