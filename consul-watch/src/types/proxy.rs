//! Settings of proxies in service registrations.

use serde::{Deserialize, Serialize};

use super::{JsonObject, is_false, no_port, nullable};

/// Settings of a proxy or gateway.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ServiceProxy {
    /// The service that it stands before.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub destination_service_name: String,
    /// The instance that it stands before.
    #[serde(
        default,
        rename = "DestinationServiceID",
        deserialize_with = "nullable",
        skip_serializing_if = "String::is_empty"
    )]
    pub destination_service_id: String,
    /// Address on which the service listens, seen from the proxy. Empty is 127.0.0.1.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub local_service_address: String,
    /// The port of the service; 0 when there is none. Consul takes any 64-bit number.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "no_port")]
    pub local_service_port: i64,
    /// The socket of the service, instead of address and port (Consul 1.10).
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub local_service_socket_path: String,
    /// Empty, `transparent` or `direct` (Consul 1.10).
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Settings of the mode `transparent` (Consul 1.10).
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "TransparentProxy::is_empty"
    )]
    pub transparent_proxy: TransparentProxy,
    /// Settings that only the proxy understands.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "JsonObject::is_empty")]
    pub config: JsonObject,
    /// The services that it gives access to.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<Upstream>,
    /// Way in which it reaches other datacenters.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "MeshGateway::is_empty")]
    pub mesh_gateway: MeshGateway,
    /// Paths that it exposes without the mesh's TLS, as Consul takes them.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "JsonObject::is_empty")]
    pub expose: JsonObject,
}

impl ServiceProxy {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Settings of a proxy in the mode `transparent`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct TransparentProxy {
    /// The port that outbound traffic is redirected to; 0 is Consul's default, 15001.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "no_port")]
    pub outbound_listener_port: i64,
    /// Lets other transparent proxies dial the instance by its own address. Default false.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_false")]
    pub dialed_directly: bool,
}

impl TransparentProxy {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Way in which a proxy reaches other datacenters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct MeshGateway {
    /// Empty, `none`, `local` or `remote`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub mode: String,
}

impl MeshGateway {
    fn is_empty(&self) -> bool {
        self.mode.is_empty()
    }
}

/// A service that a proxy gives access to on a local port.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Upstream {
    /// `service` (also when empty) or `prepared_query`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub destination_type: String,
    /// Enterprise partition of the destination.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub destination_partition: String,
    /// Enterprise namespace of the destination.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub destination_namespace: String,
    /// Cluster peer of the destination (Consul 1.13).
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub destination_peer: String,
    /// The destination's name.
    #[serde(default, deserialize_with = "nullable")]
    pub destination_name: String,
    /// The destination's datacenter; empty is the local one.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub datacenter: String,
    /// Address to listen on; empty is 127.0.0.1.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub local_bind_address: String,
    /// Port to listen on. Consul takes any 64-bit number.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "no_port")]
    pub local_bind_port: i64,
    /// Settings that only the proxy understands.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "JsonObject::is_empty")]
    pub config: JsonObject,
    /// Way in which the proxy reaches other datacenters for this upstream.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "MeshGateway::is_empty")]
    pub mesh_gateway: MeshGateway,
}
