//! The backend in memory.

mod key;
mod state;
mod sync;
mod topic;
mod watch;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};

use self::{
    state::{Change, State},
    sync::lock,
    topic::Topic,
    watch::MemoryWatch,
};
use super::{Backend, Consistency, Query, ResourceStream, Result, Watch};
use crate::{
    pb::{Id, Resource, Type},
    tenancy::WILDCARD,
};

/// How many events a topic holds by default.
const DEFAULT_WATCH_BUFFER: usize = 8192;
/// From how many topics on the idle ones are thrown out.
const MANY_TOPICS: usize = 64;

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
/// than such a log is told to start anew, where upstream's buffers grow; there
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
    watch_buffer: usize,
    /// Logs of changes, by kind, and by kind and tenancy.
    topics: Mutex<HashMap<Vec<u8>, Arc<Topic<Change>>>>,
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBackend {
    /// An empty store.
    pub fn new() -> Self {
        Self::with_watch_buffer(DEFAULT_WATCH_BUFFER)
    }

    /// An empty store whose watchers may fall behind by `events` changes of
    /// what they watch (8192 by default) before they have to start anew. The
    /// buffer is shared by the watchers of one kind, or of one kind in one
    /// tenancy.
    pub fn with_watch_buffer(events: usize) -> Self {
        let shared = Shared {
            current: ArcSwap::from_pointee(State::default()),
            writer: Mutex::new(()),
            versions: AtomicU64::new(0),
            watch_buffer: events,
            topics: Mutex::new(HashMap::new()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How many resources are stored.
    pub fn len(&self) -> usize {
        self.shared.current.load().resources().len()
    }

    /// Whether nothing is stored.
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
            self.publish(&change);
        }
        drop(turn);
        // Freeing what only the old state held is not the next writer's wait.
        drop(before);
        Ok(result)
    }

    fn publish(&self, change: &Change) {
        let Some(id) = &change.resource.id else { return };
        let Some(Type { group, kind, .. }) = &id.r#type else { return };
        let topics = lock(&self.topics);
        if topics.is_empty() {
            return;
        }
        let tenancy = id.tenancy.clone().unwrap_or_default();
        let names = [key::kind_topic(group, kind), key::tenancy_topic(group, kind, &tenancy)];
        let found: Vec<_> =
            names.iter().filter_map(|name| topics.get(name)).map(Arc::clone).collect();
        drop(topics);
        for topic in found {
            topic.publish(change.clone());
        }
    }

    fn subscribe(&self, query: &Query) -> topic::Reader<Change> {
        let (group, kind) = (&query.kind.group, &query.kind.kind);
        let wild = query.tenancy.partition == WILDCARD || query.tenancy.namespace == WILDCARD;
        let name = if wild {
            key::kind_topic(group, kind)
        } else {
            key::tenancy_topic(group, kind, &query.tenancy)
        };
        let mut topics = lock(&self.topics);
        if topics.len() >= MANY_TOPICS {
            topics.retain(|_, topic| !topic.is_idle());
        }
        let topic = topics.entry(name).or_insert_with(|| Arc::new(Topic::new(self.watch_buffer)));
        topic.subscribe()
    }

    fn replace(&self, mut restored: State) {
        let turn = lock(&self.writer);
        let before = self.current.load_full();
        restored.continue_after(&before);
        self.current.store(Arc::new(restored));
        let topics = std::mem::take(&mut *lock(&self.topics));
        for topic in topics.values() {
            topic.close();
        }
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
            let change = state.write(resource, version.to_string())?;
            Ok((Arc::clone(&change.resource), Some(change)))
        })
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        self.shared.commit(|state| Ok(((), state.delete(id, version)?)))
    }

    async fn list(&self, _: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        Ok(self.shared.current.load_full().list(query))
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        Ok(self.shared.current.load_full().list_by_owner(owner))
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        let reader = self.shared.subscribe(query);
        let snapshot = self.shared.current.load_full();
        Ok(MemoryWatch::new(query.clone(), reader, snapshot).boxed())
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        let resources = self.shared.current.load().resources();
        Ok(futures::stream::iter(resources.into_iter().map(|(_, resource)| Ok(resource))).boxed())
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
