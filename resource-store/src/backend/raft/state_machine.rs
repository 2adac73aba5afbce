//! The state state_machine: applies the entries of the log to a table of resources.
//!
//! What an entry does depends on the entries before it only, so all nodes hold
//! the same. A refused change is an answer: the entry stays in the log and
//! changes nothing. Versions are the positions of entries in the log.
//!
//! The last applied entry and the membership stand in the same transaction as
//! the resources. Most transactions wait for no disk: what a crash takes away
//! is applied again from the log, whose entries are on the disk. Now and then,
//! and before each snapshot, one does wait; the log is cut off only up to a
//! snapshot, so it always reaches back far enough.

pub(crate) mod restore;
pub(crate) mod snapshot;

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use openraft::{
    EntryPayload, OptionalSend, RaftSnapshotBuilder, StorageIOError, storage::RaftStateMachine,
};
use prost::Message as _;
use tokio::sync::watch;

use self::restore::Done;
use super::{
    config::{Faults, RaftConfig, RetiredTypes, WHEN_DAMAGED},
    log::{DurableIndex, Persisted},
    types::{
        Content, Entry, EntryExt as _, LogId, Outcome, Peer, Snapshot, SnapshotData, SnapshotMeta,
        State, StorageError, StoredMembership, Types, proto,
    },
};
use crate::{
    backend::{
        Error, Query, Result, Watch,
        durable::{
            table::{Place, Table, TableOptions, TableSnapshot, TableView, blocking},
            table_writer::TableWriter,
        },
        store::{change::Change, sync::lock, topics::Topics, watch::StoreWatch},
    },
    pb::{
        Resource, Type,
        generated::{
            hashicorp::consul::internal::storage::raft::{self as wire, LogType, log::Request},
            resource_store::peer::v1 as peer,
        },
    },
};

/// In how many stretches the bytes are kept that the log may have.
pub(super) const STRETCHES: usize = 4;

const APPLIED: &[u8] = b"raft applied";
const MEMBERSHIP: &[u8] = b"raft membership";
const VERSION_OFFSET: &[u8] = b"raft version offset";

/// How many bytes of entries, and how many, are applied on the executor, rather
/// than handed to another thread: that takes less time than to hand them over.
const AT_ONCE_BYTES: usize = 64 << 10;
const AT_ONCE: usize = 32;
/// How often it is looked whether work with the table has ended.
const WORK_ENDS: Duration = Duration::from_millis(1);
/// How much of the file is kept in memory.
const CACHE_BYTES: usize = 64 << 20;
/// How many resources of a snapshot are staged in one transaction.
const STAGE_RESOURCES: usize = 2000;

/// What a node holds. A clone is another handle.
#[derive(Debug, Clone)]
pub(crate) struct StateMachine {
    shared: Arc<Shared>,
    durable: DurableIndex,
}

#[derive(Debug)]
struct Shared {
    /// Taken when it is closed.
    table: Mutex<Option<Arc<Table>>>,
    /// Held while the table changes, which may take long.
    changing: Mutex<()>,
    view: Arc<TableView>,
    topics: Topics,
    retired: RetiredTypes,
    faults: Faults,
    /// The index of the last applied entry, plus one.
    applied: watch::Sender<u64>,
    persisted: Persisted,
    /// After how many bytes of entries the table waits for the disk.
    sync_bytes: u64,
    /// How many bytes were applied since the table waited for the disk.
    unsynced: AtomicU64,
    /// The last entry of so many bytes.
    stretch_end: watch::Sender<u64>,
}

