//! How a node comes to its cluster, and finds out that it was removed.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use tokio::time::timeout;

use super::{
    Member, Members,
    client::{self, ANSWER, ask_members},
};
use crate::{
    backend::{
        Error, Result,
        raft::{
            config::Start,
            network::channels,
            types::{Peer, proto},
        },
    },
    pb::generated::resource_store::peer::v1 as peer,
};

/// Comes to the cluster.
pub(crate) async fn enter(members: &Arc<Members>, start: Start) -> Result<()> {
    let known = members.network.cluster.load(Ordering::Acquire) != 0;
    // What the metrics say is not there from the beginning.
    let id = members.id();
    let membership = members.raft.with_raft_state(move |state| {
        let membership = state.membership_state.effective().membership();
        let votes = membership.voter_ids().any(|voter| voter == id);
        membership.get_node(&id).map(|peer| (votes, peer.address.clone()))
    });
    let member = membership.await.map_err(|e| Error::failed("start", e.to_string()))?;
    if known && let Start::Join(through) = &start {
        is_same_cluster(members, through).await?;
    }
    match (start, member) {
        (_, Some((true, address))) => {
            if address != members.address {
                tokio::spawn(announce(Arc::clone(members)));
            }
        }
        (Start::Join(through), _) => {
            // One that was a member, and is none any more, was removed.
            client::join(members, &[through], members.log.identity().entered).await?;
        }
        // It was about to join when it stopped.
        (Start::Bootstrap | Start::Resume, Some((false, _))) => {
            tokio::spawn(announce(Arc::clone(members)));
            return Ok(());
        }
        (Start::Bootstrap, None) if !members.log.is_used() => {
            if !known {
                members.network.adopt_cluster(&members.log, fastrand::u64(1..)).await?;
            }
            let peer = Peer { address: members.address.clone() };
            let voters = BTreeMap::from([(members.id(), peer)]);
            let founded = members.raft.initialize(voters).await;
            founded.map_err(|e| Error::failed("bootstrap", e.to_string()))?;
        }
        // It was about to join, or was removed; the leader knows.
        (Start::Bootstrap | Start::Resume, None) => return Ok(()),
    }
    members.log.set_entered().await
}

/// Tells the cluster the new address of this node, or that it is there to vote.
async fn announce(members: Arc<Members>) {
    while let Err(error) = announce_once(&members).await {
        if members.raft.metrics().borrow().running_state.is_err() {
            return;
        }
        tracing::warn!(%error, "the cluster was not told where this node is");
        tokio::time::sleep(members.patience).await;
    }
}

async fn announce_once(members: &Members) -> Result<()> {
    // If it leads, it cannot call itself where nobody finds it yet.
    let own = proto::from_node(members.id(), &Peer { address: members.address.clone() });
    let here = members.add(own, true, 0).await;
    if !matches!(here, Ok(peer::JoinResponse { cluster: 1.., .. })) {
        let others = members.known().into_iter().filter(|member| member.id != members.id());
        let others: Vec<_> = others.map(|member| member.address).collect();
        if others.is_empty() {
            return here.map(|_| ());
        }
        client::join(members, &others, true).await?;
    }
    members.log.set_entered().await
}

/// Refuses a cluster to join that is not the one this node belongs to. Whether
/// it is cannot be said if nobody answers.
async fn is_same_cluster(members: &Members, address: &str) -> Result<()> {
    let mine = members.network.cluster.load(Ordering::Acquire);
    let anyone = peer::Route { cluster: 0, to: 0, from: 0 };
    match ask_members(&members.network.channels, address, anyone).await {
        Ok(answer) if answer.cluster != 0 && answer.cluster != mine => {
            let text = format!(
                "the node in {} belongs to cluster {mine:016x}, and {address} to {:016x}",
                members.data_dir.display(),
                answer.cluster
            );
            Err(Error::failed("join", text))
        }
        Ok(_) => Ok(()),
        Err(reason) => {
            tracing::debug!(address, reason, "the node to join through does not answer");
            Ok(())
        }
    }
}

/// Waits until this node was removed from its cluster, of which it may not hear.
pub(crate) async fn removed(members: &Members) {
    loop {
        tokio::time::sleep(members.patience).await;
        let known = members.known();
        // One that does not vote never misses a leader.
        let votes = known.iter().any(|member| member.id == members.id() && member.voter);
        if votes && known.iter().any(|member| member.leader) {
            continue;
        }
        for other in known.iter().filter(|other| other.id != members.id()) {
            if is_removed(members, other).await {
                return;
            }
        }
    }
}

/// Returns `true` if another node leads the cluster now, without this one.
async fn is_removed(members: &Members, leader: &Member) -> bool {
    let (route, channels) = (members.network.route(leader.id), &members.network.channels);
    let Ok(found) = ask_members(channels, &leader.address, route).await else { return false };
    let is = |member: &peer::Member, id| member.node.as_ref().is_some_and(|node| node.id == id);
    if found.members.iter().any(|member| is(member, members.id()))
        || !found.members.iter().any(|member| member.leader && is(member, leader.id))
    {
        return false;
    }
    // Else it may only believe that it leads.
    let Ok(channel) = channels.to(&leader.address) else { return false };
    let asked = peer::ReadIndexRequest { route: Some(route) };
    matches!(timeout(ANSWER, channels::peer_client(channel).read_index(asked)).await, Ok(Ok(_)))
}
