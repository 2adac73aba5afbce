//! Nodes and instances in the catalog, and what registers and deregisters them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    HealthCheck, Service, ServiceAddress, ServiceConnect, ServiceKind, ServiceProxy, Weights,
    is_false, is_zero, nullable,
};

/// A node of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Node {
    /// UUID; empty for nodes registered without one.
    #[serde(
        default,
        rename = "ID",
        deserialize_with = "nullable",
        skip_serializing_if = "String::is_empty"
    )]
    pub id: String,
    /// Name, unique in the datacenter.
    #[serde(rename = "Node")]
    pub name: String,
    /// Address.
    #[serde(default, deserialize_with = "nullable")]
    pub address: String,
    /// Datacenter.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub datacenter: String,
    /// Other addresses, by name (`lan`, `wan`, …).
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub tagged_addresses: BTreeMap<String, String>,
    /// Free key-value pairs.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Enterprise partition.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Index of its registration.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub modify_index: u64,
}

/// A node and the services on it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct CatalogNode {
    /// The node.
    pub node: Node,
    /// The node's services, by id.
    #[serde(default, deserialize_with = "nullable")]
    pub services: BTreeMap<String, Service>,
}

/// An instance of a service, as the catalog's flat answer has it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct CatalogService {
    /// UUID of the node.
    #[serde(default, rename = "ID", deserialize_with = "nullable")]
    pub node_id: String,
    /// Name of the node.
    pub node: String,
    /// Address of the node.
    #[serde(default, deserialize_with = "nullable")]
    pub address: String,
    /// Datacenter.
    #[serde(default, deserialize_with = "nullable")]
    pub datacenter: String,
    /// Other addresses of the node.
    #[serde(default, deserialize_with = "nullable")]
    pub tagged_addresses: BTreeMap<String, String>,
    /// Free key-value pairs of the node.
    #[serde(default, deserialize_with = "nullable")]
    pub node_meta: BTreeMap<String, String>,
    /// Role of the service in the mesh.
    #[serde(default, deserialize_with = "nullable")]
    pub service_kind: ServiceKind,
    /// Id of the instance.
    #[serde(default, rename = "ServiceID", deserialize_with = "nullable")]
    pub service_id: String,
    /// Name of the service.
    #[serde(default, deserialize_with = "nullable")]
    pub service_name: String,
    /// Tags.
    #[serde(default, deserialize_with = "nullable")]
    pub service_tags: Vec<String>,
    /// Address of the instance; when empty, the node's holds.
    #[serde(default, deserialize_with = "nullable")]
    pub service_address: String,
    /// Other addresses of the instance.
    #[serde(default, deserialize_with = "nullable")]
    pub service_tagged_addresses: BTreeMap<String, ServiceAddress>,
    /// Weights for DNS.
    #[serde(default, deserialize_with = "nullable")]
    pub service_weights: Weights,
    /// Free key-value pairs.
    #[serde(default, deserialize_with = "nullable")]
    pub service_meta: BTreeMap<String, String>,
    /// Port; 0 when there is none. Consul takes any 64-bit number.
    #[serde(default, deserialize_with = "nullable")]
    pub service_port: i64,
    /// `true` if tags changed in the catalog survive the agent's synchronisation.
    #[serde(default, deserialize_with = "nullable")]
    pub service_enable_tag_override: bool,
    /// Proxy settings.
    #[serde(default, deserialize_with = "nullable")]
    pub service_proxy: ServiceProxy,
    /// Part of the mesh that the instance takes itself: native, or through a sidecar.
    #[serde(default, deserialize_with = "nullable")]
    pub service_connect: ServiceConnect,
    /// Cluster peer that it was imported from (Consul 1.13).
    #[serde(default, deserialize_with = "nullable")]
    pub peer_name: String,
    /// Enterprise namespace.
    #[serde(default, deserialize_with = "nullable")]
    pub namespace: Option<String>,
    /// Enterprise partition.
    #[serde(default, deserialize_with = "nullable")]
    pub partition: Option<String>,
    /// Index of the registration.
    #[serde(default, deserialize_with = "nullable")]
    pub create_index: u64,
    /// Index of the last change.
    #[serde(default, deserialize_with = "nullable")]
    pub modify_index: u64,
}

impl CatalogService {
    /// Returns the address of the instance: its own, else its node's.
    pub fn reachable_address(&self) -> &str {
        if self.service_address.is_empty() { &self.address } else { &self.service_address }
    }
}

/// Objects to put into the catalog: a node, and perhaps a service and checks on it.
///
/// Programs register with their agent; this is for what has no agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct CatalogRegistration {
    /// Datacenter; `None` is the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// UUID of the node.
    #[serde(rename = "ID", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Name of the node.
    pub node: String,
    /// Address of the node; required unless `skip_node_update`.
    pub address: String,
    /// Other addresses of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tagged_addresses: BTreeMap<String, String>,
    /// Free key-value pairs of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_meta: BTreeMap<String, String>,
    /// A service on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Checks of the node or of its services.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<HealthCheck>,
    /// Leave a known node as it is.
    #[serde(skip_serializing_if = "is_false")]
    pub skip_node_update: bool,
    /// Enterprise partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl CatalogRegistration {
    /// A node and nothing on it.
    pub fn new(node: impl Into<String>, address: impl Into<String>) -> Self {
        Self { node: node.into(), address: address.into(), ..Self::default() }
    }

    /// This registration with a service on the node.
    #[must_use]
    pub fn with_service(mut self, service: Service) -> Self {
        self.service = Some(service);
        self
    }

    /// This registration with a further check.
    #[must_use]
    pub fn with_check(mut self, check: HealthCheck) -> Self {
        self.checks.push(check);
        self
    }
}

/// Object to take out of the catalog. With neither a service nor a check, the
/// node goes with everything on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct CatalogDeregistration {
    /// Datacenter; `None` is the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// Name of the node.
    pub node: String,
    /// Id of the service to remove, with its checks.
    #[serde(rename = "ServiceID", skip_serializing_if = "Option::is_none")]
    pub service_id: Option<String>,
    /// Id of the check to remove.
    #[serde(rename = "CheckID", skip_serializing_if = "Option::is_none")]
    pub check_id: Option<String>,
    /// Enterprise namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Enterprise partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl CatalogDeregistration {
    /// A node with everything on it.
    pub fn node(node: impl Into<String>) -> Self {
        Self { node: node.into(), ..Self::default() }
    }

    /// Takes out a service of a node, with its checks.
    pub fn service(node: impl Into<String>, service_id: impl Into<String>) -> Self {
        Self { service_id: Some(service_id.into()), ..Self::node(node) }
    }

    /// Takes out a check of a node.
    pub fn check(node: impl Into<String>, check_id: impl Into<String>) -> Self {
        Self { check_id: Some(check_id.into()), ..Self::node(node) }
    }
}
