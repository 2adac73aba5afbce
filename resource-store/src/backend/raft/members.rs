//! Who belongs to a cluster: taking nodes in, removing them, listing them.

use std::{collections::BTreeSet, future::Future, sync::atomic::Ordering, time::Duration};

use futures::future::join_all;
use openraft::{
    ChangeMembers,
    error::{ChangeMembershipError, ClientWriteError, RaftError},
};
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::{
    channels::{self, Channels},
    convert,
    node::{Node, inconsistent},
    types::{NodeId, Peer},
    wire,
};
use crate::{
    backend::{Error, Result},
    error_chain::error_chain,
    pb::generated::resource_store::peer::v1 as peer,
};

/// A node that lacks no more entries than this may vote.
const NEARLY_THERE: u64 = 1000;
/// How long the leader waits for a new node to come so far, before it is asked
/// again.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How often a node asks to be taken in.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How soon a change of the membership that stands half done is gone on with.
const GO_ON: Duration = Duration::from_secs(1);
/// How long a node may take to say that it is there.
const ANSWER: Duration = Duration::from_secs(2);

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Which.
    pub id: u64,
    /// The address for other nodes.
    pub address: String,
    /// Whether it votes. A node that does not is about to be taken in.
    pub voter: bool,
    /// Whether it leads.
    pub leader: bool,
    /// Why it gave no answer, if it was asked, which only
    /// [`RaftBackend::members_at`](super::RaftBackend::members_at) does.
    pub silent: Option<String>,
}

pub(crate) fn members(node: &Node) -> Vec<Member> {
    let metrics = node.raft.metrics();
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

/// What other nodes and operators are told: only what cannot be taken back.
pub(crate) async fn list(node: &Node) -> Result<peer::MembersResponse> {
    let membership =
        node.raft.with_raft_state(|state| state.membership_state.committed().membership().clone());
    let membership = membership.await.map_err(|e| inconsistent(e.to_string()))?;
    let leader = node.raft.metrics().borrow().current_leader;
    // One that hears from no majority does not know whether it still leads.
    let leader = leader.filter(|leader| *leader != node.id || node.leadership.is_held());
    let voters: BTreeSet<_> = membership.voter_ids().collect();
    let member = |(id, peer): (&NodeId, &Peer)| peer::Member {
        node: Some(convert::from_node(*id, peer)),
        voter: voters.contains(id),
        leader: leader == Some(*id),
    };
    Ok(peer::MembersResponse {
        cluster: node.cluster.load(Ordering::Acquire),
        members: membership.nodes().map(member).collect(),
    })
}

/// The leader, if it is another node.
fn another_leader(node: &Node) -> Result<Option<peer::Node>> {
    match node.leader() {
        Some((id, _)) if id == node.id => Ok(None),
        Some((id, peer)) => Ok(Some(convert::from_node(id, &peer))),
        None => Err(inconsistent("no leader is known")),
    }
}

async fn change(node: &Node, change: ChangeMembers<NodeId, Peer>, retain: bool) -> Result<()> {
    let changing = node.raft.change_membership(change, retain);
    match timeout(node.config.write_timeout, changing).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
            Err(inconsistent("the node is not the leader any more"))
        }
        Ok(Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(
            ChangeMembershipError::InProgress(_),
        )))) => {
            Err(inconsistent("no majority has confirmed the last change of the membership yet"))
        }
        Ok(Err(error)) => Err(inconsistent(format!("the membership cannot be changed: {error}"))),
        Err(_too_long) => Err(inconsistent(
            "no majority has confirmed the change of the membership yet; it has effect once one \
             does, unless there is another leader before",
        )),
    }
}

