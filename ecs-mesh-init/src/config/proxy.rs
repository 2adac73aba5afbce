//! The `proxy` object of the configuration, and the parts that gateways share with it.

use consul_watch::types::JsonObject;
use serde::{Deserialize, Deserializer};

use super::default_value::or_default;

const PUBLIC_LISTENER_PORT: u16 = 20000;
pub(super) const HEALTH_CHECK_PORT: u16 = 22000;

/// Settings of the sidecar proxy.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// Port on which other services reach this one. Default 20000, also for 0.
    #[serde(deserialize_with = "listener_port")]
    pub public_listener_port: u16,
    /// Port on which Envoy reports readiness. Default 22000, also for 0.
    #[serde(deserialize_with = "health_check_port")]
    pub health_check_port: u16,
    /// Address of the service as seen from the proxy; empty stands for 127.0.0.1.
    pub local_service_address: String,
    /// Settings that only Consul and Envoy interpret.
    pub config: JsonObject,
    /// Services that the proxy makes available on local ports.
    pub upstreams: Vec<UpstreamConfig>,
    /// Use of mesh gateways for other datacenters.
    pub mesh_gateway: Option<MeshGatewayConfig>,
    /// Paths that are exposed without the mesh's TLS.
    pub expose: Option<ExposeConfig>,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            public_listener_port: PUBLIC_LISTENER_PORT,
            health_check_port: HEALTH_CHECK_PORT,
            local_service_address: String::new(),
            config: JsonObject::new(),
            upstreams: Vec::new(),
            mesh_gateway: None,
            expose: None,
        }
    }
}

/// Service that the proxy makes available on a local port.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct UpstreamConfig {
    /// `service` or `prepared_query`; empty is a service.
    pub destination_type: String,
    /// Enterprise namespace of the destination.
    pub destination_namespace: String,
    /// Enterprise partition of the destination.
    pub destination_partition: String,
    /// Cluster peer of the destination.
    pub destination_peer: String,
    /// Name of the destination.
    pub destination_name: String,
    /// Datacenter of the destination; empty stands for the local one.
    pub datacenter: String,
    /// Listen address; empty stands for 127.0.0.1.
    pub local_bind_address: String,
    /// Listen port.
    pub local_bind_port: u16,
    /// Settings that only Consul and Envoy interpret.
    pub config: JsonObject,
    /// Use of mesh gateways for other datacenters.
    pub mesh_gateway: Option<MeshGatewayConfig>,
}

/// Use of mesh gateways for other datacenters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MeshGatewayConfig {
    /// `none`, `local` or `remote`.
    pub mode: String,
}

/// Paths that a proxy exposes without the mesh's TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ExposeConfig {
    /// `true` to expose the paths of the service's HTTP checks.
    pub checks: bool,
    /// Further paths.
    pub paths: Vec<ExposePath>,
}

/// Path that is exposed without the mesh's TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ExposePath {
    /// Listen port.
    pub listener_port: u16,
    /// HTTP path.
    pub path: String,
    /// Port of the service.
    pub local_path_port: u16,
    /// `http` or `http2`.
    pub protocol: String,
}

fn listener_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    // Upstream takes 0 for unset, too.
    or_default(deserializer, |port: &u16| *port == 0, || PUBLIC_LISTENER_PORT)
}

pub(super) fn health_check_port<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<u16, D::Error> {
    or_default(deserializer, |port: &u16| *port == 0, || HEALTH_CHECK_PORT)
}
