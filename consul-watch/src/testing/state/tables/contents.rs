//! The part of the state that transactions change and snapshots keep.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use super::{
    catalog::{NodeRecord, Tables},
    coordinate::Coordinates,
    gateway::Gateways,
    kv::KeyRecord,
    query::PreparedQueries,
    session::SessionRecord,
};

/// The part of a [`State`] that transactions change.
#[derive(Debug, Clone)]
pub(in crate::testing) struct Contents {
    pub(in crate::testing) tables: Tables,
    pub(in crate::testing) nodes: BTreeMap<String, NodeRecord>,
    pub(in crate::testing) service_indexes: BTreeMap<String, u64>,
    pub(in crate::testing) node_indexes: BTreeMap<String, u64>,
    pub(in crate::testing) extinctions: (u64, u64),
    pub(in crate::testing) keys: BTreeMap<String, KeyRecord>,
    pub(in crate::testing) tombstones: BTreeMap<String, u64>,
    pub(in crate::testing) lock_delays: HashMap<String, Instant>,
    pub(in crate::testing) sessions: BTreeMap<String, SessionRecord>,
    pub(in crate::testing) queries: PreparedQueries,
    pub(in crate::testing) gateways: Gateways,
    pub(in crate::testing) coordinates: Coordinates,
}
