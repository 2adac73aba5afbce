//! The types that the consensus library works with here: entries, their
//! outcomes, memberships and snapshots. Every other room may use them.
//!
//! [`proto`] is how they are sent and stored.

pub(crate) mod proto;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use prost::Message as _;

use crate::{
    backend::{
        self, Error,
        store::{held::Encoded, state::State},
    },
    pb::{
        Resource,
        generated::{
            hashicorp::consul::internal::storage::raft as wire, resource_store::peer::v1 as peer,
        },
    },
};

openraft::declare_raft_types!(
    /// The types with which this crate uses the consensus library.
    pub(crate) Types:
        D = Proposal,
        R = Outcome,
        NodeId = NodeId,
        Node = Peer,
        SnapshotData = SnapshotData,
);

/// The content of a snapshot: a view of what a state machine holds.
pub(crate) type SnapshotData = Arc<Contents>;
pub(crate) type NodeId = u64;
pub(crate) type LogId = openraft::LogId<NodeId>;
pub(crate) type Vote = openraft::Vote<NodeId>;
pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type Membership = openraft::Membership<NodeId, Peer>;
pub(crate) type StoredMembership = openraft::StoredMembership<NodeId, Peer>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<NodeId, Peer>;
pub(crate) type Snapshot = openraft::Snapshot<Types>;
pub(crate) type StorageError = openraft::StorageError<NodeId>;
pub(crate) type Raft = openraft::Raft<Types>;

/// The address at which a node listens for other nodes: host and port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Peer {
    pub(crate) address: String,
}

/// The encoded contents of a proposal.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A write or delete: a `Log`.
    Log(Bytes),
    /// A step of a restore: a `RestoreStep`.
    Restore(Bytes),
}

impl Content {
    pub(crate) fn log(log: &wire::Log) -> Self {
        Self::Log(log.encode_to_vec().into())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Log(bytes) | Self::Restore(bytes) => bytes.len(),
        }
    }
}

/// A change on its way into the log.
#[derive(Clone)]
pub(crate) struct Proposal {
    pub(crate) content: Content,
    /// `true` once it got into the log of this node. Until then it certainly has no
    /// effect; after that only the end tells. Shared with whoever proposed.
    entered: Arc<AtomicBool>,
}

impl Proposal {
    pub(crate) fn new(content: Content) -> Self {
        Self { content, entered: Arc::default() }
    }

    pub(crate) fn mark_entered(&self) {
        self.entered.store(true, Ordering::Release);
    }

    /// Says later whether the proposal got into the log.
    pub(crate) fn entered(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.entered)
    }
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proposal").field("bytes", &self.content.len()).finish_non_exhaustive()
    }
}

/// The properties of entries that this crate needs.
pub(crate) trait EntryExt {
    /// Returns the approximate bytes that it takes of a message or of memory.
    fn bytes(&self) -> usize;
    /// Says that it got into the log of this node.
    fn mark_entered(&self);
}

impl EntryExt for Entry {
    fn bytes(&self) -> usize {
        // What is around the content.
        const OVERHEAD: usize = 64;
        match &self.payload {
            openraft::EntryPayload::Normal(proposal) => OVERHEAD + proposal.content.len(),
            openraft::EntryPayload::Blank | openraft::EntryPayload::Membership(_) => OVERHEAD,
        }
    }

    fn mark_entered(&self) {
        if let openraft::EntryPayload::Normal(proposal) = &self.payload {
            proposal.mark_entered();
        }
    }
}

/// Why a step changed nothing, on all nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("another restore took its place")]
    Replaced,
    #[error("part {found} came where part {expected} was to come")]
    Part { found: u64, expected: u64 },
    #[error("it ends after {found} parts, but {expected} came")]
    End { found: u64, expected: u64 },
    #[error("resource has no id")]
    NoId,
    #[error("version {0} leaves no numbers for later ones")]
    Version(u64),
    #[error("the step is empty")]
    Empty,
}

/// The result of applying an entry of the log.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was no change of resources.
    Nothing,
    Written(backend::Result<Arc<Resource>>),
    Deleted(backend::Result<()>),
    /// A step of a restore was taken, or refused.
    Restored(Result<(), Refused>),
    /// The entry makes no sense; the text says why.
    Malformed(String),
}

impl Outcome {
    pub(crate) fn written(self) -> backend::Result<Arc<Resource>> {
        match self {
            Self::Written(result) => result,
            Self::Malformed(reason) => Err(malformed(reason)),
            Self::Nothing | Self::Deleted(_) | Self::Restored(_) => {
                Err(malformed("not the answer to a write"))
            }
        }
    }

    pub(crate) fn restored(self) -> backend::Result<Result<(), Refused>> {
        match self {
            Self::Restored(result) => Ok(result),
            Self::Malformed(reason) => Err(malformed(reason)),
            Self::Nothing | Self::Written(_) | Self::Deleted(_) => {
                Err(malformed("not the answer to a restore"))
            }
        }
    }

    pub(crate) fn deleted(self) -> backend::Result<()> {
        match self {
            Self::Deleted(result) => result,
            Self::Malformed(reason) => Err(malformed(reason)),
            Self::Nothing | Self::Written(_) | Self::Restored(_) => {
                Err(malformed("not the answer to a delete"))
            }
        }
    }
}

/// The contents of a state machine at one entry of the log. A clone shares all with
/// its original, and costs nothing to hold but what changes afterwards.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents {
    /// The last entry that was applied.
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: StoredMembership,
    /// By how much versions are larger than the index of their entry: a restore
    /// brings versions, and none of them may come again.
    pub(crate) version_offset: u64,
    /// Resources that everybody sees.
    pub(crate) resources: State<Encoded>,
    /// The restore under way.
    pub(crate) restore: peer::RestoreUnderWay,
    /// Resources that the restore under way has brought.
    pub(crate) restoring: State<Encoded>,
}

impl Contents {
    /// The index of the last applied entry, plus one.
    pub(crate) fn end(&self) -> u64 {
        self.applied.map_or(0, |applied| applied.index + 1)
    }
}

/// The leader as a node knows it, and where it listens for other nodes.
pub(crate) fn leader_of(raft: &Raft) -> Option<(NodeId, Peer)> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow();
    let id = metrics.current_leader?;
    let peer = metrics.membership_config.membership().get_node(&id)?.clone();
    Some((id, peer))
}

/// Nothing was done, because there was no majority or leader.
pub(crate) fn inconsistent(reason: impl Into<String>) -> Error {
    Error::Inconsistent { reason: reason.into() }
}

/// Returns why something failed, to become the reason of another `Inconsistent`: without what
/// each of these begins with, which would else be there once for each node on the way.
pub(crate) fn reason_of(error: Error) -> String {
    match error {
        Error::Inconsistent { reason } if !reason.is_empty() => reason,
        other => other.to_string(),
    }
}

fn malformed(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::failed("apply", reason)
}
