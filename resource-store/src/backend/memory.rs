//! The backend in memory.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    Backend, Consistency, Query, ResourceStream, Result, Watch,
    store::{
        change::Change,
        state::State,
        sync::lock,
        topics::{DEFAULT_WATCH_BUFFER, Topics},
        watch::StoreWatch,
    },
};
use crate::pb::{Id, Resource};

/// Keeps resources in memory.
///
/// A read takes the current immutable state, without waiting for writers, and
/// both modes of consistency are linearizable. Writers take turns: each makes
/// the next state, makes it current, and then publishes the change, so that
/// watches see commits in order and can read what they were told of.
///
/// Versions are numbers that grow with each attempt to write. A clone is
/// another handle to the same store.
///
/// Source: `internal/storage/inmem`, Consul 1.21.
/// Deviation: a watch needs no cached snapshot, because states are shared
/// anyway; changes go to bounded logs, and a watcher that falls behind by more
/// than such a log has to start again, where upstream's buffers grow; there
/// is no background task to run.
#[derive(Debug, Clone)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    current: ArcSwap<State>,
    /// Held while the next state is made and published.
    writer: Mutex<()>,
    versions: AtomicU64,
    topics: Topics,
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBackend {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::with_watch_buffer(DEFAULT_WATCH_BUFFER)
    }

    /// Creates an empty store whose watchers, once they have caught up, may fall
    /// behind by `events` changes (8192 by default) before they start again.
    /// The buffer is shared by the watchers of one kind in one tenancy, or one
    /// pattern of tenancies; one that waits does not fall behind by changes of
    /// names that it does not watch.
    pub fn with_watch_buffer(events: usize) -> Self {
        let shared = Shared {
            current: ArcSwap::from_pointee(State::default()),
            writer: Mutex::new(()),
            versions: AtomicU64::new(0),
            topics: Topics::new(events),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the number of stored resources.
    pub fn len(&self) -> usize {
        self.shared.current.load().len()
    }

    /// Returns `true` if nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shared {
    /// Makes the next state current and tells the watchers, in turn with other
    /// writers.
    fn commit<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<(T, Option<Change>)>,
    ) -> Result<T> {
        let turn = lock(&self.writer);
        let before = self.current.load_full();
        let mut next = State::clone(&before);
        let (result, change) = change(&mut next)?;
        if let Some(change) = change {
            self.current.store(Arc::new(next));
            self.topics.publish(&change);
        }
        drop(turn);
        // Freeing what only the old state held is not the next writer's wait.
        drop(before);
        Ok(result)
    }

    fn replace(&self, mut restored: State) {
        let turn = lock(&self.writer);
        let before = self.current.load_full();
        restored.set_index(before.index() + 1);
        self.current.store(Arc::new(restored));
        self.topics.close_all();
        drop(turn);
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn read(&self, _: Consistency, id: &Id) -> Result<Arc<Resource>> {
        self.shared.current.load().read(id)
    }

    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
        let version = self.shared.versions.fetch_add(1, Ordering::Relaxed) + 1;
        self.shared.commit(|state| {
            let index = state.index() + 1;
            let change = state.write(resource, version.to_string(), index)?;
            Ok((Arc::clone(&change.resource), Some(change)))
        })
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        self.shared.commit(|state| Ok(((), state.delete(id, version, state.index() + 1)?)))
    }

    async fn list(&self, _: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        self.shared.current.load_full().list(query)
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        self.shared.current.load_full().list_by_owner(owner)
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        let reader = self.shared.topics.subscribe(query);
        let state = self.shared.current.load_full();
        let snapshot = stream::iter(state.pages(query));
        Ok(StoreWatch::new(query.clone(), reader, state.index(), snapshot).boxed())
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        Ok(stream::iter(self.shared.current.load().resources()).boxed())
    }

    async fn restore(&self, mut resources: ResourceStream) -> Result<()> {
        let mut restored = State::default();
        let mut highest = 0;
        while let Some(resource) = resources.try_next().await? {
            highest = highest.max(resource.version.parse().unwrap_or(0));
            restored.insert_restored(&resource)?;
        }
        self.shared.versions.fetch_max(highest, Ordering::Relaxed);
        self.shared.replace(restored);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
