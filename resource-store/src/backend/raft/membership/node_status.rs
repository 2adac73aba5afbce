//! How a node is, as operators see it.

use std::time::Duration;

use crate::pb::generated::resource_store::peer::v1 as peer;

/// The status of a node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The cluster.
    pub cluster: u64,
    /// The node.
    pub id: u64,
    /// The address for other nodes.
    pub address: String,
    /// `true` if it votes.
    pub voter: bool,
    /// The leader, as it knows it.
    pub leader: Option<u64>,
    /// `true` if it leads and a majority follows it, or if it has a leader.
    pub quorum: bool,
    /// The term of its vote.
    pub term: u64,
    /// The index of the last entry of its log.
    pub last: u64,
    /// The index of the last entry that it knows to be committed.
    pub committed: u64,
    /// The index of the last entry that it has applied.
    pub applied: u64,
    /// The index of the last entry in its newest snapshot on the disk.
    pub snapshot: u64,
    /// The size of that snapshot, in bytes.
    pub snapshot_bytes: u64,
    /// The times that its disk took to write and sync the log, since it was started.
    pub disk: DiskLatency,
    /// The other nodes, if it leads.
    pub followers: Vec<Follower>,
    /// The alarms that an operator should look at.
    pub alarms: Vec<Alarm>,
    /// The version of this crate that it runs.
    pub version: String,
    /// The number of resources that it holds.
    pub resources: u64,
}

/// The times that a disk takes to write and sync the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskLatency {
    /// The number of syncs.
    pub syncs: u64,
    /// The mean.
    pub mean: Duration,
    /// In which time 99 of 100 were done: a power of two of microseconds, or the longest.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

/// The progress of a node, as the leader knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Follower {
    /// The node.
    pub id: u64,
    /// The index of the last entry that is known to be in its log.
    pub matched: u64,
    /// By how many entries it is behind the leader's log.
    pub lag: u64,
    /// `true` if the leader cannot reach it.
    pub lost: bool,
}

/// Something an operator should look at. It goes by itself once its cause is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alarm {
    /// `NOSPACE`: the disk is full, and the node serves reads only. `DISKHANGS`: the disk has been
    /// at one write for longer than an election. `SNAPSHOT`: no snapshot can be written.
    /// `NOQUORUM`: no leader that a majority follows. `BEHIND`: it applies entries late. `FAILED`:
    /// the node cannot go on.
    pub name: String,
    /// The meaning, and what to do.
    pub text: String,
}

impl From<peer::StatusResponse> for NodeStatus {
    fn from(status: peer::StatusResponse) -> Self {
        let node = status.node.unwrap_or_default();
        let micros = Duration::from_micros;
        let last = status.last;
        let follower = |peer::Follower { id, matched, lost }| Follower {
            id,
            matched,
            lag: last.saturating_sub(matched),
            lost,
        };
        let alarm = |peer::Alarm { name, text }| Alarm { name, text };
        Self {
            cluster: status.cluster,
            id: node.id,
            address: node.address,
            voter: status.voter,
            leader: (status.leader != 0).then_some(status.leader),
            quorum: status.quorum,
            term: status.term,
            last,
            committed: status.committed,
            applied: status.applied,
            snapshot: status.snapshot,
            snapshot_bytes: status.snapshot_bytes,
            disk: DiskLatency {
                syncs: status.syncs,
                mean: micros(status.sync_mean_micros),
                p99: micros(status.sync_p99_micros),
                max: micros(status.sync_max_micros),
            },
            followers: status.followers.into_iter().map(follower).collect(),
            alarms: status.alarms.into_iter().map(alarm).collect(),
            version: status.version,
            resources: status.resources,
        }
    }
}
