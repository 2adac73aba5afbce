//! What one node does: proposes, forwards, and finds out how far it has to be.

use std::{
    collections::BTreeSet,
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream::FuturesUnordered};
use openraft::{
    ServerState,
    error::{ClientWriteError, RaftError},
    raft::AppendEntriesResponse,
};
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};
use tonic::{Status, transport::Channel};

use super::{
    barrier::Barrier,
    channels::{self, Channels},
    config::RaftConfig,
    log::Log,
    machine::Machine,
    network::Network,
    restore::Refused,
    types::{Content, NodeId, Outcome, Peer, Proposal, Raft},
    wire,
};
use crate::{
    backend::{Error, Query, Result},
    controller::Leadership,
    error_chain::{error_chain, never_sent},
    pb::{
        Id, Resource, Type,
        generated::{
            hashicorp::consul::internal::storage::raft::{
                self as forwarded, LogType, forwarding_service_client::ForwardingServiceClient,
                log::Request,
            },
            resource_store::peer::v1 as peer,
        },
    },
};

/// How long to wait before a leader that refused is asked again, if nothing is
/// heard of another one.
const ASK_AGAIN: Duration = Duration::from_millis(25);
/// How long a call to a leader goes on after another one was elected.
const GRACE: Duration = Duration::from_secs(1);

/// One node of a cluster.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) address: String,
    pub(crate) cluster: Arc<AtomicU64>,
    pub(crate) config: RaftConfig,
    pub(crate) raft: Raft,
    pub(crate) log: Log,
    pub(crate) machine: Machine,
    pub(crate) network: Network,
    /// Connections for forwarded calls, which close with each change of leader.
    pub(crate) forwarding: Channels,
    pub(crate) leadership: Leadership,
    /// Held while a snapshot comes in.
    pub(crate) receiving: Arc<Mutex<()>>,
    /// Held while the leader changes the membership.
    pub(crate) changing_members: Mutex<()>,
    pub(crate) barriers: Barriers,
    /// Why the node cannot go on.
    pub(crate) failure: watch::Sender<Option<String>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id)
            .field("address", &self.address)
            .field("cluster", &self.cluster)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Rounds for strong reads: of a leader, and of a follower.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    leader: Barrier,
    follower: Barrier,
}

/// A change to propose.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Write(Box<Resource>),
    Delete(Id, String),
}

/// Why a change was not proposed, or what became of it.
pub(crate) enum Failure {
    /// It has no effect and will have none; another node may be asked.
    NotDone(String),
    Failed(Error),
}

