//! Service instances, as registered and as listed.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{ServiceProxy, is_false, is_zero, nullable};

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Service {
    /// Role in the mesh.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "ServiceKind::is_typical"
    )]
    pub kind: ServiceKind,
    /// Id, unique on its node; Consul takes the name when it is empty.
    #[serde(default, rename = "ID", deserialize_with = "nullable")]
    pub id: String,
    /// The service's name.
    #[serde(default, rename = "Service", deserialize_with = "nullable")]
    pub name: String,
    /// Tags, in the order of registration.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Address; when empty, the node's holds.
    #[serde(default, deserialize_with = "nullable")]
    pub address: String,
    /// Other addresses, by name (`lan`, `wan`, `virtual`, …).
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub tagged_addresses: BTreeMap<String, ServiceAddress>,
    /// Free key-value pairs.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Port; 0 when there is none. Consul stores any 64-bit number unchecked, also a
    /// negative one; see [`Service::tcp_port`].
    #[serde(default, deserialize_with = "nullable")]
    pub port: i64,
    /// Unix socket instead of address and port (Consul 1.10).
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
    /// Weights for DNS.
    #[serde(default, deserialize_with = "nullable")]
    pub weights: Weights,
    /// `true` if tags changed in the catalog survive the agent's synchronisation.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_false")]
    pub enable_tag_override: bool,
    /// Proxy settings, for proxies and gateways.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "ServiceProxy::is_empty"
    )]
    pub proxy: ServiceProxy,
    /// Part of the mesh that the instance takes itself: native, or through a sidecar.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "ServiceConnect::is_empty"
    )]
    pub connect: ServiceConnect,
    /// Cluster peer that it was imported from (Consul 1.13).
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub peer_name: String,
    /// Enterprise namespace.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Enterprise partition.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Place in which it runs (Consul 1.17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// Index of its registration.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub modify_index: u64,
}

impl Service {
    /// An instance with this name and id, and nothing else.
    pub fn new(name: impl Into<String>, id: impl Into<String>) -> Self {
        Self { name: name.into(), id: id.into(), ..Self::default() }
    }

    /// Returns the port if one can connect to it: 1 to 65,535.
    pub fn tcp_port(&self) -> Option<u16> {
        u16::try_from(self.port).ok().filter(|port| *port != 0)
    }
}

/// A further address of a service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceAddress {
    /// Host name or IP address.
    pub address: String,
    /// Port; any 64-bit number, as [`Service::port`].
    pub port: i64,
}

/// Place in which an instance runs, for routing that prefers what is near.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Locality {
    /// Region, such as `us-east-1`.
    #[serde(deserialize_with = "nullable")]
    pub region: String,
    /// Zone within the region.
    #[serde(deserialize_with = "nullable")]
    pub zone: String,
}

/// Weights of a service's instance in DNS answers. The default is 1 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Weights {
    /// While it is passing.
    pub passing: i64,
    /// While it is warning.
    pub warning: i64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { passing: 1, warning: 1 }
    }
}

/// A service's part in the mesh, apart from its proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ServiceConnect {
    /// `true` if it speaks mutual TLS with the mesh's certificates itself.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_false")]
    pub native: bool,
}

impl ServiceConnect {
    fn is_empty(&self) -> bool {
        !self.native
    }
}

/// Role of a service in the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum ServiceKind {
    /// An ordinary service.
    #[default]
    Typical,
    /// A sidecar or other proxy.
    ConnectProxy,
    /// A gateway between datacenters.
    MeshGateway,
    /// A gateway out of the mesh.
    TerminatingGateway,
    /// A gateway into the mesh.
    IngressGateway,
    /// The newer gateway into the mesh (Consul 1.15).
    ApiGateway,
    /// A word that this crate does not know.
    Other(String),
}

impl ServiceKind {
    /// The name that Consul uses; empty for [`ServiceKind::Typical`].
    pub fn as_str(&self) -> &str {
        match self {
            Self::Typical => "",
            Self::ConnectProxy => "connect-proxy",
            Self::MeshGateway => "mesh-gateway",
            Self::TerminatingGateway => "terminating-gateway",
            Self::IngressGateway => "ingress-gateway",
            Self::ApiGateway => "api-gateway",
            Self::Other(name) => name,
        }
    }

    pub(crate) fn is_typical(&self) -> bool {
        *self == Self::Typical
    }
}

impl fmt::Display for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<String> for ServiceKind {
    fn from(name: String) -> Self {
        match name.as_str() {
            "" | "typical" => Self::Typical,
            "connect-proxy" => Self::ConnectProxy,
            "mesh-gateway" => Self::MeshGateway,
            "terminating-gateway" => Self::TerminatingGateway,
            "ingress-gateway" => Self::IngressGateway,
            "api-gateway" => Self::ApiGateway,
            _ => Self::Other(name),
        }
    }
}

impl From<ServiceKind> for String {
    fn from(kind: ServiceKind) -> Self {
        kind.as_str().to_owned()
    }
}
