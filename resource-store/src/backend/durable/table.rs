//! The table of resources in one file, and immutable views of it.
//!
//! A view stays what it was while the table changes; the current one is
//! replaced by each commit, so that a read costs no transaction.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io,
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase as _,
    ReadableTableMetadata as _, TableError, backends::FileBackend,
};

use super::{
    fault::{Fault, FileState},
    layout::{INDEX, META, OWNED, Place, RESOURCES},
    record::{self, Damage},
    table_writer::TableWriter,
    unsynced::Unsynced,
};
use crate::{
    backend::{
        Error, Query, ResourceStream, Result,
        store::{condition, folder::sync_around, key, sync::blocking},
    },
    pb::{Id, Resource},
};

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

const FORMAT: &[u8] = b"format";
const FORMAT_NOW: &[u8] = b"1";

/// Bounds of one read: number of records, and least number of their bytes.
const PAGE_RECORDS: usize = 256;
const PAGE_BYTES: usize = 1 << 20;

/// Settings with which a table is opened.
#[derive(Debug, Clone)]
pub(crate) struct TableOptions {
    /// Upper bound of the part of the file that is kept in memory, in bytes.
    pub(crate) cache_bytes: usize,
    /// `true` if every page is checked, which reads the whole file.
    pub(crate) check: bool,
    /// `true` if commits reach the disk, and not the operating system only.
    pub(crate) synced: bool,
    /// Advice for the operator once the file is damaged.
    pub(crate) advice: &'static str,
}

/// The resources in one file. Only one process has it open, once.
#[derive(Debug)]
pub(crate) struct Table {
    database: Database,
    view: Arc<TableView>,
}

/// The readable side of a table, which outlives its being closed.
#[derive(Debug)]
pub(crate) struct TableView {
    file: Arc<FileState>,
    current: ArcSwap<TableSnapshot>,
}

impl TableView {
    /// The table as of the last commit.
    pub(crate) fn current(&self) -> Arc<TableSnapshot> {
        self.current.load_full()
    }

    pub(in crate::backend) fn file(&self) -> &FileState {
        &self.file
    }
}

impl Table {
    /// Opens a file, or makes it. Blocks.
    pub(crate) fn open(path: &Path, options: &TableOptions) -> Result<Self> {
        let file = Arc::new(FileState::new(path, options.advice));
        let (database, snapshot) = file.guard("open", || {
            let database = open_database(&file, options).map_err(|fault| fault.during("open"))?;
            file.opened().map_err(|fault| fault.during("open"))?;
            let snapshot = TableSnapshot::of(&database, &file)?;
            Ok((database, snapshot))
        })?;
        let current = ArcSwap::from_pointee(snapshot);
        let view = Arc::new(TableView { file, current });
        Ok(Self { database, view })
    }

    /// Returns the readable side of the table.
    pub(crate) fn view(&self) -> Arc<TableView> {
        Arc::clone(&self.view)
    }

    /// The table as of the last commit.
    pub(crate) fn current(&self) -> Arc<TableSnapshot> {
        self.view.current()
    }

