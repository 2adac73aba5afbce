//! Cluster peerings.

use std::{collections::BTreeMap, time::SystemTime};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{nullable, secret, timestamp, words};

words! {
    /// State of a peering.
    PeeringState {
        /// A token was made, nobody has used it yet.
        Pending = "PENDING",
        /// The two clusters are about to connect.
        Establishing = "ESTABLISHING",
        /// In order.
        Active = "ACTIVE",
        /// The connection is lost.
        Failing = "FAILING",
        /// It is being removed.
        Deleting = "DELETING",
        /// The other cluster has removed it.
        Terminated = "TERMINATED",
    }
}

/// A connection to another cluster, to share services with it (Consul 1.13).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Peering {
    /// The peering's id, a UUID.
    #[serde(default, rename = "ID")]
    pub id: String,
    /// The peering's name in this cluster.
    pub name: String,
    /// Enterprise partition.
    #[serde(default)]
    pub partition: Option<String>,
    /// Free key-value pairs.
    #[serde(default, deserialize_with = "nullable")]
    pub meta: BTreeMap<String, String>,
    /// State of the peering.
    pub state: PeeringState,
    /// The peering's id in the other cluster.
    #[serde(default, rename = "PeerID")]
    pub peer_id: String,
    /// Server name of the other cluster's certificates.
    #[serde(default)]
    pub peer_server_name: String,
    /// Addresses of the other cluster's servers.
    #[serde(default, deserialize_with = "nullable")]
    pub peer_server_addresses: Vec<String>,
    /// Statistics of what goes over it.
    #[serde(default, deserialize_with = "nullable")]
    pub stream_status: PeeringStreamStatus,
    /// Index of its creation.
    #[serde(default)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub modify_index: u64,
}

/// Statistics of what goes over a [`Peering`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct PeeringStreamStatus {
    /// Services that the other cluster exports to this one.
    #[serde(deserialize_with = "nullable")]
    pub imported_services: Vec<String>,
    /// Services that this cluster exports to the other one.
    #[serde(deserialize_with = "nullable")]
    pub exported_services: Vec<String>,
    /// Time at which the other cluster was last heard of.
    #[serde(deserialize_with = "timestamp::read")]
    pub last_heartbeat: Option<SystemTime>,
    /// Time at which something last came.
    #[serde(deserialize_with = "timestamp::read")]
    pub last_receive: Option<SystemTime>,
    /// Time at which something was last sent.
    #[serde(deserialize_with = "timestamp::read")]
    pub last_send: Option<SystemTime>,
}

/// A token to make, with which another cluster can connect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct PeeringTokenRequest {
    /// Name for the other cluster.
    pub peer_name: String,
    /// Free key-value pairs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Addresses for the other cluster to connect to; none is the servers' own addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_external_addresses: Vec<String>,
    /// Enterprise partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl PeeringTokenRequest {
    /// A token for a cluster that is to be called `peer_name`.
    pub fn new(peer_name: impl Into<String>) -> Self {
        Self { peer_name: peer_name.into(), ..Self::default() }
    }
}

/// A connection to make, with a token from the other cluster.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct PeeringEstablishRequest {
    /// Name for the other cluster.
    pub peer_name: String,
    /// The other cluster's token.
    #[serde(serialize_with = "secret::write")]
    pub peering_token: SecretString,
    /// Free key-value pairs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Enterprise partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl PeeringEstablishRequest {
    /// A connection to a cluster that is to be called `peer_name`.
    pub fn new(peer_name: impl Into<String>, peering_token: SecretString) -> Self {
        let (peer_name, meta) = (peer_name.into(), BTreeMap::new());
        Self { peer_name, peering_token, meta, partition: None }
    }
}

/// A token with which another cluster can connect.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PeeringToken {
    #[serde(deserialize_with = "secret::read")]
    pub(crate) peering_token: SecretString,
}

/// A service that other clusters or partitions may use (Consul 1.17.3).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ExportedService {
    /// The service.
    pub service: String,
    /// The service's Enterprise partition.
    #[serde(default)]
    pub partition: Option<String>,
    /// The service's Enterprise namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Clusters that may use it.
    #[serde(default, deserialize_with = "nullable")]
    pub consumers: ServiceConsumers,
}

/// A cluster that may use an [`ExportedService`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct ServiceConsumers {
    /// Cluster peers.
    #[serde(deserialize_with = "nullable")]
    pub peers: Vec<String>,
    /// Enterprise partitions.
    #[serde(deserialize_with = "nullable")]
    pub partitions: Vec<String>,
}
