//! Backups of a cluster that runs, and new clusters from a backup or from what a node is left
//! with.
//!
//! A backup is a snapshot in a file. A new cluster has an id of its own, so that no node of the
//! old one, which may come back, takes part in it; it begins with one node, which others join.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{StreamExt as _, stream};
use openraft::{RaftLogReader as _, storage::RaftStateMachine as _};
use tonic::{Status, Streaming};

use super::{
    lifecycle::{self, LOG_FOLDER, open_files},
    restore,
};
use crate::{
    backend::{
        Error, Result,
        raft::{
            config::{RaftConfig, Start},
            log::Log,
            membership::Member,
            network::channels::{self, Channels},
            state_machine::{
                StateMachine,
                snapshot_file::{NewFile, read_backup},
            },
            types::{Contents, LogId, inconsistent},
        },
        store::{folder::sync_around, sync::blocking},
    },
    error_chain::error_chain,
    pb::generated::resource_store::peer::v1::{self as peer, snapshot_part::Part},
};

/// A backup that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The index of the last entry that is in it.
    pub index: u64,
    /// The number of resources in it.
    pub resources: u64,
    /// The size of the file, in bytes.
    pub bytes: u64,
}

/// A cluster that was founded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Founded {
    /// The id of the cluster, which no other one has.
    pub cluster: u64,
    /// The only node.
    pub node: u64,
    /// The number of resources.
    pub resources: usize,
}

/// The data of a node whose cluster has no majority any more.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Remains {
    /// The node that it was.
    pub node: u64,
    /// The cluster that it was in.
    pub cluster: u64,
    /// The term of the last entry of its log.
    pub term: u64,
    /// The index of the last entry of its log. All up to it are kept.
    pub last: u64,
    /// The index of the last entry that it knew to be committed.
    pub committed: u64,
    /// The nodes of its cluster, as it knows them.
    pub members: Vec<Member>,
    /// The number of resources.
    pub resources: usize,
    pub(crate) contents: Arc<Contents>,
}

/// Writes all that the node at an address holds to a file, which is only there once it is
/// complete. No more than one part is in memory.
pub(crate) async fn save(
    channels: &Channels,
    address: &str,
    stale: bool,
    file: &Path,
) -> Result<Backup> {
    let channel = channels.to(address).map_err(|e| inconsistent(error_chain(&e)))?;
    let failed = |status: &Status| {
        inconsistent(format!("{address} gives no backup: {}", channels::reason(status)))
    };
    let request = peer::BackupRequest { route: Some(peer::Route::default()), stale };
    let parts = channels::peer_client(channel).backup(request).await;
    let parts = parts.map_err(|status| failed(&status))?.into_inner();
    let aside = aside(file);
    let at = |e: io::Error| Error::failed("write the backup", format!("{}: {e}", file.display()));
    let path = aside.clone();
    let new = blocking(move || Ok(NewFile::create(&path))).await?.map_err(at)?;
    let written = receive(parts, new).await;
    let (from, to) = (aside.clone(), file.to_owned());
    let done = match written {
        Ok(written) => {
            // A backup that was reported has to outlive a crash, and its name with it.
            let moving = move || fs::rename(&from, &to).and_then(|()| sync_around(&to));
            let moved = blocking(move || Ok(moving())).await?;
            moved.map(|()| written).map_err(at)
        }
        Err(BadBackup::File(error)) => Err(at(error)),
        Err(BadBackup::Node(status)) => Err(failed(&status)),
        Err(BadBackup::CutOff) => Err(inconsistent(format!("{address} went away meanwhile"))),
    };
    if done.is_err() {
        remove(&aside);
    }
    done
}

/// Why there is no backup.
enum BadBackup {
    File(io::Error),
    Node(Status),
    CutOff,
}

/// Writes what comes to a file, and brings it to the disk.
async fn receive(
    mut parts: Streaming<peer::SnapshotPart>,
    mut file: NewFile,
) -> Result<Backup, BadBackup> {
    let ended = |_ended| BadBackup::CutOff;
    let (mut index, mut end) = (0, None);
    while let Some(part) = parts.message().await.map_err(BadBackup::Node)? {
        match &part.part {
            Some(Part::Head(head)) => index = head.last.map_or(0, |last| last.index),
            Some(Part::End(last)) => end = Some(*last),
            Some(Part::Chunk(_) | Part::Restoring(_)) | None => {}
        }
        let put = move || Ok(file.put(&part).map(|()| file));
        file = blocking(put).await.map_err(ended)?.map_err(BadBackup::File)?;
    }
    // A stream also ends without an error when the node is stopped.
    let end = end.ok_or(BadBackup::CutOff)?;
    let bytes = blocking(move || Ok(file.sync())).await.map_err(ended)?;
    let bytes = bytes.map_err(BadBackup::File)?;
    Ok(Backup { index, resources: end.resources, bytes })
}

