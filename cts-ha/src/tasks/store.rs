//! State of Consul-Terraform-Sync in Consul's KV store, written by the leader alone.
//!
//! Life of a batch:
//!
//! | state | next | what a reader, or the next leader, sees |
//! | --- | --- | --- |
//! | small enough for one transaction | written | all of it or nothing |
//! | larger: parts are written | journal is written | nothing: no record names the parts |
//! | journal is written | records are written, piece by piece | all of it: readers apply the journal, the next leader completes it |
//! | the last piece deletes the journal | written | all of it |

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    error_chain,
    types::{KvOp, KvPair},
};
use cts_tasks::{Change, State, Task, TaskName, TaskStore};
use serde::Serialize;
use tokio::sync::Mutex;

use super::records::{
    AppliedBody, DriftBody, EventsBody, Journal, Kind, Layout, Meta, PlanBody, Record, Snapshot,
    TaskBody, TaskSource, VERSION, Writes, is_large, op, pack,
};
use crate::{Consul, Error, Leadership, Result, lock_key::bounded};

/// Largest number of operations in a transaction that every server accepts, with the one that
/// checks the lock.
const OPS: usize = 60;

/// Largest size of the values in a transaction, in bytes: base64 makes 4 of 3, and a server accepts
/// 512 KiB.
const BYTES: usize = 300 * 1024;

/// Time limit of reading everything.
const READ: Duration = Duration::from_secs(20);

/// Longest message of an event that is stored, in bytes.
const LONGEST_MESSAGE: usize = 16 * 1024;

/// Settings of a [`KvTaskStore`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Tasks to put into a store that was never used, or is reset.
    pub configured: Vec<Task>,
    /// `true` to discard the stored state. Default `false`.
    pub reset: bool,
    /// Name of the driver in use, for the checks of other instances.
    pub driver: String,
}

/// Store of Consul-Terraform-Sync's state in Consul KV.
///
/// Opened with a [`Leadership`], it writes only what Consul accepts from the holder of the lock: a
/// deposed leader gets [`cts_tasks::Error::Fenced`]. A batch is all or nothing, even if it is too
/// large for one transaction: it is written as a whole first, and whoever opens the store next
/// completes it.
///
/// Opened without a leadership it can only be read.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let consul = consul_watch::testing::TestConsul::new().client();
/// use cts_ha::{Candidate, Consul, ConsulElector, ElectionOptions, Elector as _};
/// use cts_ha::tasks::{KvTaskStore, StoreOptions};
/// use cts_tasks::TaskStore as _;
///
/// let consul = Consul::new(consul); // a consul_watch::Client
/// let candidate = Candidate::new("cts-01");
/// let elector =
///     ConsulElector::new(&consul, "cts/web/leader", candidate, ElectionOptions::default())?;
/// let leadership = elector.campaign().await?;
/// let store = KvTaskStore::open("cts/web", &leadership, StoreOptions::default()).await?;
/// assert!(store.load().await?.tasks.is_empty());
/// leadership.resign().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KvTaskStore {
    consul: Consul,
    layout: Layout,
    leadership: Option<Leadership>,
    /// State that Consul has acknowledged.
    committed: Mutex<CommittedState>,
}

/// Store that a reset finds.
enum Found {
    /// Never used.
    Nothing,
    /// Used, with this metadata.
    Store(Meta),
    /// Used, with unreadable metadata.
    Unreadable,
}

#[derive(Debug, Default, Clone)]
struct CommittedState {
    state: State,
    /// Position and origin of the tasks.
    positions: BTreeMap<TaskName, (u64, TaskSource)>,
    next_seq: u64,
    /// Tasks whose records a failed commit may have changed.
    unsure: BTreeSet<TaskName>,
    /// `true` if that commit may have left its journal, which the next one must supersede.
    journal_left: bool,
}

