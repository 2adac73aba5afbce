//! Errors of the write-ahead log: the file, the offset, and what to do.

use std::{io, path::PathBuf};

use crate::backend::{self, raft::config::WHEN_DAMAGED};

/// A failure of the write-ahead log.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    /// The system refused an operation on a file.
    #[error("{}: {what}: {source}", file.display())]
    Io { file: PathBuf, what: &'static str, source: io::Error },
    /// Another process, or another handle of this one, has the log open.
    #[error("{} is in use by another process, and only one may have it open", folder.display())]
    InUse { folder: PathBuf },
    /// The bytes of a file are not those that were written.
    #[error(
        "{} is damaged at offset {at}: {what}; nothing was changed in it; {advice}",
        file.display(), advice = WHEN_DAMAGED
    )]
    Damaged { file: PathBuf, at: u64, what: String },
    /// A file is not there that has to be.
    #[error("{} is missing: {why}; {advice}", file.display(), advice = WHEN_DAMAGED)]
    Missing { file: PathBuf, why: String },
    /// An earlier write or sync failed. What is on the disk is not known, so nothing is written
    /// until the log is opened again.
    #[error("{}: the log takes no writes any more, since this happened: {reason}; start again", folder.display())]
    Stopped { folder: PathBuf, reason: String },
    /// Entries do not follow those in the log.
    #[error("{}: an entry with index {index} cannot follow the log, whose next index is {next}", folder.display())]
    Gap { folder: PathBuf, index: u64, next: u64 },
    /// An entry is larger than a record can be.
    #[error("{}: entry {index} has {bytes} bytes, which is more than the log takes", folder.display())]
    TooLarge { folder: PathBuf, index: u64, bytes: usize },
}

impl LogError {
    pub(super) fn during(self, operation: &'static str) -> backend::Error {
        backend::Error::failed(operation, self)
    }
}
