//! Membership: who belongs to the cluster, and how that changes.
//!
//! - [`change`]: adds, moves and removes nodes, as the leader;
//! - [`client`]: asks other nodes for such changes, and who their members are;
//! - [`node_status`]: how a node is, as operators see it;
//! - [`join`]: a node comes to its cluster, and finds out that it was removed.

mod change;
pub(crate) mod client;
pub(crate) mod join;
mod node_status;

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

pub use node_status::{Alarm, DiskLatency, Follower, NodeStatus};
use tokio::sync::Mutex;

use super::{
    config::RaftConfig,
    log::Log,
    network::Network,
    types::{NodeId, Peer, Raft, inconsistent, leader_of, proto},
};
use crate::{backend::Result, lease::Leadership, pb::generated::resource_store::peer::v1 as peer};

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Id of the node.
    pub id: u64,
    /// The address for other nodes.
    pub address: String,
    /// `true` if it votes. A node that does not is about to be taken in.
    pub voter: bool,
    /// `true` if it leads.
    pub leader: bool,
    /// Why it gave no answer, if it was asked, which only
    /// [`RaftBackend::members_at`](super::RaftBackend::members_at) does.
    pub silent: Option<String>,
}

/// The membership as one node knows it, and its part in changes.
pub(crate) struct Members {
    pub(crate) address: String,
    raft: Raft,
    log: Log,
    network: Network,
    leadership: Leadership,
    write_timeout: Duration,
    patience: Duration,
    data_dir: std::path::PathBuf,
    /// The dead node whose place this one takes; 0 if it takes none.
    replaces: NodeId,
    /// Held while the leader changes the membership.
    pub(in crate::backend::raft) changing: Mutex<()>,
}

impl Members {
    pub(crate) fn new(
        address: String,
        raft: Raft,
        log: Log,
        network: Network,
        leadership: Leadership,
        config: &RaftConfig,
    ) -> Self {
        Self {
            address,
            raft,
            log,
            network,
            leadership,
            write_timeout: config.write_timeout,
            patience: config.patience,
            data_dir: config.data_dir.clone(),
            replaces: config.replaces.unwrap_or(0),
            changing: Mutex::default(),
        }
    }

    fn id(&self) -> NodeId {
        self.network.node
    }

    /// The members as this node knows them, also those of a change that is not
    /// committed.
    pub(crate) fn known(&self) -> Vec<Member> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<_> = membership.voter_ids().collect();
        let member = |(id, peer): (&NodeId, &Peer)| Member {
            id: *id,
            address: peer.address.clone(),
            voter: voters.contains(id),
            leader: metrics.current_leader == Some(*id),
            silent: None,
        };
        membership.nodes().map(member).collect()
    }

    /// Returns the membership for other nodes and operators: only what cannot be
    /// taken back.
    pub(crate) async fn committed(&self) -> Result<peer::MembersResponse> {
        let membership = self
            .raft
            .with_raft_state(|state| state.membership_state.committed().membership().clone());
        let membership = membership.await.map_err(|e| inconsistent(e.to_string()))?;
        let leader = self.raft.metrics().borrow().current_leader;
        // One that hears from no majority does not know whether it still leads.
        let leader = leader.filter(|leader| *leader != self.id() || self.leadership.is_held());
        let voters: BTreeSet<_> = membership.voter_ids().collect();
        let member = |(id, peer): (&NodeId, &Peer)| peer::Member {
            node: Some(proto::from_node(*id, peer)),
            voter: voters.contains(id),
            leader: leader == Some(*id),
        };
        Ok(peer::MembersResponse {
            cluster: self.network.cluster.load(Ordering::Acquire),
            members: membership.nodes().map(member).collect(),
        })
    }

    /// The leader, if it is another node.
    pub(crate) fn another_leader(&self) -> Result<Option<peer::Node>> {
        match leader_of(&self.raft) {
            Some((id, _)) if id == self.id() => Ok(None),
            Some((id, peer)) => Ok(Some(proto::from_node(id, &peer))),
            None => Err(inconsistent("no leader is known")),
        }
    }
}
