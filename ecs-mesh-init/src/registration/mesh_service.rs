//! A task's service, before it takes the form of an agent's or the catalog's registration.

use std::collections::BTreeMap;

use consul_watch::types::{
    CheckSpec, Locality, ServiceAddress, ServiceKind, ServiceProxy, Weights,
};

/// Service, sidecar or gateway of a task, independent of an agent's or the catalog's form.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct MeshService {
    /// Kind of the service in the mesh.
    pub kind: ServiceKind,
    /// Id of the instance.
    pub id: String,
    /// Name of the service.
    pub name: String,
    /// Tags.
    pub tags: Vec<String>,
    /// Free key-value pairs.
    pub meta: BTreeMap<String, String>,
    /// Port; 0 if it listens on nothing.
    pub port: u16,
    /// Address of its own; `None` takes the task's.
    pub address: Option<String>,
    /// Address of the task.
    pub task_address: String,
    /// Further addresses, by name (`lan`, `wan`, `virtual`).
    pub tagged_addresses: BTreeMap<String, ServiceAddress>,
    /// Weights in DNS answers; `None` leaves them to Consul.
    pub weights: Option<Weights>,
    /// `true` to keep tags that were changed in the catalog.
    pub enable_tag_override: bool,
    /// Proxy settings of sidecars and gateways.
    pub proxy: Option<ServiceProxy>,
    /// Enterprise namespace.
    pub namespace: Option<String>,
    /// Enterprise partition.
    pub partition: Option<String>,
    /// Region and zone that it runs in.
    pub locality: Option<Locality>,
    /// Health checks.
    pub checks: Vec<MeshCheck>,
}

/// Health check of a [`MeshService`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum MeshCheck {
    /// ECS health of a container, copied by health-sync.
    Container(String),
    /// Readiness of consul-dataplane, copied by health-sync.
    Dataplane,
    /// Check that the agent carries out by itself. The catalog has no use for it.
    Agent(Box<CheckSpec>),
}
