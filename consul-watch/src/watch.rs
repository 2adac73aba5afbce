//! Watches: reads that give a new snapshot whenever Consul's data changes.
//!
//! A [`Watcher`] turns a [`Query`](crate::Query) into a [`Watch`], a stream
//! of [`Snapshot`]s. Watches of the same query share one upstream read.

mod buffer;
mod diff;
mod limiter;
mod plan;
mod state;
mod subscription;
mod view;
mod watcher;

use std::sync::Arc;

use crate::{Error, QueryMeta};

pub use buffer::{Buffer, BufferTimer, Buffered};
pub use diff::{Diff, Event, InstanceKey, Items, Keyed, changes};
pub use limiter::RateLimit;
pub use state::{Liveness, WatchState};
pub use subscription::Watch;
pub use watcher::{Watcher, WatcherBuilder};

/// What a query answered, at one moment.
///
/// Cheap to clone: subscribers share the data.
#[derive(Debug)]
#[non_exhaustive]
pub struct Snapshot<T> {
    /// The decoded, normalised answer.
    pub data: Arc<T>,
    /// What the answer's headers said.
    pub meta: QueryMeta,
    /// Counts the snapshots of the shared read, from 1. A gap between two that
    /// a subscriber sees means that it was slow and newer data took the place
    /// of what it missed.
    pub seq: u64,
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self {
            data: Arc::clone(&self.data),
            meta: self.meta.clone(),
            seq: self.seq,
        }
    }
}

/// Why a watch has no newer data at the moment, or will have none any more.
///
/// All subscribers of a read get the same error, so it is shared and cheap to clone.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", if *.last { "the watch has ended" } else { "the watch has failed and will try again" })]
pub struct WatchError {
    #[source]
    cause: Arc<Error>,
    last: bool,
}

impl WatchError {
    fn new(cause: Error, last: bool) -> Self {
        Self {
            cause: Arc::new(cause),
            last,
        }
    }

    fn closed() -> Self {
        let source = "the watcher was shut down".into();
        Self::new(
            Error::Other {
                operation: "watch",
                retryable: false,
                source,
            },
            true,
        )
    }

    /// What happened.
    pub fn cause(&self) -> &Error {
        &self.cause
    }

    /// Whether this is the watch's last item: no retry can cure it. A fresh
    /// [`Watcher::watch`] of the query tries again.
    pub fn is_fatal(&self) -> bool {
        self.last
    }
}