    /// Changes the table: all that `work` did is there afterwards, or nothing
    /// if it failed. Blocks, and waits until another change is over.
    ///
    /// A `durable` change is on the disk when this ends, with all before it;
    /// another one may be lost, with all after it, when the process ends
    /// without closing the table.
    pub(crate) fn change<T>(
        &self,
        durable: bool,
        work: impl FnOnce(&mut TableWriter<'_>) -> Result<T>,
    ) -> Result<T> {
        let file = &self.view.file;
        let failed = |error: redb::Error| file.storage(error).during("write");
        file.guard_writing("write", || {
            let mut transaction = self.database.begin_write().map_err(|e| failed(e.into()))?;
            transaction.set_two_phase_commit(true);
            let durability = if durable { Durability::Immediate } else { Durability::None };
            transaction.set_durability(durability).map_err(|e| failed(e.into()))?;
            let mut writer = TableWriter::new(&transaction, file, self.current().index());
            let result = work(&mut writer)?;
            if !writer.finish()? {
                return Ok(result);
            }
            transaction.commit().map_err(|error| {
                // It may be on the disk, or not.
                file.stop_writing(&format!("a commit failed: {error}"));
                failed(error.into())
            })?;
            self.view.current.store(Arc::new(TableSnapshot::of(&self.database, file)?));
            Ok(result)
        })
    }

    /// Brings to the disk what changes that were not durable have left. Blocks.
    pub(crate) fn sync(&self) -> Result<()> {
        self.change(true, |writer| {
            writer.touch();
            Ok(())
        })
    }

    /// Closes the file, so that it need not be repaired when it is opened again.
    pub(crate) fn close(self) -> Result<()> {
        let Self { database, view } = self;
        let file = &view.file;
        let closed = file.contain("close", || {
            database.close().map_err(|error| file.storage(error).during("close"))
        });
        file.close();
        closed
    }
}

/// Opens what is there, or makes it first.
fn open_database(file: &FileState, options: &TableOptions) -> Result<Database, Fault> {
    let path = file.path();
    if !path.try_exists().map_err(|e| file.io("it cannot be looked for", e))? {
        create(file, options)?;
    }
    let handle = OpenOptions::new().read(true).write(true).open(path);
    let handle = handle.map_err(|e| file.io("it cannot be opened", e))?;
    let length = handle.metadata().map_err(|e| file.io("its length cannot be read", e))?.len();
    // Files are made aside and come complete, so this is no new one.
    if length == 0 {
        return Err(file.damaged("it is empty"));
    }
    let database = database(handle, options).map_err(|error| file.storage(error))?;
    check_format(file, &database)?;
    Ok(database)
}

fn database(handle: File, options: &TableOptions) -> Result<Database, redb::Error> {
    let handle = FileBackend::new(handle)?;
    let mut builder = Builder::new();
    builder.set_cache_size(options.cache_bytes);
    builder.set_check_integrity_on_open(options.check);
    Ok(if options.synced {
        builder.create_with_backend(handle)?
    } else {
        builder.create_with_backend(Unsynced(handle))?
    })
}

/// Makes an empty store under another name and then gives it its own, so that
/// a file of that name is always complete.
fn create(file: &FileState, options: &TableOptions) -> Result<(), Fault> {
    let path = file.path();
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".new-{:016x}", fastrand::u64(..)));
    let aside = PathBuf::from(aside);
    let result = create_aside(file, &aside, options).and_then(|()| {
        match std::fs::hard_link(&aside, path) {
            // Somebody else was faster; who of us gets it, its lock decides.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(|e| file.io("it cannot be made", e)),
        }
    });
    if let Err(error) = std::fs::remove_file(&aside) {
        tracing::debug!(file = %aside.display(), %error, "a temporary file stays");
    }
    result?;
    sync_around(path).map_err(|e| file.io("its folder cannot be synced", e))
}

fn create_aside(file: &FileState, aside: &Path, options: &TableOptions) -> Result<(), Fault> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).create_new(true);
    // What it will hold is for its owner only.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let handle = open.open(aside).map_err(|e| file.io("it cannot be made", e))?;
    let options = TableOptions { check: false, synced: true, ..options.clone() };
    let fill = || -> Result<(), redb::Error> {
        let database = database(handle, &options)?;
        let transaction = database.begin_write()?;
        transaction.open_table(RESOURCES)?;
        transaction.open_table(OWNED)?;
        let record = record::seal(FORMAT, |record| record.extend_from_slice(FORMAT_NOW));
        transaction.open_table(META)?.insert(FORMAT, record.as_slice())?;
        transaction.commit()?;
        Ok(database.close()?)
    };
    fill().map_err(|error| file.storage(error))
}

