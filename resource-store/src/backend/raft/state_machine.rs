//! The state machine: applies the entries of the log, in memory.
//!
//! What it holds is one immutable value that is replaced as entries are
//! applied; who reads, watches or takes a snapshot holds such a value as long
//! as needed. An apply waits for no disk: what a crash takes away is applied
//! again from the log, whose entries are on the disk.
//!
//! - [`apply`]: what an entry does;
//! - [`restore`]: the steps of a restore;
//! - [`snapshot`]: snapshots as they are sent and stored;
//! - [`snapshot_file`]: the newest snapshot on the disk.
//!
//! A snapshot is written in the background, after so many entries or bytes of
//! them, but not before they have half the size of the last one: so it costs no
//! more than twice what the log costs. The log is cut off only up to a snapshot
//! that is on the disk.

mod apply;
pub(crate) mod restore;
pub(crate) mod snapshot;
pub(crate) mod snapshot_file;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use futures::{StreamExt as _, stream};
use openraft::{OptionalSend, RaftSnapshotBuilder, StorageIOError, storage::RaftStateMachine};
use tokio::sync::{Notify, watch};

use self::{
    apply::{Applying, Told},
    snapshot_file::SnapshotFile,
};
use super::{
    config::{Faults, RaftConfig, RetiredTypes},
    log::{DurableIndex, Persisted},
    types::{
        Contents, Entry, EntryExt as _, LogId, Outcome, Peer, Snapshot, SnapshotData, SnapshotMeta,
        StorageError, StoredMembership, Types,
    },
};
use crate::backend::{
    Error, Query, ResourceStream, Result, Watch,
    store::{sync::blocking, topics::Topics, watch::StoreWatch},
};

/// Number of segments into which the bytes are divided that the log may keep. They are
/// counted, and have nothing to do with the files of the log: entries are purged, and
/// the log removes a file once all its entries are.
pub(super) const RETAINED_SEGMENTS: usize = 4;

/// Bytes of entries up to which they are applied on the executor, rather than
/// handed to another thread: that takes less time than to hand them over.
const AT_ONCE_BYTES: usize = 256 << 10;
/// Delay before a snapshot that could not be written is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(5);

/// The contents of a node. A clone is another handle.
#[derive(Debug, Clone)]
pub(crate) struct StateMachine {
    shared: Arc<Shared>,
    durable: DurableIndex,
}

#[derive(Debug)]
struct Shared {
    current: ArcSwap<Contents>,
    topics: Topics,
    retired: RetiredTypes,
    faults: Faults,
    /// The index of the last applied entry, plus one.
    applied: watch::Sender<u64>,
    file: SnapshotFile,
    persisted: Persisted,
    since: SinceSnapshot,
    /// Bytes of entries that make a segment of the retained log.
    retained_segment_bytes: u64,
    /// Bytes of entries that the present segment has so far.
    retained_segment: AtomicU64,
    /// The last entry of the last segment.
    retained_segment_end: watch::Sender<u64>,
    closed: Closed,
}

/// The entries that were applied since the last snapshot was begun.
#[derive(Debug)]
struct SinceSnapshot {
    most_entries: u64,
    most_bytes: u64,
    /// The entries before this index are in the last snapshot.
    first: AtomicU64,
    bytes: AtomicU64,
    /// Size of the last snapshot in bytes.
    snapshot_bytes: AtomicU64,
    due: Notify,
}

impl SinceSnapshot {
    fn applied(&self, end: u64, bytes: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let entries = end.saturating_sub(self.first.load(Ordering::Relaxed));
        let many = entries >= self.most_entries || bytes >= self.most_bytes;
        if many && bytes >= self.snapshot_bytes.load(Ordering::Relaxed) / 2 {
            self.due.notify_one();
        }
    }

