//! The file of the log.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use prost::Message as _;
use redb::{
    Builder, Database, Durability, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    TableDefinition, WriteTransaction, backends::FileBackend,
};

use crate::{
    backend::{
        Result,
        durable::{fault::FileState, record},
        raft::{
            config::WHEN_DAMAGED,
            types::{Entry, EntryExt as _, LogId, NodeId, Vote, proto},
        },
    },
    pb::generated::resource_store::peer::v1 as peer,
};

/// Sealed entries by index.
const ENTRIES: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("entries");
/// Sealed facts by name.
const META: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("meta");

const FORMAT: &[u8] = b"format";
const FORMAT_NOW: &[u8] = b"raft log 1";
const NODE: &[u8] = b"node";
const CLUSTER: &[u8] = b"cluster";
/// There once the node was a member that votes.
const ENTERED: &[u8] = b"entered";
const VOTE: &[u8] = b"vote";
const COMMITTED: &[u8] = b"committed";
const PURGED: &[u8] = b"purged";

/// After how many entries it is written down which are committed, if nothing
/// else changes than entries: that costs each transaction two pages more.
const COMMITTED_STEP: u64 = 128;
/// How much of the file is kept in memory.
const CACHE_BYTES: usize = 16 << 20;

/// Which node this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    /// 0 if it belongs to none yet.
    pub(crate) cluster: u64,
    /// Whether it was a member that votes, and perhaps is none any more.
    pub(crate) entered: bool,
}

/// What goes into one transaction.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) vote: Option<Vote>,
    /// The last committed entry, which may stay for a later transaction.
    pub(super) committed: Option<LogId>,
    /// Nothing comes after it.
    pub(super) is_last: bool,
    /// What the file says of committed entries.
    told: u64,
    pub(super) purged: Option<LogId>,
    /// Entries from here on are thrown away before `records` are written.
    truncated: Option<u64>,
    records: Vec<(u64, Vec<u8>)>,
    last: Option<LogId>,
    bytes: usize,
}

impl Batch {
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let records = entries.iter().map(|entry| (entry.log_id.index, encode(entry)));
        let before = self.records.len();
        self.last = entries.last().map(|entry| entry.log_id).or(self.last);
        self.records.extend(records);
        self.bytes += self.records.iter().skip(before).map(|(_, r)| r.len()).sum::<usize>();
    }

    pub(super) fn truncate(&mut self, since: u64) {
        self.records.retain(|(index, _)| *index < since);
        // Nothing was said about what stays: the next entries tell.
        self.last = self.last.filter(|last| last.index < since);
        self.truncated = Some(self.truncated.map_or(since, |before| before.min(since)));
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The last committed entry, if the file is to be told.
    fn committed_to_tell(&self) -> Option<LogId> {
        let others = self.vote.is_some()
            || self.truncated.is_some()
            || self.purged.is_some()
            || self.is_last;
        self.committed.filter(|last| others || last.index >= self.told + COMMITTED_STEP)
    }

    /// Begins anew, after all but what was not told is in the file.
    fn is_written(&mut self) {
        let told = self.committed_to_tell();
        *self = Self {
            committed: self.committed.filter(|_| told.is_none()),
            told: told.map_or(self.told, |told| told.index),
            ..Self::default()
        };
    }

    /// The last entry.
    pub(super) fn last(&self) -> Option<LogId> {
        self.last
    }
}

/// The record of an entry.
fn encode(entry: &Entry) -> Vec<u8> {
    let message = proto::from_entry(entry);
    record::seal(&entry.log_id.index.to_be_bytes(), |record| {
        record.reserve_exact(message.encoded_len());
        record.extend_from_slice(&message.encode_to_vec());
    })
}

/// The file of the log. Only one process has it open, once.
#[derive(Debug)]
pub(super) struct LogFile {
    file: FileState,
    /// Taken when the file is closed.
    database: RwLock<Option<Database>>,
    node: NodeId,
    cluster: AtomicU64,
    entered: AtomicBool,
}

impl LogFile {
    pub(super) fn open(path: &Path, check: bool) -> Result<Self> {
        let file = FileState::new(path, WHEN_DAMAGED);
        let (database, identity) = file.guard("open", || {
            if !path
                .try_exists()
                .map_err(|e| file.io("it cannot be looked for", e).during("open"))?
            {
                create(&file)?;
            }
            let handle = OpenOptions::new().read(true).write(true).open(path);
            let handle = handle.map_err(|e| file.io("it cannot be opened", e).during("open"))?;
            let database = open_database(handle, check);
            let database = database.map_err(|e| file.storage(e).during("open"))?;
            let identity = identity(&file, &database)?;
            Ok((database, identity))
        })?;
        let Identity { node, cluster, entered } = identity;
        let (cluster, entered) = (AtomicU64::new(cluster), AtomicBool::new(entered));
        Ok(Self { file, database: RwLock::new(Some(database)), node, cluster, entered })
    }

