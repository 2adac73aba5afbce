//! The lock that keeps a second process away from a state file.

use std::{
    fmt,
    fs::{self, File, TryLockError},
    io::{Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::{beside, failed};
use crate::{Error, Result};

pub(super) trait Lock: fmt::Debug + Send + 'static {
    /// Checks that the lock is still ours.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if somebody removed it, so that another process may hold it.
    fn check(&self) -> Result<()>;
}

/// A lock of the kernel on a file beside the state: it ends with the process, however that
/// ends, so none is left behind. The file stays, and names the holder.
#[derive(Debug)]
pub(super) struct FileLock {
    path: PathBuf,
    file: File,
}

impl FileLock {
    pub(super) fn acquire(state: &Path) -> Result<Self> {
        let path = beside(state, ".lock");
        loop {
            let mut options = File::options();
            let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut file = opened.open(&path).map_err(failed("cannot open", &path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(in_use(state, &path, &mut file)),
                Err(TryLockError::Error(error)) => return Err(failed("cannot lock", &path)(error)),
            }
            let lock = Self { path: path.clone(), file };
            // Who held it may have removed it between our open and our lock.
            if lock.is_in_place() {
                lock.sign().map_err(failed("cannot write", &path))?;
                return Ok(lock);
            }
        }
    }

    /// Writes who holds it, for the message to others.
    fn sign(&self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        writeln!(&self.file, "{}", std::process::id())
    }

    fn is_in_place(&self) -> bool {
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }
}

impl Lock for FileLock {
    fn check(&self) -> Result<()> {
        if self.is_in_place() {
            return Ok(());
        }
        let lock = self.path.display();
        let reason = format!("{lock} was removed or replaced, so another process may hold it");
        Err(Error::Fenced { reason })
    }
}

fn in_use(state: &Path, lock: &Path, file: &mut File) -> Error {
    let mut holder = String::new();
    let holder = match file.read_to_string(&mut holder) {
        Ok(_) if !holder.trim().is_empty() => format!("process {}", holder.trim()),
        _ => "another process".to_owned(),
    };
    let (state, lock) = (state.display(), lock.display());
    let message = format!(
        "{state} is in use by {holder}, which holds {lock}: stop that process, or give this one \
         a file of its own"
    );
    Error::other("opening the state", message).permanent()
}
