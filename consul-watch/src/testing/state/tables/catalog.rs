//! Nodes with their services and checks, and the indexes of the tables.

use std::collections::BTreeMap;

use crate::types::{HealthCheck, Node, Service};

/// The last index that touched each table.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::testing) struct Tables {
    pub(in crate::testing) nodes: u64,
    pub(in crate::testing) services: u64,
    pub(in crate::testing) checks: u64,
    pub(in crate::testing) kvs: u64,
    pub(in crate::testing) tombstones: u64,
    pub(in crate::testing) sessions: u64,
}

#[derive(Debug, Clone)]
pub(in crate::testing) struct NodeRecord {
    pub(in crate::testing) node: Node,
    pub(in crate::testing) services: BTreeMap<String, Service>,
    /// By their ids in lower case.
    pub(in crate::testing) checks: BTreeMap<String, CheckRecord>,
}

impl NodeRecord {
    /// A check; its id is looked up without regard to case.
    pub(in crate::testing) fn check(&self, id: &str) -> Option<&CheckRecord> {
        self.checks.get(&id.to_lowercase())
    }
}

#[derive(Debug, Clone)]
pub(in crate::testing) struct CheckRecord {
    pub(in crate::testing) check: HealthCheck,
    /// The last write, also one that changed nothing (Consul 1.8 wakes watches then).
    pub(in crate::testing) touched: u64,
}
