//! The lock under which one command at a time works in a task's directory.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cts_tasks::{Stop, TaskName};
use tokio::time::{Instant, sleep};

use super::owner::holder;
use crate::{Error, Result};

/// Interval between two tries to lock a directory that is taken.
const LOOK: Duration = Duration::from_millis(100);

/// The right to work in a task's directory.
///
/// It is a lock on a file that each command also gets as its standard input,
/// so it lasts until we and the command have both let go: a command that
/// outlived the process that started it keeps the directory until it is done,
/// and nobody runs into it. A command that another task starts at the moment
/// has a copy of the lock too, from its fork to its exec: a turn may be over
/// for an instant before the next one can begin.
#[derive(Debug, Clone)]
pub(super) struct WorkdirLock(Arc<File>);

impl WorkdirLock {
    /// Waits for the directory, at most for `limit`.
    ///
    /// Whoever gets it leaves his name in the file, for those who wait.
    pub(super) async fn wait(
        directory: &Path,
        task: &TaskName,
        limit: Duration,
        stop: &Stop,
    ) -> Result<Self> {
        let path = directory.join(".cts-lock");
        let mut file = open(&path)?;
        let deadline = Instant::now() + limit;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => {
                    let named =
                        file.set_len(0).and_then(|()| file.write_all(holder(task).as_bytes()));
                    // The name is for people; the lock counts without it.
                    if let Err(error) = named {
                        tracing::debug!(%error, "cannot write the holder of a directory");
                    }
                    return Ok(Self(Arc::new(file)));
                }
                Err(TryLockError::Error(source)) => {
                    return Err(Error::File { action: "cannot lock", path, source });
                }
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    let holder = named(&path);
                    return Err(Error::Occupied {
                        path: directory.to_owned(),
                        holder,
                        after: limit,
                    });
                }
                Err(TryLockError::WouldBlock) => {}
            }
            if !told {
                told = true;
                tracing::warn!(
                    directory = %directory.display(), holder = %named(&path),
                    "waiting for a command that still works in the directory"
                );
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                reason = stop.stopped() => return Err(Error::Interrupted { reason }),
            }
        }
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.0)
    }
}

/// The holder that the file names. He may be gone, and a command that he started at work.
fn named(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match text.trim() {
        "" => "an unknown process".to_owned(),
        holder => format!("{holder} or a command that it started"),
    }
}

/// The file stays when the turn is over; only the lock on it counts.
fn open(path: &PathBuf) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    options.open(path).map_err(|source| Error::File {
        action: "cannot open",
        path: path.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::{process::Stdio, time::Duration};

    use cts_tasks::{Stop, StopReason};

    use super::WorkdirLock;
    use crate::Error;

    fn task() -> cts_tasks::TaskName {
        "web".parse().unwrap()
    }

    #[tokio::test]
    async fn a_directory_belongs_to_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let stop = Stop::new();
        let lock =
            WorkdirLock::wait(directory.path(), &task(), Duration::ZERO, &stop).await.unwrap();
        let refused =
            WorkdirLock::wait(directory.path(), &task(), Duration::ZERO, &stop).await.unwrap_err();
        assert!(matches!(refused, Error::Occupied { .. }), "{refused:?}");
        assert!(refused.is_retryable());
        let holder = format!("task web, process {} on ", std::process::id());
        assert!(refused.to_string().contains(&holder), "{refused}");
        drop(lock);
        // Whatever another test is starting just now shares our open files
        // until its program runs, and the lock with them.
        WorkdirLock::wait(directory.path(), &task(), Duration::from_secs(10), &stop).await.unwrap();
    }

    #[tokio::test]
    async fn a_command_keeps_the_directory_when_its_starter_let_go() {
        let directory = tempfile::tempdir().unwrap();
        let stop = Stop::new();
        let lock =
            WorkdirLock::wait(directory.path(), &task(), Duration::ZERO, &stop).await.unwrap();
        let mut command = tokio::process::Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::from(lock.file().try_clone().unwrap()))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        drop(lock);
        let refused = WorkdirLock::wait(directory.path(), &task(), Duration::ZERO, &stop).await;
        assert!(matches!(refused, Err(Error::Occupied { .. })));
        command.kill().await.unwrap();
        WorkdirLock::wait(directory.path(), &task(), Duration::from_secs(10), &stop).await.unwrap();
    }

    #[tokio::test]
    async fn a_stop_ends_the_wait() {
        let directory = tempfile::tempdir().unwrap();
        let stop = Stop::new();
        let _lock =
            WorkdirLock::wait(directory.path(), &task(), Duration::ZERO, &stop).await.unwrap();
        stop.stop(StopReason::Shutdown);
        let stopped =
            WorkdirLock::wait(directory.path(), &task(), Duration::from_mins(1), &stop).await;
        assert!(matches!(stopped, Err(Error::Interrupted { .. })));
    }
}