impl StateMachine {
    /// Opens what is there, or makes an empty one. Blocks.
    pub(crate) fn open(path: &Path, config: &RaftConfig, durable: DurableIndex) -> Result<Self> {
        let options = TableOptions {
            cache_bytes: CACHE_BYTES,
            check: config.check_on_open,
            synced: true,
            // Few commits are durable.
            quick_repair: true,
            advice: WHEN_DAMAGED,
        };
        let table = Table::open(path, &options)?;
        let (applied, _) = applied_state(&table.current())?;
        let applied = applied.map_or(0, |applied| applied.index + 1);
        let shared = Shared {
            view: table.view(),
            table: Mutex::new(Some(Arc::new(table))),
            changing: Mutex::default(),
            topics: Topics::new(config.watch_buffer),
            retired: config.retired.clone(),
            faults: config.faults(),
            applied: watch::Sender::new(applied),
            persisted: Persisted::new(applied),
            sync_bytes: config.keep_bytes / STRETCHES as u64,
            unsynced: AtomicU64::new(0),
            stretch_end: watch::Sender::new(0),
        };
        Ok(Self { shared: Arc::new(shared), durable })
    }

    /// What is there now.
    pub(crate) fn current(&self) -> Arc<TableSnapshot> {
        self.shared.view.current()
    }

    /// Returns an error if the file cannot be written any more, or is gone.
    pub(crate) async fn ready(&self) -> Result<()> {
        let view = Arc::clone(&self.shared.view);
        blocking(move || view.file().ready()).await
    }

    /// By how much versions are larger than the index of their entry, now.
    pub(crate) fn version_offset(&self) -> u64 {
        version_offset(&self.current()).unwrap_or(0)
    }

    /// The index of the last applied entry, plus one, as it grows.
    pub(crate) fn applied(&self) -> watch::Receiver<u64> {
        self.shared.applied.subscribe()
    }

    /// Says which entries the table has on the disk.
    pub(crate) fn persisted(&self) -> Persisted {
        self.shared.persisted.clone()
    }

    /// The last entry of each stretch of the log that has as many bytes as the
    /// table was opened with.
    pub(crate) fn stretch_end(&self) -> watch::Receiver<u64> {
        self.shared.stretch_end.subscribe()
    }

    pub(crate) fn watch(&self, query: &Query) -> Watch {
        let reader = self.shared.topics.subscribe(query);
        let snapshot = self.current();
        let index = snapshot.index();
        let resources = snapshot.stream(Some(query.clone()));
        StoreWatch::new(query.clone(), reader, index, resources).boxed()
    }

    /// Begins to take a snapshot from the leader.
    pub(crate) async fn begin_staging(&self) -> Result<()> {
        self.change(false, |writer| {
            writer.clear(Place::Incoming)?;
            writer.clear(Place::IncomingRestoring)
        })
        .await
    }

    /// Takes a part of a snapshot.
    pub(crate) async fn stage(&self, place: Place, resources: Vec<Arc<Resource>>) -> Result<()> {
        let bytes: usize = resources.iter().map(|resource| resource.encoded_len()).sum();
        // Now and then, or all of it would have to get to the disk at the end.
        let durable = self.is_sync_due(bytes);
        self.change(durable, move |writer| {
            resources.iter().try_for_each(|resource| writer.stage(place, resource))
        })
        .await
    }

    /// Takes all of a snapshot.
    async fn stage_all(&self, view: Arc<TableSnapshot>) -> Result<()> {
        self.begin_staging().await?;
        for (from, to) in
            [(Place::Shown, Place::Incoming), (Place::Restoring, Place::IncomingRestoring)]
        {
            let resources = Arc::clone(&view).stream_of(from, None);
            let mut parts = resources.try_chunks(STAGE_RESOURCES);
            while let Some(part) = parts.try_next().await.map_err(|error| error.1)? {
                self.stage(to, part).await?;
            }
        }
        Ok(())
    }

    /// Ends all watches, and closes the file.
    pub(crate) async fn close(&self) -> Result<()> {
        self.shared.topics.close_all();
        let Some(mut table) = lock(&self.shared.table).take() else { return Ok(()) };
        let table = loop {
            table = match Arc::try_unwrap(table) {
                Ok(table) => break table,
                // Somebody is at work with it, the last one: nobody gets it any more.
                Err(table) => table,
            };
            tokio::time::sleep(WORK_ENDS).await;
        };
        blocking(move || table.close()).await
    }