    /// Closes the file; nothing can be read or written any more.
    pub(super) fn close(&self) {
        self.database.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn with_database<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Database) -> Result<T>,
    ) -> Result<T> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || self.file.closed().during(operation);
        let database = database.as_ref().ok_or_else(closed)?;
        self.file.guard(operation, || work(database))
    }

    fn begin_read(&self, database: &Database) -> Result<ReadTransaction> {
        database.begin_read().map_err(|e| self.file.storage(e).during("read"))
    }

    pub(super) fn identity(&self) -> Identity {
        Identity {
            node: self.node,
            cluster: self.cluster.load(Ordering::Acquire),
            entered: self.entered.load(Ordering::Acquire),
        }
    }

    pub(super) fn set_entered(&self) -> Result<()> {
        self.change(|transaction| put(transaction, ENTERED, &[1]))?;
        self.entered.store(true, Ordering::Release);
        Ok(())
    }

    pub(super) fn set_cluster(&self, cluster: u64) -> Result<()> {
        self.change(|transaction| {
            put(transaction, CLUSTER, &cluster.to_be_bytes())?;
            Ok(())
        })?;
        self.cluster.store(cluster, Ordering::Release);
        Ok(())
    }

    /// The vote, the last committed, purged and stored entry.
    #[expect(clippy::type_complexity, reason = "four facts of the same file, named by the caller")]
    pub(super) fn state(
        &self,
    ) -> Result<(Option<Vote>, Option<LogId>, Option<LogId>, Option<LogId>)> {
        let bad = |what: proto::Malformed| self.file.damaged(what.to_string()).during("open");
        let vote = self.message::<peer::Vote>(VOTE)?;
        let vote = vote.map(|vote| proto::vote(Some(vote))).transpose().map_err(bad)?;
        let committed = proto::optional_log_id(self.message(COMMITTED)?).map_err(bad)?;
        let purged = proto::optional_log_id(self.message(PURGED)?).map_err(bad)?;
        let last = self.with_database("open", |database| {
            let failed = |error: redb::Error| self.file.storage(error).during("open");
            let transaction = self.begin_read(database)?;
            let entries = transaction.open_table(ENTRIES).map_err(|e| failed(e.into()))?;
            let Some((index, record)) = entries.last().map_err(|e| failed(e.into()))? else {
                return Ok(None);
            };
            Ok(Some(self.decode(index.value(), record.value())?.log_id))
        })?;
        Ok((vote, committed, purged, last.max(purged)))
    }

    /// Entries from `start` to before `end`, or the first of them if they have
    /// more than `most` bytes.
    pub(super) fn read(&self, start: u64, end: u64, most: usize) -> Result<Vec<Entry>> {
        self.with_database("read", |database| {
            let failed = |error: redb::Error| self.file.storage(error).during("read");
            let transaction = self.begin_read(database)?;
            let table = transaction.open_table(ENTRIES).map_err(|e| failed(e.into()))?;
            let (mut entries, mut bytes): (Vec<Entry>, usize) = (Vec::new(), 0);
            for row in table.range(start..end).map_err(|e| failed(e.into()))? {
                let (index, record) = row.map_err(|e| failed(e.into()))?;
                let next = entries.last().map(|entry: &Entry| entry.log_id.index + 1);
                if next.is_some_and(|next| next != index.value()) {
                    break;
                }
                let entry = self.decode(index.value(), record.value())?;
                bytes = bytes.saturating_add(entry.bytes());
                if !entries.is_empty() && bytes > most {
                    break;
                }
                entries.push(entry);
            }
            Ok(entries)
        })
    }

    /// Writes a batch, syncs, and empties the batch.
    pub(super) fn write(&self, batch: &mut Batch) -> Result<()> {
        self.change(|transaction| fill(transaction, batch))?;
        batch.is_written();
        Ok(())
    }

    fn change(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<()> {
        self.with_database("write", |database| {
            let failed = |error: redb::Error| self.file.storage(error).during("write");
            let mut transaction = database.begin_write().map_err(|e| failed(e.into()))?;
            transaction.set_durability(Durability::Immediate).map_err(|e| failed(e.into()))?;
            work(&transaction).map_err(failed)?;
            transaction.commit().map_err(|error| {
                // It may be on the disk, or not.
                self.file.stop(&format!("a commit failed: {error}"));
                failed(error.into())
            })
        })
    }

    fn message<M: prost::Message + Default>(&self, key: &[u8]) -> Result<Option<M>> {
        let Some(value) = self.with_database("read", |database| meta(&self.file, database, key))?
        else {
            return Ok(None);
        };
        let bad = |e: prost::DecodeError| self.file.record(key, e.into()).during("read");
        M::decode(value.as_slice()).map(Some).map_err(bad)
    }

    fn decode(&self, index: u64, record: &[u8]) -> Result<Entry> {
        let key = index.to_be_bytes();
        let damaged = |damage| {
            let name = format!("log entry {index}");
            self.file.record(name.as_bytes(), damage).during("read")
        };
        let payload = record::unseal(&key, record).map_err(damaged)?;
        let message = peer::Entry::decode(payload).map_err(|e| damaged(e.into()))?;
        let entry = proto::entry(message)
            .map_err(|bad| self.file.damaged(bad.to_string()).during("read"))?;
        if entry.log_id.index == index { Ok(entry) } else { Err(damaged(record::Damage::WrongKey)) }
    }
}

