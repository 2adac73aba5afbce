//! The claim of a task to its directory, for as long as its driver lives.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use chrono::{SecondsFormat, Utc};
use cts_tasks::{Stop, TaskName};
use tokio::time::{Instant, sleep};

use crate::{Error, Result, held};

/// Interval between two tries to claim a directory that another task has.
const RETRY: Duration = Duration::from_millis(100);

/// The claim of one task to a directory, which no second task gets meanwhile.
///
/// Two tasks in one directory would plan and apply each other's module. The
/// claim is a shared lock on a file that names the task: drivers of the same
/// task share it, also in several processes, where the lock of each run keeps
/// them apart; for another name the file is locked alone, which waits for all
/// of them. It ends with the process, however that ends.
#[derive(Debug)]
pub(super) struct DirectoryOwner {
    _file: File,
}

impl DirectoryOwner {
    /// Claims the directory, waiting at most for `limit` until another task lets go.
    pub(super) async fn claim(
        directory: &Path,
        task: &TaskName,
        limit: Duration,
        stop: &Stop,
    ) -> Result<Self> {
        let path = directory.join(".cts-owner");
        let deadline = Instant::now() + limit;
        let mut warned = false;
        loop {
            let holder = match claimed(&path, task) {
                Ok(Ok(file)) => return Ok(Self { _file: file }),
                Ok(Err(holder)) => holder,
                Err(source) => return Err(Error::File { action: "cannot lock", path, source }),
            };
            if Instant::now() >= deadline {
                return Err(Error::Occupied { path: directory.to_owned(), holder, after: limit });
            }
            if !std::mem::replace(&mut warned, true) {
                tracing::warn!(
                    directory = %directory.display(), %holder, task.name = %task,
                    "the directory belongs to another task; waiting for its end"
                );
            }
            tokio::select! {
                () = sleep(RETRY) => {}
                reason = stop.stopped() => return Err(Error::Interrupted { reason }),
            }
        }
    }
}

/// Tries once; the inner error is the holder.
fn claimed(path: &PathBuf, task: &TaskName) -> io::Result<Result<File, String>> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    match file.try_lock_shared() {
        Ok(()) => {}
        // Somebody is writing his name just now.
        Err(TryLockError::WouldBlock) => return Ok(Err("a process that starts".to_owned())),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let named = read(&mut file)?;
    if is_of(&named, task) {
        return Ok(Ok(file));
    }
    file.unlock()?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Err(named.trim().to_owned())),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    file.set_len(0)?;
    file.write_all(holder(task).as_bytes())?;
    // From alone to shared is not one step for the system: another name may
    // have come in between, and is read again.
    file.unlock()?;
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Err("a process that starts".to_owned())),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let named = read(&mut file)?;
    Ok(if is_of(&named, task) { Ok(file) } else { Err(named.trim().to_owned()) })
}

fn read(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(1024).read_to_string(&mut text)?;
    Ok(text)
}

fn is_of(named: &str, task: &TaskName) -> bool {
    named.strip_prefix("task ").and_then(|rest| rest.split(',').next()) == Some(task.as_str())
}

/// Returns a line that names the process and its task, for the lock file and for people.
pub(super) fn holder(task: &TaskName) -> String {
    format!(
        "task {task}, process {} on {}, since {}\n",
        std::process::id(),
        held::host(),
        Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cts_tasks::{Stop, TaskName};

    use super::DirectoryOwner;
    use crate::Error;

    async fn claim(directory: &std::path::Path, task: &str) -> crate::Result<DirectoryOwner> {
        let task: TaskName = task.parse().unwrap();
        DirectoryOwner::claim(directory, &task, Duration::ZERO, &Stop::new()).await
    }

    #[tokio::test]
    async fn a_directory_belongs_to_one_task_and_the_other_learns_whose_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let first = claim(directory.path(), "web").await.unwrap();
        let again = claim(directory.path(), "web").await.unwrap();
        drop(first);
        let refused = claim(directory.path(), "api").await.unwrap_err();
        assert!(matches!(refused, Error::Occupied { .. }));
        let process = format!("task web, process {} on ", std::process::id());
        assert!(refused.to_string().contains(&process), "{refused}");
        drop(again);
        // Whatever another test is starting just now shares our open files for an instant.
        let name: TaskName = "api".parse().unwrap();
        let limit = Duration::from_secs(10);
        DirectoryOwner::claim(directory.path(), &name, limit, &Stop::new()).await.unwrap();
    }
}
