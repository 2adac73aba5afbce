//! A store in one file, for a single instance.

mod disk;
mod format;
mod lock;
#[cfg(all(test, feature = "testing"))]
mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use super::{Change, State, TaskStore};
use crate::{Error, Result};
use disk::{Disk, System};
use lock::Lock;

/// Keeps everything in one file, so that events, waiting plans and tasks that were made
/// through the API outlive the process. For a single instance; several share their state
/// through a cluster.
///
/// Every commit replaces the whole file: a temporary file, synced, takes the place of the
/// old one, and the folder is synced. So a crash at any moment leaves one whole state, with
/// everything that was acknowledged. The file holds each task, its newest events and its plan
/// that waits with its text; a commit, one for each run, costs writing all of them, and two
/// syncs. `cargo bench -p cts-tasks --all-features --bench store` prints both for a machine.
///
/// The file has the mode 0600, since variables of tasks and plans may hold secrets. A file
/// `<path>.lock` beside it keeps a second process out. Both belong on a local file system.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// use cts_tasks::{FileStore, TaskStore};
///
/// let store = FileStore::new(folder.join("state.json"));
/// assert!(store.load().await?.tasks.is_empty());
///
/// let second = FileStore::new(folder.join("state.json"));
/// assert!(second.load().await.is_err(), "the file is in use");
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FileStore {
    path: PathBuf,
    inner: Arc<Mutex<Inner>>,
}

impl FileStore {
    /// Describes a store in this file. Nothing is touched before the first
    /// [`TaskStore::load`] or [`TaskStore::commit`], which makes the file's folder if it is
    /// not there, and holds the lock until the last clone of the store is gone.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { inner: Arc::new(Mutex::new(Inner::new(path.clone(), Arc::new(System)))), path }
    }

    /// Returns the file's path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Works where it may block, and to its end even if nobody waits for it any more: two
    /// commits must never overlap.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        let worked = tokio::task::spawn_blocking(move || {
            work(&mut inner.lock().unwrap_or_else(PoisonError::into_inner))
        });
        worked.await.map_err(|error| Error::other("keeping the state", error))?
    }
}

#[async_trait]
impl TaskStore for FileStore {
    async fn load(&self) -> Result<State> {
        self.blocking(Inner::load).await
    }

    async fn commit(&self, batch: &[Change]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let batch = batch.to_vec();
        self.blocking(move |inner| inner.commit(&batch)).await
    }
}

/// The file while nobody else works on it.
struct Inner {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    held: Option<Held>,
}

/// The lock with the state that it guards.
struct Held {
    /// The file itself, where `path` is a symbolic link.
    file: PathBuf,
    lock: Box<dyn Lock>,
    /// The state that was last acknowledged.
    state: State,
}

/// Without the state, which may hold secrets.
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Inner {
    fn new(path: PathBuf, disk: Arc<dyn Disk>) -> Self {
        Self { path, disk, held: None }
    }

    fn load(&mut self) -> Result<State> {
        let disk = Arc::clone(&self.disk);
        let held = self.hold()?;
        held.state = read(&*disk, &held.file)?;
        Ok(held.state.clone())
    }

    /// Locks and reads the file, unless that is done.
    fn hold(&mut self) -> Result<&mut Held> {
        if self.held.is_none() {
            self.disk
                .make_folder(&self.path)
                .map_err(failed("cannot make the folder of", &self.path))?;
            let file = self.disk.target(&self.path);
            let lock = self.disk.lock(&file)?;
            let state = read(&*self.disk, &file)?;
            self.held = Some(Held { file, lock, state });
        }
        self.held.as_mut().ok_or_else(|| Error::other("keeping the state", "it is not open"))
    }

    fn commit(&mut self, batch: &[Change]) -> Result<()> {
        let disk = Arc::clone(&self.disk);
        let held = self.hold()?;
        held.lock.check()?;
        let mut next = held.state.clone();
        for change in batch {
            next.apply(change);
        }
        let text = format::write(&next)
            .map_err(|error| Error::other("writing the state", error).permanent())?;
        replace(&*disk, &held.file, &text)?;
        held.state = next;
        Ok(())
    }
}

fn read(disk: &dyn Disk, file: &Path) -> Result<State> {
    match disk.read(file).map_err(failed("cannot read", file))? {
        Some(text) => format::read(&text)
            .map_err(|mistake| Error::other("reading the state", mistake.at(file)).permanent()),
        None => Ok(State::default()),
    }
}

/// Puts `text` into the place of what is in the file. After an error either is there.
fn replace(disk: &dyn Disk, file: &Path, text: &[u8]) -> Result<()> {
    let new = beside(file, ".new");
    disk.write(&new, text).map_err(failed("cannot write", &new))?;
    // Without this the name could be on the disk before what it names.
    disk.sync(&new).map_err(failed("cannot sync", &new))?;
    disk.rename(&new, file).map_err(failed("cannot replace", file))?;
    // Without this the old file could come back after it was acknowledged as replaced.
    disk.sync_folder(file).map_err(failed("cannot sync the folder of", file))
}

/// The path of a file beside `file`, such as `state.json.lock`.
fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}
