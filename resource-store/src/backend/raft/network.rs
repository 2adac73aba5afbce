//! Calls between nodes.
//!
//! - [`channels`]: connections to other nodes;
//! - [`certificates`]: TLS of those that others make, and whose certificate it is;
//! - [`append_stream`]: streams of entries and of messages without entries;
//! - [`transport`]: sends what the consensus library asks for;
//! - [`server`]: takes what the transport of another node sends;
//! - [`status`]: errors of the backend on their way between nodes;
//! - [`acknowledgements`]: who followed this node as the leader, and since when;
//! - [`snapshot_holds`]: the log that nodes need which are sent a snapshot.

pub(crate) mod acknowledgements;
pub(crate) mod append_stream;
pub(crate) mod certificates;
pub(crate) mod channels;
pub(crate) mod server;
pub(crate) mod snapshot_holds;
pub(crate) mod status;
mod transport;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use openraft::{
    AnyError,
    error::{NetworkError, RPCError, RaftError, Unreachable},
    raft::AppendEntriesResponse,
};

use self::{append_stream::AppendStreams, channels::Channels, snapshot_holds::SnapshotHolds};
use super::{
    config::Faults,
    log::{DurableIndex, Log},
    types::{
        NodeId, Peer, Vote,
        proto::{self, Malformed},
    },
};
use crate::{
    backend::Result as BackendResult,
    pb::generated::resource_store::peer::v1::{self as peer, append_response},
};

type Failure = RPCError<NodeId, Peer, RaftError<NodeId>>;
type AppendAnswer = AppendEntriesResponse<NodeId>;

/// Makes connections to other nodes. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) node: NodeId,
    pub(crate) cluster: Arc<AtomicU64>,
    pub(crate) channels: Channels,
    pub(crate) streams: AppendStreams,
    pub(crate) durable: DurableIndex,
    pub(crate) timing: Timing,
    pub(crate) faults: Faults,
    /// Entries that must not be cut off the log.
    pub(crate) holds: SnapshotHolds,
    /// Set while another node is to lead: this one shows nothing any more, so that the promise
    /// of the others to elect nobody else ends.
    pub(crate) silent: Arc<AtomicBool>,
    /// Nodes that were reported as out of reach.
    pub(crate) lost: Arc<Mutex<HashSet<NodeId>>>,
}

/// Time limits between nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Interval at which a leader shows that it is there.
    pub(crate) heartbeat: Duration,
    /// A leader whose disk is at one write for longer shows nothing any more.
    pub(crate) disk: Duration,
}

/// Another node is to lead.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the leadership is on its way to another node")]
struct Moves;

/// The own disk does not go on, so another node should lead.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the disk of this node hangs")]
struct DiskHangs;

impl Network {
    /// Returns an error if nothing is to be sent as a leader any more, so that
    /// other nodes elect another one.
    fn check_leads(&self) -> Result<(), Unreachable> {
        if self.silent.load(Ordering::Acquire) {
            Err(Unreachable::new(&Moves))
        } else if self.durable.hangs(self.timing.disk) {
            Err(Unreachable::new(&DiskHangs))
        } else {
            Ok(())
        }
    }

    async fn append(
        &self,
        address: &str,
        message: peer::AppendRequest,
    ) -> Result<AppendAnswer, Failure> {
        self.check_leads()?;
        append(&self.streams, address, message).await
    }

    /// Asks a node whether it follows this one. The answer is noted among the
    /// acknowledgements.
    pub(crate) async fn ask(
        &self,
        to: NodeId,
        peer: &Peer,
        vote: &Vote,
    ) -> Result<AppendAnswer, Failure> {
        self.faults.check(self.node, to).map_err(|e| Unreachable::new(&e))?;
        let message = peer::AppendRequest {
            route: Some(self.route(to)),
            vote: Some(proto::from_vote(vote)),
            ..peer::AppendRequest::default()
        };
        self.append(&peer.address, message).await
    }

    /// Belongs to a cluster from now on.
    pub(crate) async fn adopt_cluster(&self, log: &Log, cluster: u64) -> BackendResult<()> {
        if self.cluster.load(Ordering::Acquire) == cluster {
            return Ok(());
        }
        log.set_cluster(cluster).await?;
        self.cluster.store(cluster, Ordering::Release);
        Ok(())
    }

    pub(crate) fn route(&self, to: NodeId) -> peer::Route {
        peer::Route { cluster: self.cluster.load(Ordering::Acquire), to, from: self.node }
    }
}

async fn append(
    streams: &AppendStreams,
    address: &str,
    message: peer::AppendRequest,
) -> Result<AppendAnswer, Failure> {
    let mine = proto::vote(message.vote).map_err(|e| network(&e))?;
    let is_first = message.previous.is_none();
    let answer = streams.send(address, message).await.map_err(unreachable)?;
    match answer.result {
        Some(append_response::Result::Accepted(_)) => Ok(AppendEntriesResponse::Success),
        // The library takes it for granted that there was an entry before.
        Some(append_response::Result::Conflict(_)) if is_first => {
            Err(network(&Malformed("a conflict before the first entry")))
        }
        Some(append_response::Result::Conflict(_)) => Ok(AppendEntriesResponse::Conflict),
        Some(append_response::Result::Newer(vote)) => {
            let newer = proto::vote(Some(vote)).map_err(|e| network(&e))?;
            // The library takes that for granted.
            if newer <= mine {
                return Err(network(&Malformed("a vote that is not newer")));
            }
            Ok(AppendEntriesResponse::HigherVote(newer))
        }
        Some(append_response::Result::Refused(reason)) => Err(unreachable(reason)),
        None => Err(network(&Malformed("an answer without content"))),
    }
}

fn unreachable(reason: String) -> Failure {
    RPCError::Unreachable(Unreachable::new(&AnyError::error(reason)))
}

fn network<E: std::error::Error + 'static>(error: &E) -> Failure {
    RPCError::Network(NetworkError::new(error))
}
