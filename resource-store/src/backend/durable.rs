//! The backend that keeps resources in one file.

pub(in crate::backend) mod fault;
mod layout;
mod options;
pub(in crate::backend) mod record;
pub(crate) mod table;
pub(crate) mod table_writer;
mod unsynced;
mod versions;
mod writer;

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};
pub use options::{DurableOptions, SyncPolicy};
use prost::Message as _;
use tokio::sync::{Mutex, Semaphore, oneshot};

use self::{
    table::{Table, TableOptions, TableView},
    writer::{Job, Reply, Request, Step, Writer},
};
use super::{
    Backend, Consistency, Error, Query, ResourceStream, Result, Watch,
    store::{sync::blocking, topics::Topics, watch::StoreWatch},
};
use crate::pb::{Id, Resource};

/// Number of changes that may wait for the disk; callers of further ones wait for a
/// place.
const QUEUE: usize = 1024;
/// Bounds of one step of a restore: number of resources, and approximate bytes.
const STAGE: usize = 512;
const STAGE_BYTES: usize = 4 << 20;

/// Keeps resources in one file.
///
/// A change is written, synced, made visible, told to the watches and then
/// acknowledged, in this order; changes that come meanwhile share the next
/// sync. [`SyncPolicy`] says what that order is worth in a crash, and which
/// others there are. A read takes the state after the last commit, without
/// waiting for writers, so both modes of consistency are linearizable.
///
/// Versions are numbers that grow. None is given twice, also after a crash;
/// they skip ahead when the store is opened.
///
/// Only one process may have a file open. Each record has a checksum of its
/// own over its key and content, which is looked at when it is read; what is
/// damaged is an error that names the file and the record, never an answer.
/// When a commit fails, as on a full disk, the store can still be read, but
/// refuses every change until it is opened again. When damage within the file
/// makes its storage fail, the store refuses everything; a process that is
/// built to abort at a panic ends then.
///
/// One resource is read on the executor: at most a few pages of the file,
/// which come from memory as a rule. All else is read and written on other
/// threads.
///
/// A clone is another handle to the same store. The file is closed by
/// [`DurableBackend::close`], or after the last handle is gone.
///
/// ```
/// use resource_store::backend::{Backend, Consistency, durable::DurableBackend};
/// use resource_store::demo;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let file = folder.path().join("resources.redb");
/// let store = DurableBackend::open(&file, Default::default()).await?;
/// let stored = store.write_cas(demo::artist("korn").encode()).await?;
/// store.close().await?;
///
/// let store = DurableBackend::open(&file, Default::default()).await?;
/// let id = stored.id.as_ref().ok_or("no id")?;
/// assert_eq!(store.read(Consistency::Strong, id).await?, stored);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct DurableBackend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    view: Arc<TableView>,
    topics: Arc<Topics>,
    jobs: Sender<Job>,
    queue: Arc<Semaphore>,
    /// Held by the restore that is under way.
    restoring: Mutex<()>,
}