impl Failure {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NotDone(reason) => inconsistent(reason),
            Self::Failed(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Change {
    fn content(&self) -> Content {
        let log = match self {
            Self::Write(resource) => forwarded::Log {
                r#type: LogType::Write.into(),
                request: Some(Request::Write(forwarded::WriteRequest {
                    resource: Some(resource.as_ref().clone()),
                })),
            },
            Self::Delete(id, version) => forwarded::Log {
                r#type: LogType::Delete.into(),
                request: Some(Request::Delete(forwarded::DeleteRequest {
                    id: Some(id.clone()),
                    version: version.clone(),
                })),
            },
        };
        Content::log(&log)
    }
}

pub(crate) fn inconsistent(reason: impl Into<String>) -> Error {
    Error::Inconsistent { reason: reason.into() }
}

fn out_of_order(reason: &str) -> Error {
    Error::failed("take part in the cluster", format!("the node cannot go on: {reason}"))
}

fn outcome_unknown(reason: &str) -> Failure {
    Error::outcome_unknown("change", reason).into()
}

impl Node {
    /// The leader as far as this node knows.
    pub(crate) fn leader(&self) -> Option<(NodeId, Peer)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let id = metrics.current_leader?;
        let peer = metrics.membership_config.membership().get_node(&id)?.clone();
        Some((id, peer))
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.patience
    }

    /// Waits until another leader is known, or a little while.
    async fn leader_changes_from(&self, before: Option<NodeId>) {
        let mut metrics = self.raft.server_metrics();
        let changed = async {
            if metrics.wait_for(|metrics| metrics.current_leader != before).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(ASK_AGAIN) => {}
        }
    }

    /// Tries something with the leader, until it is done or patience ends.
    pub(crate) async fn with_leader<T, F>(&self, attempt: impl Fn(NodeId, Peer) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let deadline = self.deadline();
        let mut reason = "no leader is known".to_owned();
        loop {
            self.running()?;
            let leader = self.leader();
            let id = leader.as_ref().map(|(id, _)| *id);
            if let Some((id, peer)) = leader {
                match attempt(id, peer).await {
                    Ok(done) => return Ok(done),
                    Err(Failure::Failed(error)) => return Err(error),
                    Err(Failure::NotDone(why)) => reason = why,
                }
            }
            if Instant::now() >= deadline {
                return Err(inconsistent(reason));
            }
            self.leader_changes_from(id).await;
        }
    }

    /// Fails once the node has stopped.
    fn running(&self) -> Result<()> {
        if let Some(reason) = &*self.failure.borrow() {
            return Err(out_of_order(reason));
        }
        match &self.raft.metrics().borrow().running_state {
            Ok(()) => Ok(()),
            Err(fatal) => Err(out_of_order(&fatal.to_string())),
        }
    }

    /// Says that the node cannot go on, which only its end changes.
    pub(crate) fn fail(&self, reason: String) {
        tracing::error!(reason, "the node cannot go on");
        self.failure.send_replace(Some(reason));
    }

    /// Why the node cannot go on, once it cannot.
    pub(crate) async fn failed(&self) -> Error {
        let mut failure = self.failure.subscribe();
        let reason = failure.wait_for(Option::is_some).await.map(|reason| reason.clone());
        // The node holds the sender, so there is a reason.
        out_of_order(&reason.ok().flatten().unwrap_or_default())
    }

    /// Has the leader make a change; it may be this node.
    pub(crate) async fn change(&self, change: Change) -> Result<Option<Arc<Resource>>> {
        let content = change.content();
        self.config.check_size(content.len())?;
        let (change, content) = (&change, &content);
        self.with_leader(|id, peer| async move {
            if id != self.id {
                return self.forward_change(id, &peer, change).await;
            }
            let outcome = self.propose(content.clone()).await?;
            match change {
                Change::Write(_) => Ok(Some(outcome.written()?)),
                Change::Delete(..) => outcome.deleted().map(|()| None).map_err(Failure::from),
            }
        })
        .await
    }

    /// Makes a change that another node forwarded: here or not at all.
    pub(crate) async fn change_here(&self, change: &Change) -> Result<Option<Arc<Resource>>> {
        let outcome = self.propose(change.content()).await.map_err(Failure::into_error)?;
        match change {
            Change::Write(_) => outcome.written().map(Some),
            Change::Delete(..) => outcome.deleted().map(|()| None),
        }
    }

    /// Has the leader take a step of a restore. The answer is why it was
    /// refused, if it was.
    pub(crate) async fn forward_restore(
        &self,
        id: NodeId,
        peer: &Peer,
        step: Bytes,
    ) -> Result<String, Failure> {
        let mut client = channels::peer_client(self.channel(id, peer)?);
        let route = Some(self.network.route(id));
        let mut request = tonic::Request::new(peer::RestoreRequest { route, step });
        request.set_timeout(self.config.write_timeout);
        let Some(answer) = self.while_leading(id, client.restore(request)).await else {
            return Err(outcome_unknown("the leader changed and the old one is silent"));
        };
        let answer = answer.map_err(|status| self.not_changed(peer, &status))?;
        Ok(answer.into_inner().refused)
    }

    /// Takes a step of a restore: here or not at all.
    pub(crate) async fn restore_here(&self, step: Bytes) -> Result<Result<(), Refused>, Failure> {
        Ok(self.propose(Content::Restore(step)).await?.restored()?)
    }

    /// Proposes a change, as the leader, and waits for its end.
    async fn propose(&self, content: Content) -> Result<Outcome, Failure> {
        let proposal = Proposal::new(content);
        let entered = proposal.entered();
        let writing = self.raft.client_write(proposal);
        let written = tokio::time::timeout(self.config.write_timeout, writing).await;
        let Ok(written) = written else {
            return Err(outcome_unknown("no majority confirmed it in time"));
        };
        match written {
            Ok(response) => Ok(response.data),
            Err(_) if entered.load(Ordering::Acquire) => {
                Err(outcome_unknown("the leader changed or stopped meanwhile"))
            }
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(Failure::NotDone("the node is not the leader".to_owned()))
            }
            // What is not in the log of the leader has no effect.
            Err(other) => Err(Failure::NotDone(other.to_string())),
        }
    }

