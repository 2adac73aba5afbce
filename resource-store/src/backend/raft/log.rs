//! The write-ahead log of one node, its vote, and which node it is: a folder of its own, written
//! by one thread.
//!
//! | file in the folder | holds |
//! |---|---|
//! | `0000000000000001.wal`, … | a segment: records of entries, truncations, purges and commits |
//! | `hard-state` | the vote, which node this is, how far the log is known to be synced |
//! | `spare.new` | reserved space of the next segment |
//! | `lock` | nothing; locked while the log is open |
//!
//! The thread takes all that is queued, writes it at once, syncs once, and then answers (group
//! commit). Entries that were read or written lately stay in memory, because followers and the
//! state machine want them next.
//!
//! - [`wal`]: the segments, one after the other, and what to cut off; [`segment`]: one file of them;
//!   [`record`]: the format of one record;
//! - [`hard_state`]: the vote, the node's identity and what is known to be synced;
//! - [`recovery`]: reads all that at a start, and tells a torn write from damage;
//! - [`writer`]: the thread that writes and syncs, the only one that changes files; [`disk`]: the
//!   calls to the system, which tests replace; [`sync_times`]: how long syncs take;
//! - [`contents`]: where each entry is; [`cache`]: the newest ones in memory;
//! - [`durable_index`] and [`persisted`], for the other rooms: what of the log, and what of the
//!   resources, the disk has;
//! - [`error`]: what can be wrong with the files.
//!
//! Other rooms use what this file defines, `durable_index` and `persisted`; the rest is its own.
//!
//! To the library entries are acknowledged before they are on the disk; what
//! makes up for it is in [`durable_index`]. Two things follow for the log. Changes
//! of the membership have effects as soon as they are in it, so they wait for
//! the disk. And a leader that starts again may have lost entries which others
//! hold, so it does not go on leading in its term: it would give their places
//! to other entries of the same term.
//!
//! Damage: a write that a crash tore is cut off when the log is opened, and logged. A record that
//! is damaged otherwise is refused with its file and offset. The two differ in three ways, each of
//! which is enough to refuse: a later record says that the disk had it; the hard state or a later
//! segment says so; or no sector of it is missing. After a write or sync that failed nothing more
//! is written until the log is opened again; it can still be read.
//!
//! The crate `raft-log` (0.4.6, by the author of openraft) was looked at and not taken: it grows
//! its files with each write, so that a sync writes their size, too; it takes a damaged length in
//! the newest file for the end of the log and cuts acknowledged entries off; and its checksums do
//! not cover the place of a record.

mod cache;
mod contents;
mod disk;
mod durable_index;
mod error;
mod hard_state;
mod persisted;
mod record;
mod recovery;
mod segment;
mod sync_times;
#[cfg(test)]
mod tests;
mod wal;
mod writer;

use std::{
    fmt::{self, Debug},
    io,
    ops::{Bound, RangeBounds},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};

use bytes::Bytes;
use openraft::{
    EntryPayload, LogState, OptionalSend, RaftLogReader, StorageIOError,
    storage::{LogFlushed, RaftLogStorage},
};
use tokio::sync::{oneshot, watch};

use self::{
    cache::Cache,
    contents::{Contents, Location},
    disk::{Disk, Folder},
    error::LogError,
    hard_state::HardState,
    record::{HEADER, Header},
    segment::Segment,
    sync_times::SyncTimes,
    writer::{Done, Work, Writer},
};
pub(crate) use self::{durable_index::DurableIndex, persisted::Persisted, sync_times::Summary};
use super::{
    config::Faults,
    types::{Entry, EntryExt as _, LogId, NodeId, StorageError, Types, Vote},
};
use crate::backend::{
    Result as BackendResult,
    store::sync::{blocking, lock},
};

/// Bytes of entries that go to a follower at a time, if one entry alone is not more.
const REPLICATION_BYTES: usize = 1 << 20;
/// Bytes that are read from a segment at once, if one record alone is not more.
const READ_BYTES: usize = 1 << 20;
/// The largest segment; places in it are 32-bit numbers.
const LARGEST_SEGMENT: u64 = 1 << 30;
/// The smallest segment that holds anything.
const SMALLEST_SEGMENT: u64 = 4096;

