//! Linearizable reads: how far a node has to be before it may answer.
//!
//! - [`batch`]: reads that come at the same time share a round;
//! - [`lease`]: whom a majority follows, and since when.

pub(crate) mod batch;
pub(crate) mod lease;

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use openraft::{ServerState, raft::AppendEntriesResponse};
use tokio::time::Instant;

use self::{batch::ReadBatch, lease::Lease};
use super::{
    config::RaftConfig,
    log::Log,
    network::Network,
    types::{NodeId, Raft, inconsistent},
};
use crate::backend::{Error, Result};

/// The leader's part in linearizable reads.
pub(crate) struct Reads {
    raft: Raft,
    log: Log,
    network: Network,
    pub(crate) lease: Lease,
    batch: ReadBatch,
    limit: Duration,
}

impl Reads {
    pub(crate) fn new(
        raft: Raft,
        log: Log,
        network: Network,
        lease: Lease,
        config: &RaftConfig,
    ) -> Self {
        // A round that takes longer than an election is of no use.
        let limit = config.election.1.min(config.patience);
        Self { raft, log, network, lease, batch: ReadBatch::default(), limit }
    }

    /// The index after the last entry that has to be applied before a
    /// linearizable read, as the leader knows it.
    pub(crate) async fn read_index(&self) -> Result<u64> {
        let (raft, log) = (self.raft.clone(), self.log.clone());
        let (network, lease, limit) = (self.network.clone(), self.lease.clone(), self.limit);
        let round = || async move {
            let round = read_index(&raft, &log, &network, &lease);
            let ended = tokio::time::timeout(limit, round).await;
            ended.unwrap_or_else(|_too_long| Err(no_majority()))
        };
        self.batch.pass(round).await
    }
}

fn no_majority() -> Error {
    inconsistent("no majority of the nodes answers")
}

/// Returns the index that is committed and may be known, if a majority follows this
/// node after that was looked up.
///
/// Nothing of it waits for a disk. Whatever the leader acknowledged, or told a
/// follower of, was committed before, so the log knows of it; and what is not on its disk yet it
/// acknowledged to nobody.
async fn read_index(raft: &Raft, log: &Log, network: &Network, lease: &Lease) -> Result<u64> {
    let (vote, members) = {
        let metrics = raft.metrics();
        let metrics = metrics.borrow();
        if metrics.state != ServerState::Leader {
            return Err(inconsistent("the node is not the leader"));
        }
        (metrics.vote, metrics.membership_config.membership().clone())
    };
    let committed = log.committed().filter(|last| last.leader_id == vote.leader_id);
    // What leaders before it acknowledged is committed by then.
    let committed = committed.ok_or_else(|| inconsistent("the leader has only been elected"))?;
    let index = log.durable().visible_end(committed.index);

    // Only what a majority says after this proves that no other leader committed more
    // before the read began.
    let (me, since) = (network.node, Instant::now());
    let voters: BTreeSet<_> = members.voter_ids().filter(|id| *id != me).collect();
    let ask = |id: NodeId| {
        let (peer, vote) = (members.get_node(&id).cloned().unwrap_or_default(), &vote);
        async move { network.ask(id, &peer, vote).await }
    };
    let mut asked: FuturesUnordered<_> = voters.into_iter().map(ask).collect();
    let answers = async {
        while let Some(answer) = asked.next().await {
            if matches!(answer, Ok(AppendEntriesResponse::HigherVote(_))) {
                return Err(inconsistent("the node is not the leader any more"));
            }
        }
        Err(no_majority())
    };
    tokio::select! {
        // The lease learns of answers first.
        biased;
        leads = lease.confirmed_since(since, me, &vote, &members) => if leads {
            Ok(index)
        } else {
            Err(inconsistent("the node is not the leader any more"))
        },
        refused = answers => refused,
    }
}