impl KvTaskStore {
    /// Opens the store below `directory` as the leader: completes what a crash has interrupted, and
    /// puts `options.configured` into a store that was never used, or is reset. Stored tasks win
    /// over configured ones.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] if leadership is over, [`Error::Data`] for unreadable documents and those
    /// of a newer version; otherwise the error of Consul.
    pub async fn open(
        directory: &str,
        leadership: &Leadership,
        options: StoreOptions,
    ) -> Result<Self> {
        let consul = leadership.fence()?.consul.clone();
        let store = Self {
            consul,
            layout: Layout::new(directory),
            leadership: Some(leadership.clone()),
            committed: Mutex::default(),
        };
        // Before the snapshot: unreadable documents must not prevent the reset that removes them.
        if options.reset {
            let found = store.found_before_reset().await?;
            store.reset(leadership, found, options).await?;
            store.sweep(leadership).await;
            return Ok(store);
        }
        let snapshot = store.snapshot().await?;
        // Before anything is read: the metadata itself may be part of the interrupted batch.
        store.complete(&snapshot, leadership).await?;
        let meta: Option<Meta> = snapshot.read(&store.layout, &store.layout.meta())?;
        if let Some(meta) = meta.as_ref().filter(|meta| meta.schema > VERSION) {
            return Err(Error::Data {
                key: store.layout.meta(),
                problem: format!(
                    "has the schema {}, this program knows {VERSION}; upgrade this instance",
                    meta.schema
                ),
            });
        }
        match meta {
            Some(meta) if !meta.resetting => {
                store.resume(leadership, meta, &options.driver).await?;
                *store.committed.lock().await = store.decode(&snapshot)?;
                store.warn_of_differences(&options.configured).await;
            }
            meta => {
                let found = meta.map_or(Found::Nothing, Found::Store);
                store.reset(leadership, found, options).await?;
            }
        }
        store.sweep(leadership).await;
        Ok(store)
    }

    /// Opens the store below `directory` for reading; commits are refused.
    pub fn read_only(consul: &Consul, directory: &str) -> Self {
        Self {
            consul: consul.clone(),
            layout: Layout::new(directory),
            leadership: None,
            committed: Mutex::default(),
        }
    }

    /// Reads everything. The error names the unreadable document, which the seam to the engine does
    /// not.
    pub(crate) async fn read(&self) -> Result<State> {
        let snapshot = self.snapshot().await?;
        Ok(self.decode(&snapshot)?.state)
    }

