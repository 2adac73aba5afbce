//! The backend that several nodes keep together, by Raft.
//!
//! # Rooms
//!
//! Each may call those above it in this table, never one below; a test reads
//! the imports.
//!
//! | room | owns | called by |
//! |---|---|---|
//! | `types` | entries, outcomes, snapshots and memberships as the consensus library knows them; `types::proto`: how they are sent and stored | all |
//! | `config` | settings; `config::retired`: types without effect; `config::faults`: faults that tests ask for | all |
//! | `log` | entries, vote and identity on the disk, file by file in its own head; `log::durable_index`: what of the log is there; `log::persisted`: what a snapshot has instead | `state_machine`, network, reads, membership, node |
//! | `state_machine` | applies entries, in memory (`apply`); `snapshot`: snapshots as they are sent and stored, and `snapshot_file` the newest on the disk; `restore`: steps of a restore | network, node |
//! | `network` | `channels`: connections; `certificates`: TLS, and whose certificate it is; `append_stream`: streams of entries; `transport`: what the library sends; `server`: what it takes; `acknowledgements`: who followed the leader, since when; `snapshot_holds`: the log that nodes need which get a snapshot; `status`: errors on the way | reads, membership, node |
//! | `reads` | the read index; `reads::lease`: how long this node leads; `reads::batch`: reads that share a round | node |
//! | `membership` | who belongs to the cluster; `change`: the leader's part; `client`: calls about it; `node_status`: how a node is, as operators see it; `join`: how a node comes and finds out that it was removed | node |
//! | `node` | ties them: proposes (`pending` bounds it) and forwards (`forward`), lets through what a majority has while the own disk is slow (`slow_disk`), starts and stops (`lifecycle`), cuts the log off (`retention`), sends restores (`restore`), hands the leadership over (`transfer`), says how it is (`status`), makes and reads backups (`backup`), answers others (`service`) | `RaftBackend` |
//!
//! # A write
//!
//! ```text
//! RaftBackend::write_cas ─► Node::change ─┬─ a follower ─► PeerServer of the leader ─┐
//!                                         └─ the leader ◄────────────────────────────┘
//! Node::propose ─► library ─┬─► Log::append ─► one sync for all that waits ─► DurableIndex::flushed
//!                           └─► transport::Link ─► AppendStreams ─► RaftServer of each follower
//!                                                                     ─► library ─► Log::append, synced
//! a majority has it: library ─► Log::save_committed, StateMachine::apply
//!                               (waits for DurableIndex) ─► answer
//! ```
//!
//! Followers hear that it is committed with the next entries, or by themselves
//! once the leader may tell. A follower that forwarded the write answers when it
//! has applied it, too.
//!
//! # A linearizable read
//!
//! ```text
//! RaftBackend::read ─► Node::catch_up ─┬─ a follower ─► PeerServer::read_index of the leader ─┐
//!                                      └─ the leader ◄────────────────────────────────────────┘
//! Reads::read_index ─► ReadBatch: one round for all that wait
//!   ─► what is committed and may be shown (Log, DurableIndex) ─► Network::ask each voter
//!   ─► Lease: a majority acknowledged what was asked since ─► the index
//! the node that was asked applies up to it ─► reads its own state
//! ```
//!
//! No step waits for a disk of the leader. A new leader first commits an entry
//! of its own term.
//!
//! # A snapshot goes to a node
//!
//! ```text
//! library ─► StateMachine::get_current_snapshot: a view ─► transport::Link::full_snapshot
//!   ─► SnapshotHolds: the log after it stays ─► parts ─► RaftServer::install_snapshot
//!   ─► library ─► StateMachine::install_snapshot: in place, watches end
//!   ─► Log::purge, once it is on the disk (Persisted)
//! ```
//!
//! # A node joins
//!
//! ```text
//! RaftBackend::start ─► lifecycle::start ─► join::enter ─► client::join, until it is done
//!   ─► PeerServer::join of the leader ─► Members::add: a learner
//!   ─► entries or a snapshot, until it lacks little ─► a voter
//!   ─► Network::adopt_cluster, Log::set_entered
//! ```

