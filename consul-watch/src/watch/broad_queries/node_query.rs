//! The broad query of one node.

use tokio_util::sync::DropGuard;

use super::{broad_query::BroadQuery, node::NodeRows};
use tokio_util::sync::CancellationToken;

/// The broad query of a node, and what it has shown.
#[derive(Debug)]
pub(super) struct NodeQuery {
    pub(super) broad_query: BroadQuery,
    /// `None` before the first answer.
    pub(super) rows: Option<NodeRows>,
    /// Index of the list of nodes before the one that brought this node, or of its own answer
    /// before a failure: what was read past it may have been there, and be gone.
    pub(super) since: u64,
    /// Failures in a row.
    pub(super) failures: u32,
    /// Answers in a row that it is not there.
    pub(super) absent: u32,
    /// Ends the request with this.
    pub(super) _stop: DropGuard,
    pub(super) stop: CancellationToken,
}