    fn table(&self) -> Result<Arc<Table>> {
        let closed = || Error::failed("write", "the node was shut down");
        lock(&self.shared.table).clone().ok_or_else(closed)
    }

    async fn change<T: Send + 'static>(
        &self,
        durable: bool,
        work: impl FnOnce(&mut TableWriter<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (table, shared) = (self.table()?, Arc::clone(&self.shared));
        blocking(move || {
            let _changing = lock(&shared.changing);
            table.change(durable, work)
        })
        .await
    }

    /// A view whose content, as long as it may be told of, is on the disk.
    pub(crate) async fn durable_view(&self) -> Result<Arc<TableSnapshot>> {
        let view = self.current();
        self.change(true, |writer| {
            writer.touch();
            Ok(())
        })
        .await?;
        let (applied, _) = applied_state(&view)?;
        self.shared.persisted.reached(applied.map_or(0, |applied| applied.index + 1));
        Ok(view)
    }

    /// Whether the table has to wait for the disk after so many more bytes.
    fn is_sync_due(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let unsynced = self.shared.unsynced.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let due = unsynced >= self.shared.sync_bytes;
        if due {
            self.shared.unsynced.store(0, Ordering::Relaxed);
        }
        due
    }

    async fn apply_all(&self, entries: Vec<Entry>) -> Result<Vec<Outcome>> {
        let Some(last) = entries.last().map(|entry| entry.log_id) else { return Ok(Vec::new()) };
        let bytes: usize = entries.iter().map(Entry::bytes).sum();
        let durable = self.is_sync_due(bytes);
        let few = entries.len() <= AT_ONCE && bytes <= AT_ONCE_BYTES;
        let at_once = few && !durable && !entries.iter().any(Entry::is_restore);
        let (table, shared) = (self.table()?, Arc::clone(&self.shared));
        let apply = move || {
            let version_offset = version_offset(&table.current())?;
            let (outcomes, changes) = table.change(durable, |writer| {
                let mut applying = Applying {
                    writer,
                    retired: &shared.retired,
                    version_offset,
                    changes: Vec::new(),
                };
                let outcomes: Vec<_> =
                    entries.into_iter().map(|e| applying.apply(e)).collect::<Result<_>>()?;
                let changes = applying.changes;
                writer.set_meta(APPLIED, &proto::from_log_id(&last).encode_to_vec())?;
                Ok((outcomes, changes))
            })?;
            // After the change can be read, and in the order of the log: there
            // is one caller only.
            for change in &changes {
                match change {
                    Told::Change(change) => shared.topics.publish(change),
                    Told::Restored => shared.topics.close_all(),
                }
            }
            shared.applied.send_replace(last.index + 1);
            if durable {
                shared.persisted.reached(last.index + 1);
                shared.stretch_end.send_replace(last.index);
            }
            Ok(outcomes)
        };
        // Nothing of it waits, unless for another change of the table.
        if at_once && let Ok(_changing) = self.shared.changing.try_lock() {
            return apply();
        }
        let shared = Arc::clone(&self.shared);
        blocking(move || {
            let _changing = lock(&shared.changing);
            apply()
        })
        .await
    }

    /// The node cannot go on.
    #[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
    fn broken(&self, error: Error) -> StorageError {
        self.shared.persisted.fail();
        StorageIOError::write_state_machine(&error).into()
    }

    async fn adopt(&self, meta: SnapshotMeta, state: State) -> Result<()> {
        let State { version_offset, restore } = state;
        let index = meta.last_log_id.map_or(0, |last| last.index);
        let applied = meta.last_log_id.as_ref().map(proto::from_log_id).unwrap_or_default();
        let membership = proto::from_stored_membership(&meta.last_membership);
        self.change(true, move |writer| {
            writer.show(Place::Incoming, index.saturating_add(version_offset))?;
            writer.replace(Place::IncomingRestoring, Place::Restoring)?;
            restore::keep(writer, &restore)?;
            writer.set_number(VERSION_OFFSET, version_offset)?;
            writer.set_meta(APPLIED, &applied.encode_to_vec())?;
            writer.set_meta(MEMBERSHIP, &membership.encode_to_vec())
        })
        .await?;
        self.shared.topics.close_all();
        self.shared.applied.send_replace(index + 1);
        self.shared.persisted.reached(index + 1);
        Ok(())
    }
}