/// Settings of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogOptions {
    /// Size of a segment, whose space is reserved when it begins; at most 1 GiB, 64 MiB by
    /// default. The log takes twice as much at least. A single entry that is larger gets a
    /// segment of its size.
    pub(crate) segment_bytes: u64,
    /// Bytes of entries that stay in memory, besides those that are not on the disk yet; 16 MiB
    /// by default.
    pub(crate) cache_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, cache_bytes: 16 << 20 }
    }
}

/// Identity of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    /// 0 if it belongs to none yet.
    pub(crate) cluster: u64,
    /// `true` if it was a member that votes, and perhaps is none any more.
    pub(crate) entered: bool,
}

/// The log and the vote of one node. A clone is another handle.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    contents: Arc<Mutex<Contents>>,
    writer: Writer,
    thread: Arc<writer::Shared>,
    faults: Faults,
    state: Mutex<State>,
    /// Progress of the state machine, which has to have an entry on the disk before it is purged.
    kept_for: OnceLock<Persisted>,
    /// Is told of a vote before it is saved.
    before_vote: OnceLock<BeforeVote>,
}

/// Is told of a vote.
struct BeforeVote(Box<dyn Fn(&Vote) + Send + Sync>);

impl Debug for BeforeVote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeVote")
    }
}

/// State of the log once the thread has done all that is queued.
#[derive(Debug, Clone, Default)]
struct State {
    vote: Option<Vote>,
    purged: Option<LogId>,
    last: Option<LogId>,
    /// Index of the first entry that the log ever had.
    origin: u64,
    /// The end of the last change of the membership, which has to be on the
    /// disk before anything after it is acknowledged.
    membership_end: u64,
}

impl State {
    /// Takes entries up, which are the last ones from now on. Returns `true` if
    /// they may be acknowledged before they are on the disk, which holds the
    /// entries before `flushed`.
    fn appends_early(&mut self, entries: &[Entry], flushed: u64) -> bool {
        let is_change = |entry: &&Entry| matches!(entry.payload, EntryPayload::Membership(_));
        if let Some(change) = entries.iter().rev().find(is_change) {
            self.membership_end = change.log_id.index + 1;
        }
        if let (None, Some(first)) = (self.last, entries.first()) {
            self.origin = first.log_id.index;
        }
        self.last = entries.last().map(|entry| entry.log_id).or(self.last);
        self.membership_end <= flushed
    }
}

impl Log {
    /// Returns `true` if there is a log in a folder, or what is left of one.
    ///
    /// # Errors
    ///
    /// If the folder is there and cannot be read.
    pub(crate) fn exists(folder: &Path) -> io::Result<bool> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if name == hard_state::FILE || segment::sequence(&name).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Opens the log in a folder of its own, or creates an empty one with another node id. Reads
    /// all of it. Blocks.
    ///
    /// # Errors
    ///
    /// If another handle has it open, a file is damaged or missing, or the system refuses.
    pub(crate) fn open(folder: &Path, options: &LogOptions, faults: Faults) -> BackendResult<Self> {
        let disk = Folder::open(folder).map_err(|error| error.during("open"))?;
        Self::open_on(Arc::new(disk), options, faults)
    }

    fn open_on(disk: Arc<dyn Disk>, options: &LogOptions, faults: Faults) -> BackendResult<Self> {
        let segment_bytes = options.segment_bytes.clamp(SMALLEST_SEGMENT, LARGEST_SEGMENT);
        let wal = recovery::open(disk, segment_bytes).map_err(|error| error.during("open"))?;
        let (folder, hard_state) = (wal.folder(), *wal.hard_state());
        let contents = Arc::clone(wal.contents());
        let (ids, origin) = {
            let contents = lock(&contents);
            (contents.ids, contents.origin)
        };
        let thread = Arc::new(writer::Shared {
            durable: DurableIndex::default(),
            cache: Mutex::new(Cache::new(options.cache_bytes)),
            committed: Mutex::new(ids.committed),
            hard_state: Mutex::new(hard_state),
            failure: OnceLock::new(),
            disk_full: watch::Sender::new(!wal.has_spare()),
            sync_times: SyncTimes::default(),
        });
        let writer = Writer::start(wal, Arc::clone(&thread), faults.clone())?;
        let node = hard_state.node;
        let vote = hard_state.vote.map(|vote| elected_no_more(vote, node));
        let state = State { vote, purged: ids.purged, last: ids.last, origin, membership_end: 0 };
        Ok(Self {
            shared: Arc::new(Shared {
                folder,
                contents,
                writer,
                thread,
                faults,
                state: Mutex::new(state),
                kept_for: OnceLock::new(),
                before_vote: OnceLock::new(),
            }),
        })
    }

