//! The operations on files that a [`super::FileStore`] is made of, so that a test can end the
//! machine between any two of them.

use std::{
    fmt, fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::lock::{FileLock, Lock};
use crate::Result;

pub(super) trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Makes the folder of `file` for its owner alone, if it is not there.
    fn make_folder(&self, file: &Path) -> io::Result<()>;

    /// Returns the file that a symbolic link points at, else the path itself.
    fn target(&self, file: &Path) -> PathBuf;

    /// Keeps other processes out.
    fn lock(&self, file: &Path) -> Result<Box<dyn Lock>>;

    /// Reads a file; `None` if there is none.
    fn read(&self, file: &Path) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a file, for its owner alone.
    fn write(&self, file: &Path, text: &[u8]) -> io::Result<()>;

    /// Has what was written survive a loss of power.
    fn sync(&self, file: &Path) -> io::Result<()>;

    /// Gives a file another's place.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Has the names in the folder of `file` survive a loss of power.
    fn sync_folder(&self, file: &Path) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Debug)]
pub(super) struct System;

fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Disk for System {
    fn make_folder(&self, file: &Path) -> io::Result<()> {
        let folder = folder(file);
        if folder.is_dir() {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Its own name has to survive, too, and those of the folders made above it.
        for above in folder.ancestors().skip(1) {
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            // One that was there before may be closed to us, and needs no sync.
            match fs::File::open(above) {
                Ok(folder) => folder.sync_all()?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn target(&self, file: &Path) -> PathBuf {
        fs::canonicalize(file).unwrap_or_else(|_absent| file.to_owned())
    }

    fn lock(&self, file: &Path) -> Result<Box<dyn Lock>> {
        Ok(Box::new(FileLock::acquire(file)?))
    }

    fn read(&self, file: &Path) -> io::Result<Option<Vec<u8>>> {
        match fs::read(file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, file: &Path, text: &[u8]) -> io::Result<()> {
        // One that a crash left may have another mode, or be a link to elsewhere.
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(file)?.write_all(text)
    }

    fn sync(&self, file: &Path) -> io::Result<()> {
        fs::File::open(file)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, file: &Path) -> io::Result<()> {
        fs::File::open(folder(file))?.sync_all()
    }
}
