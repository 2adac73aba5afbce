//! The agent's own configuration, its members, and services registered with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    CheckSpec, JsonObject, Service, ServiceAddress, ServiceKind, ServiceProxy, Weights, is_false,
    no_port, nullable,
};

/// An agent's own configuration and membership.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AgentSelf {
    /// The main settings.
    pub config: AgentConfig,
    /// The agent as a member of the cluster.
    #[serde(default, deserialize_with = "nullable")]
    pub member: AgentMember,
    /// Metadata of its node.
    #[serde(default, deserialize_with = "nullable")]
    pub meta: BTreeMap<String, String>,
    /// Proxies that it can configure, and the ports for them.
    #[serde(default, rename = "xDS", deserialize_with = "nullable")]
    pub xds: JsonObject,
    /// All settings, as the agent shows them; names differ between versions.
    #[serde(default, deserialize_with = "nullable")]
    pub debug_config: JsonObject,
}

/// The main settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AgentConfig {
    /// The agent's datacenter.
    pub datacenter: String,
    /// The datacenter that ACLs and intentions live in (Consul 1.9).
    #[serde(default, deserialize_with = "nullable")]
    pub primary_datacenter: String,
    /// Name of its node.
    pub node_name: String,
    /// UUID of its node.
    #[serde(default, rename = "NodeID", deserialize_with = "nullable")]
    pub node_id: String,
    /// `true` if it is a server.
    #[serde(default, deserialize_with = "nullable")]
    pub server: bool,
    /// The agent's version, such as `1.21.0` or `1.21.0+ent`.
    #[serde(default, deserialize_with = "nullable")]
    pub version: String,
    /// The agent's Enterprise partition.
    #[serde(default, deserialize_with = "nullable")]
    pub partition: Option<String>,
}

/// A member of the cluster, as gossip knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct AgentMember {
    /// Name of the node.
    pub name: String,
    /// The member's address.
    pub addr: String,
    /// The member's gossip port.
    pub port: u16,
    /// Tags that the member gives itself (`role`, `dc`, `build`, …).
    #[serde(deserialize_with = "nullable")]
    pub tags: BTreeMap<String, String>,
    /// 0 none, 1 alive, 2 leaving, 3 left, 4 failed.
    pub status: i32,
}

/// An instance registered with an agent, as the agent itself shows it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AgentService {
    /// The instance.
    #[serde(flatten)]
    pub service: Service,
    /// Hash of its definition; only in the answer for one service.
    #[serde(default, deserialize_with = "nullable")]
    pub content_hash: String,
    /// Datacenter of the agent.
    #[serde(default, deserialize_with = "nullable")]
    pub datacenter: String,
}

/// A service to register with an agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AgentServiceRegistration {
    /// Role in the mesh.
    #[serde(skip_serializing_if = "ServiceKind::is_typical")]
    pub kind: ServiceKind,
    /// Id, unique on the agent; Consul takes the name when it is empty.
    #[serde(rename = "ID", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The service's name. Only a sidecar may leave it empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Port; 0 when there is none. Consul takes any 64-bit number.
    #[serde(skip_serializing_if = "no_port")]
    pub port: i64,
    /// Address; when empty, the node's holds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Unix socket instead of address and port (Consul 1.10).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
    /// Other addresses, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tagged_addresses: BTreeMap<String, ServiceAddress>,
    /// `true` if tags changed in the catalog survive the agent's synchronisation.
    #[serde(skip_serializing_if = "is_false")]
    pub enable_tag_override: bool,
    /// Free key-value pairs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Weights for DNS; `None` is 1 each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
    /// The service's checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckSpec>,
    /// Proxy settings, for proxies and gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ServiceProxy>,
    /// Settings for the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<AgentConnect>,
    /// Enterprise namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Enterprise partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl AgentServiceRegistration {
    /// A service with this name and nothing else.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// The mesh part of an [`AgentServiceRegistration`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AgentConnect {
    /// `true` if it speaks mutual TLS with the mesh's certificates itself.
    #[serde(skip_serializing_if = "is_false")]
    pub native: bool,
    /// A sidecar proxy to register beside it; what is left empty is derived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar_service: Option<Box<AgentServiceRegistration>>,
}
