//! Calls to other nodes about who belongs to the cluster.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures::future::join_all;
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::{Member, Members, NodeStatus};
use crate::{
    backend::{
        Error, Result,
        raft::{
            network::{
                channels::{self, Channels},
                status::from_status,
            },
            types::{NodeId, inconsistent},
        },
    },
    error_chain::error_chain,
    pb::generated::resource_store::peer::v1 as peer,
};

/// Interval at which a node asks to be taken in.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Time limit for a node to say that it is there.
pub(super) const ANSWER: Duration = Duration::from_secs(2);

/// The answer of a node that was asked about the membership.
enum Answer {
    Done,
    /// Nothing yet; the same node is to be asked again.
    Again(String),
    /// Another node is to be asked.
    Ask(String),
    /// It comes nearer; this node is to be asked again.
    Nearer(String),
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
    // Round and round: a node that is down now may be the only one that is up in a second.
    let mut places = first.iter().cycle();
    let mut next: Option<String> = None;
    loop {
        let Some(address) = next.take().or_else(|| places.next().cloned()) else {
            return Err(inconsistent("no address of another node is known"));
        };
        match call(address.clone()).await {
            Answer::Done => return Ok(()),
            // Two nodes that take each other for the leader would send the caller to and fro for ever.
            Answer::Ask(_) if Instant::now() >= deadline => {
                return Err(inconsistent(format!("{address}: another node is said to lead")));
            }
            Answer::Ask(leader) => next = Some(leader),
            Answer::Nearer(leader) => {
                deadline = Instant::now() + patience;
                next = Some(leader);
            }
            Answer::Refused(reason) => return Err(Error::failed("change members", reason)),
            Answer::Again(reason) if Instant::now() >= deadline => {
                return Err(inconsistent(format!("{address}: {reason}")));
            }
            Answer::Again(reason) => {
                // Once for each reason, not five times a second while a node is waited for.
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
pub(crate) async fn join(members: &Members, through: &[String], is_member: bool) -> Result<()> {
    let first = Instant::now();
    ask(through, members.write_timeout, |address| async move {
        let request = peer::JoinRequest {
            route: Some(members.network.route(0)),
            node: Some(peer::Node { id: members.id(), address: members.address.clone() }),
            member: is_member,
            replaces: members.replaces,
        };
        let channel = match members.network.channels.to(&address) {
            Ok(channel) => channel,
            Err(error) => return Answer::Again(error_chain(&error)),
        };
        match channels::peer_client(channel).join(request).await.map(tonic::Response::into_inner) {
            Ok(peer::JoinResponse { leader: Some(leader), .. }) => Answer::Ask(leader.address),
            Ok(peer::JoinResponse { cluster: 0, .. }) => {
                tracing::info!(seconds = first.elapsed().as_secs(), "catching up with the cluster");
                Answer::Nearer(address)
            }
            Ok(peer::JoinResponse { cluster, .. }) => {
                match members.network.adopt_cluster(&members.log, cluster).await {
                    Ok(()) => Answer::Done,
                    Err(error) => Answer::Again(error.to_string()),
                }
            }
            Err(status) => answer_of(&status),
        }
    })
    .await
}

/// Translates the failure of a call into an answer.
fn answer_of(status: &Status) -> Answer {
    let reason = match from_status(status) {
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

/// Asks the node at an address for what it knows of its cluster; the error says why
/// that is not known. It has to be a certain node, and of a certain cluster, unless
/// they are 0.
pub(super) async fn ask_members(
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
    // An operator need not know the id of the cluster to ask about it.
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

/// Asks the node at an address for its status.
pub(crate) async fn status_at(channels: &Channels, address: &str) -> Result<NodeStatus> {
    let silent = |reason: String| inconsistent(format!("{address} does not answer: {reason}"));
    let channel = channels.to(address).map_err(|e| silent(error_chain(&e)))?;
    let request = peer::StatusRequest { route: Some(peer::Route::default()) };
    match timeout(ANSWER, channels::peer_client(channel).status(request)).await {
        Ok(Ok(answer)) => Ok(answer.into_inner().into()),
        Ok(Err(status)) => Err(silent(channels::reason(&status))),
        Err(_too_long) => Err(silent(format!("no answer within {} s", ANSWER.as_secs()))),
    }
}

/// Has another node lead, through any node. Gives which one leads then.
pub(crate) async fn move_leader_through(
    channels: &Channels,
    address: &str,
    to: NodeId,
    patience: Duration,
) -> Result<NodeId> {
    let moved = AtomicU64::new(0);
    ask(&[address.to_owned()], patience, |address| {
        let moved = &moved;
        async move {
            let request = peer::MoveLeaderRequest { route: Some(peer::Route::default()), to };
            let channel = match channels.to(&address) {
                Ok(channel) => channel,
                Err(error) => return Answer::Again(error_chain(&error)),
            };
            match channels::peer_client(channel).move_leader(request).await {
                Ok(answer) => match answer.into_inner() {
                    peer::MoveLeaderResponse { ask: Some(leader), .. } => {
                        Answer::Ask(leader.address)
                    }
                    peer::MoveLeaderResponse { ask: None, leader } => {
                        moved.store(leader, Ordering::Release);
                        Answer::Done
                    }
                },
                Err(status) => answer_of(&status),
            }
        }
    })
    .await?;
    Ok(moved.into_inner())
}