/// Another name beside a path.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

fn remove(file: &Path) {
    if let Err(error) = fs::remove_file(file) {
        tracing::warn!(file = %file.display(), %error, "what is incomplete cannot be removed");
    }
}

/// Founds a cluster with what a backup holds. It is not running afterwards.
pub(crate) async fn restore_backup(file: &Path, config: RaftConfig) -> Result<Founded> {
    let file = file.to_owned();
    let contents = blocking(move || read_backup(&file)).await?;
    found(Arc::new(contents), config).await
}

/// Founds a cluster of one node, in a folder that is only there once all is in it.
pub(crate) async fn found(contents: Arc<Contents>, mut config: RaftConfig) -> Result<Founded> {
    let folder = std::mem::take(&mut config.data_dir);
    // Under its own name a folder that a crash left half filled would start as an empty cluster.
    config.data_dir = aside(&folder);
    let refused = |text: String| Error::failed("found a cluster", text);
    for folder in [&folder, &config.data_dir] {
        let is_free = match fs::read_dir(folder) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if !is_free {
            let text = "has to be empty or not to be there; nothing in it was touched";
            return Err(refused(format!("{} {text}", folder.display())));
        }
    }
    let made = config.data_dir.clone();
    let founded = fill(&contents, config).await;
    let moved = founded.and_then(|founded| {
        let moving = || fs::rename(&made, &folder).and_then(|()| sync_around(&folder));
        moving().map_err(|e| refused(format!("{}: {e}", folder.display())))?;
        Ok(founded)
    });
    if moved.is_err()
        && let Err(error) = fs::remove_dir_all(&made)
    {
        tracing::warn!(folder = %made.display(), %error, "what is incomplete cannot be removed");
    }
    moved
}

async fn fill(contents: &Contents, config: RaftConfig) -> Result<Founded> {
    let started = lifecycle::start(config, Start::Bootstrap).await?;
    let all = stream::iter(contents.resources.resources()).boxed();
    let restored = restore::restore(&started.node, all).await;
    let identity = started.node.log.identity();
    started.ended.stop_and_wait().await;
    restored?;
    let resources = contents.resources.len();
    Ok(Founded { cluster: identity.cluster, node: identity.node, resources })
}

/// Reads what a node is left with that is not running. Its files stay what they are, but for
/// what a start would do to them, too.
pub(crate) async fn remains(config: &RaftConfig) -> Result<Remains> {
    let folder = config.data_dir.display();
    let failed = |text: String| Error::failed("read what is left", text);
    match Log::exists(&config.data_dir.join(LOG_FOLDER)) {
        Ok(true) => {}
        Ok(false) => return Err(failed(format!("{folder} is not the folder of a node"))),
        Err(error) => return Err(failed(format!("{folder}: {error}"))),
    }
    let (log, mut state_machine) = open_files(config).await?;
    let replayed = replay(&log, &mut state_machine).await;
    let (identity, known, contents) = (log.identity(), log.committed(), state_machine.current());
    state_machine.close();
    log.close().await;
    // After the files are closed, so that another try can open them.
    let last: Option<LogId> = replayed?.or(contents.applied);
    let membership = contents.membership.membership();
    let voters: Vec<_> = membership.voter_ids().collect();
    let members = membership.nodes().map(|(id, peer)| Member {
        id: *id,
        address: peer.address.clone(),
        voter: voters.contains(id),
        leader: false,
        silent: None,
    });
    Ok(Remains {
        node: identity.node,
        cluster: identity.cluster,
        term: last.map_or(0, |last| last.leader_id.term),
        last: last.map_or(0, |last| last.index),
        committed: known.map_or(0, |known| known.index),
        members: members.collect(),
        resources: contents.resources.len(),
        contents,
    })
}

/// Applies all that the log has, also what is not known to be committed: it may have been
/// acknowledged.
async fn replay(log: &Log, state_machine: &mut StateMachine) -> Result<Option<LogId>> {
    let failed = |e: String| Error::failed("read what is left", e);
    let mut last = None;
    loop {
        let next = *state_machine.applied().borrow();
        let entries = log.clone().limited_get_log_entries(next, u64::MAX).await;
        let entries = entries.map_err(|e| failed(e.to_string()))?;
        let Some(end) = entries.last() else { return Ok(last) };
        last = Some(end.log_id);
        state_machine.apply(entries).await.map_err(|e| failed(e.to_string()))?;
    }
}