impl DurableBackend {
    /// Opens the store in a file, or makes an empty one. Its folder must be
    /// there.
    ///
    /// After a crash, what the storage keeps is put right first, which reads
    /// the whole file, as [`DurableOptions::check_on_open`] does.
    ///
    /// # Errors
    ///
    /// If the file is open in another process or by another handle, is no
    /// store, is damaged, or cannot be read and written; the error names it.
    pub async fn open(path: impl AsRef<Path>, options: DurableOptions) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let topics = Arc::new(Topics::new(options.watch_buffer));
        let (jobs, receiver) = mpsc::channel();
        let to_publish = Arc::clone(&topics);
        let view = blocking(move || {
            let table = Table::open(
                &path,
                &TableOptions {
                    cache_bytes: options.cache_bytes,
                    check: options.check_on_open,
                    synced: options.sync != SyncPolicy::Never,
                    // All commits are durable here, and it adds to each.
                    advice: "replace it by a copy",
                },
            )?;
            let view = table.view();
            let writer = Writer::new(table, to_publish, receiver, options.sync)?;
            let thread = std::thread::Builder::new().name("resource-store".to_owned());
            let spawned = thread.spawn(move || writer.run());
            let failed = |e| view.file().io("its thread cannot be started", e).during("open");
            drop(spawned.map_err(failed)?);
            Ok(view)
        })
        .await?;
        let queue = Arc::new(Semaphore::new(QUEUE));
        let restoring = Mutex::new(());
        Ok(Self { shared: Arc::new(Shared { view, topics, jobs, queue, restoring }) })
    }

    /// Returns the number of stored resources.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn len(&self) -> Result<u64> {
        self.shared.view.current().len()
    }

    /// Returns `true` if nothing is stored.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Brings everything to the disk and closes the file. Other handles get
    /// errors from then on, and watches end.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, or was closed before.
    pub async fn close(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.ask(Job::Close(reply), answer).await
    }

    async fn change<T>(&self, request: impl FnOnce(Reply<T>) -> Request + Send) -> Result<T> {
        let Ok(permit) = Arc::clone(&self.shared.queue).acquire_owned().await else {
            return Err(self.closed());
        };
        let (reply, answer) = oneshot::channel();
        self.ask(Job::Change(request(reply), permit), answer).await
    }

    async fn ask<T>(&self, job: Job, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        if self.shared.jobs.send(job).is_err() {
            return Err(self.closed());
        }
        answer.await.unwrap_or_else(|_| Err(self.closed()))
    }

    fn closed(&self) -> Error {
        self.shared.view.file().closed().during("write")
    }

    async fn step(&self, step: Step) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.ask(Job::Restore(step, reply), answer).await
    }
}

#[async_trait]
impl Backend for DurableBackend {
    async fn read(&self, _: Consistency, id: &Id) -> Result<Arc<Resource>> {
        self.shared.view.current().read(id)
    }

    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
        self.change(|reply| Request::Write(Box::new(resource), reply)).await
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        self.change(|reply| Request::Delete(Box::new(id.clone()), version.to_owned(), reply)).await
    }

    async fn list(&self, _: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        let (snapshot, query) = (self.shared.view.current(), query.clone());
        blocking(move || snapshot.list(&query)).await
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        let (snapshot, owner) = (self.shared.view.current(), owner.clone());
        blocking(move || snapshot.list_by_owner(&owner)).await
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        let reader = self.shared.topics.subscribe(query);
        let snapshot = self.shared.view.current();
        let index = snapshot.index();
        let resources = snapshot.stream(Some(query.clone()));
        Ok(StoreWatch::new(query.clone(), reader, index, resources).boxed())
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        Ok(self.shared.view.current().stream(None))
    }

    async fn restore(&self, mut resources: ResourceStream) -> Result<()> {
        let _turn = self.shared.restoring.lock().await;
        self.step(Step::Clear).await?;
        // Whatever ends this early leaves nothing behind.
        let unfinished = Unfinished(&self.shared.jobs);
        let (mut highest, mut bytes) = (0, 0);
        let mut batch = Vec::new();
        while let Some(resource) = resources.try_next().await? {
            highest = highest.max(resource.version.parse().unwrap_or(0));
            bytes += resource.encoded_len();
            batch.push(resource);
            if batch.len() >= STAGE || bytes >= STAGE_BYTES {
                bytes = 0;
                self.step(Step::Stage(std::mem::take(&mut batch))).await?;
            }
        }
        self.step(Step::Stage(batch)).await?;
        self.step(Step::Adopt(highest)).await?;
        drop(unfinished);
        Ok(())
    }

    /// The file must be where it was, because one that was removed or replaced
    /// takes writes that nobody finds after a restart.
    async fn ready(&self) -> Result<()> {
        let view = Arc::clone(&self.shared.view);
        blocking(move || view.file().ready()).await
    }
}

/// Has what was staged thrown away, if there is still anything.
struct Unfinished<'a>(&'a Sender<Job>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let (reply, _) = oneshot::channel();
        // A closed store throws it away when it is opened.
        drop(self.0.send(Job::Restore(Step::Clear, reply)));
    }
}
