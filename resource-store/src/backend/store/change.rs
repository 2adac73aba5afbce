//! One change of a store, as watches see it.

use std::sync::Arc;

use crate::{backend::WatchEvent, pb::Resource};

/// A change of a store.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The position of the change among all changes.
    pub(crate) index: u64,
    pub(crate) kind: ChangeKind,
    /// The resource as it is stored from now on, or as it last was.
    pub(crate) resource: Arc<Resource>,
    /// The resource that an upsert took the place of, if that one has another
    /// version of the group; see [`Change::steps`].
    replaced: Option<Arc<Resource>>,
    /// Approximate size of the resource, in bytes; 0 until the change is published.
    pub(crate) bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// The resource was not there before.
    Create,
    /// The resource took the place of an earlier version of itself.
    Update,
    Delete,
}

impl Change {
    /// Builds the change by which `resource` takes the place of `stored`.
    pub(crate) fn write(
        index: u64,
        stored: Option<&Arc<Resource>>,
        resource: Arc<Resource>,
    ) -> Self {
        let kind = if stored.is_some() { ChangeKind::Update } else { ChangeKind::Create };
        let replaced =
            stored.filter(|stored| stored.resource_type() != resource.resource_type()).cloned();
        Self { index, kind, resource, replaced, bytes: 0 }
    }

    /// Builds the change by which `stored` goes away.
    pub(crate) fn delete(index: u64, stored: Arc<Resource>) -> Self {
        Self { index, kind: ChangeKind::Delete, resource: stored, replaced: None, bytes: 0 }
    }

    /// Splits the change into the events of watches.
    ///
    /// A write in another version of the group is a delete of the old one and a
    /// creation of the new one: who watches one version only is never told of
    /// the other, and would take what is gone for what is there.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Self> + use<> {
        let Self { index, kind, resource, replaced, bytes } = self.clone();
        let kind = if replaced.is_some() { ChangeKind::Create } else { kind };
        let gone = replaced.map(|old| Self::delete(index, old));
        gone.into_iter().chain([Self { index, kind, resource, replaced: None, bytes }])
    }

    pub(crate) fn into_event(self) -> WatchEvent {
        match self.kind {
            ChangeKind::Create | ChangeKind::Update => WatchEvent::Upsert(self.resource),
            ChangeKind::Delete => WatchEvent::Delete(self.resource),
        }
    }
}
