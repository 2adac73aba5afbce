//! Inputs of a module that come from Consul.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

/// The data from Consul that a task's module gets, at one moment.
///
/// A kind that the task does not select is `None`; one that it selects and
/// that is empty is `Some` of nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct TaskInputs {
    /// Service instances: in the order of their services' names, then by node and id;
    /// those of a regular expression all by node and id. Shared between runs, so that a
    /// run of a task with thousands of instances copies none of them.
    pub services: Option<Vec<Arc<ServiceInstance>>>,
    /// Service names with all their tags, sorted.
    pub catalog_services: Option<BTreeMap<String, Vec<String>>>,
    /// Keys with their values, in Consul's order.
    pub consul_kv: Option<Vec<KvEntry>>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KvEntry {
    /// The full key.
    pub path: String,
    /// The value; Consul does not say that it is text.
    pub value: Vec<u8>,
}

/// An instance of a service, as modules get it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ServiceInstance {
    /// The instance's id, unique on its node.
    pub id: String,
    /// The service's name.
    pub name: String,
    /// Empty, or a kind such as `connect-proxy`.
    pub kind: String,
    /// The instance's address, or its node's.
    pub address: String,
    /// The port; 0 when there is none.
    pub port: i64,
    /// The instance's metadata.
    pub meta: BTreeMap<String, String>,
    /// The instance's tags, sorted.
    pub tags: Vec<String>,
    /// Enterprise namespace; empty on the community edition.
    pub namespace: String,
    /// The worst of its checks: `maintenance`, `critical`, `warning` or `passing`.
    pub status: String,
    /// The node's name.
    pub node: String,
    /// The node's id.
    pub node_id: String,
    /// The node's address.
    pub node_address: String,
    /// The node's datacenter.
    pub node_datacenter: String,
    /// The node's addresses by kind.
    pub node_tagged_addresses: BTreeMap<String, String>,
    /// The node's metadata.
    pub node_meta: BTreeMap<String, String>,
    /// Metadata that the operator configured for this service.
    pub cts_user_defined_meta: BTreeMap<String, String>,
}
