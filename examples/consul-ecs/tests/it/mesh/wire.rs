//! The few messages of Envoy's control protocol that a test server needs, with the field numbers of
//! Envoy's v3 API.

use prost::Message;
use prost_types::{Any, Duration, Struct};

/// `envoy.service.discovery.v3.DeltaDiscoveryRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeltaDiscoveryRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) node: Option<Node>,
    #[prost(string, tag = "2")]
    pub(super) type_url: String,
    #[prost(string, tag = "6")]
    pub(super) response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub(super) error_detail: Option<Status>,
}

/// `envoy.config.core.v3.Node`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) cluster: String,
    #[prost(message, optional, tag = "3")]
    pub(super) metadata: Option<Struct>,
}

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

/// `envoy.service.discovery.v3.DeltaDiscoveryResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeltaDiscoveryResponse {
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Resource>,
    #[prost(string, tag = "4")]
    type_url: String,
    #[prost(string, tag = "5")]
    nonce: String,
}

/// `envoy.service.discovery.v3.Resource`
#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Any>,
    #[prost(string, tag = "3")]
    name: String,
}

impl DeltaDiscoveryResponse {
    /// One resource, whose type's URL is also the answer's nonce.
    pub(super) fn of(name: &str, resource: Any) -> Self {
        let type_url = resource.type_url.clone();
        let resource =
            Resource { version: "1".to_owned(), name: name.to_owned(), value: Some(resource) };
        Self { resources: vec![resource], nonce: type_url.clone(), type_url }
    }

    pub(super) fn is_of(&self, type_url: &str) -> bool {
        self.type_url == type_url
    }
}

#[derive(Clone, PartialEq, Message)]
struct Address {
    #[prost(message, optional, tag = "1")]
    socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
struct SocketAddress {
    #[prost(string, tag = "2")]
    address: String,
    #[prost(uint32, tag = "3")]
    port_value: u32,
}

fn local(port: u16) -> Address {
    let address = SocketAddress { address: "127.0.0.1".to_owned(), port_value: port.into() };
    Address { socket_address: Some(address) }
}

#[derive(Clone, PartialEq, Message)]
struct Cluster {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "4")]
    connect_timeout: Option<Duration>,
    #[prost(message, optional, tag = "33")]
    load_assignment: Option<ClusterLoadAssignment>,
}

#[derive(Clone, PartialEq, Message)]
struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<LocalityLbEndpoints>,
}

#[derive(Clone, PartialEq, Message)]
struct LocalityLbEndpoints {
    #[prost(message, repeated, tag = "2")]
    lb_endpoints: Vec<LbEndpoint>,
}

#[derive(Clone, PartialEq, Message)]
struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    endpoint: Option<Endpoint>,
}

#[derive(Clone, PartialEq, Message)]
struct Endpoint {
    #[prost(message, optional, tag = "1")]
    address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
struct Listener {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    address: Option<Address>,
    #[prost(message, repeated, tag = "3")]
    filter_chains: Vec<FilterChain>,
}

#[derive(Clone, PartialEq, Message)]
struct FilterChain {
    #[prost(message, repeated, tag = "3")]
    filters: Vec<Filter>,
}

#[derive(Clone, PartialEq, Message)]
struct Filter {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "4")]
    typed_config: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct TcpProxy {
    #[prost(string, tag = "1")]
    stat_prefix: String,
    #[prost(string, tag = "2")]
    cluster: String,
}

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

/// A cluster with one member on this machine.
pub(super) fn cluster(name: &str, port: u16) -> Any {
    let endpoint = LbEndpoint { endpoint: Some(Endpoint { address: Some(local(port)) }) };
    let message = Cluster {
        name: name.to_owned(),
        connect_timeout: Some(Duration { seconds: 5, nanos: 0 }),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            endpoints: vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint] }],
        }),
    };
    any("envoy.config.cluster.v3.Cluster", &message)
}

/// A listener that passes connections on to a cluster.
pub(super) fn listener(name: &str, port: u16, cluster: &str) -> Any {
    let proxy = TcpProxy { stat_prefix: name.to_owned(), cluster: cluster.to_owned() };
    let filter = Filter {
        name: "envoy.filters.network.tcp_proxy".to_owned(),
        typed_config: Some(any("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", &proxy)),
    };
    let message = Listener {
        name: name.to_owned(),
        address: Some(local(port)),
        filter_chains: vec![FilterChain { filters: vec![filter] }],
    };
    any("envoy.config.listener.v3.Listener", &message)
}
