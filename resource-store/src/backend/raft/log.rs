//! The log of one node, and its vote: a file of its own, written by one thread.
//!
//! The thread takes all that waits, writes it in one transaction, syncs once,
//! and then answers. Entries that were read or written lately stay in memory,
//! because followers and the state machine want them next.
//!
//! A leader's entries are acknowledged before they are on the disk; what makes
//! up for it is in [`gate`](super::gate).

mod cache;
mod file;
mod writer;

use std::{
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    path::Path,
    sync::{Arc, Mutex},
};

use openraft::{
    LogState, OptionalSend, RaftLogReader, StorageIOError,
    storage::{LogFlushed, RaftLogStorage},
};
use tokio::sync::oneshot;

pub(crate) use self::file::Identity;
use self::{
    cache::Cache,
    file::LogFile,
    writer::{Work, Writer},
};
use super::{
    gate::Gate,
    types::{Entry, EntryExt as _, LogId, NodeId, StorageError, Types, Vote},
};
use crate::backend::{Result as BackendResult, store::sync::lock};

/// How many bytes of entries go to a follower at a time, if one entry alone is
/// not more.
const MOST_BYTES_AT_ONCE: usize = 1 << 20;

/// The log and the vote of one node. A clone is another handle.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    node: NodeId,
    file: Arc<LogFile>,
    writer: Writer,
    gate: Gate,
    cache: Arc<Mutex<Cache>>,
    state: Mutex<State>,
}

/// What is true once the writer has done all it was told.
#[derive(Debug, Clone, Default)]
struct State {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    last: Option<LogId>,
}

impl Log {
    /// Opens the log, or makes an empty one. Blocks.
    pub(crate) fn open(path: &Path) -> BackendResult<Self> {
        let file = Arc::new(LogFile::open(path)?);
        let (vote, committed, purged, last) = file.state()?;
        let node = file.identity().node;
        let gate = Gate::default();
        let cache = Arc::new(Mutex::new(Cache::default()));
        let writer = Writer::start(Arc::clone(&file), gate.clone(), Arc::clone(&cache))?;
        let state = Mutex::new(State { vote, committed, purged, last });
        Ok(Self { shared: Arc::new(Shared { node, file, writer, gate, cache, state }) })
    }

    /// Which node this is, and of which cluster.
    pub(crate) fn identity(&self) -> Identity {
        self.shared.file.identity()
    }

    /// Keeps to which cluster this node belongs.
    pub(crate) async fn set_cluster(&self, cluster: u64) -> BackendResult<()> {
        let file = Arc::clone(&self.shared.file);
        crate::backend::durable::table::blocking(move || file.set_cluster(cluster)).await
    }

    /// Says when entries may have effects.
    pub(crate) fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// Whether there is anything in the log, or ever was.
    pub(crate) fn is_used(&self) -> bool {
        let state = lock(&self.shared.state);
        state.last.is_some() || state.vote.is_some()
    }

    /// Writes what waits, and closes the file.
    pub(crate) async fn close(&self) {
        let (done, answer) = oneshot::channel();
        self.shared.writer.send(Work::Close(done));
        if answer.await.is_err() {
            tracing::debug!("the writer of the log had ended before");
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
        let first = state.purged.map_or(0, |purged| purged.index + 1);
        let after_last = state.last.map_or(0, |last| last.index + 1);
        (start.max(first), end.min(after_last))
    }

    /// Entries from `start` to before `end`, or the first of them if they have
    /// more than `most` bytes.
    async fn read(&self, start: u64, end: u64, most: usize) -> Result<Vec<Entry>, StorageError> {
        if start >= end {
            return Ok(Vec::new());
        }
        let (cached_from, cached) = lock(&self.shared.cache).read(start, end, most);
        if cached_from <= start {
            return Ok(cached);
        }
        let file = Arc::clone(&self.shared.file);
        let from_file_to = cached_from.min(end);
        let read = move || file.read(start, from_file_to, most);
        let mut entries = crate::backend::durable::table::blocking(read).await.map_err(reading)?;
        if entries.last().is_none_or(|last| last.log_id.index + 1 == from_file_to) {
            let mut bytes: usize = entries.iter().map(Entry::bytes).sum();
            entries.extend(cached.into_iter().take_while(|entry| {
                bytes += entry.bytes();
                bytes <= most
            }));
        }
        Ok(entries)
    }

    /// Tells the writer, and waits for the disk.
    async fn written(
        &self,
        work: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Work,
    ) -> Result<(), StorageError> {
        let (done, answer) = oneshot::channel();
        self.shared.writer.send(work(done));
        answer.await.unwrap_or_else(|_ended| Err(ended())).map_err(writing)
    }
}

fn ended() -> io::Error {
    io::Error::other("the writer of the log has ended")
}

fn writing(error: io::Error) -> StorageError {
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
        self.read(start, end, MOST_BYTES_AT_ONCE).await
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
        self.written(|done| Work::Vote(vote, done)).await?;
        lock(&self.shared.state).vote = Some(vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(lock(&self.shared.state).vote)
    }

    /// Goes to the disk with whatever is written next: a node that lost it
    /// learns it again from the leader.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        lock(&self.shared.state).committed = committed;
        if let Some(committed) = committed {
            self.shared.writer.send(Work::Committed(committed));
        }
        Ok(())
    }

    /// Never more than there are entries: the library applies up to here when
    /// it starts.
    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        let state = lock(&self.shared.state);
        Ok(state.committed.min(state.last))
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
        let entries: Vec<Entry> = entries.into_iter().collect();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            callback.log_io_completed(Ok(()));
            return Ok(());
        };
        let (first, last) = (first.log_id.index, last.log_id);
        let leads = {
            let mut state = lock(&self.shared.state);
            state.last = Some(last);
            // A follower has saved the vote of its leader before.
            state.vote.is_some_and(|vote| vote.leader_id.node_id == self.shared.node)
        };
        let records = entries.iter().map(|e| (e.log_id.index, file::encode(e))).collect();
        for entry in &entries {
            entry.mark_entered();
        }
        lock(&self.shared.cache).push(entries);
        if leads {
            self.shared.gate.acknowledged_early(first, last.index + 1);
            self.shared.writer.send(Work::Append { records, callback: None });
            callback.log_io_completed(Ok(()));
        } else {
            self.shared.writer.send(Work::Append { records, callback: Some(callback) });
        }
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.written(|done| Work::Truncate(log_id.index, done)).await?;
        self.shared.gate.truncated(log_id.index);
        lock(&self.shared.cache).truncate(log_id.index);
        let last = match log_id.index.checked_sub(1) {
            None => None,
            Some(index) => {
                let (start, end) = (index, index + 1);
                let purged = lock(&self.shared.state).purged;
                match self.read(start, end, usize::MAX).await?.first() {
                    Some(entry) => Some(entry.log_id),
                    None => purged,
                }
            }
        };
        lock(&self.shared.state).last = last;
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        {
            let mut state = lock(&self.shared.state);
            state.purged = Some(log_id);
            state.last = state.last.max(Some(log_id));
        }
        lock(&self.shared.cache).purge(log_id.index);
        self.written(|done| Work::Purge(log_id, done)).await
    }
}