    fn begun(&self, end: u64) {
        self.first.store(end, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// Says that the node stops.
#[derive(Debug, Default)]
struct Closed {
    is_closed: AtomicBool,
    told: Notify,
}

impl StateMachine {
    /// Loads the newest snapshot, if there is one. Blocks.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, or the snapshot is damaged.
    pub(crate) fn open(folder: &Path, config: &RaftConfig, durable: DurableIndex) -> Result<Self> {
        let (file, contents) = SnapshotFile::open(folder)?;
        let end = contents.end();
        let most_bytes = config.keep_bytes / RETAINED_SEGMENTS as u64;
        let shared = Shared {
            current: ArcSwap::from_pointee(contents),
            topics: Topics::new(config.watch_buffer),
            retired: config.retired.clone(),
            faults: config.faults(),
            applied: watch::Sender::new(end),
            persisted: Persisted::new(end),
            since: SinceSnapshot {
                most_entries: config.snapshot_after_entries,
                most_bytes,
                first: AtomicU64::new(end),
                bytes: AtomicU64::new(0),
                snapshot_bytes: AtomicU64::new(file.bytes()),
                due: Notify::new(),
            },
            file,
            retained_segment_bytes: most_bytes,
            retained_segment: AtomicU64::new(0),
            retained_segment_end: watch::Sender::new(0),
            closed: Closed::default(),
        };
        Ok(Self { shared: Arc::new(shared), durable })
    }

    /// Returns the present contents.
    pub(crate) fn current(&self) -> Arc<Contents> {
        self.shared.current.load_full()
    }

    /// Returns the present contents for a reader.
    ///
    /// # Errors
    ///
    /// If the node was stopped: it may not hold what the cluster holds any more.
    pub(crate) fn view(&self) -> Result<Arc<Contents>> {
        if self.shared.closed.is_closed.load(Ordering::Acquire) {
            return Err(Error::failed("read", "the node was shut down"));
        }
        Ok(self.current())
    }

    /// Returns an error if the folder of the snapshots is gone, or the last one
    /// could not be written.
    pub(crate) async fn ready(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.file.ready()).await
    }

    /// Returns the size of the newest snapshot on the disk, in bytes.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.shared.since.snapshot_bytes.load(Ordering::Relaxed)
    }

    /// By how much versions are larger than the index of their entry, now.
    pub(crate) fn version_offset(&self) -> u64 {
        self.shared.current.load().version_offset
    }

    /// The index of the last applied entry, plus one, as it grows.
    pub(crate) fn applied(&self) -> watch::Receiver<u64> {
        self.shared.applied.subscribe()
    }

    /// Says which entries are in a snapshot on the disk.
    pub(crate) fn persisted(&self) -> Persisted {
        self.shared.persisted.clone()
    }

    /// Waits until a snapshot should be taken.
    pub(crate) async fn snapshot_due(&self) {
        self.shared.since.due.notified().await;
    }

    /// Returns the last entry of each segment of the log that has a fourth of the
    /// bytes that it may have.
    pub(crate) fn retained_segment_end(&self) -> watch::Receiver<u64> {
        self.shared.retained_segment_end.subscribe()
    }

    pub(crate) fn watch(&self, query: &Query) -> Watch {
        let reader = self.shared.topics.subscribe(query);
        let state = Arc::new(self.shared.current.load().resources.clone());
        let snapshot = stream::iter(state.pages(query));
        StoreWatch::new(query.clone(), reader, state.index(), snapshot).boxed()
    }

    /// All resources, as they are now.
    ///
    /// # Errors
    ///
    /// As [`Self::view`].
    pub(crate) fn stream(&self) -> Result<ResourceStream> {
        Ok(stream::iter(self.view()?.resources.resources()).boxed())
    }

    /// Ends all watches, and lets no snapshot be tried again.
    pub(crate) fn close(&self) {
        self.shared.closed.is_closed.store(true, Ordering::Release);
        self.shared.closed.told.notify_waiters();
        self.shared.topics.close_all();
    }

    async fn apply_all(&self, entries: Vec<Entry>) -> Result<Vec<Outcome>> {
        let bytes: usize = entries.iter().map(Entry::bytes).sum();
        if bytes <= AT_ONCE_BYTES {
            return self.shared.apply(entries, bytes);
        }
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.apply(entries, bytes)).await
    }

    /// The node cannot go on.
    #[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
    fn broken(&self, error: Error) -> StorageError {
        self.shared.persisted.fail();
        StorageIOError::write_state_machine(&error).into()
    }

