//! What Consul sends and takes, as Rust types.
//!
//! Reading is lenient, as Consul's answers need it: unknown fields are
//! ignored, and a collection or text that is `null` or missing is empty.
//! Writing leaves out what is empty, because old servers refuse fields that
//! they do not know. Every type has a `Default` to start from.
//!
//! Source: Consul 1.8.7 and 1.21 `agent/structs/*.go`, `api/*.go`.

mod acl_policy;
mod acl_token;
mod agent;
mod auth_method;
mod catalog;
mod check;
mod config_entry;
mod connect_ca;
mod coordinate;
mod discovery_chain;
mod event;
mod health;
mod intention;
mod kv;
mod operator;
mod peering;
mod prepared_query;
mod proxy;
mod secret;
mod service;
mod session;
mod tenancy;
mod timestamp;
mod txn;
mod words;

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

use crate::GoDuration;

pub use acl_policy::{
    AclLink, AclPolicy, AclRole, NodeIdentity, ServiceIdentity, TemplateVariables, TemplatedPolicy,
};
pub use acl_token::{AclLogin, AclToken, AclTokenEntry, AclTokenExpanded, AclTokenRequest};
pub use agent::{
    AgentConfig, AgentConnect, AgentMember, AgentSelf, AgentService, AgentServiceRegistration,
};
pub use auth_method::{AclAuthMethod, AclBindingRule, AclReplication, BindType};
pub use catalog::{CatalogDeregistration, CatalogNode, CatalogRegistration, CatalogService, Node};
pub use check::{AgentCheckRegistration, CheckSpec, HealthCheck, HealthStatus};
pub use config_entry::ConfigEntry;
pub use connect_ca::{
    Authorization, AuthorizeRequest, CaConfiguration, CaRoot, CaRoots, ConnectLeaf,
};
pub use coordinate::{Coordinate, DatacenterCoordinates, NodeCoordinate};
pub use discovery_chain::{DiscoveryChain, DiscoveryChainOverride, GatewayService};
pub use event::{UserEvent, new_events};
pub use health::{ServiceEntry, aggregated_status};
pub use intention::{Intention, IntentionAction, IntentionSide};
pub use kv::KvPair;
pub(crate) use kv::from_base64;
pub use operator::{AutopilotHealth, RaftConfiguration, RaftServer, ServerHealth};
pub(crate) use peering::PeeringToken;
pub use peering::{
    ExportedService, Peering, PeeringEstablishRequest, PeeringState, PeeringStreamStatus,
    PeeringTokenRequest, ServiceConsumers,
};
pub use prepared_query::{Failover, PreparedQuery, PreparedQueryResult, PreparedService};
pub use proxy::{MeshGateway, ServiceProxy, TransparentProxy, Upstream};
pub use secret::SecretObject;
pub(crate) use secret::same as same_secret;
pub use service::{Locality, Service, ServiceAddress, ServiceConnect, ServiceKind, Weights};
pub use session::{Session, SessionBehavior, SessionId, SessionRequest};
pub use tenancy::{Namespace, NamespaceAcls, Partition};
pub(crate) use txn::TxnAnswer;
pub use txn::{
    CatalogVerb, CheckOp, KvOp, KvVerb, NodeOp, ServiceOp, TxnFailure, TxnOp, TxnOutcome, TxnResult,
};
use words::words;

/// A JSON object whose members Consul does not define.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

/// Reads `null` like a missing field.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Returns `true` for the number that stands for no port.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn no_port(port: &i64) -> bool {
    *port == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Writes a length of time as Go's text.
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(crate) fn go_text<S: Serializer>(
    value: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(duration) => serializer.collect_str(&GoDuration::new(*duration)),
        None => serializer.serialize_none(),
    }
}

/// Reads Go's text; empty, `null` and zero are none.
pub(crate) fn from_go_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let duration = text.parse::<GoDuration>().map_err(D::Error::custom)?.get();
    Ok((!duration.is_zero()).then_some(duration))
}

#[cfg(test)]
mod captured;
#[cfg(test)]
mod tests;
