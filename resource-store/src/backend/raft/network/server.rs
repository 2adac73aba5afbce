//! Takes what the transport of another node sends: entries, votes, snapshots.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures::{Stream, StreamExt as _};
use openraft::{EntryPayload, RaftLogReader as _, raft::AppendEntriesResponse};
use tokio::sync::Mutex;
use tonic::{Status, Streaming};

use super::{
    Network,
    append_stream::MOST_UNANSWERED,
    certificates::{Shown, host, is_for},
    status::to_status,
};
use crate::{
    backend::{
        Error,
        raft::{
            config::PeerTls,
            log::Log,
            state_machine::{
                StateMachine,
                snapshot::{Assembly, BadSnapshot},
            },
            types::{
                Entry, NodeId, Raft, Snapshot, SnapshotMeta, Types, Vote,
                proto::{self, Malformed},
            },
        },
    },
    pb::generated::resource_store::peer::v1::{self as peer, append_response},
};

/// The callers that a request of another node may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A leader; a node that belongs to no cluster yet takes its word.
    Leader,
    /// A node of the cluster.
    Node,
    /// Also who does not say which cluster is meant.
    Anyone,
    /// A node that may belong to no cluster yet.
    Joiner,
}

/// The name that the certificate of a caller has to have.
#[derive(Debug, Clone)]
pub(crate) enum Names {
    /// None: there is no TLS.
    None,
    /// This one.
    One(Arc<str>),
    /// The host of the node.
    Hosts,
}

impl Names {
    pub(crate) fn of(tls: Option<&PeerTls>) -> Self {
        match tls.map(|tls| &tls.server_name) {
            None => Self::None,
            Some(Some(name)) => Self::One(name.as_str().into()),
            Some(None) => Self::Hosts,
        }
    }
}

