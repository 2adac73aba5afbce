//! Compiled discovery chains.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{JsonObject, ServiceKind, go_text, nullable};

/// Routing, splitting and resolution of connections to a service.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct DiscoveryChain {
    /// The service.
    pub service_name: String,
    /// The chain's namespace.
    #[serde(default)]
    pub namespace: String,
    /// The chain's datacenter.
    #[serde(default)]
    pub datacenter: String,
    /// Names what an override has changed; empty without.
    #[serde(default)]
    pub customization_hash: String,
    /// `true` if nothing is configured: connections simply go to the service
    /// (Consul 1.18).
    #[serde(default)]
    pub default: bool,
    /// `tcp`, `http`, `http2` or `grpc`.
    #[serde(default)]
    pub protocol: String,
    /// The node that a connection begins at.
    #[serde(default)]
    pub start_node: String,
    /// The nodes of the graph, by name, as Consul has them.
    #[serde(default, deserialize_with = "nullable")]
    pub nodes: BTreeMap<String, JsonObject>,
    /// The sets of instances that connections end at, by name, as Consul has them.
    #[serde(default, deserialize_with = "nullable")]
    pub targets: BTreeMap<String, JsonObject>,
}

/// Changes to a [`DiscoveryChain`] by a proxy's own settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct DiscoveryChainOverride {
    /// Time to connect.
    #[serde(
        rename = "OverrideConnectTimeout",
        skip_serializing_if = "Option::is_none",
        serialize_with = "go_text"
    )]
    pub connect_timeout: Option<Duration>,
    /// The protocol.
    #[serde(rename = "OverrideProtocol", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Way in which other datacenters are reached.
    #[serde(rename = "OverrideMeshGateway", skip_serializing_if = "Option::is_none")]
    pub mesh_gateway: Option<super::MeshGateway>,
}

impl DiscoveryChainOverride {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A service that a gateway stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct GatewayService {
    /// Name of the gateway.
    #[serde(deserialize_with = "name")]
    pub gateway: String,
    /// Name of the service.
    #[serde(deserialize_with = "name")]
    pub service: String,
    /// Kind of gateway.
    #[serde(default)]
    pub gateway_kind: ServiceKind,
    /// Port that an ingress gateway listens on for it. Consul takes any 64-bit number.
    #[serde(default)]
    pub port: i64,
    /// Protocol that an ingress gateway speaks for it.
    #[serde(default)]
    pub protocol: String,
    /// Host names that an ingress gateway takes for it.
    #[serde(default, deserialize_with = "nullable")]
    pub hosts: Vec<String>,
    /// Authorities that a terminating gateway accepts.
    #[serde(default, rename = "CAFile")]
    pub ca_file: String,
    /// Certificate that a terminating gateway shows.
    #[serde(default)]
    pub cert_file: String,
    /// Key of that certificate.
    #[serde(default)]
    pub key_file: String,
    /// Server name that a terminating gateway asks for.
    #[serde(default, rename = "SNI")]
    pub sni: String,
    /// `true` if it is there because of a wildcard.
    #[serde(default)]
    pub from_wildcard: bool,
    /// Index of its creation.
    #[serde(default)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub modify_index: u64,
}

fn name<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Name {
        name: String,
    }
    Name::deserialize(deserializer).map(|name| name.name)
}
