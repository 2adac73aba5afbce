//! What goes wrong with a store file, said so that the file and the record are
//! named, and what to do.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use super::record::Damage;
use crate::backend::{Error, Result};

/// The failures of a store file.
#[derive(Debug, thiserror::Error)]
pub(in crate::backend) enum Fault {
    #[error("{}: {what}: {source}", file.display())]
    Io { file: PathBuf, what: &'static str, source: std::io::Error },
    #[error("{} is in use by another process, and only one may have it open", file.display())]
    InUse { file: PathBuf },
    #[error("{} is damaged: {what}; {advice}", file.display())]
    File { file: PathBuf, what: String, advice: &'static str },
    #[error("{}: record {record} is damaged: {damage}", file.display())]
    Record { file: PathBuf, record: String, damage: Damage },
    #[error("{}: {source}", file.display())]
    Storage { file: PathBuf, source: redb::Error },
    #[error("{} is used no more since this happened: {reason}; start again", file.display())]
    Stopped { file: PathBuf, reason: String },
    #[error("{}: the transaction failed: {reason}", file.display())]
    Transaction { file: PathBuf, reason: String },
    #[error("{} is not the file any more that was opened: it was removed or replaced", file.display())]
    Gone { file: PathBuf },
    #[error("{} was closed", file.display())]
    Closed { file: PathBuf },
}

impl Fault {
    pub(in crate::backend) fn during(self, operation: &'static str) -> Error {
        Error::failed(operation, self)
    }
}

/// A file and whether it still may be used.
#[derive(Debug)]
pub(in crate::backend) struct FileState {
    path: PathBuf,
    /// Advice for the operator once the file is damaged.
    advice: &'static str,
    /// Set once the state of the file or of its handle is not known any more.
    stopped: OnceLock<String>,
    /// Set once a commit failed: what there was before can still be read.
    read_only: OnceLock<String>,
    closed: OnceLock<()>,
    /// Set once it is open; tells it from another file at its path.
    opened: OnceLock<Identity>,
}

/// The identity of a file, whatever its path.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    inode: u64,
}

impl Identity {
    fn at(path: &Path) -> std::io::Result<Self> {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt as _;

        #[cfg_attr(not(unix), expect(unused_variables, reason = "only Unix tells files apart"))]
        let metadata = path.metadata()?;
        Ok(Self {
            #[cfg(unix)]
            device: metadata.dev(),
            #[cfg(unix)]
            inode: metadata.ino(),
        })
    }
}

impl FileState {
    /// A file, with what to do once it is damaged.
    pub(in crate::backend) fn new(path: &Path, advice: &'static str) -> Self {
        Self {
            path: path.to_owned(),
            advice,
            stopped: OnceLock::new(),
            read_only: OnceLock::new(),
            closed: OnceLock::new(),
            opened: OnceLock::new(),
        }
    }

    /// Notes which file is open.
    pub(in crate::backend) fn opened(&self) -> Result<(), Fault> {
        let identity = Identity::at(&self.path).map_err(|e| self.io("it cannot be read", e))?;
        // A handle opens one file, once.
        self.opened.get_or_init(|| identity);
        Ok(())
    }

    /// Returns an error if it cannot be written any more, or is not at its path.
    pub(in crate::backend) fn ready(&self) -> Result<()> {
        let writable = self.check(&self.stopped).and_then(|()| self.check(&self.read_only));
        writable.map_err(|fault| fault.during("check"))?;
        let there = Identity::at(&self.path).ok();
        match self.opened.get() {
            Some(opened) if there.as_ref() != Some(opened) => {
                Err(Fault::Gone { file: self.path.clone() }.during("check"))
            }
            _ => Ok(()),
        }
    }

    pub(in crate::backend) fn path(&self) -> &Path {
        &self.path
    }

    pub(in crate::backend) fn io(&self, what: &'static str, source: std::io::Error) -> Fault {
        Fault::Io { file: self.path.clone(), what, source }
    }

    pub(in crate::backend) fn damaged(&self, what: impl Into<String>) -> Fault {
        Fault::File { file: self.path.clone(), what: what.into(), advice: self.advice }
    }

    pub(in crate::backend) fn transaction(&self, reason: &str) -> Fault {
        Fault::Transaction { file: self.path.clone(), reason: reason.to_owned() }
    }

    pub(in crate::backend) fn closed(&self) -> Fault {
        Fault::Closed { file: self.path.clone() }
    }

    pub(in crate::backend) fn record(&self, key: &[u8], damage: Damage) -> Fault {
        let parts = key.strip_suffix(&[0]).unwrap_or(key).split(|byte| *byte == 0);
        let parts: Vec<_> = parts.map(|part| part.escape_ascii().to_string()).collect();
        Fault::Record { file: self.path.clone(), record: parts.join("/"), damage }
    }

    /// Translates an error of the storage library; damage also stops the store.
    pub(in crate::backend) fn storage(&self, error: impl Into<redb::Error>) -> Fault {
        match error.into() {
            redb::Error::DatabaseAlreadyOpen => Fault::InUse { file: self.path.clone() },
            redb::Error::Corrupted(what) => {
                self.stop(&format!("the file is damaged: {what}"));
                self.damaged(what)
            }
            redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                self.damaged(error.to_string())
            }
            redb::Error::DatabaseClosed => self.closed(),
            source => Fault::Storage { file: self.path.clone(), source },
        }
    }

    /// Lets no more work be done.
    pub(in crate::backend) fn stop(&self, reason: &str) {
        if self.stopped.set(reason.to_owned()).is_ok() {
            tracing::error!(store.file = %self.path.display(), reason, "store is used no more");
        }
    }

    /// Lets no more be written.
    pub(in crate::backend) fn stop_writing(&self, reason: &str) {
        if self.read_only.set(reason.to_owned()).is_ok() {
            tracing::error!(store.file = %self.path.display(), reason, "store is read-only now");
        }
    }

    fn check(&self, given_up: &OnceLock<String>) -> Result<(), Fault> {
        if self.closed.get().is_some() {
            return Err(self.closed());
        }
        match given_up.get() {
            Some(reason) => Err(Fault::Stopped { file: self.path.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Lets nothing more be done, because the file is closed.
    pub(in crate::backend) fn close(&self) {
        // Once is enough.
        self.closed.get_or_init(|| ());
    }

    /// Writes to the file, as [`Self::guard`] does, unless a commit failed.
    pub(in crate::backend) fn guard_writing<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.check(&self.read_only).map_err(|fault| fault.during(operation))?;
        self.guard(operation, work)
    }

    /// Works on the file, unless that was given up. The storage checks pages
    /// when a file is opened; damage that comes later may make it panic, which
    /// ends here and lets nothing more be done.
    pub(in crate::backend) fn guard<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.check(&self.stopped).map_err(|fault| fault.during(operation))?;
        self.contain(operation, work)
    }

    /// Works on the file, whatever happened to it.
    pub(in crate::backend) fn contain<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let reason = format!("the storage failed within: {}", text_of(&*panic));
            self.stop(&reason);
            Err(Fault::Stopped { file: self.path.clone(), reason }.during(operation))
        })
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without text")
}
