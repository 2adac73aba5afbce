//! The log of one node, and its vote: a file of its own, written by one thread.
//!
//! The thread takes all that waits, writes it in one transaction, syncs once,
//! and then answers. Entries that were read or written lately stay in memory,
//! because followers and the state machine want them next.
//!
//! To the library entries are acknowledged before they are on the disk; what
//! makes up for it is in [`durable_index`]. Two things follow for the log. Changes
//! of the membership have effects as soon as they are in it, so they wait for
//! the disk. And a leader that starts again may have lost entries which others
//! hold, so it does not go on leading in its term: it would give their places
//! to other entries of the same term.

mod cache;
mod durable_index;
mod file;
mod persisted;
mod writer;

use std::{
    fmt::{self, Debug},
    io,
    ops::{Bound, RangeBounds},
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use openraft::{
    EntryPayload, LogState, OptionalSend, RaftLogReader, StorageIOError,
    storage::{LogFlushed, RaftLogStorage},
};
use tokio::sync::oneshot;

use self::{
    cache::Cache,
    file::LogFile,
    writer::{Work, Writer},
};
pub(crate) use self::{durable_index::DurableIndex, file::Identity, persisted::Persisted};
use super::{
    config::Faults,
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
    file: Arc<LogFile>,
    writer: Writer,
    durable: DurableIndex,
    cache: Arc<Mutex<Cache>>,
    state: Mutex<State>,
    /// What has to have an entry on the disk before it goes.
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

/// What is true once the writer has done all it was told.
#[derive(Debug, Clone, Default)]
struct State {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    last: Option<LogId>,
    /// The end of the last change of the membership, which has to be on the
    /// disk before anything after it is acknowledged.
    membership_end: u64,
}

impl State {
    /// Takes entries up, which are the last ones from now on. Gives whether
    /// they may be acknowledged before they are on the disk, which holds the
    /// entries before `flushed`.
    fn appends_early(&mut self, entries: &[Entry], flushed: u64) -> bool {
        let is_change = |entry: &&Entry| matches!(entry.payload, EntryPayload::Membership(_));
        if let Some(change) = entries.iter().rev().find(is_change) {
            self.membership_end = change.log_id.index + 1;
        }
        self.last = entries.last().map(|entry| entry.log_id).or(self.last);
        self.membership_end <= flushed
    }
}

impl Log {
    /// Opens the log, or makes an empty one; `check` reads all of it. Blocks.
    pub(crate) fn open(path: &Path, check: bool, faults: Faults) -> BackendResult<Self> {
        let file = Arc::new(LogFile::open(path, check)?);
        let (vote, committed, purged, last) = file.state()?;
        let node = file.identity().node;
        let vote = vote.map(|vote| elected_no_more(vote, node));
        let durable = DurableIndex::default();
        let cache = Arc::new(Mutex::new(Cache::default()));
        let writer = Writer::start(Arc::clone(&file), durable.clone(), Arc::clone(&cache), faults)?;
        let state = Mutex::new(State { vote, committed, purged, last, membership_end: 0 });
        Ok(Self {
            shared: Arc::new(Shared {
                file,
                writer,
                durable,
                cache,
                state,
                kept_for: OnceLock::new(),
                before_vote: OnceLock::new(),
            }),
        })
    }

    /// Which node this is, and of which cluster.
    pub(crate) fn identity(&self) -> Identity {
        self.shared.file.identity()
    }

    /// Keeps to which cluster this node belongs.
    pub(crate) async fn set_cluster(&self, cluster: u64) -> BackendResult<()> {
        let file = Arc::clone(&self.shared.file);
        crate::backend::store::sync::blocking(move || file.set_cluster(cluster)).await
    }

    /// Keeps that this node is a member that votes.
    pub(crate) async fn set_entered(&self) -> BackendResult<()> {
        if self.identity().entered {
            return Ok(());
        }
        let file = Arc::clone(&self.shared.file);
        crate::backend::store::sync::blocking(move || file.set_entered()).await
    }

    /// Says when entries may have effects.
    pub(crate) fn durable(&self) -> &DurableIndex {
        &self.shared.durable
    }

    /// Keeps entries from now on until the table has them on the disk.
    pub(crate) fn keep_for(&self, table: Persisted) {
        self.shared.kept_for.get_or_init(|| table);
    }

    /// Has somebody told of each vote from now on, before it is saved and so
    /// before another node can hear of it.
    pub(crate) fn tell_of_votes(&self, tell: impl Fn(&Vote) + Send + Sync + 'static) {
        self.shared.before_vote.get_or_init(|| BeforeVote(Box::new(tell)));
    }

    /// The last entry that is committed, as this node knows it. It knows before
    /// it answers whoever proposed.
    pub(crate) fn committed(&self) -> Option<LogId> {
        lock(&self.shared.state).committed
    }

    /// The vote that is on the disk.
    pub(crate) fn vote(&self) -> Option<Vote> {
        lock(&self.shared.state).vote
    }

    /// Entries before this index are gone.
    pub(crate) fn purged_to(&self) -> u64 {
        lock(&self.shared.state).purged.map_or(0, |purged| purged.index + 1)
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
        let mut entries = crate::backend::store::sync::blocking(read).await.map_err(reading)?;
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

/// A vote as it counts after a start: who led has to be elected anew.
fn elected_no_more(vote: Vote, node: NodeId) -> Vote {
    if vote.leader_id.node_id == node { Vote::new(vote.leader_id.term, node) } else { vote }
}

fn ended() -> io::Error {
    io::Error::other("the writer of the log has ended")
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
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
        if let Some(BeforeVote(tell)) = self.shared.before_vote.get() {
            tell(&vote);
        }
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
        let flushed = lock(&self.shared.cache).flushed_to();
        let early = lock(&self.shared.state).appends_early(&entries, flushed);
        for entry in &entries {
            entry.mark_entered();
        }
        lock(&self.shared.cache).push(entries.clone());
        if early {
            self.shared.durable.acknowledged_early(first, last.index + 1);
            self.shared.writer.send(Work::Append { entries, callback: None });
            callback.log_io_completed(Ok(()));
        } else {
            self.shared.writer.send(Work::Append { entries, callback: Some(callback) });
        }
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.written(|done| Work::Truncate(log_id.index, done)).await?;
        self.shared.durable.truncated(log_id.index);
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
        let mut state = lock(&self.shared.state);
        state.last = last;
        state.membership_end = state.membership_end.min(log_id.index);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        if let Some(table) = self.shared.kept_for.get() {
            let failed = |error| StorageIOError::write_logs(&error);
            table.has(log_id.index).await.map_err(failed)?;
        }
        {
            let mut state = lock(&self.shared.state);
            state.purged = Some(log_id);
            state.last = state.last.max(Some(log_id));
        }
        lock(&self.shared.cache).purge(log_id.index);
        self.written(|done| Work::Purge(log_id, done)).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use openraft::CommittedLeaderId;

    use super::*;
    use crate::backend::raft::types::Membership;

    const NODE: NodeId = 7;

    fn entry(index: u64, payload: EntryPayload<Types>) -> Entry {
        Entry { log_id: LogId::new(CommittedLeaderId::new(1, NODE), index), payload }
    }

    #[test]
    fn changes_of_the_membership_wait_for_the_disk_and_all_after_them() {
        let members = Membership::new(vec![BTreeSet::from([NODE])], None);
        let change = |index| [entry(index, EntryPayload::Membership(members.clone()))];
        let blank = |index| [entry(index, EntryPayload::Blank)];
        let vote = Some(Vote::new_committed(1, NODE));
        let mut state = State { vote, ..State::default() };
        assert!(state.appends_early(&blank(0), 0));
        assert!(!state.appends_early(&change(1), 1));
        assert!(!state.appends_early(&blank(2), 1), "the change is not on the disk");
        assert!(state.appends_early(&blank(3), 2));
        assert_eq!(state.last.map(|last| last.index), Some(3));
    }

    #[test]
    fn who_led_before_a_start_does_not_lead_after_it() {
        let led = elected_no_more(Vote::new_committed(3, NODE), NODE);
        assert_eq!(led, Vote::new(3, NODE));
        let followed = Vote::new_committed(3, 8);
        assert_eq!(elected_no_more(followed, NODE), followed);
    }
}