    /// Writes what is there to the disk, until that is done or the node stops.
    async fn persist(&self) -> Result<Arc<Contents>> {
        loop {
            let contents = self.current();
            self.shared.since.begun(contents.end());
            let (shared, written) = (Arc::clone(&self.shared), Arc::clone(&contents));
            // Before the write, so that a stop in between is not missed.
            let told = self.shared.closed.told.notified();
            let error = match blocking(move || shared.write(&written)).await {
                Ok(()) => return Ok(contents),
                Err(error) => error,
            };
            if self.shared.closed.is_closed.load(Ordering::Acquire) {
                return Err(error);
            }
            tracing::error!(%error, "no snapshot was written; the log stays until one is");
            tokio::select! {
                () = told => {}
                () = tokio::time::sleep(WRITE_AGAIN) => {}
            }
        }
    }

    async fn adopt(&self, contents: SnapshotData) -> Result<()> {
        let (shared, end) = (Arc::clone(&self.shared), contents.end());
        // The library has the log before it cut off.
        let written = Arc::clone(&contents);
        blocking(move || shared.write(&written)).await?;
        self.shared.since.begun(end);
        // Watches cannot follow from their state to this one: they end, and start again.
        self.shared.current.store(contents);
        self.shared.topics.close_all();
        self.shared.applied.send_replace(end);
        Ok(())
    }
}

impl Shared {
    /// Applies entries that follow those before. There is one caller only.
    fn apply(&self, entries: Vec<Entry>, bytes: usize) -> Result<Vec<Outcome>> {
        let before = self.current.load_full();
        let mut applying = Applying {
            contents: Contents::clone(&before),
            retired: &self.retired,
            told: Vec::new(),
        };
        let outcomes = entries.into_iter().map(|entry| applying.apply(entry));
        let outcomes = outcomes.collect::<Result<_>>()?;
        let Applying { contents, told, .. } = applying;
        let end = contents.end();
        self.current.store(Arc::new(contents));
        // After the change can be read, and in the order of the log.
        for told in &told {
            match told {
                Told::Change(change) => self.topics.publish(change),
                Told::Restored => self.topics.close_all(),
            }
        }
        self.applied.send_replace(end);
        self.count(end, bytes as u64);
        Ok(outcomes)
    }

    fn count(&self, end: u64, bytes: u64) {
        if self.retained_segment.fetch_add(bytes, Ordering::Relaxed) + bytes
            >= self.retained_segment_bytes
        {
            self.retained_segment.store(0, Ordering::Relaxed);
            self.retained_segment_end.send_replace(end.saturating_sub(1));
        }
        self.since.applied(end, bytes);
    }

    /// Brings a snapshot to the disk. Blocks.
    fn write(&self, contents: &Arc<Contents>) -> Result<()> {
        let bytes = self.file.write(contents)?;
        #[expect(clippy::cast_precision_loss, reason = "a histogram need not be that exact")]
        metrics::histogram!("resource_store_raft_snapshot_bytes").record(bytes as f64);
        self.since.snapshot_bytes.store(bytes, Ordering::Relaxed);
        self.persisted.reached(contents.end());
        Ok(())
    }
}

fn snapshot_of(contents: SnapshotData) -> Snapshot {
    let last_log_id = contents.applied;
    let last_membership = contents.membership.clone();
    let snapshot_id = last_log_id.map(|id: LogId| id.to_string()).unwrap_or_default();
    let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
    Snapshot { meta, snapshot: Box::new(contents) }
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        self.persist().await.map(snapshot_of).map_err(|error| self.broken(error))
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let contents = self.current();
        Ok((contents.applied, contents.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Outcome>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let Some(last) = entries.last().map(|entry| entry.log_id) else { return Ok(Vec::new()) };
        if let Err(closed) = self.durable.pass(last.index).await {
            self.shared.persisted.fail();
            return Err(StorageIOError::write_logs(&closed).into());
        }
        self.shared.faults.lag().await;
        self.apply_all(entries).await.map_err(|error| self.broken(error))
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotData>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        _meta: &openraft::SnapshotMeta<u64, Peer>,
        snapshot: Box<SnapshotData>,
    ) -> Result<(), StorageError> {
        self.adopt(*snapshot).await.map_err(|error| self.broken(error))
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        // To be sent, it need not be on the disk.
        let snapshot = snapshot_of(self.current());
        Ok(snapshot.meta.last_log_id.is_some().then_some(snapshot))
    }
}