/// Ends changes of the membership of which the first half is done, as long as
/// the node runs: between the halves a majority of the nodes before and of those
/// after has to be there. Whoever began may have given up, or have led before.
pub(crate) async fn settle(node: &Node) {
    loop {
        tokio::time::sleep(GO_ON).await;
        let is_half_done = || {
            let metrics = node.raft.metrics();
            let metrics = metrics.borrow();
            metrics.current_leader == Some(node.id)
                && metrics.membership_config.membership().get_joint_config().len() > 1
        };
        if !is_half_done() {
            continue;
        }
        let _changing = node.changing_members.lock().await;
        if is_half_done() {
            let nobody = ChangeMembers::AddVoterIds(BTreeSet::new());
            match change(node, nobody, false).await {
                Ok(()) => tracing::info!("a change of the membership was gone on with"),
                Err(error) => tracing::debug!(%error, "the membership stays half changed"),
            }
        }
    }
}

/// Takes a node in, or learns its new address, as the leader. The answer has no
/// cluster as long as the node has not caught up; then it asks again.
pub(crate) async fn take_in(
    node: &Node,
    joiner: peer::Node,
    is_member: bool,
) -> Result<peer::JoinResponse> {
    if let Some(leader) = another_leader(node)? {
        return Ok(peer::JoinResponse { cluster: 0, leader: Some(leader) });
    }
    if joiner.id == 0 || joiner.address.is_empty() {
        return Err(inconsistent("a node needs an id and an address"));
    }
    let _changing = node.changing_members.lock().await;
    let members = members(node);
    let known = members.iter().find(|member| member.id == joiner.id);
    let refused = |text: String| {
        Err(Error::Other { operation: "join", retryable: false, source: text.into() })
    };
    if known.is_none() && is_member {
        return refused(format!(
            "node {:016x} was removed from this cluster; to let it join again, empty its folder",
            joiner.id
        ));
    }
    let here = |member: &&Member| member.address == joiner.address;
    if known.is_none()
        && let Some(other) = members.iter().find(here)
    {
        // Of two nodes at one address one is lost, and would count as a voter.
        return refused(format!(
            "node {:016x} of this cluster has the address {}: if it is no more, remove it first",
            other.id, other.address
        ));
    }
    let peer = Peer { address: joiner.address.clone() };
    let id = format!("{:016x}", joiner.id);
    match known {
        None => {
            tracing::info!(node = id, address = joiner.address, "a node joins");
            change(node, ChangeMembers::AddNodes([(joiner.id, peer)].into()), true).await?;
        }
        Some(member) if member.address != joiner.address => {
            tracing::info!(node = id, address = joiner.address, "a node has moved");
            change(node, ChangeMembers::SetNodes([(joiner.id, peer)].into()), true).await?;
        }
        Some(_) => {}
    }
    if !known.is_some_and(|member| member.voter) {
        if !caught_up(node, joiner.id).await {
            return Ok(peer::JoinResponse { cluster: 0, leader: None });
        }
        change(node, ChangeMembers::AddVoterIds([joiner.id].into()), true).await?;
    }
    let cluster = node.cluster.load(Ordering::Acquire);
    Ok(peer::JoinResponse { cluster, leader: None })
}

async fn caught_up(node: &Node, joiner: NodeId) -> bool {
    let near = |metrics: &openraft::RaftMetrics<NodeId, Peer>| {
        let at = metrics.replication.as_ref().and_then(|nodes| nodes.get(&joiner));
        let at = at.copied().flatten().map(|id| id.index);
        at.is_some_and(|at| at + NEARLY_THERE >= metrics.last_log_index.unwrap_or(0))
    };
    node.raft.wait(Some(CATCH_UP)).metrics(near, "a new node catches up").await.is_ok()
}

/// Removes a node, as the leader.
pub(crate) async fn remove(node: &Node, id: NodeId) -> Result<peer::RemoveResponse> {
    if let Some(leader) = another_leader(node)? {
        return Ok(peer::RemoveResponse { leader: Some(leader) });
    }
    let _changing = node.changing_members.lock().await;
    let found = members(node);
    let Some(member) = found.iter().find(|member| member.id == id) else {
        return Ok(peer::RemoveResponse { leader: None });
    };
    if member.voter {
        if found.iter().filter(|member| member.voter).count() == 1 {
            let text = "the only node that votes cannot be removed";
            return Err(Error::Other {
                operation: "remove",
                retryable: false,
                source: text.into(),
            });
        }
        change(node, ChangeMembers::RemoveVoters([id].into()), false).await?;
    } else {
        change(node, ChangeMembers::RemoveNodes([id].into()), false).await?;
    }
    tracing::info!(node = format!("{id:016x}"), "a node was removed");
    Ok(peer::RemoveResponse { leader: None })
}