    /// Returns which node this is, and of which cluster.
    pub(crate) fn identity(&self) -> Identity {
        let HardState { node, cluster, entered, .. } = *lock(&self.shared.thread.hard_state);
        Identity { node, cluster, entered }
    }

    /// Keeps to which cluster this node belongs.
    pub(crate) async fn set_cluster(&self, cluster: u64) -> BackendResult<()> {
        self.change(move |state| state.cluster = cluster).await
    }

    /// Keeps that this node is a member that votes.
    pub(crate) async fn set_entered(&self) -> BackendResult<()> {
        if self.identity().entered {
            return Ok(());
        }
        self.change(|state| state.entered = true).await
    }

    async fn change(
        &self,
        change: impl FnOnce(&mut HardState) + Send + 'static,
    ) -> BackendResult<()> {
        let changed = self.synced(|done| Work::HardState(Box::new(change), done)).await;
        changed.map_err(|error| crate::backend::Error::failed("write", error))
    }

    /// Says when entries may have effects.
    pub(crate) fn durable(&self) -> &DurableIndex {
        &self.shared.thread.durable
    }

    /// Returns why the log takes no writes any more, if a write or sync failed.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.shared.thread.failure.get().map(String::as_str)
    }

    /// Says whether the disk has no room for another segment. The log takes entries until the
    /// segment that it has reserved is full, so whoever accepts writes has to stop before.
    pub(crate) fn disk_full(&self) -> watch::Receiver<bool> {
        self.shared.thread.disk_full.subscribe()
    }

    /// The times that the disk takes.
    pub(crate) fn sync_times(&self) -> Summary {
        self.shared.thread.sync_times.summary()
    }

    /// Keeps entries from now on until a snapshot on the disk has them.
    pub(crate) fn keep_for(&self, snapshot: Persisted) {
        self.shared.kept_for.get_or_init(|| snapshot);
    }

    /// Has somebody told of each vote from now on, before it is saved and so
    /// before another node can hear of it.
    pub(crate) fn tell_of_votes(&self, tell: impl Fn(&Vote) + Send + Sync + 'static) {
        self.shared.before_vote.get_or_init(|| BeforeVote(Box::new(tell)));
    }

    /// Returns the last entry that is committed, as this node knows it. It knows before
    /// it answers whoever proposed, and before another node does.
    pub(crate) fn committed(&self) -> Option<LogId> {
        // The library tells followers before it saves this: one of them may have been read by then.
        let saved = *lock(&self.shared.thread.committed);
        saved.max(self.durable().announced())
    }

    /// The vote that is on the disk.
    pub(crate) fn vote(&self) -> Option<Vote> {
        lock(&self.shared.state).vote
    }

    /// Entries before this index are gone.
    pub(crate) fn purged_to(&self) -> u64 {
        lock(&self.shared.state).purged.map_or(0, |purged| purged.index + 1)
    }

    /// Returns `true` if there is anything in the log, or ever was.
    pub(crate) fn is_used(&self) -> bool {
        let state = lock(&self.shared.state);
        state.last.is_some() || state.vote.is_some()
    }

    /// Writes what is queued, and closes the files; the folder can be opened again.
    pub(crate) async fn close(&self) {
        let (done, answer) = oneshot::channel();
        self.shared.writer.send(Work::Close(done));
        if answer.await.is_err() {
            tracing::debug!("the thread of the log had ended before");
        }
    }

    fn range(&self, range: &impl RangeBounds<u64>) -> (u64, u64) {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let state = lock(&self.shared.state);
        let first = state.purged.map_or(state.origin, |purged| purged.index + 1);
        let after_last = state.last.map_or(0, |last| last.index + 1);
        (start.max(first), end.min(after_last))
    }

    /// Returns entries from `start` to before `end`, or the first of them if they
    /// have more than `limit` bytes.
    async fn read(&self, start: u64, end: u64, limit: usize) -> Result<Vec<Entry>, StorageError> {
        if start >= end {
            return Ok(Vec::new());
        }
        let (cached_from, cached) = lock(&self.shared.thread.cache).read(start, end, limit);
        if cached_from <= start {
            return Ok(cached);
        }
        let from_disk_to = cached_from.min(end);
        let found = lock(&self.shared.contents).locate(start, from_disk_to, limit);
        let folder = self.shared.folder.clone();
        let read = move || {
            let entries = read_segments(&folder, &found);
            entries.map_err(|error| error.during("read"))
        };
        let mut entries = blocking(read).await.map_err(reading)?;
        if entries.last().is_some_and(|last| last.log_id.index + 1 == from_disk_to) {
            let mut bytes: usize = entries.iter().map(Entry::bytes).sum();
            entries.extend(cached.into_iter().take_while(|entry| {
                bytes += entry.bytes();
                bytes <= limit
            }));
        }
        Ok(entries)
    }

    /// Queues work, and waits for the disk.
    async fn synced(&self, work: impl FnOnce(Done) -> Work) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        self.shared.writer.send(work(done));
        let ended = || io::Error::other("the thread of the log has ended");
        answer.await.unwrap_or_else(|_ended| Err(ended()))
    }

    /// Returns the records of entries that follow the log.
    fn encode(&self, entries: &[Entry]) -> Result<Vec<u8>, LogError> {
        let folder = || self.shared.folder.clone();
        let next = lock(&self.shared.state).last.map(|last| last.index + 1);
        let sizes = entries.iter().map(|entry| record::record_size(entry.bytes()));
        let mut records = Vec::with_capacity(sizes.sum());
        // A log that never had an entry begins with any.
        let next = next.or(entries.first().map(|first| first.log_id.index)).unwrap_or_default();
        for (entry, next) in entries.iter().zip(next..) {
            let (index, bytes) = (entry.log_id.index, entry.bytes());
            if index != next {
                return Err(LogError::Gap { folder: folder(), index, next });
            }
            // A segment has to have room for it.
            if bytes as u64 > LARGEST_SEGMENT {
                return Err(LogError::TooLarge { folder: folder(), index, bytes });
            }
            record::put_entry(&mut records, entry);
        }
        Ok(records)
    }

    /// Returns the id of an entry that is there or was purged last.
    fn log_id(&self, index: u64) -> Option<LogId> {
        let cached = lock(&self.shared.thread.cache).log_id(index);
        let purged = || lock(&self.shared.state).purged.filter(|purged| purged.index == index);
        cached.or_else(|| lock(&self.shared.contents).log_id(index)).or_else(purged)
    }
}