/// Answers what the consensus library of other nodes asks.
#[derive(Clone)]
pub(crate) struct RaftServer {
    network: Network,
    log: Log,
    state_machine: StateMachine,
    raft: Raft,
    names: Names,
    /// Held while a snapshot comes in.
    receiving: Arc<Mutex<()>>,
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
pub(crate) fn malformed(error: Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}

pub(crate) fn stopped(error: &dyn std::error::Error) -> Status {
    Status::unavailable(format!("the node has stopped: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
pub(crate) fn status(error: Error) -> Status {
    to_status(&error)
}

impl RaftServer {
    pub(crate) fn new(
        network: Network,
        log: Log,
        state_machine: StateMachine,
        raft: Raft,
        names: Names,
    ) -> Self {
        Self { network, log, state_machine, raft, names, receiving: Arc::default() }
    }

    /// Refuses a caller whose certificate is not that of the node that it says it is; 0 is an
    /// operator, who has a certificate of any node.
    ///
    /// Without a name for all, nothing can be said of a node that this one does not know: it
    /// may have joined while this one was behind.
    fn check_name(&self, from: NodeId, shown: &Shown) -> Result<(), Status> {
        let shown = shown.as_ref().map_or(&[][..], |shown| shown.as_slice());
        let refused = |whose: String, name: &str| {
            let text = format!(
                "the certificate that {whose} shows has not the name {name}; give it one that has"
            );
            Err(Status::permission_denied(text))
        };
        let whose =
            || if from == 0 { "the caller".to_owned() } else { format!("node {from:016x}") };
        match &self.names {
            Names::None => Ok(()),
            Names::One(name) if is_for(shown, name) => Ok(()),
            Names::One(name) => refused(whose(), name),
            Names::Hosts => {
                let metrics = self.raft.metrics();
                let metrics = metrics.borrow();
                let membership = metrics.membership_config.membership();
                if from != 0 {
                    return match membership.get_node(&from) {
                        Some(peer) if !is_for(shown, host(&peer.address)) => {
                            refused(whose(), host(&peer.address))
                        }
                        Some(_) | None => Ok(()),
                    };
                }
                let mut nodes = membership.nodes().peekable();
                if nodes.peek().is_none()
                    || nodes.any(|(_, peer)| is_for(shown, host(&peer.address)))
                {
                    return Ok(());
                }
                refused(whose(), "of any node of the cluster")
            }
        }
    }

    /// Refuses a node to join whose certificate is not for the address where it says it is.
    pub(crate) fn check_joiner(&self, address: &str, shown: &Shown) -> Result<(), Status> {
        let shown = shown.as_ref().map_or(&[][..], |shown| shown.as_slice());
        if matches!(self.names, Names::Hosts) && !is_for(shown, host(address)) {
            let text = format!(
                "the node at {address} shows a certificate that has not the name {}; give it one \
                 that has, or a name for all nodes (--tls-name)",
                host(address)
            );
            return Err(Status::permission_denied(text));
        }
        Ok(())
    }

    /// Refuses what is for another node or cluster, or not from whom it says.
    pub(crate) async fn check(
        &self,
        route: Option<&peer::Route>,
        from: Caller,
        shown: &Shown,
    ) -> Result<(), Status> {
        // A node that joins is not known yet, and is checked by its address.
        if from != Caller::Joiner {
            self.check_name(route.map_or(0, |route| route.from), shown)?;
        }
        self.check_route(route, from).await
    }

    /// Refuses what is for another node or cluster.
    async fn check_route(&self, route: Option<&peer::Route>, from: Caller) -> Result<(), Status> {
        let route = route.ok_or_else(|| malformed(Malformed("no route")))?;
        if route.to != 0 && route.to != self.network.node {
            let text = format!("this is node {:x}, not {:x}", self.network.node, route.to);
            return Err(Status::invalid_argument(text));
        }
        self.network
            .faults
            .check(route.from, self.network.node)
            .map_err(|cut| Status::unavailable(cut.to_string()))?;
        let mine = self.network.cluster.load(Ordering::Acquire);
        match (mine, route.cluster) {
            (_, 0) if matches!(from, Caller::Anyone | Caller::Joiner) => Ok(()),
            (0, cluster) if from == Caller::Leader && cluster != 0 => {
                self.network.adopt_cluster(&self.log, cluster).await.map_err(status)
            }
            (0, _) => Err(Status::invalid_argument("this node belongs to no cluster yet")),
            (mine, theirs) if mine == theirs => Ok(()),
            (mine, theirs) => {
                let text = format!("this node belongs to cluster {mine:016x}, not {theirs:016x}");
                Err(Status::invalid_argument(text))
            }
        }
    }

    /// Refuses entries in the place of others that were applied. No leader
    /// sends such; the library would stop the node.
    async fn check_history(
        &self,
        request: &openraft::raft::AppendEntriesRequest<Types>,
    ) -> Result<(), Status> {
        let applied = *self.state_machine.applied().borrow();
        let (Some(first), Some(last)) = (request.entries.first(), request.entries.last()) else {
            return Ok(());
        };
        let (start, end) = (first.log_id.index, applied.min(last.log_id.index + 1));
        if start >= end {
            return Ok(());
        }
        let known = self.log.clone().try_get_log_entries(start..end).await;
        let known = known.map_err(|e| stopped(&e))?;
        // Both are without gaps, but the oldest may be gone here.
        let skip = known.first().map_or(0, |known| known.log_id.index - start);
        let sent = request.entries.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX));
        let differs = sent.zip(&known).any(|(sent, known)| sent.log_id != known.log_id);
        if differs {
            return Err(malformed(Malformed("other entries in the place of applied ones")));
        }
        Ok(())
    }

    /// Takes entries, or a sign of life, from the leader.
    async fn take_entries(
        &self,
        request: peer::AppendRequest,
        shown: &Shown,
        known: &AtomicU64,
    ) -> Result<append_response::Result, Status> {
        let from = request.route.map_or(0, |route| route.from);
        // Once for each stream, not for each message.
        if from == 0 || known.load(Ordering::Relaxed) != from {
            self.check_name(from, shown)?;
            known.store(from, Ordering::Relaxed);
        }
        self.check_route(request.route.as_ref(), Caller::Leader).await?;
        let request = proto::append(request).map_err(malformed)?;
        self.check_history(&request).await?;
        let changes = |entry: &Entry| matches!(entry.payload, EntryPayload::Normal(_));
        if *self.log.disk_full().borrow() && request.entries.iter().any(changes) {
            // What room the log has left is for votes and members; the leader asks again.
            return Err(Status::resource_exhausted("there is no room left on its disk"));
        }
        let upto = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let vote = request.vote;
        match self.raft.append_entries(request).await {
            Ok(AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_)) => {
                if let Some(upto) = upto {
                    self.is_on_disk(upto.index, &vote).await?;
                }
                Ok(append_response::Result::Accepted(append_response::Accepted {}))
            }
            Ok(AppendEntriesResponse::Conflict) => {
                Ok(append_response::Result::Conflict(append_response::Conflict {}))
            }
            Ok(AppendEntriesResponse::HigherVote(vote)) => {
                Ok(append_response::Result::Newer(proto::from_vote(&vote)))
            }
            Err(error) => Err(stopped(&error)),
        }
    }

    /// Waits until entries of a leader are on the disk: the library says that it
    /// has them when they are in memory.
    async fn is_on_disk(&self, index: u64, vote: &Vote) -> Result<(), Status> {
        self.network.durable.pass(index).await.map_err(|failed| stopped(&failed))?;
        // The next leader may have had them thrown away meanwhile, and then this
        // vote is not the last one any more.
        if self.log.vote() == Some(*vote) {
            return Ok(());
        }
        Err(Status::unavailable("another leader was elected meanwhile"))
    }

    /// Takes a snapshot from the leader, and has it installed.
    ///
    /// In a task of its own: when the call ends early, what the library began
    /// goes on, and nobody else may begin before that is over.
    pub(crate) async fn install_snapshot(
        &self,
        head: peer::SnapshotHead,
        parts: Streaming<peer::SnapshotPart>,
        shown: &Shown,
    ) -> Result<Vote, Status> {
        self.check(head.route.as_ref(), Caller::Leader, shown).await?;
        let vote = proto::vote(head.vote).map_err(malformed)?;
        let from = head.route.map_or(0, |route| route.from);
        let assembly = Assembly::new(head).map_err(malformed)?;
        let own = self.raft.metrics().borrow().vote;
        if vote < own || !vote.committed {
            return Ok(own);
        }
        let Ok(receiving) = Arc::clone(&self.receiving).try_lock_owned() else {
            return Err(Status::unavailable("another snapshot is coming in"));
        };
        let server = self.clone();
        let taking = tokio::spawn(async move {
            let taken = server.take(vote, assembly, from, parts).await;
            drop(receiving);
            taken
        });
        taking.await.unwrap_or_else(|error| Err(stopped(&error)))
    }

    /// Puts what comes in together, and has it installed.
    async fn take(
        &self,
        vote: Vote,
        mut assembly: Assembly,
        from: u64,
        mut parts: Streaming<peer::SnapshotPart>,
    ) -> Result<Vote, Status> {
        let contents = loop {
            let part = parts.message().await?;
            let cut = self.network.faults.check(from, self.network.node);
            cut.map_err(|cut| Status::unavailable(cut.to_string()))?;
            let part = part.ok_or_else(|| malformed(Malformed("a snapshot without end")))?;
            match assembly.take(part) {
                Ok(Some(contents)) => break Arc::new(contents),
                Ok(None) => {}
                Err(BadSnapshot::Malformed(error)) => return Err(malformed(error)),
                Err(error) => return Err(Status::data_loss(error.to_string())),
            }
        };
        let meta = SnapshotMeta {
            last_log_id: contents.applied,
            last_membership: contents.membership.clone(),
            snapshot_id: contents.applied.map(|id| id.to_string()).unwrap_or_default(),
        };
        let snapshot = Snapshot { meta, snapshot: Box::new(contents) };
        let installed = self.raft.install_full_snapshot(vote, snapshot).await;
        Ok(installed.map_err(|e| stopped(&e))?.vote)
    }

    /// Answers each message of a stream, in the order in which the answers are
    /// there.
    pub(crate) fn append(
        &self,
        requests: Streaming<peer::AppendRequest>,
        shown: Shown,
    ) -> impl Stream<Item = Result<peer::AppendResponse, Status>> + Send + 'static {
        let caller = Arc::new((self.clone(), shown, AtomicU64::new(0)));
        let answers = requests.map(move |request| {
            let caller = Arc::clone(&caller);
            async move {
                let (server, shown, known) = &*caller;
                let request = request?;
                let number = request.number;
                server.network.faults.latency().await;
                let result =
                    server.take_entries(request, shown, known).await.unwrap_or_else(|status| {
                        append_response::Result::Refused(status.message().to_owned())
                    });
                Ok(peer::AppendResponse { number, result: Some(result) })
            }
        });
        answers.buffer_unordered(MOST_UNANSWERED)
    }

    /// Votes for another node, or not.
    pub(crate) async fn vote(
        &self,
        request: peer::VoteRequest,
        shown: &Shown,
    ) -> Result<peer::VoteResponse, Status> {
        self.check(request.route.as_ref(), Caller::Node, shown).await?;
        let vote = proto::vote(request.vote).map_err(malformed)?;
        let last = proto::optional_log_id(request.last).map_err(malformed)?;
        if vote.committed {
            return Err(malformed(Malformed("a candidate that says it was elected")));
        }
        let answer = self.raft.vote(openraft::raft::VoteRequest::new(vote, last)).await;
        let answer = answer.map_err(|e| stopped(&e))?;
        Ok(peer::VoteResponse {
            vote: Some(proto::from_vote(&answer.vote)),
            granted: answer.vote_granted,
            last: answer.last_log_id.as_ref().map(proto::from_log_id),
        })
    }
}