    async fn forward_change(
        &self,
        id: NodeId,
        peer: &Peer,
        change: &Change,
    ) -> Result<Option<Arc<Resource>>, Failure> {
        let mut client = self.forwarding_client(id, peer)?;
        let call = async {
            match change {
                Change::Write(resource) => {
                    let resource = Some(resource.as_ref().clone());
                    let request = self.request(forwarded::WriteRequest { resource });
                    Ok(client.write(request).await?.into_inner().resource)
                }
                Change::Delete(resource, version) => {
                    let request = forwarded::DeleteRequest {
                        id: Some(resource.clone()),
                        version: version.clone(),
                    };
                    client.delete(self.request(request)).await?;
                    Ok(None)
                }
            }
        };
        let Some(answer) = self.while_leading(id, call).await else {
            return Err(outcome_unknown("the leader changed and the old one is silent"));
        };
        let answer: Result<_, Status> = answer;
        answer.map(|resource| resource.map(Arc::new)).map_err(|s| self.not_changed(peer, &s))
    }

    /// What it means that a forwarded change failed.
    fn not_changed(&self, peer: &Peer, status: &Status) -> Failure {
        match wire::from_status(status) {
            Some(Error::Inconsistent { reason }) => Failure::NotDone(reason),
            Some(error) => error.into(),
            None if never_sent(status) => {
                self.forwarding.close(&peer.address);
                Failure::NotDone(format!(
                    "the leader cannot be reached: {}",
                    channels::reason(status)
                ))
            }
            None if channels::is_final(status) => {
                Error::failed("forward", status.message().to_owned()).into()
            }
            None => {
                let reason =
                    format!("the connection to the leader failed: {}", channels::reason(status));
                outcome_unknown(&reason)
            }
        }
    }

