//! Watchable reads: the seam [`Query`] and the queries that this crate brings.

mod acl;
mod agent_service;
mod canonical;
mod catalog_node;
mod catalog_nodes;
mod catalog_service;
mod catalog_services;
mod datacenters;
mod definition;
mod events;
mod health_service;
mod health_state;
mod key;
mod kv;
mod mesh;
mod options;
mod polled;
mod read;
mod scope;
mod sessions;
mod simple;

pub use crate::position::Position;
pub use acl::{AclAuthMethods, AclBindingRules, AclPolicies, AclRoles, AclTokens};
pub use agent_service::AgentService;
pub use catalog_node::{CatalogNode, CoordinateNodes, HealthChecks, HealthNode, NodeServices};
pub use catalog_nodes::CatalogNodes;
pub use catalog_service::CatalogService;
pub use catalog_services::CatalogServices;
pub use datacenters::Datacenters;
pub use definition::{AnyQuery, Definition};
pub use events::Events;
pub use health_service::HealthService;
pub use health_state::HealthState;
pub use key::{QueryKey, Subject};
pub use kv::{KvGet, KvKeys, KvList};
pub use mesh::{
    CaRoots, CatalogConnect, ConfigEntries, ConfigEntry, ConnectLeaf, DiscoveryChain,
    ExportedServices, GatewayServices, HealthIngress, IntentionMatch, Intentions, Peering,
    Peerings, ServerCaRoots,
};
pub use polled::Polled;
pub use read::Query;
pub use scope::{Mode, Scope};
pub use sessions::{NodeSessions, SessionInfo, Sessions};

use options::{common_setters, is_local};

#[cfg(test)]
mod tests;
