use std::collections::BTreeMap;

use consul_watch::types::{
    CheckSpec, Locality, ServiceAddress, ServiceKind, ServiceProxy, Weights,
};

/// A service, sidecar or gateway of a task, before it takes the form that an agent or the catalog
/// wants.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct MeshService {
    /// What it is to the mesh.
    pub kind: ServiceKind,
    /// Id of the instance.
    pub id: String,
    /// Name.
    pub name: String,
    /// Tags.
    pub tags: Vec<String>,
    /// Free key-value pairs.
    pub meta: BTreeMap<String, String>,
    /// Port; 0 when it listens on nothing.
    pub port: u16,
    /// Its own address; `None` is the task's.
    pub address: Option<String>,
    /// Address of the task.
    pub task_address: String,
    /// Other addresses, by name.
    pub tagged_addresses: BTreeMap<String, ServiceAddress>,
    /// Weights in DNS answers; `None` leaves them to Consul.
    pub weights: Option<Weights>,
    /// Whether tags changed in the catalog survive.
    pub enable_tag_override: bool,
    /// Proxy settings, for sidecars and gateways.
    pub proxy: Option<ServiceProxy>,
    /// Enterprise namespace.
    pub namespace: Option<String>,
    /// Enterprise partition.
    pub partition: Option<String>,
    /// Where it runs.
    pub locality: Option<Locality>,
    /// Its checks.
    pub checks: Vec<MeshCheck>,
}

/// A check of a [`MeshService`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum MeshCheck {
    /// The ECS health of a container, copied by health-sync.
    Container(String),
    /// Whether consul-dataplane is ready, copied by health-sync.
    Dataplane,
    /// One that the agent carries out by itself. The catalog has no use for it.
    Agent(Box<CheckSpec>),
}