/// Refuses what another version made.
fn check_format(file: &FileState, database: &Database) -> Result<(), Fault> {
    let read = || -> Result<Option<Vec<u8>>, redb::Error> {
        let meta = database.begin_read()?.open_table(META)?;
        Ok(meta.get(FORMAT)?.map(|record| record.value().to_vec()))
    };
    let record = match read() {
        Ok(Some(record)) => record,
        Ok(None) | Err(redb::Error::TableDoesNotExist(_)) => {
            return Err(file.damaged("it is no store of resources"));
        }
        Err(other) => return Err(file.storage(other)),
    };
    let format = record::unseal(FORMAT, &record).map_err(|d| file.record(FORMAT, d))?;
    if format == FORMAT_NOW {
        return Ok(());
    }
    let format = format.escape_ascii();
    Err(file.damaged(format!("its format is {format}, and this version knows format 1 only")))
}

/// The table at one moment.
pub(crate) struct TableSnapshot {
    file: Arc<FileState>,
    index: u64,
    transaction: ReadTransaction,
    resources: Rows,
    owned: Rows,
    meta: Rows,
}

impl std::fmt::Debug for TableSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableSnapshot").field("index", &self.index).finish_non_exhaustive()
    }
}

/// The beginning of a page.
#[derive(Debug, Clone)]
pub(crate) enum Page {
    Start,
    After(Vec<u8>),
    End,
}

impl TableSnapshot {
    fn of(database: &Database, file: &Arc<FileState>) -> Result<Self> {
        let open = || -> Result<_, redb::Error> {
            let transaction = database.begin_read()?;
            let resources = transaction.open_table(RESOURCES)?;
            let owned = transaction.open_table(OWNED)?;
            let meta = transaction.open_table(META)?;
            Ok((transaction, resources, owned, meta))
        };
        let (transaction, resources, owned, meta) =
            open().map_err(|e| file.storage(e).during("read"))?;
        let file = Arc::clone(file);
        let mut snapshot = Self { file, index: 0, transaction, resources, owned, meta };
        if let Some(index) = snapshot.number(INDEX)? {
            snapshot.index = index;
        }
        Ok(snapshot)
    }

    /// The position of the last change among all.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// Returns the number of resources.
    pub(crate) fn len(&self) -> Result<u64> {
        self.reading(|| self.resources.len().map_err(|e| self.failed(e)))
    }

    /// Reads one resource.
    pub(crate) fn read(&self, id: &Id) -> Result<Arc<Resource>> {
        let key = key::resource_key(id);
        let stored = self.reading(|| self.get(&key))?.ok_or(Error::NotFound)?;
        condition::check_read(&stored, id)?;
        Ok(stored)
    }

