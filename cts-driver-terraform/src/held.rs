//! The note in a task's directory that a command holds the lock on the state.
//!
//! A command that is killed leaves its lock behind, in most backends for ever.
//! Whoever finds a lock later must not break one that somebody else holds, so
//! the note says in which time the command took the lock:
//!
//! | moment | note |
//! |---|---|
//! | the command's stream shows that it reads or plans, so it has the lock | written |
//! | the command ended by itself, and did not report that the lock stayed | removed |
//! | the command was killed, or this process was | stays |
//!
//! A lock from this host that was taken between the start of the command and
//! the moment in which it was seen to have the lock is the command's: nobody
//! else could take it then. That the command is no more is known by the lock
//! on the directory, which it holds as long as it lives.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{StateLock, Step};

/// The note's file.
const NAME: &str = ".cts-held";

/// The time in which a command took the lock on the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldLock {
    /// The command, for people.
    step: String,
    started: DateTime<Utc>,
    /// The first moment in which it was seen to have the lock.
    held: DateTime<Utc>,
}

impl HeldLock {
    /// Notes in the directory that a command, started then, has the lock now.
    pub(crate) fn note(directory: &Path, step: Step, started: DateTime<Utc>) -> io::Result<()> {
        let note = Self { step: step.to_string(), started, held: Utc::now() };
        let mut file = tempfile::Builder::new().prefix(".cts-new-").tempfile_in(directory)?;
        file.write_all(&serde_json::to_vec(&note)?)?;
        file.as_file().sync_data()?;
        file.persist(path(directory)).map(drop).map_err(|error| error.error)
    }

    /// Reads the note of a directory; one that cannot be read proves nothing.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        let text = fs::read(path(directory)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Removes the note of a directory, if there is one.
    pub(crate) fn forget(directory: &Path) -> io::Result<()> {
        match fs::remove_file(path(directory)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns `true` if the lock is the one that the command took on this host.
    pub(crate) fn proves(&self, lock: &StateLock, host: &str) -> bool {
        let here = lock.who.rsplit_once('@').is_some_and(|(_, holder)| holder == host);
        here && lock.created.is_some_and(|created| (self.started..=self.held).contains(&created))
    }

    /// The command's name.
    pub(crate) fn step(&self) -> &str {
        &self.step
    }
}

fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// This machine's name, as the tool writes it into locks.
pub(crate) fn host() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use chrono::{TimeDelta, Utc};

    use super::HeldLock;
    use crate::{StateLock, Step};

    #[test]
    fn only_a_lock_of_this_host_and_of_that_time_is_the_commands() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(HeldLock::read(directory.path()), None);
        let started = Utc::now() - TimeDelta::seconds(5);
        HeldLock::note(directory.path(), Step::Apply, started).unwrap();
        let note = HeldLock::read(directory.path()).unwrap();
        let lock = |who: &str, created| StateLock {
            id: "x".into(),
            who: who.into(),
            created: Some(created),
            ..StateLock::default()
        };
        let then = started + TimeDelta::seconds(1);
        assert!(note.proves(&lock("root@here", then), "here"));
        assert!(!note.proves(&lock("root@there", then), "here"));
        assert!(!note.proves(&lock("root@here", started - TimeDelta::seconds(1)), "here"));
        let later = Utc::now() + TimeDelta::seconds(1);
        assert!(!note.proves(&lock("root@here", later), "here"));
        assert!(!note.proves(&StateLock { created: None, ..lock("root@here", then) }, "here"));
        HeldLock::forget(directory.path()).unwrap();
        HeldLock::forget(directory.path()).unwrap();
        assert_eq!(HeldLock::read(directory.path()), None);
    }

    #[test]
    fn a_note_that_was_cut_short_proves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(super::NAME), "{\"step\":").unwrap();
        assert_eq!(HeldLock::read(directory.path()), None);
    }
}