mod config;
mod log;
mod membership;
mod network;
mod node;
mod reads;
mod state_machine;
#[cfg(test)]
mod tests;
mod types;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
#[cfg(any(test, feature = "testing"))]
pub use config::{Faults, HeldCommits, HeldDisk};
pub use config::{PeerTls, RaftConfig, RetiredTypes, Start};
pub use membership::{Alarm, DiskLatency, Follower, Member, NodeStatus};
pub use node::backup::{Backup, Founded, Remains};
use tokio_util::sync::DropGuard;

use self::{
    membership::client,
    network::channels::Channels,
    node::{
        Change, Node, backup,
        lifecycle::{self, Ended, Started},
        restore,
    },
    types::inconsistent,
};
use super::{Backend, Consistency, Error, Query, ResourceStream, Result, Watch};
use crate::{
    lease::Leadership,
    pb::{Id, Resource},
};

/// A node of a cluster that keeps resources together.
///
/// Writes, and strong reads, need a majority of the nodes, and one of them as
/// the leader; any node takes them, and asks the leader. Eventual reads and
/// watches are answered from what the node itself holds.
///
/// - A write is acknowledged once a majority has it on disk. If the leader is
///   lost meanwhile its outcome may be unknown: that is an error which cannot
///   be retried and says so, and nothing is ever done twice in silence.
///   [`Error::Inconsistent`] means that nothing was done.
/// - Who changed something through a node finds it changed there, also with an
///   eventual read, unless the node is far behind.
/// - A strong read is answered by this node, once it has applied all that the
///   leader had committed when the read began, and the leader has heard from a
///   majority since. Reads that come at the same time share that round.
/// - Watches follow the log of this node, so they see commits in order and
///   never go back, whoever leads. They close when the node installs a
///   snapshot because it was far behind, when the store is restored, when
///   they fall behind, and when the node stops.
/// - Versions are the positions of entries in the log, as decimal numbers. A
///   restore brings versions of its own; later ones are larger.
///
/// Folders: `raft-log` with the log, the vote and which node this is, and
/// `raft-snapshots` with the newest snapshot of what the log led to, which is
/// held in memory. Only one process has them open. Each entry and part has a
/// checksum; a damaged one stops the node, with an error that names the file and
/// the place.
///
/// A clone is another handle to the same node. When the last is dropped the
/// node stops; [`Self::shutdown`] waits for that.
///
/// Source: `internal/storage/raft`, Consul 1.21.
/// Deviation: a follower does not have the leader answer strong reads, but asks
/// it how far the log is and answers itself, unless it is far behind. So the
/// leader is spared, and lists have no limit of size. Nodes speak gRPC on a
/// port of their own.
#[derive(Debug, Clone)]
pub struct RaftBackend {
    node: Arc<Node>,
    listens: SocketAddr,
    ended: Ended,
    /// Stops the node when the last handle is dropped.
    _stop: Arc<DropGuard>,
}

impl RaftBackend {
    /// Starts a node. With [`Start::Join`] it ends once the node is a member
    /// that votes, which takes as long as it takes to get all data.
    ///
    /// # Errors
    ///
    /// If a file or the address cannot be used, certificates are malformed, the
    /// cluster to join does not answer for longer than `write_timeout`, is not
    /// the one this node belongs to, or has another node with the same address,
    /// or a node that belongs to no cluster is to resume.
    pub async fn start(config: RaftConfig, start: Start) -> Result<Self> {
        let Started { node, listens, ended, stop } = lifecycle::start(config, start).await?;
        Ok(Self { node, listens, ended, _stop: Arc::new(stop) })
    }

    /// Returns the node's id, which is made once and then kept in its files.
    pub fn node_id(&self) -> u64 {
        self.node.id()
    }

    /// Returns the address at which the node listens for others.
    pub fn local_addr(&self) -> SocketAddr {
        self.listens
    }

    /// The nodes of the cluster, as this one knows them.
    pub fn members(&self) -> Vec<Member> {
        self.node.members.known()
    }

    /// The leader, as this node knows it.
    pub fn leader(&self) -> Option<Member> {
        self.members().into_iter().find(|member| member.leader)
    }

