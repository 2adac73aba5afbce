//! Changes of the membership, which the leader makes: it adds, moves and removes
//! nodes, and goes on with changes that stand half done.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use openraft::{
    ChangeMembers,
    error::{ChangeMembershipError, ClientWriteError, RaftError},
};
use tokio::time::timeout;

use super::{Member, Members, client::ask_members};
use crate::{
    backend::{
        Error, Result,
        raft::types::{NodeId, Peer, inconsistent},
        store::sync::lock,
    },
    pb::generated::resource_store::peer::v1 as peer,
};

/// A node that lacks no more entries than this may vote.
const NEARLY_THERE: u64 = 1000;
/// Time that the leader waits for a new node to catch up, before it is asked again.
const CATCH_UP: Duration = Duration::from_secs(2);
/// Delay after which a change of the membership that stands half done is continued.
const GO_ON: Duration = Duration::from_secs(1);

impl Members {
    async fn change(&self, change: ChangeMembers<NodeId, Peer>, retain: bool) -> Result<()> {
        let changing = self.raft.change_membership(change, retain);
        match timeout(self.write_timeout, changing).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
                Err(inconsistent("the node is not the leader any more"))
            }
            Ok(Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::InProgress(_),
            )))) => {
                Err(inconsistent("no majority has confirmed the last change of the membership yet"))
            }
            Ok(Err(error)) => {
                Err(inconsistent(format!("the membership cannot be changed: {error}")))
            }
            Err(_too_long) => Err(inconsistent(
                "no majority has confirmed the change of the membership yet; it has effect once one \
                 does, unless there is another leader before",
            )),
        }
    }

    /// Ends changes of the membership of which the first half is done, as long as
    /// the node runs: between the halves a majority of the nodes before and of those
    /// after has to be there. Whoever began may have given up, or have led before.
    pub(crate) async fn settle(&self) {
        loop {
            tokio::time::sleep(GO_ON).await;
            let is_half_done = || {
                let metrics = self.raft.metrics();
                let metrics = metrics.borrow();
                metrics.current_leader == Some(self.id())
                    && metrics.membership_config.membership().get_joint_config().len() > 1
            };
            if !is_half_done() {
                continue;
            }
            let _changing = self.changing.lock().await;
            // Whoever held the lock may have ended it.
            if is_half_done() {
                let nobody = ChangeMembers::AddVoterIds(BTreeSet::new());
                match self.change(nobody, false).await {
                    Ok(()) => tracing::info!("a change of the membership was gone on with"),
                    Err(error) => tracing::debug!(%error, "the membership stays half changed"),
                }
            }
        }
    }

    /// Takes a node in, or learns its new address, as the leader. The answer has no
    /// cluster as long as the node has not caught up; then it asks again.
    pub(crate) async fn add(
        &self,
        joiner: peer::Node,
        is_member: bool,
        replaces: NodeId,
    ) -> Result<peer::JoinResponse> {
        if let Some(leader) = self.another_leader()? {
            return Ok(peer::JoinResponse { cluster: 0, leader: Some(leader) });
        }
        if joiner.id == 0 || joiner.address.is_empty() {
            return Err(inconsistent("a node needs an id and an address"));
        }
        // Another change may end meanwhile, so what is known is looked up after this.
        let _changing = self.changing.lock().await;
        let members = self.known();
        let known = members.iter().find(|member| member.id == joiner.id);
        let refused = |text: String| Err(Error::failed("join", text));
        if known.is_none() && is_member {
            return refused(format!(
                "node {:016x} was removed from this cluster; to let it join again, empty its folder",
                joiner.id
            ));
        }
        let replaced = members.iter().find(|member| member.id == replaces);
        // One that is known may ask again after its change, when the other is gone.
        if known.is_none() && replaces != 0 {
            let Some(replaced) = replaced else {
                return refused(format!(
                    "the cluster has no node {replaces:016x} whose place another could take; see \
                     the command members, or join without --replaces"
                ));
            };
            self.is_dead(replaced).await?;
        }
        let here = |member: &&Member| member.address == joiner.address && member.id != replaces;
        if known.is_none()
            && let Some(other) = members.iter().find(here)
        {
            // Of two nodes at one address one is lost, and would count as a voter.
            return refused(format!(
                "node {:016x} of this cluster has the address {}: if it is no more, remove it, or \
                 take its place with --replaces",
                other.id, other.address
            ));
        }
        let peer = Peer { address: joiner.address.clone() };
        let id = format!("{:016x}", joiner.id);
        match known {
            None => {
                tracing::info!(node = id, address = joiner.address, "a node joins");
                self.change(ChangeMembers::AddNodes([(joiner.id, peer)].into()), true).await?;
            }
            Some(member) if member.address != joiner.address => {
                tracing::info!(node = id, address = joiner.address, "a node has moved");
                self.change(ChangeMembers::SetNodes([(joiner.id, peer)].into()), true).await?;
            }
            Some(_) => {}
        }
        if !known.is_some_and(|member| member.voter) {
            if !self.caught_up(joiner.id).await {
                if lock(&self.network.lost).contains(&joiner.id) {
                    let address = joiner.address;
                    return Err(inconsistent(format!(
                        "the leader cannot reach the node at {address}"
                    )));
                }
                return Ok(peer::JoinResponse { cluster: 0, leader: None });
            }
            self.let_vote(joiner.id, &members, replaced).await?;
        }
        let cluster = self.network.cluster.load(Ordering::Acquire);
        Ok(peer::JoinResponse { cluster, leader: None })
    }

    /// Refuses to give the place of a node away that is there.
    async fn is_dead(&self, replaced: &Member) -> Result<()> {
        let Member { id, address, .. } = replaced;
        let route = self.network.route(*id);
        let refused = |text: String| Err(Error::failed("replace", text));
        if *id == self.id() {
            return refused(format!("node {id:016x} leads the cluster"));
        }
        match ask_members(&self.network.channels, address, route).await {
            Ok(_) => refused(format!(
                "node {id:016x} still answers at {address}; stop it first, so that its place can \
                 be given to another"
            )),
            Err(_) => Ok(()),
        }
    }

    /// Lets a node vote, and removes the one whose place it takes by the same change: the
    /// majority never counts both.
    async fn let_vote(
        &self,
        joiner: NodeId,
        members: &[Member],
        replaced: Option<&Member>,
    ) -> Result<()> {
        let Some(replaced) = replaced else {
            return self.change(ChangeMembers::AddVoterIds([joiner].into()), true).await;
        };
        // One change, not two: after a removal alone, two of three nodes would be left, and the loss
        // of one more would stop the cluster before the new one votes.
        let voters = members.iter().filter(|member| member.voter && member.id != replaced.id);
        let voters = voters.map(|member| member.id).chain([joiner]).collect();
        self.change(ChangeMembers::ReplaceAllVoters(voters), false).await?;
        if !replaced.voter {
            self.change(ChangeMembers::RemoveNodes([replaced.id].into()), false).await?;
        }
        let (id, place) = (format!("{joiner:016x}"), format!("{:016x}", replaced.id));
        tracing::info!(node = id, replaced = place, "a node has taken the place of another");
        Ok(())
    }

    async fn caught_up(&self, joiner: NodeId) -> bool {
        let near = |metrics: &openraft::RaftMetrics<NodeId, Peer>| {
            let at = metrics.replication.as_ref().and_then(|nodes| nodes.get(&joiner));
            let at = at.copied().flatten().map(|id| id.index);
            at.is_some_and(|at| at + NEARLY_THERE >= metrics.last_log_index.unwrap_or(0))
        };
        self.raft.wait(Some(CATCH_UP)).metrics(near, "a new node catches up").await.is_ok()
    }

    /// Removes a node, as the leader.
    pub(crate) async fn remove(&self, id: NodeId) -> Result<peer::RemoveResponse> {
        if let Some(leader) = self.another_leader()? {
            return Ok(peer::RemoveResponse { leader: Some(leader) });
        }
        let _changing = self.changing.lock().await;
        let found = self.known();
        let Some(member) = found.iter().find(|member| member.id == id) else {
            return Ok(peer::RemoveResponse { leader: None });
        };
        if member.voter {
            // Nobody could take a node in any more.
            if found.iter().filter(|member| member.voter).count() == 1 {
                return Err(Error::failed("remove", "the only node that votes cannot be removed"));
            }
            self.change(ChangeMembers::RemoveVoters([id].into()), false).await?;
        } else {
            self.change(ChangeMembers::RemoveNodes([id].into()), false).await?;
        }
        tracing::info!(node = format!("{id:016x}"), "a node was removed");
        Ok(peer::RemoveResponse { leader: None })
    }
}