fn open_database(handle: File, check: bool) -> Result<Database, redb::Error> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(check);
    Ok(builder.create_with_backend(FileBackend::new(handle)?)?)
}

fn fill(transaction: &WriteTransaction, batch: &Batch) -> Result<(), redb::Error> {
    if batch.truncated.is_some() || batch.purged.is_some() || !batch.records.is_empty() {
        let mut entries = transaction.open_table(ENTRIES)?;
        if let Some(since) = batch.truncated {
            entries.retain_in(since.., |_, _| false)?;
        }
        for (index, record) in &batch.records {
            entries.insert(index, record.as_slice())?;
        }
        if let Some(upto) = batch.purged {
            entries.retain_in(..=upto.index, |_, _| false)?;
        }
    }
    if let Some(vote) = &batch.vote {
        put(transaction, VOTE, &proto::from_vote(vote).encode_to_vec())?;
    }
    for (name, id) in [(COMMITTED, batch.committed_to_tell()), (PURGED, batch.purged)] {
        if let Some(id) = id {
            put(transaction, name, &proto::from_log_id(&id).encode_to_vec())?;
        }
    }
    Ok(())
}

fn put(transaction: &WriteTransaction, key: &[u8], value: &[u8]) -> Result<(), redb::Error> {
    let record = record::seal(key, |record| record.extend_from_slice(value));
    transaction.open_table(META)?.insert(key, record.as_slice())?;
    Ok(())
}

fn meta(file: &FileState, database: &Database, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let failed = |error: redb::Error| file.storage(error).during("read");
    let transaction = database.begin_read().map_err(|e| failed(e.into()))?;
    let table = match transaction.open_table(META) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => {
            return Err(file.damaged("it is no log of a Raft node").during("read"));
        }
        Err(other) => return Err(failed(other.into())),
    };
    let Some(sealed) = table.get(key).map_err(|e| failed(e.into()))? else { return Ok(None) };
    let value = record::unseal(key, sealed.value());
    Ok(Some(value.map_err(|damage| file.record(key, damage).during("read"))?.to_vec()))
}

fn identity(file: &FileState, database: &Database) -> Result<Identity> {
    let format = meta(file, database, FORMAT)?.unwrap_or_default();
    if format != FORMAT_NOW {
        let what = format!("its format is {:?}", String::from_utf8_lossy(&format));
        return Err(file.damaged(what).during("open"));
    }
    let number = |key: &[u8]| -> Result<u64> {
        let value = meta(file, database, key)?.unwrap_or_default();
        let bytes = <[u8; 8]>::try_from(value.as_slice());
        bytes
            .map(u64::from_be_bytes)
            .map_err(|_short| file.record(key, record::Damage::Short(value.len())).during("open"))
    };
    let entered = meta(file, database, ENTERED)?.is_some();
    Ok(Identity { node: number(NODE)?, cluster: number(CLUSTER)?, entered })
}

/// Makes an empty log under another name and then gives it its own, so that a
/// file of that name is always complete.
fn create(file: &FileState) -> Result<()> {
    let path = file.path();
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".new-{:016x}", fastrand::u64(..)));
    let aside = PathBuf::from(aside);
    let io = |what| move |e: io::Error| file.io(what, e).during("open");
    let mut open = OpenOptions::new();
    open.read(true).write(true).create_new(true);
    // It holds all that was written lately.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let handle = open.open(&aside).map_err(io("it cannot be made"))?;
    let fill = || -> Result<(), redb::Error> {
        let database = open_database(handle, false)?;
        let transaction = database.begin_write()?;
        transaction.open_table(ENTRIES)?;
        put(&transaction, FORMAT, FORMAT_NOW)?;
        put(&transaction, NODE, &fastrand::u64(1..).to_be_bytes())?;
        put(&transaction, CLUSTER, &0_u64.to_be_bytes())?;
        transaction.commit()?;
        Ok(())
    };
    let filled = fill().map_err(|e| file.storage(e).during("open")).and_then(|()| {
        match std::fs::hard_link(&aside, path) {
            // Somebody else was faster; who of us gets it, its lock decides.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(io("it cannot be made")),
        }
    });
    if let Err(error) = std::fs::remove_file(&aside) {
        tracing::debug!(file = %aside.display(), %error, "a temporary file stays");
    }
    filled?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))
        .and_then(|folder| folder.sync_all())
        .map_err(io("its folder cannot be synced"))
}