    /// Returns the leadership of this node: a [`Lease`](crate::controller::Lease)
    /// for controllers that are to run once in the cluster. A majority promised not
    /// to elect another node before it ends. It ends by itself, if no majority
    /// renews that promise, after nine tenths of the longer
    /// [`RaftConfig::election`] time, counted from when the majority was asked.
    pub fn leadership(&self) -> Leadership {
        self.node.leadership.clone()
    }

    /// Shows other certificates to other nodes from now on, where the node was started with
    /// some. Connections are made again; calls under way go on. The name that certificates have
    /// to have stays what it was.
    ///
    /// # Errors
    ///
    /// If a certificate or the key is malformed, they do not belong together, or the node was
    /// started without TLS. What was there stays then.
    pub fn replace_tls(&self, tls: &PeerTls) -> Result<()> {
        self.node.replace_tls(tls)
    }

    /// Waits until this node cannot go on, and gives why: a file failed or is
    /// damaged, or the node was removed from its cluster, which it finds out
    /// within about [`RaftConfig::patience`] where it can ask the others. Writes
    /// and strong reads fail from then on, so end the program. Waits for ever if
    /// the node is shut down before.
    pub async fn failed(&self) -> Error {
        self.node.failed().await
    }

    /// Removes a node from the cluster. It stops by itself once it hears of it;
    /// see [`Self::failed`].
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] if no leader did it in time; another one if it
    /// is the only node that votes.
    pub async fn remove_member(&self, id: u64) -> Result<()> {
        let mut through = vec![self.node.members.address.clone()];
        through.extend(self.members().into_iter().map(|member| member.address));
        let cluster = self.node.log.identity().cluster;
        let patience = self.node.config.write_timeout;
        client::remove_through(&self.node.network.channels, &through, cluster, id, patience).await
    }

    /// Waits until this node has all that was committed when this was called,
    /// so that eventual reads after a restart are not older than before it.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] after `limit`.
    pub async fn wait_until_caught_up(&self, limit: Duration) -> Result<()> {
        let caught_up = async {
            loop {
                match self.node.catch_up().await {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(error) if error.is_retryable() => {}
                    Err(error) => return Err(error),
                }
            }
        };
        tokio::time::timeout(limit, caught_up).await.unwrap_or_else(|_too_long| {
            Err(inconsistent("the node does not catch up with the cluster"))
        })
    }

    /// Stops the node: open watches end, calls fail, files are closed. Waits
    /// until all that is done. Handles that are left are of no use.
    pub async fn shutdown(&self) {
        self.ended.stop_and_wait().await;
    }

    /// Removes a node from a cluster that this process is no part of, through
    /// the node at `address`.
    ///
    /// # Errors
    ///
    /// As [`Self::remove_member`]; also if no node answers within `patience`.
    pub async fn remove_member_at(
        address: &str,
        tls: Option<&PeerTls>,
        id: u64,
        patience: Duration,
    ) -> Result<()> {
        let channels = Channels::new(tls);
        client::remove_through(&channels, &[address.to_owned()], 0, id, patience).await
    }

    /// The nodes of a cluster that this process is no part of, as the node at
    /// `address` knows them. Each is asked whether it is there, which takes up
    /// to two seconds.
    ///
    /// # Errors
    ///
    /// If that node does not answer.
    pub async fn members_at(address: &str, tls: Option<&PeerTls>) -> Result<Vec<Member>> {
        client::members_at(&Channels::new(tls), address).await
    }

    /// Asks the node at `address` for its status, of a cluster that this process is no part of.
    ///
    /// # Errors
    ///
    /// If it does not answer within two seconds.
    pub async fn status_at(address: &str, tls: Option<&PeerTls>) -> Result<NodeStatus> {
        client::status_at(&Channels::new(tls), address).await
    }

    /// Has another node lead a cluster, through the node at `address`: `to`, or else the one
    /// that has the most of the log. Gives which one leads then. Changes and strong reads wait
    /// meanwhile, about as long as the longer [`RaftConfig::election`] time; none fails for it.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] if it was not done within `patience`; another one if there is no
    /// such node that votes.
    pub async fn move_leader_at(
        address: &str,
        tls: Option<&PeerTls>,
        to: Option<u64>,
        patience: Duration,
    ) -> Result<u64> {
        let channels = Channels::new(tls);
        client::move_leader_through(&channels, address, to.unwrap_or(0), patience).await
    }

    /// Writes all that a cluster holds to a file, through the node at `address`, while it runs:
    /// everything that was acknowledged before this was called, as of one entry of the log. With
    /// `stale` it is what that node holds, also without a majority. The file is there once it is
    /// complete, readable by its owner only, and checked by its checksums when it is read.
    ///
    /// # Errors
    ///
    /// If the node does not answer or goes away, has no leader, or the file cannot be written.
    pub async fn backup_at(
        address: &str,
        tls: Option<&PeerTls>,
        stale: bool,
        file: &Path,
    ) -> Result<Backup> {
        backup::save(&Channels::new(tls), address, stale, file).await
    }

    /// Founds a new cluster, with an id of its own, of one node and what a backup holds; the
    /// node is started afterwards with [`Start::Resume`]. Resources keep their versions, and
    /// later ones are larger.
    ///
    /// # Errors
    ///
    /// If the backup is damaged or incomplete, `config.data_dir` is not empty, or the node cannot
    /// be started. The folder is then what it was.
    pub async fn restore_backup(file: &Path, config: RaftConfig) -> Result<Founded> {
        backup::restore_backup(file, config).await
    }

    /// Reads what a node is left with that is not running, of a cluster which has lost its
    /// majority for good.
    ///
    /// # Errors
    ///
    /// If its files are damaged, or the node is running.
    pub async fn remains(config: &RaftConfig) -> Result<Remains> {
        backup::remains(config).await
    }

    /// Founds a new cluster, as [`Self::restore_backup`] does, with what a node is left with.
    /// Writes that only other nodes had are lost, and ones that nobody acknowledged may have an
    /// effect. The other nodes belong to the old cluster for ever.
    ///
    /// # Errors
    ///
    /// As [`Self::restore_backup`].
    pub async fn recover(remains: &Remains, config: RaftConfig) -> Result<Founded> {
        backup::found(Arc::clone(&remains.contents), config).await
    }

    /// Returns `true` if a read can be answered here; else the leader has to.
    async fn is_current(&self, consistency: Consistency) -> Result<bool> {
        match consistency {
            Consistency::Eventual => Ok(true),
            Consistency::Strong => self.node.catch_up().await,
        }
    }
}

