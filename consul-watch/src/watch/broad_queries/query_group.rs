//! A group of broad queries, and the watches that they stand in for: what their task and the watches
//! share.

use std::sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicUsize};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::members::{Floor, Members};

/// A group of broad queries, and the watches that they stand in for.
#[derive(Debug)]
pub(super) struct QueryGroup {
    members: Mutex<Members>,
    /// Wakes the group when a watch joins.
    pub(super) joined: Notify,
    pub(super) stop: CancellationToken,
    pub(super) floor: Floor,
    /// Number of broad queries.
    pub(super) broad: AtomicUsize,
}

impl QueryGroup {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            members: Mutex::default(),
            joined: Notify::new(),
            stop,
            floor: Floor::default(),
            broad: AtomicUsize::new(0),
        }
    }

    pub(super) fn members(&self) -> MutexGuard<'_, Members> {
        // Nothing that holds the lock can leave the members half changed.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