    fn channel(&self, id: NodeId, peer: &Peer) -> Result<Channel, Failure> {
        let unreachable =
            |error: &(dyn std::error::Error + 'static)| Failure::NotDone(error_chain(error));
        self.network.faults.check(self.id, id).map_err(|e| unreachable(&e))?;
        self.forwarding.to(&peer.address).map_err(|e| unreachable(&e))
    }

    fn forwarding_client(
        &self,
        id: NodeId,
        peer: &Peer,
    ) -> Result<ForwardingServiceClient<Channel>, Failure> {
        self.channel(id, peer).map(channels::forwarding_client)
    }

    /// A forwarded call with what it is for, so that a node of another cluster
    /// that got the address refuses it.
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.config.write_timeout);
        let cluster = format!("{:016x}", self.cluster.load(Ordering::Acquire));
        if let Ok(value) = cluster.parse() {
            request.metadata_mut().insert(CLUSTER_HEADER, value);
        }
        request
    }

    /// The answer of a leader, unless another one is elected and the call takes
    /// long.
    async fn while_leading<T>(&self, leader: NodeId, call: impl Future<Output = T>) -> Option<T> {
        let mut metrics = self.raft.server_metrics();
        let replaced = async {
            let another = |now: Option<NodeId>| now.is_some_and(|now| now != leader);
            if metrics.wait_for(|metrics| another(metrics.current_leader)).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            answer = call => Some(answer),
            () = replaced => None,
        }
    }

    /// The index after the last entry that has to be applied before a
    /// linearizable read, as the leader knows it.
    pub(crate) async fn read_index_here(&self) -> Result<u64> {
        let (raft, log, network) = (self.raft.clone(), self.log.clone(), self.network.clone());
        // A round that takes longer than an election is of no use.
        let limit = self.config.election.1.min(self.config.patience);
        let round = || async move {
            let round = read_index(&raft, &log, &network);
            let ended = tokio::time::timeout(limit, round).await;
            ended.unwrap_or_else(|_too_long| Err(no_majority()))
        };
        self.barriers.leader.pass(round).await
    }

    async fn read_index_of(&self, id: NodeId, peer: &Peer) -> Result<u64, Failure> {
        let mut client = channels::peer_client(self.channel(id, peer)?);
        let request = peer::ReadIndexRequest { route: Some(self.network.route(id)) };
        let limit = self.config.patience;
        let round = || async move {
            let mut request = tonic::Request::new(request);
            request.set_timeout(limit);
            let answer = client.read_index(request).await;
            answer.map(|a| a.into_inner().index).map_err(|e| inconsistent(channels::reason(&e)))
        };
        let passed = self.while_leading(id, self.barriers.follower.pass(round)).await;
        let passed = passed.unwrap_or_else(|| Err(inconsistent("the leader changed")));
        passed.map_err(|error| Failure::NotDone(error.to_string()))
    }

    /// Waits until a read here is linearizable. Gives false if this node is too
    /// far behind for that, for now.
    pub(crate) async fn catch_up(&self) -> Result<bool> {
        let index = self
            .with_leader(|id, peer| async move {
                if id == self.id {
                    let index = self.read_index_here().await;
                    index.map_err(|error| Failure::NotDone(error.to_string()))
                } else {
                    self.read_index_of(id, &peer).await
                }
            })
            .await?;
        let mut applied = self.machine.applied();
        let reached = applied.wait_for(|applied| *applied >= index);
        match tokio::time::timeout(self.config.patience / 2, reached).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(_)) => Err(inconsistent("the node was shut down")),
            Err(_too_long) => Ok(false),
        }
    }

    /// Waits until this node has what was written through it.
    pub(crate) async fn has_written(&self, version: &str) {
        let Ok(version) = version.parse::<u64>() else { return };
        self.applies_until(|applied| self.machine.version_offset() + applied > version).await;
    }

    /// Waits until this node has not what was deleted through it.
    pub(crate) async fn has_deleted(&self, id: &Id, version: &str) {
        let is_gone = |_applied| match self.machine.current().read(id) {
            Ok(stored) => stored.version != version || stored.uid() != id.uid,
            Err(_) => true,
        };
        self.applies_until(is_gone).await;
    }

    /// Waits until enough is applied, but not for ever: the change that is
    /// waited for is done in any case.
    async fn applies_until(&self, is_enough: impl Fn(u64) -> bool + Send + Sync) {
        let mut applied = self.machine.applied();
        let waiting = applied.wait_for(|applied| is_enough(*applied));
        if !matches!(tokio::time::timeout(self.config.patience / 2, waiting).await, Ok(Ok(_))) {
            tracing::debug!("this node does not have what was changed through it yet");
        }
    }

    /// Reads at the leader, because this node is far behind.
    pub(crate) async fn forward_read(&self, resource: &Id) -> Result<Arc<Resource>> {
        self.with_leader(|id, peer| async move {
            if id == self.id {
                return Err(Failure::NotDone("the leader is far behind its log".to_owned()));
            }
            let mut client = self.forwarding_client(id, &peer)?;
            let request = forwarded::ReadRequest { id: Some(resource.clone()) };
            let answer = client.read(self.request(request)).await.map_err(read_failure)?;
            let found = answer.into_inner().resource;
            found.map(Arc::new).ok_or_else(|| Failure::NotDone("an empty answer".to_owned()))
        })
        .await
    }

    /// Lists at the leader, because this node is far behind.
    pub(crate) async fn forward_list(&self, query: &Query) -> Result<Vec<Arc<Resource>>> {
        self.with_leader(|id, peer| async move {
            if id == self.id {
                return Err(Failure::NotDone("the leader is far behind its log".to_owned()));
            }
            let mut client = self.forwarding_client(id, &peer)?;
            let request = forwarded::ListRequest {
                r#type: Some(Type::new(&query.kind.group, "", &query.kind.kind)),
                tenancy: Some(query.tenancy.clone()),
                name_prefix: query.name_prefix.clone(),
            };
            let answer = client.list(self.request(request)).await.map_err(read_failure)?;
            Ok(answer.into_inner().resources.into_iter().map(Arc::new).collect())
        })
        .await
    }
}

fn no_majority() -> Error {
    inconsistent("no majority of the nodes answers")
}

/// What is committed and may be known, if a majority follows this node after
/// that was looked up.
///
/// Nothing of it waits for a disk. Whatever the leader acknowledged was
/// committed before, so the log knows of it; and what is not on its disk yet it
/// acknowledged to nobody.
async fn read_index(raft: &Raft, log: &Log, network: &Network) -> Result<u64> {
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
    let index = log.gate().visible_end(committed.index);

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
        // Answers are told to it first.
        biased;
        leads = network.lease.confirmed_since(since, me, &vote, &members) => if leads {
            Ok(index)
        } else {
            Err(inconsistent("the node is not the leader any more"))
        },
        refused = answers => refused,
    }
}

/// The metadata that says for which cluster a forwarded call is.
pub(crate) const CLUSTER_HEADER: &str = "x-resource-store-cluster";

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn read_failure(status: Status) -> Failure {
    match wire::from_status(&status) {
        Some(Error::Inconsistent { reason }) => Failure::NotDone(reason),
        Some(error) => Failure::Failed(error),
        None => Failure::NotDone(channels::reason(&status)),
    }
}
