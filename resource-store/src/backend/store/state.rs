//! One immutable state of a store in memory, and the pure changes from one to
//! the next.

use std::{collections::VecDeque, ops::Bound, sync::Arc};

use imbl::OrdMap;

use crate::{
    backend::{
        Error, Query, Result,
        store::{
            change::Change,
            condition,
            key::{self, Key},
        },
    },
    pb::{Id, Resource},
};

/// A state of the store. A clone shares everything with its original.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The position of the last change.
    index: u64,
    resources: OrdMap<Key, Arc<Resource>>,
    /// Owned resources by owner, then by their own key.
    owned: OrdMap<Key, Arc<Resource>>,
}

impl State {
    /// The position of the last change.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// Reads one resource.
    pub(crate) fn read(&self, id: &Id) -> Result<Arc<Resource>> {
        let stored = self.resources.get(key::resource_key(id).as_slice()).ok_or(Error::NotFound)?;
        condition::check_read(stored, id)?;
        Ok(Arc::clone(stored))
    }

    /// Stores a resource under a new version, as the change `index`.
    pub(crate) fn write(
        &mut self,
        mut resource: Resource,
        new_version: String,
        index: u64,
    ) -> Result<Change> {
        let key: Key = condition::key_of(&resource)?.into();
        let stored = self.resources.get(&key).cloned();
        condition::check_write(stored.as_deref(), &resource)?;
        resource.version = new_version;
        let resource = Arc::new(resource);
        self.put(key, &resource, stored.as_ref().and_then(|stored| stored.owner.as_ref()));
        self.index = self.index.max(index);
        Ok(Change::write(index, stored.as_ref(), resource))
    }

    /// Deletes a resource, as the change `index`; nothing if it is another
    /// incarnation.
    pub(crate) fn delete(&mut self, id: &Id, version: &str, index: u64) -> Result<Option<Change>> {
        let key = key::resource_key(id);
        let Some(stored) = self.resources.get(key.as_slice()) else { return Ok(None) };
        if !condition::check_delete(stored, id, version)? {
            return Ok(None);
        }
        let stored = Arc::clone(stored);
        self.resources.remove(key.as_slice());
        if let (Some(owner), Some(id)) = (&stored.owner, &stored.id) {
            self.owned.remove(key::owned_key(owner, id).as_slice());
        }
        self.index = self.index.max(index);
        Ok(Some(Change::delete(index, stored)))
    }

    /// Takes a resource as it is, for a restored store.
    pub(crate) fn insert_restored(&mut self, resource: &Arc<Resource>) -> Result<()> {
        let key: Key = condition::key_of(resource)?.into();
        let old_owner = self.resources.get(&key).and_then(|stored| stored.owner.clone());
        self.put(key, resource, old_owner.as_ref());
        Ok(())
    }

    /// Makes this the state after the change `index`.
    pub(crate) fn set_index(&mut self, index: u64) {
        self.index = index;
    }

    /// Returns the resources that a query matches, in the order of the keys.
    pub(crate) fn list(&self, query: &Query) -> Vec<Arc<Resource>> {
        let prefix = key::query_prefix(query);
        let matching = range(&self.resources, &prefix, None).map(|(_, resource)| resource);
        // The prefix ends at the first wildcard; what comes after it is judged one by one.
        matching.filter(|resource| query.covers(resource)).cloned().collect()
    }

    /// Returns the resources that a query matches, page by page, so that it holds
    /// no borrow.
    pub(crate) fn pages(self: &Arc<Self>, query: &Query) -> Pages {
        let prefix = key::query_prefix(query);
        Pages {
            state: Arc::clone(self),
            query: query.clone(),
            prefix,
            next: Next::Start,
            batch: VecDeque::new(),
        }
    }

    /// Returns the resources that an owner owns, in the order of the keys.
    pub(crate) fn list_by_owner(&self, owner: &Id) -> Vec<Arc<Resource>> {
        let prefix = key::owner_prefix(owner);
        range(&self.owned, &prefix, None).map(|(_, resource)| Arc::clone(resource)).collect()
    }

    /// Returns the number of resources.
    #[cfg(feature = "raft")]
    pub(crate) fn len(&self) -> usize {
        self.resources.len()
    }

    /// Returns all resources, in the order of the keys.
    pub(crate) fn resources(&self) -> OrdMap<Key, Arc<Resource>> {
        self.resources.clone()
    }

    fn put(&mut self, key: Key, resource: &Arc<Resource>, old_owner: Option<&Id>) {
        if let Some(id) = &resource.id {
            // An entry that stays would go on to list the resource under its old owner.
            if let Some(owner) = old_owner.filter(|owner| Some(*owner) != resource.owner.as_ref()) {
                self.owned.remove(key::owned_key(owner, id).as_slice());
            }
            if let Some(owner) = &resource.owner {
                self.owned.insert(key::owned_key(owner, id).into(), Arc::clone(resource));
            }
        }
        self.resources.insert(key, Arc::clone(resource));
    }
}

/// The entries whose keys begin with `prefix`, after `last`.
fn range<'a>(
    map: &'a OrdMap<Key, Arc<Resource>>,
    prefix: &'a [u8],
    last: Option<Vec<u8>>,
) -> impl Iterator<Item = (&'a Key, &'a Arc<Resource>)> {
    let start: Bound<Vec<u8>> = match last {
        Some(last) => Bound::Excluded(last),
        None => Bound::Included(prefix.to_vec()),
    };
    let bounds: (Bound<&[u8]>, Bound<&[u8]>) =
        (start.as_ref().map(Vec::as_slice), Bound::Unbounded);
    map.range::<_, [u8]>(bounds).take_while(move |(key, _)| key.starts_with(prefix))
}

/// Number of resources that are taken at a time.
const BATCH: usize = 64;

/// The resources of a state that a query matches.
#[derive(Debug)]
pub(crate) struct Pages {
    state: Arc<State>,
    query: Query,
    prefix: Vec<u8>,
    next: Next,
    batch: VecDeque<Arc<Resource>>,
}

/// The beginning of the next page.
#[derive(Debug)]
enum Next {
    Start,
    After(Key),
    End,
}

impl Pages {
    /// Takes the next page. Not all in it need match.
    fn fill(&mut self, last: Option<Vec<u8>>) {
        for (key, resource) in range(&self.state.resources, &self.prefix, last).take(BATCH) {
            self.next = Next::After(Arc::clone(key));
            if self.query.covers(resource) {
                self.batch.push_back(Arc::clone(resource));
            }
        }
    }
}

impl Iterator for Pages {
    type Item = Arc<Resource>;

    fn next(&mut self) -> Option<Arc<Resource>> {
        loop {
            if let Some(resource) = self.batch.pop_front() {
                return Some(resource);
            }
            match std::mem::replace(&mut self.next, Next::End) {
                Next::Start => self.fill(None),
                Next::After(key) => self.fill(Some(key.to_vec())),
                Next::End => return None,
            }
        }
    }
}