/// Applies entries within one transaction.
struct Applying<'a, 't> {
    writer: &'a mut TableWriter<'t>,
    retired: &'a RetiredTypes,
    version_offset: u64,
    changes: Vec<Told>,
}

/// What watches are told.
enum Told {
    Change(Change),
    Restored,
}

impl Applying<'_, '_> {
    /// Only what is not the entry's fault is an error: then this node must not
    /// go on, because it would come to differ from the others.
    fn apply(&mut self, entry: Entry) -> Result<Outcome> {
        match entry.payload {
            EntryPayload::Blank => Ok(Outcome::Nothing),
            EntryPayload::Normal(proposal) => {
                let index = entry.log_id.index.saturating_add(self.version_offset);
                match &proposal.content {
                    Content::Log(log) => self.apply_log(log, index),
                    Content::Restore(step) => self.restore(step, entry.log_id.index, index),
                }
            }
            EntryPayload::Membership(membership) => {
                let stored = StoredMembership::new(Some(entry.log_id), membership);
                let message = proto::from_stored_membership(&stored);
                self.writer.set_meta(MEMBERSHIP, &message.encode_to_vec())?;
                Ok(Outcome::Nothing)
            }
        }
    }

    /// Takes a step of a restore. After its end versions count on from the
    /// highest one that came, so that none comes twice.
    fn restore(&mut self, step: &Bytes, entry: u64, index: u64) -> Result<Outcome> {
        let step = match peer::RestoreStep::decode(step.clone()) {
            Ok(step) => step,
            Err(error) => {
                return Ok(Outcome::Malformed(format!("failed to decode request: {error}")));
            }
        };
        let done = restore::apply(self.writer, step, index)?;
        if let Ok(Done::Shown(highest)) = done {
            self.version_offset = highest.saturating_sub(entry);
            self.writer.set_number(VERSION_OFFSET, self.version_offset)?;
            self.changes.push(Told::Restored);
        }
        Ok(Outcome::Restored(done.map(|_| ())))
    }

