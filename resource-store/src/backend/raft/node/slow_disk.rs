//! Lets entries of a leader through that a majority of the other nodes has on
//! its disks, while the own disk is slow.
//!
//! As a rule the leader's disk is done before followers have answered, so this
//! looks only at writes that take long.

use std::time::Duration;

use openraft::ServerState;

use super::Node;
use crate::backend::raft::types::{LogId, NodeId, Raft};

/// Time that a write of the node's own disk may take before it is looked at, and
/// interval of further looks.
const TICK: Duration = Duration::from_millis(10);

/// Tells the log what a majority has, as long as the node runs.
pub(super) async fn pass_what_a_majority_has(node: &Node) {
    loop {
        tokio::time::sleep(TICK).await;
        let durable = node.log.durable();
        if durable.hangs(TICK)
            && let Some(last) = replicated(&node.raft, node.id())
        {
            durable.flushed(last);
        }
    }
}

/// The last entry of this leader's term that a majority of the members has on
/// its disks, this node not counted. It is committed, with all before it.
fn replicated(raft: &Raft, node: NodeId) -> Option<LogId> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow();
    if metrics.state != ServerState::Leader {
        return None;
    }
    let nodes = metrics.replication.as_ref()?;
    let configs = metrics.membership_config.membership().get_joint_config();
    let of_config = |voters: &std::collections::BTreeSet<NodeId>| {
        let others = voters.iter().filter(|voter| **voter != node);
        let mut has: Vec<_> = others.map(|voter| nodes.get(voter).copied().flatten()).collect();
        has.sort_unstable_by(|a, b| b.cmp(a));
        // Of 3 voters two others, of 4 three.
        has.get(voters.len() / 2).copied().flatten()
    };
    // Between two memberships a majority of each is needed.
    let last = configs.iter().map(of_config).min().flatten()?;
    (last.leader_id == metrics.vote.leader_id).then_some(last)
}
