//! Where a controller runs.

use std::fmt;

use futures::{StreamExt as _, stream, stream::BoxStream};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

/// Says whether controllers run here now.
///
/// Bind it to whatever elects one of several processes. Nothing keeps a process
/// that lost its lease from finishing what it does at that moment: uids and
/// versions in writes keep that safe.
pub trait Lease: fmt::Debug + Send + Sync + 'static {
    /// Whether the lease is held: now, and then at each change. When the stream
    /// ends, the last value stays.
    fn held(&self) -> BoxStream<'static, bool>;
}

/// A lease that is always held.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysHeld;

impl Lease for AlwaysHeld {
    fn held(&self) -> BoxStream<'static, bool> {
        stream::iter([true]).boxed()
    }
}

/// A lease that the program itself gives and takes, e.g. as it becomes a leader
/// and ceases to be one. A clone is another handle to the same lease.
#[derive(Debug, Clone)]
pub struct Leadership {
    held: watch::Sender<bool>,
}

impl Default for Leadership {
    /// Not held.
    fn default() -> Self {
        Self { held: watch::Sender::new(false) }
    }
}

impl Leadership {
    /// Whether it is held now.
    pub fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Gives or takes the lease. Never waits; the last call counts.
    pub fn set(&self, held: bool) {
        self.held.send_replace(held);
    }
}

impl Lease for Leadership {
    fn held(&self) -> BoxStream<'static, bool> {
        WatchStream::new(self.held.subscribe()).boxed()
    }
}
