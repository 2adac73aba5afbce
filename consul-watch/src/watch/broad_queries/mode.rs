//! The ways in which a group follows the catalog.

/// Way in which a group follows the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Not known before the nodes have been counted.
    Undecided,
    /// Lists of all checks and services; nodes are listed when something changed.
    Lists,
    /// A single query of everything on all nodes: its answers name what changed.
    Dump,
    /// A broad query of each node: it is woken by what happens there, and names it.
    Nodes,
}

/// Places among the whole queries of the catalog.
pub(super) const NODES: usize = 1;
pub(super) const DUMP: usize = 3;
