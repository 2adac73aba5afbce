//! Which proxy a bootstrap is for, and what an agent says of it.

use std::sync::Arc;

use consul_watch::{
    Bytes, Client, ClientConfig, async_trait, http,
    testing::{TestConsul, parts::Suite, real::Consul},
    transport::{ExchangeLimits, Transport, TransportError},
    types::{AgentServiceRegistration, ServiceKind, ServiceProxy},
};
use ecs_mesh_init::bootstrap::{BootstrapRequest, Fetched, GrpcAddress};
use serde_json::Value;

const SUITE: Suite = Suite("ecs-mesh-init lookups");

fn sidecar(id: &str, destination: &str) -> AgentServiceRegistration {
    let mut proxy = AgentServiceRegistration::new(format!("{id}-name"));
    proxy.id = id.into();
    proxy.kind = ServiceKind::ConnectProxy;
    proxy.port = 20000;
    let mut settings = ServiceProxy::default();
    settings.destination_service_name = "web".into();
    settings.destination_service_id = destination.into();
    proxy.proxy = Some(settings);
    proxy
}

fn gateway(id: &str) -> AgentServiceRegistration {
    let mut gateway = AgentServiceRegistration::new("mesh-gateway");
    gateway.id = id.into();
    gateway.kind = ServiceKind::MeshGateway;
    gateway.port = 8443;
    gateway
}

fn document(fetched: &Fetched) -> Value {
    serde_json::from_str(&fetched.options.render(&|_| None).unwrap().to_text()).unwrap()
}

fn complaint(result: Result<BootstrapRequest, ecs_mesh_init::Error>) -> String {
    result.unwrap_err().to_string()
}

async fn proxies_are_found(client: &Client) {
    let register = async |service: &AgentServiceRegistration| {
        client.agent_register_service(service).await.unwrap();
    };
    let sidecar_of = BootstrapRequest::for_sidecar_of;
    assert_eq!(
        complaint(sidecar_of(client, "web-1").await),
        "No sidecar proxy registered for web-1"
    );
    register(&sidecar("web-1-proxy", "web-1")).await;
    register(&sidecar("web-2-proxy", "web-2")).await;
    assert_eq!(sidecar_of(client, "WEB-1").await.unwrap().proxy_id, "web-1-proxy");
    register(&sidecar("web-1-other", "web-1")).await;
    let error = complaint(sidecar_of(client, "web-1").await);
    assert!(error.starts_with("More than one sidecar proxy registered for web-1."), "{error}");
    assert!(error.ends_with("web-1-other, web-1-proxy"), "{error}");

    let gateway_of = BootstrapRequest::for_gateway;
    assert_eq!(
        complaint(gateway_of(client, "x").await),
        "Gateway must be one of: api, terminating, mesh, or ingress"
    );
    for kind in ["api", "ingress", "mesh", "terminating"] {
        let error = complaint(gateway_of(client, kind).await);
        assert_eq!(error, format!("No {kind} gateway is registered with this agent"));
    }
    register(&gateway("gateway-1")).await;
    let mut request = gateway_of(client, "mesh").await.unwrap();
    request.grpc_address = Some(GrpcAddress::standard());
    assert_eq!(request.proxy_id, "gateway-1");
    assert_eq!(request.fetch(client).await.unwrap().options.cluster, "mesh-gateway");
    register(&gateway("gateway-2")).await;
    assert!(complaint(gateway_of(client, "mesh").await).contains("gateway-1, gateway-2"));

    on_a_node_of_the_catalog(client).await;
}

async fn on_a_node_of_the_catalog(client: &Client) {
    let node = client.agent_self().await.unwrap().config.node_name;
    let mut request = BootstrapRequest::new("web-2-proxy");
    request.node_name = Some(node.clone());
    request.grpc_address = Some(GrpcAddress::standard());
    // The agent tells the catalog in its own time.
    let fetched = loop {
        match request.fetch(client).await {
            Ok(fetched) => break fetched,
            Err(error) => assert!(error.to_string().contains("web-2-proxy"), "{error}"),
        }
        tokio::task::yield_now().await;
    };
    let bootstrap = document(&fetched);
    assert_eq!(bootstrap["node"]["metadata"]["node_name"], node.as_str());
    assert_eq!(bootstrap["node"]["cluster"], "web");
    request.proxy_id = "unknown".into();
    let error = request.fetch(client).await.unwrap_err().to_string();
    assert_eq!(error, format!("no service with ID unknown is registered on node {node}"));
}

#[tokio::test]
async fn at_an_agent_that_is_a_double() {
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    proxies_are_found(&consul.client()).await;
}

#[tokio::test]
async fn at_an_agent_that_is_real() {
    for part in SUITE.parts("consul", "proxies are found") {
        let consul = Consul::start(&part.path).await.unwrap();
        proxies_are_found(&consul.client()).await;
    }
}

/// Case MI39: a bootstrap without a proxy id is an error that names the flags.
#[tokio::test]
async fn without_an_id_nothing_is_asked() {
    let mut config = ClientConfig::default();
    config.address = "127.0.0.1:9".to_owned();
    let client = Client::new(config).unwrap();
    let mut request = BootstrapRequest::new("");
    let error = request.fetch(&client).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "No proxy ID specified. One of -proxy-id, -sidecar-for, or -gateway is required"
    );
    request.node_name = Some("node".to_owned());
    let error = request.fetch(&client).await.unwrap_err().to_string();
    assert_eq!(error, "'-node-name' requires '-proxy-id'");
}

/// Case MI46: `-admin-access-log-path` is used, with a warning that it is deprecated.
#[tokio::test]
async fn the_path_of_the_admin_log_is_taken_and_deprecated() {
    let consul = TestConsul::new();
    let client = consul.client();
    let service = sidecar("web-1-proxy", "web-1");
    client.agent_register_service(&service).await.unwrap();
    let mut request = BootstrapRequest::new("web-1-proxy");
    request.admin_access_log_path = Some("/some/path/access.log".to_owned());
    // The double serves no gRPC, and says so.
    request.grpc_address = Some(GrpcAddress::standard());
    let fetched = request.fetch(&client).await.unwrap();
    assert_eq!(fetched.warnings, ["-admin-access-log-path is deprecated"]);
    let log = &document(&fetched)["admin"]["access_log"];
    assert_eq!(log[0]["typed_config"]["path"], "/some/path/access.log");
}

/// An agent that loses every connection that asks about itself.
#[derive(Debug)]
struct Withdrawn(Arc<dyn Transport>);

#[async_trait]
impl Transport for Withdrawn {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        if request.uri().path() == "/v1/agent/self" {
            return Err(TransportError::Failed { source: "connection reset by peer".into() });
        }
        self.0.exchange(request, limits).await
    }
}

/// A port that had to be guessed is told with the reason, down to its cause.
#[tokio::test]
async fn a_guessed_grpc_port_is_told_with_its_cause() {
    let consul = TestConsul::new();
    let service = sidecar("web-1-proxy", "web-1");
    consul.client().agent_register_service(&service).await.unwrap();
    let transport = Arc::new(Withdrawn(consul.transport()));
    let client = Client::with_transport(ClientConfig::default(), transport).unwrap();
    let fetched = BootstrapRequest::new("web-1-proxy").fetch(&client).await.unwrap();
    assert_eq!(
        fetched.warnings,
        ["failed to ask the agent for its gRPC port: agent.self: request to \
          http://127.0.0.1:8500 did not complete: connection reset by peer"]
    );
}
