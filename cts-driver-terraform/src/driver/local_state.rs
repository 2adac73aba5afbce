//! The file in which the tool's backend `local` keeps the state of a task: where
//! it is, and its repair after the tool was killed while writing it.
//!
//! The tool truncates the file and writes it again, after each resource that it
//! made (`OpenTofu` 1.6 and Terraform 1.11, observed): a kill or a loss of power in
//! between leaves it empty or cut short. An empty state is to the tool one without
//! resources. It would make those that are still wanted a second time, and nothing
//! would ever remove the others.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Component, Path, PathBuf},
};

use cts_tasks::{Literal, TaskName};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use serde::de::IgnoredAny;

use super::files::blocking;
use crate::{Backend, Error, Result};

/// The directory in which the backend keeps workspaces by default.
pub(super) const LOCAL_STATES: &str = "terraform.tfstate.d";

/// The tool's name of a state.
const STATE: &str = "terraform.tfstate";

/// The directory of all workspaces of a backend `local`.
pub(super) fn workspaces(directory: &Path, backend: &Backend) -> PathBuf {
    match backend.place().get("workspace_dir") {
        Some(Literal::String(states)) => resolved(directory, states),
        _ => resolved(directory, LOCAL_STATES),
    }
}

/// The state of a task in a directory with this backend; `None` where the
/// backend keeps no files.
pub(super) fn path(directory: &Path, backend: &Backend, task: &TaskName) -> Option<PathBuf> {
    let own = || workspaces(directory, backend).join(task.as_str()).join(STATE);
    (backend.label() == "local").then(own)
}

/// A path as the tool resolves it, from the task's directory.
pub(super) fn resolved(directory: &Path, path: &str) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in directory.join(path).components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    resolved
}

/// Restores a state that was cut short from the backup that the tool wrote
/// before: the state as it was when the killed command began.
///
/// A state with anything else in it that is no state is left for the tool to
/// refuse, and one that another command has locked is left alone: that command
/// may be writing it. What a cut file still holds is kept beside it. Cut short
/// itself, this can be called again.
///
/// # Errors
///
/// [`Error::File`] when a file could not be read or written.
pub(super) async fn restore(path: PathBuf, task: &TaskName) -> Result<()> {
    let task = task.clone();
    blocking(move || {
        let restored = restore_file(&path).map_err(|source| Error::File {
            action: "cannot restore",
            path: path.clone(),
            source,
        })?;
        if let Some(backup) = restored {
            tracing::warn!(
                task.name = %task, state = %path.display(), backup = %backup.display(),
                "the state was cut short when a command was killed: restored it from the backup; \
                 what that command made is in no state and may be made a second time"
            );
        }
        Ok(())
    })
    .await
}

/// Returns the backup that was restored.
fn restore_file(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !lock(&file)? {
        return Ok(None);
    }
    if ends_as_a_state(&mut file)? {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    if !is_cut_short(&content) {
        return Ok(None);
    }
    let backup = with_suffix(path, ".backup");
    let whole = match fs::read(&backup) {
        // The first command that ever wrote a state was killed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    if serde_json::from_slice::<IgnoredAny>(&whole).is_err() {
        return Ok(None);
    }
    if !content.is_empty() {
        fs::copy(path, with_suffix(path, ".cut-short"))?;
    }
    // In place: the lock is on this file, and a tool that waits for it has it open.
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&whole)?;
    file.sync_all()?;
    Ok(Some(backup))
}

/// Takes the tool's own lock on a state until the file is closed; `false` where
/// another process has it.
///
/// An open file description owns the lock, so that another task of this process
/// which closes the same file does not end it.
fn lock(file: &File) -> io::Result<bool> {
    #[expect(clippy::cast_possible_truncation, reason = "both are small, and their type differs")]
    let whole_file = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let request = FcntlArg::F_OFD_SETLK(&whole_file);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let request = FcntlArg::F_SETLK(&whole_file);
    match fcntl(file, request) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Looks at the last bytes alone, since a state may have megabytes: the tool
/// indents all but its last brace. Leaves the file at its beginning.
fn ends_as_a_state(file: &mut File) -> io::Result<bool> {
    const END: &[u8; 3] = b"\n}\n";
    let mut last = [0; END.len()];
    if file.metadata()?.len() >= END.len() as u64 {
        file.seek(io::SeekFrom::End(-3))?;
        file.read_exact(&mut last)?;
        file.rewind()?;
    }
    Ok(last == *END)
}

/// Returns `true` for the beginning of a state, and for zeros, which file systems
/// leave where the power failed before the content was written.
fn is_cut_short(content: &[u8]) -> bool {
    content.iter().all(|byte| *byte == 0)
        || serde_json::from_slice::<IgnoredAny>(content).is_err_and(|error| error.is_eof())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        /// Each beginning of a state is one, whatever stands in it; the whole is none.
        #[test]
        fn every_beginning_is_cut_short(name in ".*", serial: u32, part in 0.0..1.0f64) {
            let state = json!({"version": 4, "serial": serial, "resources": [{"name": name}]});
            let mut whole = serde_json::to_vec_pretty(&state).unwrap();
            whole.push(b'\n');
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a short text")]
            let at = (whole.len() as f64 * part) as usize;
            // Without its line feed it is whole.
            let at = at.min(whole.len() - 2);
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(STATE);
            fs::write(&path, &whole[..at]).unwrap();
            fs::write(with_suffix(&path, ".backup"), b"{}\n").unwrap();
            prop_assert!(restore_file(&path).unwrap().is_some());
            prop_assert!(is_cut_short(&whole[..at]));
            prop_assert!(!is_cut_short(&whole));
        }

        #[test]
        fn nothing_is_restored_over_what_is_not_understood(content: Vec<u8>, backup: Vec<u8>) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(STATE);
            fs::write(&path, &content).unwrap();
            fs::write(with_suffix(&path, ".backup"), &backup).unwrap();
            let restored = restore_file(&path).unwrap().is_some();
            let left = fs::read(&path).unwrap();
            if restored {
                prop_assert!(is_cut_short(&content) && left == backup);
            } else {
                prop_assert_eq!(left, content);
            }
        }
    }

    #[test]
    fn a_first_state_has_no_backup() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(STATE);
        assert!(restore_file(&path).unwrap().is_none());
        fs::write(&path, "").unwrap();
        assert!(restore_file(&path).unwrap().is_none());
    }
}
