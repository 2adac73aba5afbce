//! The backend in memory.

mod pages;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use pages::{Pages, Run, Step};

use super::{
    Backend, Consistency, Error, Query, ResourceStream, Result, Watch,
    store::{
        change::Change,
        condition,
        key::{self, Key},
        topics::{DEFAULT_WATCH_BUFFER, Topics, Wakers},
        watch::StoreWatch,
    },
};
use crate::{
    pb::{Id, Resource, Tenancy},
    tenancy::WILDCARD,
};

/// Keeps resources in memory.
///
/// The keys are divided among pages, and each page has a lock that is held for about as
/// long as it takes to change one entry. Reads and writes of different pages do not meet,
/// and a list or a watch's snapshot holds the locks of its pages only while it takes
/// handles to what is in them: it shows one moment, and both modes of consistency are
/// linearizable. Changes of one kind that somebody watches get their order under a lock
/// of that kind, in which they go to the logs of the watches; watchers are woken without
/// any lock.
///
/// Versions are numbers that grow with each attempt to write. A clone is
/// another handle to the same store.
///
/// Source: `internal/storage/inmem`, Consul 1.21.
/// Deviation: a watch needs no cached snapshot, because pages are shared
/// anyway; changes go to bounded logs, and a watcher that falls behind by more
/// than such a log has to start again, where upstream's buffers grow; there
/// is no background task to run.
#[derive(Debug, Clone)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// By [`key::resource_key`]. Who needs both maps takes this one's lock first.
    resources: Pages<Arc<Resource>>,
    /// Owned resources, by [`key::owned_key`].
    owned: Pages<Arc<Resource>>,
    topics: Topics,
    /// The index of the last change.
    index: AtomicU64,
    versions: AtomicU64,
    /// Number of resources.
    count: AtomicUsize,
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
            resources: Pages::new(),
            owned: Pages::new(),
            topics: Topics::new(events),
            index: AtomicU64::new(0),
            versions: AtomicU64::new(0),
            count: AtomicUsize::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the number of stored resources.
    pub fn len(&self) -> usize {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// Returns `true` if nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shared {
    fn write(&self, mut resource: Resource) -> Result<Arc<Resource>> {
        let key = condition::key_of(&resource)?;
        let version = self.versions.fetch_add(1, Ordering::Relaxed) + 1;
        let expected = std::mem::replace(&mut resource.version, version.to_string());
        let resource = Arc::new(resource);
        let (committed, before) = self.resources.change(&key, |stored| {
            let checked = condition::check_expected(stored.map(|r| &**r), &resource, &expected);
            if let Err(error) = checked {
                return (Step::Keep, Err(error));
            }
            self.own(stored, Some(&resource));
            self.count.fetch_add(usize::from(stored.is_none()), Ordering::Relaxed);
            let wakers = self.publish(Change::write(0, stored, Arc::clone(&resource)));
            (Step::Put(Arc::clone(&resource)), Ok(wakers))
        });
        committed?.wake();
        drop(before);
        Ok(resource)
    }

    fn delete(&self, id: &Id, version: &str) -> Result<()> {
        let (deleted, before) = self.resources.change(&key::resource_key(id), |stored| {
            let Some(stored) = stored else { return (Step::Keep, Ok(None)) };
            match condition::check_delete(stored, id, version) {
                Ok(false) => (Step::Keep, Ok(None)),
                Err(error) => (Step::Keep, Err(error)),
                Ok(true) => {
                    self.own(Some(stored), None);
                    self.count.fetch_sub(1, Ordering::Relaxed);
                    let change = Change::delete(0, Arc::clone(stored));
                    (Step::Remove, Ok(Some(self.publish(change))))
                }
            }
        });
        deleted?.unwrap_or_default().wake();
        drop(before);
        Ok(())
    }

    /// Gives a change its place among all, and writes it to the logs of those who watch.
    fn publish(&self, change: Change) -> Wakers {
        self.topics.publish_in_turn(change, |change| {
            change.index = self.index.fetch_add(1, Ordering::Relaxed) + 1;
        })
    }

    /// Brings the index by owner in line with a resource that is changed.
    fn own(&self, stored: Option<&Arc<Resource>>, resource: Option<&Arc<Resource>>) {
        let owner = |of: Option<&Arc<Resource>>| of.and_then(|resource| resource.owner.clone());
        let (before, now) = (owner(stored), owner(resource));
        let Some(id) = resource.or(stored).and_then(|resource| resource.id.as_ref()) else {
            return;
        };
        // An entry that stays would go on to list the resource under its old owner.
        if let Some(before) = before.filter(|before| Some(before) != now.as_ref()) {
            self.owned.change(&key::owned_key(&before, id), |_| (Step::Remove, ()));
        }
        if let (Some(now), Some(resource)) = (now, resource) {
            let put = Step::Put(Arc::clone(resource));
            self.owned.change(&key::owned_key(&now, id), |_| (put, ()));
        }
    }

    /// Returns what a query matches, as of one moment, and the index of the last change
    /// that it shows.
    fn moment(&self, query: &Query) -> (Found, u64) {
        let index = || self.index.load(Ordering::Relaxed);
        let (runs, index) = self.resources.moment(&key::query_prefix(query), index);
        (Found { runs: runs.into(), at: 0, query: query.clone() }, index)
    }

    fn replace(&self, restored: BTreeMap<Vec<u8>, Arc<Resource>>) {
        let count = restored.len();
        let mut owned = BTreeMap::new();
        for resource in restored.values() {
            if let (Some(owner), Some(id)) = (&resource.owner, &resource.id) {
                owned.insert(key::owned_key(owner, id), Arc::clone(resource));
            }
        }
        let entries = |of: BTreeMap<Vec<u8>, Arc<Resource>>| {
            of.into_iter().map(|(key, resource)| (Key::from(key), resource))
        };
        self.resources.replace(entries(restored), || {
            self.owned.replace(entries(owned), || {});
            self.count.store(count, Ordering::Relaxed);
            self.index.fetch_add(1, Ordering::Relaxed);
            self.topics.close_all();
        });
    }
}

