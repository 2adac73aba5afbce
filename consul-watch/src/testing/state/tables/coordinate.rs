//! Network coordinates of nodes as they are kept.

use std::collections::BTreeMap;

use crate::types::NodeCoordinate;

/// The coordinates of nodes, as gossip computes them.
#[derive(Debug, Clone, Default)]
pub(in crate::testing) struct Coordinates {
    /// By the nodes' names in lower case.
    pub(in crate::testing) all: BTreeMap<String, NodeCoordinate>,
    pub(in crate::testing) index: u64,
}
