//! Files that containers of a task share: complete or absent, with the mode that their readers
//! need.
//!
//! They are not synced to the disk: the volume lives and dies with the task's host, and a task that
//! lost its host is not started again on the same volume.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// Mode of a file that every user of the task may read: one without a secret, or with a secret that
/// others need.
pub(crate) const SHARED: u32 = 0o444;
/// Mode of the token file, which its owner rewrites.
pub(crate) const TOKEN: u32 = 0o644;
/// Mode of the copied program.
pub(crate) const PROGRAM: u32 = 0o755;

/// Writes a file beside its place, then renames it. An existing file is replaced, even a read-only
/// one.
pub(crate) async fn write(path: PathBuf, contents: Vec<u8>, mode: u32) -> Result<()> {
    let shown = path.clone();
    let work =
        move || place(&path, mode, |file| file.write_all(&contents)).map_err(|error| (path, error));
    finish("writing", shown, work).await
}

/// Copies the program.
pub(crate) async fn copy_program(from: PathBuf, to: PathBuf) -> Result<()> {
    let shown = to.clone();
    let work = move || {
        let mut source = fs::File::open(&from).map_err(|error| (from, error))?;
        place(&to, PROGRAM, |file| io::copy(&mut source, file).map(drop))
            .map_err(|error| (to, error))
    };
    finish("copying", shown, work).await
}

async fn finish(
    operation: &'static str,
    shown: PathBuf,
    work: impl FnOnce() -> Result<(), (PathBuf, io::Error)> + Send + 'static,
) -> Result<()> {
    // `tempfile` blocks, and copying a program of several MiB does so for long.
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => {
            result.map_err(|(path, error)| Error::File { operation, path, source: error })
        }
        Err(error) => Err(Error::File { operation, path: shown, source: io::Error::other(error) }),
    }
}

fn place(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // In the same directory: a rename across file systems is refused.
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    fill(file.as_file_mut())?;
    // Explicitly, since the umask may take bits away and tempfile creates with 0600.
    file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_read_only_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for contents in ["one", "two"] {
            write(path.clone(), contents.into(), SHARED).await.unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o444);
        }
        let copy = folder.path().join("copy");
        copy_program(path, copy.clone()).await.unwrap();
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o7777, 0o755);
        let mut names = names(folder.path());
        names.sort();
        assert_eq!(names, ["copy", "file"]);
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_named_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing/file");
        let error = write(missing.clone(), Vec::new(), SHARED).await.unwrap_err();
        assert!(
            error.to_string().starts_with("writing ")
                && error.to_string().ends_with("missing/file")
        );
        assert!(copy_program(missing, folder.path().join("to")).await.is_err());
        // A folder stands where the file should go.
        fs::create_dir(folder.path().join("taken")).unwrap();
        assert!(write(folder.path().join("taken"), b"x".to_vec(), SHARED).await.is_err());
        assert_eq!(names(folder.path()), ["taken"]);
    }
}