/// Reads entries from their segments, each checked. Blocks.
fn read_segments(
    folder: &Path,
    mut found: &[(u64, Location, Arc<Segment>)],
) -> Result<Vec<Entry>, LogError> {
    let mut entries = Vec::with_capacity(found.len());
    while let Some((_, first, segment)) = found.first() {
        // Records that follow each other closely are read at once.
        let span = |location: &Location| u64::from(location.at) + u64::from(location.size);
        let fits = |(_, location, _): &&(u64, Location, Arc<Segment>)| {
            location.sequence == first.sequence
                && location.at >= first.at
                && (*location == *first
                    || span(location) - u64::from(first.at) <= READ_BYTES as u64)
        };
        let count = found.iter().take_while(fits).count().max(1);
        let (run, rest) = found.split_at_checked(count).unwrap_or((found, &[]));
        let end = run.last().map_or(0, |(_, location, _)| span(location));
        let size = usize::try_from(end.saturating_sub(u64::from(first.at))).unwrap_or_default();
        let mut buffer = vec![0; size];
        let file = || folder.join(segment::name(segment.sequence));
        segment.file.read_at(&mut buffer, u64::from(first.at)).map_err(|source| LogError::Io {
            file: file(),
            what: "it cannot be read",
            source,
        })?;
        let buffer = Bytes::from(buffer);
        for (index, location, _) in run {
            let skip = usize::try_from(location.at - first.at).unwrap_or(usize::MAX);
            let record = buffer.get(skip..).map(|record| buffer.slice_ref(record));
            let entry = read_entry(*index, segment, u64::from(location.at), record);
            entries.push(entry.map_err(|what| LogError::Damaged {
                file: file(),
                at: u64::from(location.at),
                what: format!("log entry {index}: {what}"),
            })?);
        }
        found = rest;
    }
    Ok(entries)
}

