//! The file system as the log uses it: a seam, so that tests can lose, tear and reorder what was
//! not synced, and fail any operation.

use std::{
    fmt::Debug,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::error::LogError;
use crate::backend::store::folder::{sync_around, sync_names};

/// A flat folder of files.
///
/// A name that was created, renamed or removed may come back after a crash until
/// [`Disk::sync_names`] has returned.
pub(super) trait Disk: Debug + Send + Sync + 'static {
    /// Returns the names of all files, in no order.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Creates a file of `bytes` zeros and reserves its space, or fails without leaving one.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file to read and write.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name, in place of the file that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; whoever has it open can still read it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Waits until names are as durable as the content of synced files.
    fn sync_names(&self) -> io::Result<()>;
    /// Returns the path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// An open file of fixed size. Positioned reads and writes, so any thread may use it.
pub(super) trait DiskFile: Debug + Send + Sync + 'static {
    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Fills `buffer` from `at` on, or fails.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all of `bytes`, in one call to the system as a rule. Not durable until
    /// [`DiskFile::sync`] has returned.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Waits until the content that was written before is durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
}

/// Name of the file whose lock keeps other processes away.
const LOCK: &str = "lock";

/// A folder of the real file system, locked as long as this lives.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The lock ends when the file is closed, also by a crash.
    _lock: File,
}

impl Folder {
    /// Opens a folder, or creates it readable by its owner only, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self, LogError> {
        let failed = |what| move |source| LogError::Io { file: path.to_owned(), what, source };
        if !path.try_exists().map_err(failed("it cannot be looked for"))? {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true);
            // Entries hold all that was written lately.
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.create(path).map_err(failed("it cannot be created"))?;
            sync_around(path).map_err(failed("the folder around it cannot be synced"))?;
        }
        let lock = private().create(true).truncate(false).open(path.join(LOCK));
        let lock = lock.map_err(failed("its lock cannot be opened"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(LogError::InUse { folder: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(failed("it cannot be locked")(source)),
        }
    }
}

/// Options of a file that only its owner may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Reserves the space of a file, so that a full disk shows now and not at a write.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        // Some network file systems cannot reserve; there a write may find the disk full.
        Err(rustix::io::Errno::OPNOTSUPP) => {}
        other => return other.map_err(io::Error::from),
    }
    file.set_len(bytes)
}

impl Disk for Folder {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // No file of the log has a name that is not UTF-8.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.path.join(name);
        let file = private().create_new(true).open(&path)?;
        if let Err(error) = reserve(&file, bytes) {
            // Also what was reserved of it is wanted back.
            fs::remove_file(&path)?;
            return Err(error);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(private().open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_names(&self.path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl DiskFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, at)
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, at)
    }

    #[cfg(windows)]
    fn read_at(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            let read = std::os::windows::fs::FileExt::seek_read(self, buffer, at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = buffer.get_mut(read..).unwrap_or_default();
            at += read as u64;
        }
        Ok(())
    }

    #[cfg(windows)]
    fn write_at(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = std::os::windows::fs::FileExt::seek_write(self, bytes, at)?;
            bytes = bytes.get(written..).unwrap_or_default();
            at += written as u64;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