/// What is told by whoever is asked.
enum Answer {
    Done,
    /// Nothing yet; the same node is to be asked again.
    Again(String),
    /// Another node is to be asked.
    Ask(String),
    /// It will not be done.
    Refused(String),
}

/// Asks nodes, beginning with `first`, until one has done it.
async fn ask<F>(
    first: &[String],
    patience: Duration,
    mut call: impl FnMut(String) -> F,
) -> Result<()>
where
    F: Future<Output = Answer>,
{
    let mut deadline = Instant::now() + patience;
    let mut told = None;
    let mut places = first.iter().cycle();
    let mut next: Option<String> = None;
    loop {
        let Some(address) = next.take().or_else(|| places.next().cloned()) else {
            return Err(inconsistent("no address of another node is known"));
        };
        match call(address.clone()).await {
            Answer::Done => return Ok(()),
            Answer::Ask(leader) => {
                deadline = Instant::now() + patience;
                next = Some(leader);
            }
            Answer::Refused(reason) => {
                let source = reason.into();
                return Err(Error::Other { operation: "change members", retryable: false, source });
            }
            Answer::Again(reason) if Instant::now() >= deadline => {
                return Err(inconsistent(format!("{address}: {reason}")));
            }
            Answer::Again(reason) => {
                if told.as_ref() != Some(&reason) {
                    tracing::warn!(address, reason, "not done yet, asking again");
                }
                told = Some(reason);
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Has a cluster take this node in, through any of its nodes, or learn its new
/// address if it `is_member`.
pub(crate) async fn join(node: &Node, through: &[String], is_member: bool) -> Result<()> {
    let first = Instant::now();
    ask(through, node.config.write_timeout, |address| async move {
        let request = peer::JoinRequest {
            route: Some(node.network.route(0)),
            node: Some(peer::Node { id: node.id, address: node.address.clone() }),
            member: is_member,
        };
        let channel = match node.network.channels.to(&address) {
            Ok(channel) => channel,
            Err(error) => return Answer::Again(error_chain(&error)),
        };
        match channels::peer_client(channel).join(request).await.map(tonic::Response::into_inner) {
            Ok(peer::JoinResponse { leader: Some(leader), .. }) => Answer::Ask(leader.address),
            Ok(peer::JoinResponse { cluster: 0, .. }) => {
                tracing::info!(seconds = first.elapsed().as_secs(), "catching up with the cluster");
                Answer::Ask(address)
            }
            Ok(peer::JoinResponse { cluster, .. }) => match node.adopt_cluster(cluster).await {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Again(error.to_string()),
            },
            Err(status) => answer_of(&status),
        }
    })
    .await
}

/// What it means that a call failed.
fn answer_of(status: &Status) -> Answer {
    let reason = match wire::from_status(status) {
        Some(Error::Inconsistent { reason }) => reason,
        Some(_) | None => channels::reason(status),
    };
    if channels::is_final(status) { Answer::Refused(reason) } else { Answer::Again(reason) }
}

/// Removes a node, through any node.
pub(crate) async fn remove_through(
    channels: &Channels,
    through: &[String],
    cluster: u64,
    id: NodeId,
    patience: Duration,
) -> Result<()> {
    ask(through, patience, |address| async move {
        let request =
            peer::RemoveRequest { route: Some(peer::Route { cluster, to: 0, from: 0 }), node: id };
        let channel = match channels.to(&address) {
            Ok(channel) => channel,
            Err(error) => return Answer::Again(error_chain(&error)),
        };
        match channels::peer_client(channel).remove(request).await.map(tonic::Response::into_inner)
        {
            Ok(peer::RemoveResponse { leader: Some(leader) }) => Answer::Ask(leader.address),
            Ok(peer::RemoveResponse { leader: None }) => Answer::Done,
            Err(status) => answer_of(&status),
        }
    })
    .await
}

/// What the node at an address knows of its cluster, or why that is not known.
/// It has to be a certain node, and of a certain cluster, unless they are 0.
async fn ask_members(
    channels: &Channels,
    address: &str,
    route: peer::Route,
) -> Result<peer::MembersResponse, String> {
    let channel = channels.to(address).map_err(|e| error_chain(&e))?;
    let mut client = channels::peer_client(channel);
    let asked = client.members(peer::MembersRequest { route: Some(route) });
    match timeout(ANSWER, asked).await {
        Ok(answer) => answer.map(tonic::Response::into_inner).map_err(|s| channels::reason(&s)),
        Err(_too_long) => Err(format!("no answer within {} s", ANSWER.as_secs())),
    }
}

/// The members as the node at an address knows them, each of which is asked
/// whether it is there.
pub(crate) async fn members_at(channels: &Channels, address: &str) -> Result<Vec<Member>> {
    let anyone = peer::Route { cluster: 0, to: 0, from: 0 };
    let peer::MembersResponse { cluster, members } =
        ask_members(channels, address, anyone)
            .await
            .map_err(|reason| inconsistent(format!("{address} does not answer: {reason}")))?;
    let member = |member: peer::Member| async move {
        let peer::Node { id, address } = member.node.unwrap_or_default();
        let answer = ask_members(channels, &address, peer::Route { cluster, to: id, from: 0 });
        let silent = answer.await.err();
        Member { id, address, voter: member.voter, leader: member.leader, silent }
    };
    Ok(join_all(members.into_iter().map(member)).await)
}

/// Refuses a cluster to join that is not the one this node belongs to. Whether
/// it is cannot be said if nobody answers.
pub(crate) async fn is_same_cluster(node: &Node, address: &str) -> Result<()> {
    let mine = node.cluster.load(Ordering::Acquire);
    let anyone = peer::Route { cluster: 0, to: 0, from: 0 };
    match ask_members(&node.network.channels, address, anyone).await {
        Ok(answer) if answer.cluster != 0 && answer.cluster != mine => {
            let text = format!(
                "the node in {} belongs to cluster {mine:016x}, and {address} to {:016x}",
                node.config.data_dir.display(),
                answer.cluster
            );
            Err(Error::Other { operation: "join", retryable: false, source: text.into() })
        }
        Ok(_) => Ok(()),
        Err(reason) => {
            tracing::debug!(address, reason, "the node to join through does not answer");
            Ok(())
        }
    }
}

/// Waits until this node was removed from its cluster, of which it may not hear.
pub(crate) async fn removed(node: &Node) {
    loop {
        tokio::time::sleep(node.config.patience).await;
        let known = members(node);
        // One that does not vote never misses a leader.
        let votes = known.iter().any(|member| member.id == node.id && member.voter);
        if votes && known.iter().any(|member| member.leader) {
            continue;
        }
        for other in known.iter().filter(|other| other.id != node.id) {
            if is_removed(node, other).await {
                return;
            }
        }
    }
}

/// Whether another node leads the cluster now, without this one.
async fn is_removed(node: &Node, leader: &Member) -> bool {
    let (route, channels) = (node.network.route(leader.id), &node.network.channels);
    let Ok(found) = ask_members(channels, &leader.address, route).await else { return false };
    let is = |member: &peer::Member, id| member.node.as_ref().is_some_and(|node| node.id == id);
    if found.members.iter().any(|member| is(member, node.id))
        || !found.members.iter().any(|member| member.leader && is(member, leader.id))
    {
        return false;
    }
    // Else it may only believe that it leads.
    let Ok(channel) = channels.to(&leader.address) else { return false };
    let asked = peer::ReadIndexRequest { route: Some(route) };
    matches!(timeout(ANSWER, channels::peer_client(channel).read_index(asked)).await, Ok(Ok(_)))
}