/// Returns the entry in a record, or why the record does not hold it.
fn read_entry(
    index: u64,
    segment: &Segment,
    at: u64,
    record: Option<Bytes>,
) -> Result<Entry, String> {
    let record = record.unwrap_or_default();
    let header = Header::read(&record, segment.seed, at);
    let header = header.ok_or("the checksum of its header is wrong")?;
    let length = usize::try_from(header.length).unwrap_or(usize::MAX);
    let end = HEADER.saturating_add(length);
    let payload = record.get(HEADER..end).filter(|payload| header.fits(payload));
    let payload = payload.ok_or("its checksum is wrong")?;
    if header.index != index {
        return Err(format!("entry {} stands in its place", header.index));
    }
    header.entry(record.slice_ref(payload))
}

/// Returns a vote as it counts after a start: who led has to be elected again.
fn elected_no_more(vote: Vote, node: NodeId) -> Vote {
    if vote.leader_id.node_id == node { Vote::new(vote.leader_id.term, node) } else { vote }
}

fn writing(error: impl std::error::Error + 'static) -> StorageError {
    StorageIOError::write_logs(&error).into()
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn reading(error: crate::backend::Error) -> StorageError {
    StorageIOError::read_logs(&error).into()
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let (start, end) = self.range(&range);
        self.read(start, end, usize::MAX).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        let (start, end) = self.range(&(start..end));
        self.read(start, end, REPLICATION_BYTES).await
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let state = lock(&self.shared.state);
        Ok(LogState { last_purged_log_id: state.purged, last_log_id: state.last.max(state.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        if let Some(BeforeVote(tell)) = self.shared.before_vote.get() {
            tell(&vote);
        }
        let change = move |state: &mut HardState| state.vote = Some(vote);
        self.synced(|done| Work::HardState(Box::new(change), done)).await.map_err(writing)?;
        lock(&self.shared.state).vote = Some(vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(lock(&self.shared.state).vote)
    }

    /// Goes to the disk with whatever is written next: a node that lost it
    /// learns it again from the leader.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        self.shared.faults.commit().await;
        *lock(&self.shared.thread.committed) = committed;
        Ok(())
    }

    /// Never more than there are entries: the library applies up to here when
    /// it starts.
    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        let last = lock(&self.shared.state).last;
        // An entry that others committed may not have got to this disk before a crash.
        let is_there = |id: &LogId| last.is_some_and(|last| id.index <= last.index);
        Ok(self.committed().and_then(|id| if is_there(&id) { Some(id) } else { last }))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        // A snapshot holds the entries that were purged already.
        let first = self.purged_to();
        let entries: Vec<Entry> =
            entries.into_iter().filter(|entry| entry.log_id.index >= first).collect();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            callback.log_io_completed(Ok(()));
            return Ok(());
        };
        let (first, last) = (first.log_id.index, last.log_id);
        if let Some(stopped) = self.shared.thread.stopped(&self.shared.folder) {
            return Err(writing(stopped));
        }
        let records = self.encode(&entries).map_err(writing)?;
        let flushed = lock(&self.shared.thread.cache).flushed_to();
        let early = lock(&self.shared.state).appends_early(&entries, flushed);
        for entry in &entries {
            entry.mark_entered();
        }
        lock(&self.shared.thread.cache).push(entries);
        if early {
            self.durable().acknowledged_early(first, last.index + 1);
            self.shared.writer.send(Work::Append { records, last, callback: None });
            callback.log_io_completed(Ok(()));
        } else {
            self.shared.writer.send(Work::Append { records, last, callback: Some(callback) });
        }
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let since = log_id.index;
        let last = since.checked_sub(1).and_then(|last| self.log_id(last));
        if since > 0 && last.is_none() {
            let (folder, next) = (self.shared.folder.clone(), self.purged_to());
            return Err(writing(LogError::Gap { folder, index: since, next }));
        }
        self.synced(|done| Work::Truncate { since, last, done }).await.map_err(writing)?;
        self.durable().truncated(since);
        lock(&self.shared.thread.cache).truncate(since);
        let mut state = lock(&self.shared.state);
        state.last = last;
        state.membership_end = state.membership_end.min(since);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        if let Some(snapshot) = self.shared.kept_for.get() {
            let failed = |error| StorageIOError::write_logs(&error);
            snapshot.has(log_id.index).await.map_err(failed)?;
        }
        {
            let mut state = lock(&self.shared.state);
            state.purged = state.purged.max(Some(log_id));
            state.last = state.last.max(Some(log_id));
        }
        lock(&self.shared.thread.cache).purge(log_id.index);
        self.shared.writer.send(Work::Purge(log_id));
        Ok(())
    }
}
