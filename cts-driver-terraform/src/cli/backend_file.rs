//! The file that hands secret attributes of a backend to `init`.

use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::{Error, Result, hex::hex};

/// A file that only its owner can read, outside of the module's folder. It is
/// removed when this is dropped.
pub(super) struct BackendFile(NamedTempFile);

impl BackendFile {
    /// Writes the file for the `init` of a directory, and removes what a killed
    /// process left of an earlier one. Whoever calls has the directory for itself.
    pub(super) fn write(directory: &Path, content: &SecretString) -> Result<Self> {
        Self::write_in(&std::env::temp_dir(), directory, content)
    }

    fn write_in(place: &Path, directory: &Path, content: &SecretString) -> Result<Self> {
        let digest = hex(&Sha256::digest(directory.as_os_str().as_encoded_bytes()));
        let prefix = format!("cts-backend-{}-", digest.get(..16).unwrap_or(&digest));
        remove_leftovers(place, &prefix);
        let failed = |source| Error::File {
            action: "cannot write the secrets of the backend for init in",
            path: place.to_owned(),
            source,
        };
        // Made with mode 0600, and never over a file that is there.
        let file = tempfile::Builder::new().prefix(&prefix).suffix(".tfbackend").tempfile_in(place);
        let mut file = file.map_err(failed)?;
        file.write_all(content.expose_secret().as_bytes()).map_err(failed)?;
        Ok(Self(file))
    }

    /// The argument of `init` that names the file.
    pub(super) fn argument(&self) -> OsString {
        let mut argument = OsString::from("-backend-config=");
        argument.push(self.0.path());
        argument
    }
}

/// Removes files of processes that were killed while `init` ran. A file that
/// cannot be removed is another user's.
fn remove_leftovers(place: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(place) else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let left: Vec<PathBuf> =
        names.filter(|name| name.starts_with(prefix)).map(|name| place.join(name)).collect();
    for path in left {
        match fs::remove_file(&path) {
            Ok(()) => tracing::warn!(
                file = %path.display(),
                "removed secrets of the backend that a killed process left"
            ),
            Err(error) => tracing::debug!(file = %path.display(), %error, "cannot remove a file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::BackendFile;

    fn files(place: &Path) -> Vec<std::path::PathBuf> {
        fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn the_file_is_its_owners_alone_and_ends_with_init() {
        let place = tempfile::tempdir().unwrap();
        let file =
            BackendFile::write_in(place.path(), Path::new("/tasks/a"), &"x = 1".into()).unwrap();
        let [path] = &files(place.path())[..] else { panic!("one file") };
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(path).unwrap(), "x = 1");
        assert_eq!(
            file.argument().to_str().unwrap(),
            format!("-backend-config={}", path.display())
        );
        drop(file);
        assert!(files(place.path()).is_empty());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_by_the_next_init_of_the_directory() {
        let place = tempfile::tempdir().unwrap();
        let write = |directory: &str| {
            BackendFile::write_in(place.path(), Path::new(directory), &"x".into()).unwrap()
        };
        let left = write("/tasks/a").0.into_temp_path().keep().unwrap();
        let other = write("/tasks/b");
        let again = write("/tasks/a");
        assert!(!left.exists());
        assert!(other.0.path().exists() && again.0.path().exists());
    }
}
