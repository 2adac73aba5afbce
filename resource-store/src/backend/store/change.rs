//! One change of a store, as watches see it.

use std::sync::Arc;

use crate::{backend::WatchEvent, pb::Resource};

/// One change of a store.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The position of the change among all changes.
    pub(crate) index: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) resource: Arc<Resource>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Upsert,
    Delete,
}

impl Change {
    pub(crate) fn into_event(self) -> WatchEvent {
        match self.kind {
            ChangeKind::Upsert => WatchEvent::Upsert(self.resource),
            ChangeKind::Delete => WatchEvent::Delete(self.resource),
        }
    }
}