    /// Lists what a query matches. Reads as much as there is: blocks.
    pub(crate) fn list(&self, query: &Query) -> Result<Vec<Arc<Resource>>> {
        let prefix = key::query_prefix(query);
        let mut found = Vec::new();
        self.reading(|| {
            for row in self.rows(&self.resources, &prefix, None)? {
                let (key, record) = row.map_err(|e| self.failed(e))?;
                if !key.value().starts_with(&prefix) {
                    break;
                }
                let resource = self.unseal(key.value(), record.value())?;
                if query.covers(&resource) {
                    found.push(resource);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Lists what an owner owns. Blocks.
    pub(crate) fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        let prefix = key::owner_prefix(owner);
        let mut found = Vec::new();
        self.reading(|| {
            for row in self.rows(&self.owned, &prefix, None)? {
                let (key, record) = row.map_err(|e| self.failed(e))?;
                let Some(owned) = key.value().strip_prefix(prefix.as_slice()) else { break };
                let damaged = |damage| self.file.record(key.value(), damage).during("read");
                record::unseal(key.value(), record.value()).map_err(damaged)?;
                found.push(self.get(owned)?.ok_or_else(|| damaged(Damage::Missing))?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Reads a value that was kept beside the resources.
    pub(crate) fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.reading(|| {
            let Some(record) = self.meta.get(key).map_err(|e| self.failed(e))? else {
                return Ok(None);
            };
            let value = record::unseal(key, record.value());
            let value = value.map_err(|damage| self.file.record(key, damage).during("read"))?;
            Ok(Some(value.to_vec()))
        })
    }

    /// A number that was kept beside the resources.
    pub(crate) fn number(&self, key: &[u8]) -> Result<Option<u64>> {
        let Some(value) = self.meta(key)? else { return Ok(None) };
        let bytes = <[u8; 8]>::try_from(value.as_slice());
        let short = |_| self.file.record(key, Damage::Short(value.len())).during("read");
        Ok(Some(u64::from_be_bytes(bytes.map_err(short)?)))
    }

    /// All resources, or what a query matches, in the order of their keys. They
    /// are read in pages, away from the executor.
    pub(crate) fn stream(self: Arc<Self>, query: Option<Query>) -> ResourceStream {
        self.stream_of(Place::Shown, query)
    }

    /// As [`Self::stream`], what is at a place.
    pub(crate) fn stream_of(self: Arc<Self>, place: Place, query: Option<Query>) -> ResourceStream {
        let pages = stream::try_unfold((self, Page::Start), move |(snapshot, page)| {
            let query = query.clone();
            async move {
                if matches!(page, Page::End) {
                    return Ok(None);
                }
                let read = move || {
                    let (found, next) = snapshot.page(place, query.as_ref(), page)?;
                    Ok((stream::iter(found.into_iter().map(Ok)), (snapshot, next)))
                };
                blocking(read).await.map(Some)
            }
        });
        pages.try_flatten().boxed()
    }

    /// Reads one page of [`Self::stream_of`], and says where the next begins.
    fn page(
        &self,
        place: Place,
        query: Option<&Query>,
        page: Page,
    ) -> Result<(VecDeque<Arc<Resource>>, Page)> {
        let prefix = query.map(key::query_prefix).unwrap_or_default();
        let last = if let Page::After(key) = page { Some(key) } else { None };
        let (mut found, mut read, mut bytes) = (VecDeque::new(), 0, 0);
        self.reading(|| {
            let Some(resources) = self.resources_at(place)? else {
                return Ok((VecDeque::new(), Page::End));
            };
            for row in self.rows(&resources, &prefix, last.as_deref())? {
                let (key, record) = row.map_err(|e| self.failed(e))?;
                if !key.value().starts_with(&prefix) {
                    break;
                }
                let resource = self.unseal(key.value(), record.value())?;
                if query.is_none_or(|query| query.covers(&resource)) {
                    found.push_back(resource);
                }
                read += 1;
                bytes += record.value().len();
                if read == PAGE_RECORDS || bytes >= PAGE_BYTES {
                    return Ok((std::mem::take(&mut found), Page::After(key.value().to_vec())));
                }
            }
            Ok((std::mem::take(&mut found), Page::End))
        })
    }

    /// The resources at a place, if there ever was any.
    fn resources_at(&self, place: Place) -> Result<Option<Rows>> {
        match self.transaction.open_table(place.tables().0) {
            Ok(resources) => Ok(Some(resources)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(other) => Err(self.file.storage(other).during("read")),
        }
    }

    /// The rows from a prefix on, or after a key.
    fn rows(
        &self,
        rows: &Rows,
        prefix: &[u8],
        last: Option<&[u8]>,
    ) -> Result<redb::Range<'static, &'static [u8], &'static [u8]>> {
        let from = last.map_or(Bound::Included(prefix), Bound::Excluded);
        rows.range::<&[u8]>((from, Bound::Unbounded)).map_err(|e| self.failed(e))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Arc<Resource>>> {
        let Some(record) = self.resources.get(key).map_err(|e| self.failed(e))? else {
            return Ok(None);
        };
        self.unseal(key, record.value()).map(Some)
    }

    fn unseal(&self, key: &[u8], record: &[u8]) -> Result<Arc<Resource>> {
        record::unseal_resource(key, record)
            .map_err(|damage| self.file.record(key, damage).during("read"))
    }

    fn reading<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.file.guard("read", work)
    }

    fn failed(&self, error: redb::StorageError) -> Error {
        self.file.storage(error).during("read")
    }
}
