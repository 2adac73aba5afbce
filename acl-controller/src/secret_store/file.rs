//! Secrets in files of one directory, for machines without a secret manager.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

use super::{Replaced, SecretStore, SecretVersion, StoredSecret};
use crate::{Error, Result};

/// Name of the file that writers lock.
const LOCK: &str = ".lock";
/// Largest file that is read, in bytes. A token's ids take about a hundred.
const LARGEST: u64 = 64 * 1024;

/// Secret store on files of one directory, one file for each secret.
///
/// Files have mode 0600 and are written to a temporary file, synced and renamed into place. Writers
/// of all processes on the machine exclude each other by a lock on the file `.lock`. A missing file
/// is a secret without a value: the first write creates it.
///
/// The name of a secret is the name of its file: not empty, without `/`, and not beginning with a
/// dot.
#[derive(Debug, Clone)]
pub struct FileSecrets {
    folder: PathBuf,
}

impl FileSecrets {
    /// Creates a store on this directory, which has to exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        // No path may lead out of the directory, and hidden files are our own.
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err(Error::input(format!(
                "secret name {name:?}: it has to be the name of a file that does not begin with a dot"
            )));
        }
        Ok(self.folder.join(name))
    }

    async fn blocking<T: Send + 'static>(
        operation: String,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let done = match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(error) => Err(io::Error::other(error)),
        };
        done.map_err(|error| Error::Other {
            operation,
            retryable: matches!(
                error.kind(),
                io::ErrorKind::Interrupted | io::ErrorKind::StorageFull | io::ErrorKind::TimedOut
            ),
            retry_after: None,
            source: error.into(),
        })
    }
}

/// Returns a file's version: each write creates a new inode, and a change in place a new
/// modification time.
fn version(path: &Path) -> io::Result<SecretVersion> {
    // Not through a link, which could point to a file of somebody else's.
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => Ok(version_of(&found)),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(SecretVersion::default()),
        Err(error) => Err(error),
    }
}

fn version_of(found: &fs::Metadata) -> SecretVersion {
    SecretVersion::new(format!(
        "{}-{}.{:09}-{}",
        found.ino(),
        found.mtime(),
        found.mtime_nsec(),
        found.size()
    ))
}

fn read(path: &Path) -> io::Result<StoredSecret> {
    let mut file = match OpenOptions::new()
        .read(true)
        // `O_NONBLOCK`, since opening a FIFO that was put there would block for ever.
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(StoredSecret::new(None, SecretVersion::default()));
        }
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"));
    }
    if found.size() > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than 64 KiB"));
    }
    let mut text = String::new();
    io::Read::by_ref(&mut file).take(LARGEST).read_to_string(&mut text)?;
    Ok(StoredSecret::new(Some(text.into()), version_of(&found)))
}

fn replace(
    folder: &Path,
    path: &Path,
    expected: &SecretVersion,
    value: &SecretString,
) -> io::Result<Replaced> {
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(folder.join(LOCK))?;
    // Closing the file releases the lock.
    lock.lock()?;
    // Under the lock: otherwise two writers could both find the expected version.
    if version(path)? != *expected {
        return Ok(Replaced::Conflict);
    }
    // The dot hides a file that a crash leaves behind from `versions`.
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(folder)?;
    file.write_all(value.expose_secret().as_bytes())?;
    file.as_file().sync_all()?;
    let written = file.as_file().metadata()?;
    file.persist(path).map_err(|error| error.error)?;
    // The directory entry has to survive a crash, too.
    File::open(folder)?.sync_all()?;
    Ok(Replaced::Done(version_of(&written)))
}

#[async_trait]
impl SecretStore for FileSecrets {
    async fn get(&self, name: &str) -> Result<Option<StoredSecret>> {
        let path = self.path(name)?;
        let operation = format!("reading the secret {}", path.display());
        Self::blocking(operation, move || read(&path)).await.map(Some)
    }

    async fn replace(
        &self,
        name: &str,
        expected: &SecretVersion,
        value: &SecretString,
    ) -> Result<Replaced> {
        let path = self.path(name)?;
        let operation = format!("writing the secret {}", path.display());
        let (folder, expected, value) = (self.folder.clone(), expected.clone(), value.clone());
        Self::blocking(operation, move || replace(&folder, &path, &expected, &value)).await
    }

    async fn versions(&self, prefix: &str) -> Result<Option<BTreeMap<String, SecretVersion>>> {
        let (folder, prefix) = (self.folder.clone(), prefix.to_owned());
        let operation = format!("listing the secrets in {}", folder.display());
        let list = move || {
            let mut found = BTreeMap::new();
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let kind = entry.file_type()?;
                if name.starts_with(&prefix) && !name.starts_with('.') && kind.is_file() {
                    let version = version(&entry.path())?;
                    if version != SecretVersion::default() {
                        found.insert(name, version);
                    }
                }
            }
            Ok(found)
        };
        Self::blocking(operation, list).await.map(Some)
    }
}