#[async_trait]
impl Backend for RaftBackend {
    async fn read(&self, consistency: Consistency, id: &Id) -> Result<Arc<Resource>> {
        if self.is_current(consistency).await? {
            self.node.state_machine.view()?.resources.read(id)
        } else {
            self.node.forward_read(id).await
        }
    }

    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
        if resource.id.is_none() {
            return Err(Error::failed("write", "resource has no id"));
        }
        let written = self.node.change(Change::Write(Box::new(resource))).await?;
        let written =
            written.ok_or_else(|| Error::failed("write", "the leader sent no resource"))?;
        self.node.has_written(&written.version).await;
        Ok(written)
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        self.node.change(Change::Delete(id.clone(), version.to_owned())).await?;
        self.node.has_deleted(id, version).await;
        Ok(())
    }

    async fn list(&self, consistency: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        if self.is_current(consistency).await? {
            self.node.state_machine.view()?.resources.list(query)
        } else {
            self.node.forward_list(query).await
        }
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        self.node.state_machine.view()?.resources.list_by_owner(owner)
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        Ok(self.node.state_machine.watch(query))
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        self.node.state_machine.stream()
    }

    /// Through the log, in parts, so that other calls go on meanwhile and no
    /// node holds more than a part in memory; all nodes put the parts in place
    /// at the same entry, the last one. What is written before that is replaced,
    /// too. Another restore that begins meanwhile takes the place of this one,
    /// which then fails. [`Error::Inconsistent`], and an error that says so,
    /// mean that nothing was restored; only the end may have an unknown outcome.
    ///
    /// What was sent of a restore whose caller, or node, went away stays in the
    /// memory and in snapshots, where nobody sees it, until the next one begins.
    async fn restore(&self, resources: ResourceStream) -> Result<()> {
        restore::restore(&self.node, resources).await
    }

    /// There must be a leader that a majority follows, and this node's folder of
    /// snapshots must be where it was.
    async fn ready(&self) -> Result<()> {
        self.node.state_machine.ready().await?;
        self.node.catch_up().await.map(drop)
    }
}