    async fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::new(&self.layout, self.pairs().await?)
    }

    /// Finds what a reset discards. An unreadable journal or unreadable metadata is no obstacle,
    /// because it is discarded, too.
    async fn found_before_reset(&self) -> Result<Found> {
        let pairs = self.pairs().await?;
        let meta = pairs.iter().find(|pair| pair.key == self.layout.meta());
        Ok(match meta.map(|pair| serde_json::from_slice(&pair.value)) {
            Some(Ok(meta)) => Found::Store(meta),
            Some(Err(error)) => {
                tracing::warn!(
                    kv.key = self.layout.meta(),
                    error = &error as &dyn std::error::Error,
                    "the stored metadata cannot be read, and is thrown away with the rest"
                );
                Found::Unreadable
            }
            None => Found::Nothing,
        })
    }

    async fn pairs(&self) -> Result<Vec<KvPair>> {
        let root = self.layout.root();
        let reading = self.consul.list(&root, None, Duration::ZERO);
        Ok(bounded("read the stored state", READ, reading).await?.value)
    }

    /// Completes the batch that a crash left in the journal.
    async fn complete(&self, snapshot: &Snapshot, leadership: &Leadership) -> Result<()> {
        if let Some(writes) = snapshot.journal(&self.layout)? {
            tracing::info!(writes = writes.len(), "completing what the last leader has begun");
            self.carry_out(leadership, &writes, true).await?;
        }
        Ok(())
    }

    async fn resume(&self, leadership: &Leadership, mut meta: Meta, driver: &str) -> Result<()> {
        meta.term = leadership.token().get();
        driver.clone_into(&mut meta.driver);
        fenced(leadership, vec![KvOp::set(self.layout.meta(), json(&meta))]).await
    }

    async fn reset(
        &self,
        leadership: &Leadership,
        before: Found,
        options: StoreOptions,
    ) -> Result<()> {
        let term = leadership.token().get();
        let is_new = matches!(before, Found::Nothing);
        if !is_new {
            tracing::warn!(
                directory = self.layout.root(),
                "throwing away the stored tasks and events, and starting from the configuration"
            );
        }
        let mut meta = Meta {
            v: VERSION,
            schema: VERSION,
            created_term: match &before {
                Found::Store(before) => before.created_term,
                Found::Unreadable | Found::Nothing => term,
            },
            term,
            reset_at: (!is_new).then_some(term),
            driver: options.driver,
            // Marked first: a reset that is interrupted is repeated by whoever opens the store.
            resetting: true,
        };
        let mut begin = vec![KvOp::set(self.layout.meta(), json(&meta))];
        begin.extend(Kind::ALL.map(|kind| KvOp::delete_tree(self.layout.folder(kind))));
        // A journal that was carried out after the reset would bring back what is discarded here.
        begin.push(KvOp::delete(self.layout.journal()));
        fenced(leadership, begin).await?;
        let mut committed = CommittedState::default();
        for task in options.configured {
            committed.assign_position(&task.name, TaskSource::Config);
            committed.state.apply(&Change::PutTask(Box::new(task)));
        }
        let names: BTreeSet<TaskName> = committed.positions.keys().cloned().collect();
        let writes = self.records(&committed, &names, term)?;
        self.carry_out(leadership, &writes, false).await?;
        meta.resetting = false;
        fenced(leadership, vec![KvOp::set(self.layout.meta(), json(&meta))]).await?;
        *self.committed.lock().await = committed;
        Ok(())
    }

    fn decode(&self, snapshot: &Snapshot) -> Result<CommittedState> {
        let layout = &self.layout;
        let mut committed = CommittedState::default();
        let names = |kind: Kind| -> Vec<(String, TaskName)> {
            let folder = layout.folder(kind);
            snapshot
                .keys_below(&folder)
                .filter_map(|key| {
                    let name = key.strip_prefix(&folder)?.to_owned().try_into().ok()?;
                    Some((key.clone(), name))
                })
                .collect()
        };
        let mut tasks = Vec::new();
        for (key, name) in names(Kind::Task) {
            let Some(record) = snapshot.read::<Record<TaskBody>>(layout, &key)? else { continue };
            if record.body.task.name != name {
                return Err(Error::Data {
                    key,
                    problem: format!("holds the task {}", record.body.task.name),
                });
            }
            tasks.push(record.body);
        }
        tasks.sort_by_key(|body| body.seq);
        for body in tasks {
            committed.next_seq = committed.next_seq.max(body.seq + 1);
            committed.positions.insert(body.task.name.clone(), (body.seq, body.source));
            if let Some(deletion) = body.deletion {
                committed.state.deletions.insert(body.task.name.clone(), deletion);
            }
            committed.state.tasks.push(body.task);
        }
        for (key, name) in names(Kind::Events) {
            if let Some(record) = snapshot.read::<Record<EventsBody>>(layout, &key)? {
                committed.state.events.insert(name, record.body.events);
            }
        }
        for (key, name) in names(Kind::Plan) {
            if let Some(record) = snapshot.read::<Record<PlanBody>>(layout, &key)? {
                committed.state.plans.insert(name, record.body.plan);
            }
        }
        for (key, name) in names(Kind::Applied) {
            if let Some(record) = snapshot.read::<Record<AppliedBody>>(layout, &key)? {
                committed.state.applied.insert(name, record.body.applied);
            }
        }
        for (key, name) in names(Kind::Drift) {
            if let Some(record) = snapshot.read::<Record<DriftBody>>(layout, &key)? {
                committed.state.drift.insert(name, record.body.drift);
            }
        }
        Ok(committed)
    }

    /// Encodes all records of these tasks from `committed`.
    fn records(
        &self,
        committed: &CommittedState,
        names: &BTreeSet<TaskName>,
        term: u64,
    ) -> Result<Writes> {
        let mut writes = Writes::new();
        for name in names {
            let state = &committed.state;
            let task = state.tasks.iter().find(|task| task.name == *name);
            let task = task.zip(committed.positions.get(name)).map(|(task, (seq, source))| {
                let deletion = state.deletions.get(name).copied();
                let (seq, source, task) = (*seq, *source, task.clone());
                record(term, TaskBody { seq, source, task, deletion })
            });
            let events = state.events.get(name).map(|events| {
                record(term, EventsBody { events: events.iter().map(shortened).collect() })
            });
            let plan =
                state.plans.get(name).map(|plan| record(term, PlanBody { plan: plan.clone() }));
            let applied = state
                .applied
                .get(name)
                .map(|applied| record(term, AppliedBody { applied: applied.clone() }));
            let drift =
                state.drift.get(name).map(|drift| record(term, DriftBody { drift: drift.clone() }));
            for (kind, value) in Kind::ALL.into_iter().zip([task, events, plan, applied, drift]) {
                writes.insert(self.layout.record(kind, name.as_str()), value.transpose()?);
            }
        }
        Ok(writes)
    }

    /// Writes a batch so that whoever opens the store sees all of it or nothing.
    async fn write(
        &self,
        leadership: &Leadership,
        writes: &Writes,
        journal_left: &mut bool,
    ) -> Result<()> {
        let mut packed = Writes::new();
        for (key, value) in writes {
            let value = match value {
                Some(value) => Some(self.split(leadership, value.clone()).await?),
                None => None,
            };
            packed.insert(key.clone(), value);
        }
        let bytes: usize = packed.values().flatten().map(Bytes::len).sum();
        if packed.len() <= OPS && bytes <= BYTES {
            let mut ops: Vec<_> =
                packed.iter().map(|(key, value)| op(key, value.as_ref())).collect();
            // A journal of a failed commit would otherwise be carried out over this batch at the
            // next opening.
            if *journal_left {
                ops.push(KvOp::delete(self.layout.journal()));
            }
            fenced(leadership, ops).await?;
            *journal_left = false;
            return Ok(());
        }
        let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
        let journal = Journal {
            writes: packed
                .iter()
                .map(|(key, value)| (key.clone(), value.as_ref().map(text)))
                .collect(),
        };
        let journal = record(leadership.token().get(), journal)?;
        let journal = self.split(leadership, journal).await?;
        *journal_left = true;
        // From here on the batch holds, whatever becomes of this process.
        fenced(leadership, vec![KvOp::set(self.layout.journal(), journal)]).await?;
        self.carry_out(leadership, &packed, true).await?;
        *journal_left = false;
        Ok(())
    }

    /// Writes the parts of a value that is too large, and returns the manifest in its place.
    async fn split(&self, leadership: &Leadership, value: Bytes) -> Result<Bytes> {
        if !is_large(&value) {
            return Ok(value);
        }
        // Compression takes time, in which the session must be renewed.
        let layout = self.layout.clone();
        let packing = tokio::task::spawn_blocking(move || pack(&layout, &value));
        let packed = packing.await.map_err(|source| Error::Other {
            operation: "pack a record",
            retryable: false,
            source: source.into(),
        })??;
        // Parts before the record that names them.
        for (key, part) in packed.parts {
            fenced(leadership, vec![KvOp::set(key, part)]).await?;
        }
        Ok(packed.value)
    }

    /// Carries out writes in as many transactions as needed; the last one deletes the journal.
    async fn carry_out(
        &self,
        leadership: &Leadership,
        writes: &Writes,
        journalled: bool,
    ) -> Result<()> {
        let mut ops = Vec::new();
        let mut bytes = 0;
        for (key, value) in writes {
            let value = match value {
                Some(value) => Some(self.split(leadership, value.clone()).await?),
                None => None,
            };
            let size = value.as_ref().map_or(0, Bytes::len);
            // One operation of each transaction is the check of the lock.
            if ops.len() + 1 >= OPS || bytes + size > BYTES {
                fenced(leadership, std::mem::take(&mut ops)).await?;
                bytes = 0;
            }
            bytes += size;
            ops.push(op(key, value.as_ref()));
        }
        if journalled {
            ops.push(KvOp::delete(self.layout.journal()));
        }
        fenced(leadership, ops).await
    }

    /// Deletes parts that no record names. A failure leaves them to the next opening.
    async fn sweep(&self, leadership: &Leadership) {
        let sweeping = async {
            let garbage = self.snapshot().await?.garbage(&self.layout);
            for keys in garbage.chunks(OPS) {
                fenced(leadership, keys.iter().map(KvOp::delete).collect()).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = sweeping.await {
            tracing::debug!(error = &error as &dyn std::error::Error, "unused parts stay");
        }
    }

    async fn warn_of_differences(&self, configured: &[Task]) {
        let committed = self.committed.lock().await;
        for task in configured {
            let stored = committed.state.tasks.iter().find(|stored| stored.name == task.name);
            let what = match stored {
                None => "is not stored, and is left out",
                Some(stored) if !is_same(stored, task) => {
                    "differs from the stored one, which counts"
                }
                Some(_) => continue,
            };
            tracing::warn!(
                task.name = %task.name,
                "a task of the configuration {what}; create or delete it through the API, or use \
                 -reset-storage"
            );
        }
    }

    async fn try_commit(&self, leadership: &Leadership, batch: &[Change]) -> Result<()> {
        let mut committed = self.committed.lock().await;
        let mut next = committed.clone();
        let mut names = committed.unsure.clone();
        for change in batch {
            // Also the tasks of a failed commit, whose records may hold either state.
            names.insert(next.change(change)?);
        }
        let term = leadership.token().get();
        let before = self.records(&committed, &names, term)?;
        let unsure = self.records(&next, &committed.unsure, term)?;
        let mut writes = self.records(&next, &names, term)?;
        // Unchanged records are skipped, which saves most of a commit: usually one event.
        writes.retain(|key, value| before.get(key) != Some(value) || unsure.contains_key(key));
        let large = writes.values().flatten().any(|value| value.len() > BYTES);
        let mut journal_left = committed.journal_left;
        let written = self.write(leadership, &writes, &mut journal_left).await;
        if let Err(error) = written {
            // It may have taken effect; the next commit writes what holds.
            committed.unsure.extend(names);
            committed.journal_left = journal_left;
            return Err(error);
        }
        next.unsure.clear();
        next.journal_left = journal_left;
        *committed = next;
        drop(committed);
        // Only a large value can leave parts behind.
        if large {
            self.sweep(leadership).await;
        }
        Ok(())
    }
}

impl CommittedState {
    fn assign_position(&mut self, name: &TaskName, source: TaskSource) {
        if !self.positions.contains_key(name) {
            self.positions.insert(name.clone(), (self.next_seq, source));
            self.next_seq += 1;
        }
    }

    /// Applies a change, and returns the task whose records it concerns.
    fn change(&mut self, change: &Change) -> Result<TaskName> {
        let name = match change {
            Change::PutTask(task) => {
                self.assign_position(&task.name, TaskSource::Api);
                task.name.clone()
            }
            Change::DeleteTask(name) => {
                self.positions.remove(name);
                name.clone()
            }
            Change::AddEvent(event) => event.task_name.clone(),
            Change::DeleteEvents(name)
            | Change::PutDeletion(name, _)
            | Change::DeleteDeletion(name)
            | Change::PutPlan(name, _)
            | Change::DeletePlan(name)
            | Change::SetApplied(name, _)
            | Change::SetDrift(name, _) => name.clone(),
            other => {
                return Err(Error::Other {
                    operation: "commit a change",
                    retryable: false,
                    source: format!("the store does not know this kind: {other:?}").into(),
                });
            }
        };
        self.state.apply(change);
        Ok(name)
    }
}

/// Returns `true` if a stored task equals the configured one. Each instance has a task's folder
/// below its own working directory, so that is no difference.
fn is_same(stored: &Task, configured: &Task) -> bool {
    let mut stored = stored.clone();
    if stored.working_dir_inherited && configured.working_dir_inherited {
        stored.working_dir.clone_from(&configured.working_dir);
    }
    stored == *configured
}

/// Writes as the leader, or not at all.
async fn fenced(leadership: &Leadership, ops: Vec<KvOp>) -> Result<()> {
    if ops.is_empty() {
        return leadership.check();
    }
    leadership.commit(ops).await.map(drop)
}

fn record<T: Serialize>(term: u64, body: T) -> Result<Bytes> {
    serde_json::to_vec(&Record { v: VERSION, term, body }).map(Bytes::from).map_err(|source| {
        Error::Other { operation: "write a record", retryable: false, source: source.into() }
    })
}

fn json<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// Returns an event whose message is short enough to be stored.
fn shortened(event: &cts_tasks::Event) -> cts_tasks::Event {
    let mut event = event.clone();
    if let Some(error) = &mut event.error
        && error.message.len() > LONGEST_MESSAGE
    {
        let cut = (0..=LONGEST_MESSAGE).rev().find(|at| error.message.is_char_boundary(*at));
        error.message.truncate(cut.unwrap_or(0));
        error.message.push_str("\n… (cut for storage)");
    }
    event
}

/// Converts an error to the seam's.
pub(crate) fn seam(error: Error) -> cts_tasks::Error {
    match error {
        Error::Ended(loss) => cts_tasks::Error::Fenced { reason: loss.to_string() },
        error => {
            let retryable = error.is_retryable();
            cts_tasks::Error::Other {
                operation: "storing the state in Consul",
                retryable,
                source: error_chain(&error).into(),
            }
        }
    }
}

#[async_trait]
impl TaskStore for KvTaskStore {
    async fn load(&self) -> cts_tasks::Result<State> {
        let snapshot = self.snapshot().await.map_err(seam)?;
        let mut read = self.decode(&snapshot).map_err(seam)?;
        let state = read.state.clone();
        let mut committed = self.committed.lock().await;
        // A failed commit is still uncertain, although everything was read again: its writes may
        // arrive late.
        read.unsure = std::mem::take(&mut committed.unsure);
        read.journal_left = committed.journal_left;
        *committed = read;
        Ok(state)
    }

    async fn commit(&self, batch: &[Change]) -> cts_tasks::Result<()> {
        let Some(leadership) = &self.leadership else {
            return Err(cts_tasks::Error::Fenced { reason: "this instance does not lead".into() });
        };
        if batch.is_empty() {
            return Ok(());
        }
        self.try_commit(leadership, batch).await.map_err(seam)
    }
}

impl fmt::Debug for KvTaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvTaskStore")
            .field("layout", &self.layout)
            .field("leadership", &self.leadership)
            .finish_non_exhaustive()
    }
}
