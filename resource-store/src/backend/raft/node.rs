//! One node: what ties the log, the state machine, the network, reads and the
//! membership together.
//!
//! - [`lifecycle`]: starts and stops a node, and watches over it;
//! - [`backup`]: backups, and new clusters from them or from a node that is left;
//! - [`forward`]: calls of a node to the leader;
//! - [`pending`]: bounds the changes under way;
//! - [`slow_disk`]: lets through what a majority has while the own disk is slow;
//! - [`restore`]: sends a restore through the log;
//! - [`retention`]: takes snapshots, and cuts the log off;
//! - [`status`]: how a node is, for operators and as metrics;
//! - [`transfer`]: hands the leadership over;
//! - [`service`]: what a node answers to other nodes.

pub(super) mod backup;
pub(super) mod forward;
pub(super) mod lifecycle;
pub(super) mod pending;
pub(super) mod restore;
mod retention;
mod service;
mod slow_disk;
mod status;
mod transfer;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use openraft::error::{ClientWriteError, RaftError};
use tokio::{sync::watch, time::Instant};

use self::pending::Pending;
use super::{
    config::{PeerTls, RaftConfig},
    log::Log,
    membership::Members,
    network::{Network, certificates::Certificates, channels::Channels, server::RaftServer},
    reads::{Reads, batch::ReadBatch},
    state_machine::StateMachine,
    types::{
        Content, NodeId, Outcome, Peer, Proposal, Raft, Refused, inconsistent, leader_of, reason_of,
    },
};
use crate::{
    backend::{Error, Result},
    lease::Leadership,
    pb::{
        Id, Resource,
        generated::hashicorp::consul::internal::storage::raft::{
            self as forwarded, LogType, log::Request,
        },
    },
};

/// Delay before a leader that refused is asked again, if nothing is heard of
/// another one.
const ASK_AGAIN: Duration = Duration::from_millis(25);

/// A node of a cluster.
pub(crate) struct Node {
    pub(crate) config: RaftConfig,
    pub(crate) raft: Raft,
    pub(crate) log: Log,
    pub(crate) state_machine: StateMachine,
    pub(crate) network: Network,
    pub(crate) server: RaftServer,
    pub(crate) members: Arc<Members>,
    pub(crate) reads: Reads,
    /// Reads of this node that the leader is asked about.
    follower_reads: ReadBatch,
    /// The bytes of changes that this node, as the leader, has under way.
    pub(crate) pending: Pending,
    /// Connections for forwarded calls, which close with each change of leader.
    pub(crate) forwarding: Channels,
    /// The certificate for those who connect; none without TLS.
    pub(crate) certificates: Option<Certificates>,
    pub(crate) leadership: Leadership,
    /// Set while another node is to lead: changes wait.
    moves: AtomicBool,
    /// Why the node cannot go on.
    pub(crate) failure: watch::Sender<Option<String>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id())
            .field("address", &self.members.address)
            .field("cluster", &self.network.cluster)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
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

fn out_of_order(reason: &str) -> Error {
    Error::failed("take part in the cluster", format!("the node cannot go on: {reason}"))
}

/// Reads go on, and so do the other nodes.
fn disk_full(config: &RaftConfig) -> Error {
    let folder = config.data_dir.display();
    let text = format!("there is no room left on the disk of the leader, in {folder}; make some");
    Error::Other { operation: "write", retryable: true, source: text.into() }
}

fn outcome_unknown(reason: &str) -> Failure {
    Error::outcome_unknown("change", reason).into()
}

impl Node {
    /// Returns the node's id.
    pub(crate) fn id(&self) -> NodeId {
        self.network.node
    }

    /// Shows other certificates from now on, to those who connect and to those it connects to.
    pub(crate) fn replace_tls(&self, tls: &PeerTls) -> Result<()> {
        let Some(certificates) = &self.certificates else {
            return Err(Error::failed("replace certificates", "the node was started without TLS"));
        };
        certificates.replace(tls)?;
        self.network.channels.replace_tls(tls);
        self.network.streams.close_all();
        self.forwarding.replace_tls(tls);
        Ok(())
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
            let leader = leader_of(&self.raft);
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
            if id != self.id() {
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

    /// Takes a step of a restore: here or not at all.
    pub(crate) async fn restore_here(&self, step: Bytes) -> Result<Result<(), Refused>, Failure> {
        Ok(self.propose(Content::Restore(step)).await?.restored()?)
    }

    /// Proposes a change, as the leader, and waits for its end.
    async fn propose(&self, content: Content) -> Result<Outcome, Failure> {
        let room = self.pending.take(content.len())?;
        // After it counts as under way, or a handover would not wait for it.
        if self.moves.load(Ordering::SeqCst) {
            return Err(Failure::NotDone(
                "the leadership is on its way to another node".to_owned(),
            ));
        }
        if *self.log.disk_full().borrow() {
            return Err(Failure::Failed(disk_full(&self.config)));
        }
        let proposal = Proposal::new(content);
        let entered = proposal.entered();
        let raft = self.raft.clone();
        // In a task of its own, which keeps the room also if nobody waits any more.
        let writing = tokio::spawn(async move {
            let written = raft.client_write(proposal).await;
            drop(room);
            written
        });
        let written = tokio::time::timeout(self.config.write_timeout, writing).await;
        let written = match written {
            Ok(Ok(written)) => written,
            Ok(Err(_ended)) => {
                return Err(outcome_unknown("the node stopped meanwhile"));
            }
            Err(_too_long) => return Err(outcome_unknown("no majority confirmed it in time")),
        };
        let outcome = if written.is_ok() { "committed" } else { "failed" };
        metrics::counter!("resource_store_raft_proposals_total", "outcome" => outcome).increment(1);
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

    /// Waits until a read here is linearizable. Gives false if this node is too
    /// far behind for that, for now.
    pub(crate) async fn catch_up(&self) -> Result<bool> {
        let index = self
            .with_leader(|id, peer| async move {
                if id == self.id() {
                    let index = self.reads.read_index().await;
                    index.map_err(|error| Failure::NotDone(reason_of(error)))
                } else {
                    self.read_index_of(id, &peer).await
                }
            })
            .await?;
        let mut applied = self.state_machine.applied();
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
        self.applies_until(|applied| self.state_machine.version_offset() + applied > version).await;
    }

    /// Waits until this node has not what was deleted through it.
    pub(crate) async fn has_deleted(&self, id: &Id, version: &str) {
        let is_gone = |_applied| match self.state_machine.current().resources.read(id) {
            Ok(stored) => stored.version != version || stored.uid() != id.uid,
            Err(_) => true,
        };
        self.applies_until(is_gone).await;
    }

    /// Waits until enough is applied, but not for ever: the change that is
    /// waited for is done in any case.
    async fn applies_until(&self, is_enough: impl Fn(u64) -> bool + Send + Sync) {
        let mut applied = self.state_machine.applied();
        let waiting = applied.wait_for(|applied| is_enough(*applied));
        if !matches!(tokio::time::timeout(self.config.patience / 2, waiting).await, Ok(Ok(_))) {
            tracing::debug!("this node does not have what was changed through it yet");
        }
    }
}
