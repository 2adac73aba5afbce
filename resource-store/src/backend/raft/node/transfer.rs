//! Hands the leadership over to another node.
//!
//! Nodes promise the leader not to elect another one for a while after they heard of it, and
//! the library knows no exception. So the leader lets changes wait, brings the other node to
//! the end of its log, shows nothing any more until the promise is over, and then has it stand
//! for election, before the others would. Changes and strong reads wait meanwhile: about as
//! long as the longer [`RaftConfig::election`](super::super::RaftConfig::election) time, which
//! is half of what a lost leader costs. None fails for it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::timeout;

use super::Node;
use crate::{
    backend::{
        Error, Result,
        raft::{
            network::channels,
            types::{NodeId, Peer, inconsistent},
        },
    },
    error_chain::error_chain,
    pb::generated::resource_store::peer::v1 as peer,
};

/// The entries that the next leader may lack before changes have to wait.
const NEARLY_THERE: u64 = 1000;
/// The longest that changes may wait for it to get these.
const LAST_ENTRIES: Duration = Duration::from_secs(1);
/// The interval between two looks at the changes under way.
const LOOK: Duration = Duration::from_millis(1);
/// The number of times that it stands for election.
const ATTEMPTS: u32 = 5;
/// The longest that messages may be under way that are sent before the leader falls silent.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// A mark that is taken back, however a handover ends.
struct Mark<'a>(&'a AtomicBool);

impl<'a> Mark<'a> {
    fn set(mark: &'a AtomicBool) -> Self {
        mark.store(true, Ordering::SeqCst);
        Self(mark)
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Node {
    /// Has another node lead, as the leader: `to`, or if that is 0 the one that has the most.
    pub(super) async fn move_leader(&self, to: NodeId) -> Result<peer::MoveLeaderResponse> {
        if let Some(leader) = self.members.another_leader()? {
            return Ok(peer::MoveLeaderResponse { ask: Some(leader), leader: 0 });
        }
        let done = |leader| Ok(peer::MoveLeaderResponse { ask: None, leader });
        if to == self.id() {
            return done(to);
        }
        // The next leader has to vote until the end, so the membership stays what it is.
        let _changing = self.members.changing.lock().await;
        let (to, peer) = self.successor(to)?;
        let patience = self.config.patience;
        self.has_all_but(to, NEARLY_THERE, patience).await?;
        // Only from here on do changes wait: to catch up may take long.
        let _waiting = Mark::set(&self.moves);
        // What the next leader did not get would have an unknown outcome.
        let done_all = async {
            while self.pending.bytes() > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        timeout(LAST_ENTRIES, done_all)
            .await
            .map_err(|_too_long| inconsistent("changes are under way that no majority confirms"))?;
        self.has_all_but(to, 0, LAST_ENTRIES).await?;
        let _silent = Mark::set(&self.network.silent);
        tokio::time::sleep(self.config.election.1 + UNDER_WAY).await;
        let mut last = None;
        // A vote fails if messages cross, as when a third node stands for election at that moment.
        for _ in 0..ATTEMPTS {
            if let Err(reason) = self.have_campaign(to, &peer).await {
                last = Some(reason);
            }
            if let Some(leader) = self.another_leads().await {
                tracing::info!(
                    from = format!("{:016x}", self.id()),
                    to = format!("{leader:016x}"),
                    "the leadership was handed over"
                );
                return done(leader);
            }
        }
        let why = last.map_or_else(String::new, |why| format!(": {why}"));
        Err(inconsistent(format!("node {to:016x} was not elected, so this one goes on{why}")))
    }

    /// The node that is to lead.
    fn successor(&self, to: NodeId) -> Result<(NodeId, Peer)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let matched = |id: &NodeId| metrics.replication.as_ref().and_then(|all| *all.get(id)?);
        let mut others = membership.voter_ids().filter(|id| *id != self.id());
        let chosen = if to == 0 { others.max_by_key(matched) } else { others.find(|id| *id == to) };
        let found = chosen.and_then(|id| membership.get_node(&id).map(|peer| (id, peer.clone())));
        found.ok_or_else(|| {
            let text = if to == 0 {
                "no other node votes".to_owned()
            } else {
                format!("the cluster has no node {to:016x} that votes")
            };
            Error::failed("move the leadership", text)
        })
    }

    /// Waits until a node lacks no more than so many entries.
    async fn has_all_but(&self, to: NodeId, most: u64, limit: Duration) -> Result<()> {
        let near = |metrics: &openraft::RaftMetrics<NodeId, Peer>| {
            let at = metrics.replication.as_ref().and_then(|nodes| nodes.get(&to));
            let at = at.copied().flatten().map(|id| id.index);
            at.is_some_and(|at| at + most >= metrics.last_log_index.unwrap_or(0))
        };
        let reached = self.raft.wait(Some(limit)).metrics(near, "the next leader catches up").await;
        reached.map(drop).map_err(|_too_long| {
            inconsistent(format!(
                "node {to:016x} is too far behind to lead: it does not catch up within {} s",
                limit.as_secs()
            ))
        })
    }

    async fn have_campaign(&self, to: NodeId, peer: &Peer) -> Result<(), String> {
        let channel = self.network.channels.to(&peer.address).map_err(|e| error_chain(&e))?;
        let request = peer::CampaignRequest { route: Some(self.network.route(to)) };
        let mut client = channels::peer_client(channel);
        match timeout(self.config.election.0, client.campaign(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(status)) => Err(channels::reason(&status)),
            Err(_too_long) => Err("it does not answer".to_owned()),
        }
    }

    /// Waits a little until another node leads.
    async fn another_leads(&self) -> Option<NodeId> {
        let mut metrics = self.raft.server_metrics();
        let another = |leader: Option<NodeId>| leader.is_some_and(|leader| leader != self.id());
        let waiting = metrics.wait_for(|metrics| another(metrics.current_leader));
        match timeout(self.config.election.0, waiting).await {
            Ok(Ok(metrics)) => metrics.current_leader,
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// Stands for election, because the leader says so.
    pub(super) async fn campaign(&self) -> Result<()> {
        let elected = self.raft.trigger().elect().await;
        elected.map_err(|error| Error::failed("stand for election", error.to_string()))
    }
}
