//! The `gateway` object of the configuration.

use std::collections::BTreeMap;

use consul_watch::types::{JsonObject, ServiceKind};
use serde::Deserialize;

use super::proxy::{HEALTH_CHECK_PORT, health_check_port};

/// Gateway that the task runs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct GatewayConfig {
    /// Kind of the gateway.
    pub kind: GatewayKind,
    /// Name of the service; empty takes the task's family.
    pub name: String,
    /// Tags.
    pub tags: Vec<String>,
    /// Free key-value pairs, which win over those that mesh-init sets.
    pub meta: BTreeMap<String, String>,
    /// Enterprise namespace.
    pub namespace: String,
    /// Enterprise partition.
    pub partition: String,
    /// Port on which Envoy reports readiness. Default 22000, also for 0.
    #[serde(deserialize_with = "health_check_port")]
    pub health_check_port: u16,
    /// Address within the datacenter. Only mesh gateways have one.
    pub lan_address: GatewayAddress,
    /// Address for other datacenters. Only mesh gateways have one.
    pub wan_address: GatewayAddress,
    /// Settings of its proxy.
    pub proxy: GatewayProxyConfig,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            kind: GatewayKind::default(),
            name: String::new(),
            tags: Vec::new(),
            meta: BTreeMap::new(),
            namespace: String::new(),
            partition: String::new(),
            health_check_port: HEALTH_CHECK_PORT,
            lan_address: GatewayAddress::default(),
            wan_address: GatewayAddress::default(),
            proxy: GatewayProxyConfig::default(),
        }
    }
}

/// Kind of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GatewayKind {
    /// Carries traffic between datacenters.
    #[default]
    MeshGateway,
    /// Carries traffic out of the mesh.
    TerminatingGateway,
    /// Carries traffic into the mesh.
    ApiGateway,
}

impl GatewayKind {
    /// Returns the word that Consul and the configuration use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MeshGateway => "mesh-gateway",
            Self::TerminatingGateway => "terminating-gateway",
            Self::ApiGateway => "api-gateway",
        }
    }

    pub(crate) fn service_kind(self) -> ServiceKind {
        match self {
            Self::MeshGateway => ServiceKind::MeshGateway,
            Self::TerminatingGateway => ServiceKind::TerminatingGateway,
            Self::ApiGateway => ServiceKind::ApiGateway,
        }
    }
}

/// An address of a mesh gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GatewayAddress {
    /// Host name or IP address; empty when only a port is given.
    pub address: String,
    /// Port; 0 stands for 8443.
    pub port: u16,
}

/// Settings of a gateway's proxy.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GatewayProxyConfig {
    /// Settings that only Consul and Envoy interpret.
    pub config: JsonObject,
}
