//! How a durable store is opened.

use std::time::Duration;

use crate::backend::store::topics::DEFAULT_WATCH_BUFFER;

/// When a change reaches the disk.
///
/// Whatever it is, a change is all there or not at all after a crash, and no
/// version is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SyncPolicy {
    /// Before it is acknowledged, and before anybody can read it. Changes that
    /// come while others are on their way share the next sync.
    ///
    /// What was acknowledged outlives the process, the operating system and
    /// the power, as far as the disk keeps what it says it has.
    #[default]
    EveryCommit,
    /// This long after it was acknowledged at the latest.
    ///
    /// When the process is killed, or the machine stops, the changes of the
    /// last such interval are lost, though they were acknowledged, read and
    /// seen by watches; all up to some change stay. Nothing is lost when the
    /// store is closed.
    Within(Duration),
    /// When the operating system comes to it.
    ///
    /// What was acknowledged outlives the process. When the machine stops, the
    /// file may be damaged beyond use, which is found when it is opened. For
    /// what can be made again.
    Never,
}

/// Settings with which a durable store is opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DurableOptions {
    /// When changes reach the disk; before they are acknowledged by default.
    pub sync: SyncPolicy,
    /// Upper bound of the part of the file that is kept in memory, in bytes; 64 MiB
    /// by default. Half or more of it serves reads, the rest a transaction.
    pub cache_bytes: usize,
    /// `true` if all of the file is checked when it is opened, which reads it once;
    /// true by default. After a crash it costs nothing more, because the file is
    /// read in any case. Damage to the file's inner pages that is not found so,
    /// because it came later or this is off, shows only when they are read, and may
    /// then hide records or make the store stop; damage to a record is always
    /// found.
    pub check_on_open: bool,
    /// By how many changes of what they watch watchers may fall behind before
    /// they have to start again; 8192 by default. See
    /// [`MemoryBackend::with_watch_buffer`](crate::backend::memory::MemoryBackend::with_watch_buffer).
    pub watch_buffer: usize,
}

impl Default for DurableOptions {
    fn default() -> Self {
        Self {
            sync: SyncPolicy::default(),
            cache_bytes: 64 << 20,
            check_on_open: true,
            watch_buffer: DEFAULT_WATCH_BUFFER,
        }
    }
}