    fn apply_log(&mut self, log: &Bytes, index: u64) -> Result<Outcome> {
        let log = match wire::Log::decode(log.clone()) {
            Ok(log) => log,
            Err(error) => {
                return Ok(Outcome::Malformed(format!("failed to decode request: {error}")));
            }
        };
        match (LogType::try_from(log.r#type), log.request) {
            (
                Ok(LogType::Write),
                Some(Request::Write(wire::WriteRequest { resource: Some(resource) })),
            ) => self.write(resource, index),
            (
                Ok(LogType::Delete),
                Some(Request::Delete(wire::DeleteRequest { id: Some(id), version })),
            ) => {
                if self.is_retired(id.r#type.as_ref()) {
                    return Ok(Outcome::Deleted(Ok(())));
                }
                let deleted = answer(self.writer.delete(&id, &version, index))?;
                Ok(Outcome::Deleted(
                    deleted.map(|change| self.changes.extend(change.map(Told::Change))),
                ))
            }
            (Ok(LogType::Write | LogType::Delete), _) => {
                Ok(Outcome::Malformed("request without content".to_owned()))
            }
            (Ok(LogType::Unspecified) | Err(_), _) => {
                Ok(Outcome::Malformed(format!("unexpected request type: {}", log.r#type)))
            }
        }
    }

    fn write(&mut self, resource: Resource, index: u64) -> Result<Outcome> {
        if resource.id.is_none() {
            return Ok(Outcome::Malformed("resource has no id".to_owned()));
        }
        if self.is_retired(resource.resource_type()) {
            return Ok(Outcome::Written(Ok(Arc::new(resource))));
        }
        let written = answer(self.writer.write(resource, index))?;
        Ok(Outcome::Written(written.map(|change| {
            let stored = Arc::clone(&change.resource);
            self.changes.push(Told::Change(change));
            stored
        })))
    }

    fn is_retired(&self, ty: Option<&Type>) -> bool {
        let retired = ty.filter(|ty| self.retired.contains(ty));
        if let Some(ty) = retired {
            tracing::warn!(r#type = %ty, "ignoring operation for retired type");
        }
        retired.is_some()
    }
}

/// Tells a refusal, which is an answer, from a failure of this node.
fn answer<T>(result: Result<T>) -> Result<Result<T>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(refused @ (Error::CasFailure | Error::WrongUid)) => Ok(Err(refused)),
        Err(error) => Err(error),
    }
}

fn applied_state(view: &TableSnapshot) -> Result<(Option<LogId>, StoredMembership)> {
    let bad = |what: String| {
        Error::failed("read", format!("what was applied last is not readable: {what}"))
    };
    let applied = view.meta(APPLIED)?;
    let applied = applied.map(|bytes| peer::LogId::decode(bytes.as_slice())).transpose();
    let applied = applied.map_err(|e| bad(e.to_string()))?;
    let applied = proto::optional_log_id(applied).map_err(|e| bad(e.to_string()))?;
    let membership = view.meta(MEMBERSHIP)?;
    let membership =
        membership.map(|bytes| peer::StoredMembership::decode(bytes.as_slice())).transpose();
    let membership = membership.map_err(|e| bad(e.to_string()))?;
    let membership = proto::stored_membership(membership).map_err(|e| bad(e.to_string()))?;
    Ok((applied, membership))
}

/// By how much versions are larger than the index of their entry: a restore
/// brings versions, and none of them may come again.
fn version_offset(view: &TableSnapshot) -> Result<u64> {
    Ok(view.number(VERSION_OFFSET)?.unwrap_or(0))
}

/// What goes with the resources of a snapshot.
pub(crate) fn state(view: &TableSnapshot) -> Result<State> {
    Ok(State { version_offset: version_offset(view)?, restore: restore::under_way(view)? })
}

fn snapshot_of(view: Arc<TableSnapshot>) -> Result<Snapshot> {
    let (last_log_id, last_membership) = applied_state(&view)?;
    let snapshot_id = last_log_id.map(|id| id.to_string()).unwrap_or_default();
    let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
    Ok(Snapshot { meta, snapshot: Box::new(SnapshotData::View(view)) })
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn reading(error: Error) -> StorageError {
    StorageIOError::read_state_machine(&error).into()
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        self.durable_view().await.and_then(snapshot_of).map_err(|error| self.broken(error))
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        applied_state(&self.current()).map_err(reading)
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Outcome>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        if let Some(last) = entries.last()
            && let Err(closed) = self.durable.pass(last.log_id.index).await
        {
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
        self.begin_staging().await.map_err(|error| self.broken(error))?;
        Ok(Box::new(SnapshotData::Staged(State::default())))
    }

    async fn install_snapshot(
        &mut self,
        meta: &openraft::SnapshotMeta<u64, Peer>,
        snapshot: Box<SnapshotData>,
    ) -> Result<(), StorageError> {
        let state = match *snapshot {
            SnapshotData::Staged(state) => state,
            SnapshotData::View(view) => {
                let state = state(&view).map_err(reading)?;
                let staged = self.stage_all(view).await;
                staged.map_err(|error| self.broken(error))?;
                state
            }
        };
        self.adopt(meta.clone(), state).await.map_err(|error| self.broken(error))
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        // To be sent, it need not be on the disk.
        let snapshot = snapshot_of(self.current()).map_err(reading)?;
        Ok(snapshot.meta.last_log_id.is_some().then_some(snapshot))
    }
}