/// The resources that a query matches, one after the other.
struct Found {
    runs: VecDeque<Run<Arc<Resource>>>,
    /// The place in the first run.
    at: usize,
    query: Query,
}

impl Found {
    /// Returns all of them.
    fn all(&self) -> Vec<Arc<Resource>> {
        let mut found = Vec::with_capacity(self.runs.iter().map(Run::len).sum());
        // The keys of a query without wildcards are exactly those that it matches.
        let Tenancy { partition, namespace } = &self.query.tenancy;
        let exact = partition != WILDCARD && namespace != WILDCARD;
        let values = self.runs.iter().flat_map(Run::values);
        found.extend(values.filter(|resource| exact || self.query.covers(resource)).cloned());
        found
    }
}

impl Iterator for Found {
    type Item = Result<Arc<Resource>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(resource) = self.runs.front()?.get(self.at) else {
                self.runs.pop_front();
                self.at = 0;
                continue;
            };
            self.at += 1;
            if self.query.covers(resource) {
                return Some(Ok(Arc::clone(resource)));
            }
        }
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn read(&self, _: Consistency, id: &Id) -> Result<Arc<Resource>> {
        let stored = self.shared.resources.get(&key::resource_key(id)).ok_or(Error::NotFound)?;
        condition::check_read(&stored, id)?;
        Ok(stored)
    }

    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
        self.shared.write(resource)
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        self.shared.delete(id, version)
    }

    async fn list(&self, _: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        Ok(self.shared.moment(query).0.all())
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        let (runs, ()) = self.shared.owned.moment(&key::owner_prefix(owner), || ());
        Ok(runs.iter().flat_map(Run::values).cloned().collect())
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        let reader = self.shared.topics.subscribe(query);
        let (found, index) = self.shared.moment(query);
        Ok(StoreWatch::new(query.clone(), reader, index, stream::iter(found)).boxed())
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        let (runs, ()) = self.shared.resources.moment(b"", || ());
        let all =
            runs.into_iter().flat_map(|run| run.values().cloned().map(Ok).collect::<Vec<_>>());
        Ok(stream::iter(all).boxed())
    }

    async fn restore(&self, mut resources: ResourceStream) -> Result<()> {
        let mut restored = BTreeMap::new();
        let mut highest = 0;
        while let Some(resource) = resources.try_next().await? {
            highest = highest.max(resource.version.parse().unwrap_or(0));
            restored.insert(condition::key_of(&resource)?, resource);
        }
        self.shared.versions.fetch_max(highest, Ordering::Relaxed);
        self.shared.replace(restored);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
