//! The changes that a watch has missed in its topic while it catches up.

use std::sync::Arc;

use super::{backlog::Backlog, change::Change, topic::Spill};
use crate::backend::Query;

/// The changes that a watch shows.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) query: Query,
    /// Changes up to this index are part of the snapshot.
    pub(super) snapshot_index: u64,
}

impl Shown {
    pub(super) fn contains(&self, change: &Change) -> bool {
        change.index > self.snapshot_index && self.query.covers(&change.resource)
    }
}

/// The changes that a watcher which catches up has missed in the topic.
#[derive(Debug)]
pub(crate) struct Missed {
    shown: Arc<Shown>,
    backlog: Backlog,
}

impl Missed {
    /// Nothing was missed yet.
    pub(super) fn new(shown: Arc<Shown>) -> Self {
        Self { shown, backlog: Backlog::default() }
    }
}

impl Spill<Change> for Missed {
    fn push(&mut self, change: Change) {
        // A backlog must not take in what the snapshot has: it merges a creation
        // and its delete into nothing.
        if self.shown.contains(&change) {
            self.backlog.push(change);
        }
    }

    fn pop(&mut self) -> Option<Change> {
        self.backlog.pop()
    }

    fn bytes(&self) -> usize {
        self.backlog.bytes()
    }
}
