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
            held::Held,
            key::{self, Key},
        },
    },
    pb::{Id, Resource},
};

/// A state of the store, which holds its resources in the form `R`. A clone shares
/// everything with its original.
#[derive(Debug, Clone)]
pub(crate) struct State<R = Arc<Resource>> {
    /// The position of the last change.
    index: u64,
    resources: OrdMap<Key, R>,
    /// Owned resources by owner, then by their own key.
    owned: OrdMap<Key, R>,
}

impl<R> Default for State<R> {
    fn default() -> Self {
        Self { index: 0, resources: OrdMap::new(), owned: OrdMap::new() }
    }
}

impl<R: Held> State<R> {
    /// The position of the last change.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// Reads one resource.
    pub(crate) fn read(&self, id: &Id) -> Result<Arc<Resource>> {
        let stored = self.stored(&key::resource_key(id))?.ok_or(Error::NotFound)?;
        condition::check_read(&stored, id)?;
        Ok(stored)
    }

    /// Stores a resource under a new version, as the change `index`.
    pub(crate) fn write(
        &mut self,
        mut resource: Resource,
        new_version: String,
        index: u64,
    ) -> Result<Change> {
        let key: Key = condition::key_of(&resource)?.into();
        let stored = self.stored(&key)?;
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
        let Some(stored) = self.stored(&key)? else { return Ok(None) };
        if !condition::check_delete(&stored, id, version)? {
            return Ok(None);
        }
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
        let old_owner = self.stored(&key)?.and_then(|stored| stored.owner.clone());
        self.put(key, resource, old_owner.as_ref());
        Ok(())
    }

    /// Makes this the state after the change `index`.
    pub(crate) fn set_index(&mut self, index: u64) {
        self.index = index;
    }

    /// Returns the resources that a query matches, in the order of the keys.
    pub(crate) fn list(&self, query: &Query) -> Result<Vec<Arc<Resource>>> {
        let prefix = key::query_prefix(query);
        let found = range(&self.resources, &prefix, None).map(|(_, held)| held.resource());
        // The prefix ends at the first wildcard; what comes after it is judged one by one.
        found.filter(|resource| is_covered(query, resource)).collect()
    }

    /// Returns the resources that a query matches, page by page, so that it holds
    /// no borrow.
    pub(crate) fn pages(self: &Arc<Self>, query: &Query) -> Pages<R> {
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
    pub(crate) fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        let prefix = key::owner_prefix(owner);
        range(&self.owned, &prefix, None).map(|(_, held)| held.resource()).collect()
    }

    /// Returns the number of resources.
    pub(crate) fn len(&self) -> usize {
        self.resources.len()
    }

    /// Returns all resources as they are held, in the order of the keys.
    pub(crate) fn held(&self) -> impl Iterator<Item = R> + Send + use<R> {
        self.resources.clone().into_iter().map(|(_, held)| held)
    }

    /// Returns all resources, in the order of the keys.
    pub(crate) fn resources(&self) -> impl Iterator<Item = Result<Arc<Resource>>> + Send + use<R> {
        self.held().map(|held| held.resource())
    }

    fn stored(&self, key: &[u8]) -> Result<Option<Arc<Resource>>> {
        self.resources.get(key).map(Held::resource).transpose()
    }

    /// Holds this in the place of a resource.
    #[cfg(all(test, feature = "raft"))]
    pub(crate) fn spoil(&mut self, id: &Id, held: R) {
        self.resources.insert(key::resource_key(id).into(), held);
    }

    fn put(&mut self, key: Key, resource: &Arc<Resource>, old_owner: Option<&Id>) {
        let held = R::hold(resource);
        if let Some(id) = &resource.id {
            // An entry that stays would go on to list the resource under its old owner.
            if let Some(owner) = old_owner.filter(|owner| Some(*owner) != resource.owner.as_ref()) {
                self.owned.remove(key::owned_key(owner, id).as_slice());
            }
            if let Some(owner) = &resource.owner {
                self.owned.insert(key::owned_key(owner, id).into(), held.clone());
            }
        }
        self.resources.insert(key, held);
    }
}

/// The entries whose keys begin with `prefix`, after `last`.
fn range<'a, R: Clone>(
    map: &'a OrdMap<Key, R>,
    prefix: &'a [u8],
    last: Option<Vec<u8>>,
) -> impl Iterator<Item = (&'a Key, &'a R)> {
    let start: Bound<Vec<u8>> = match last {
        Some(last) => Bound::Excluded(last),
        None => Bound::Included(prefix.to_vec()),
    };
    let bounds: (Bound<&[u8]>, Bound<&[u8]>) =
        (start.as_ref().map(Vec::as_slice), Bound::Unbounded);
    map.range::<_, [u8]>(bounds).take_while(move |(key, _)| key.starts_with(prefix))
}

/// Returns `true` for a resource that the query matches, and for an error.
fn is_covered(query: &Query, found: &Result<Arc<Resource>>) -> bool {
    found.as_ref().map_or(true, |resource| query.covers(resource))
}

/// Number of resources that are taken at a time.
const BATCH: usize = 64;

/// The resources of a state that a query matches.
#[derive(Debug)]
pub(crate) struct Pages<R = Arc<Resource>> {
    state: Arc<State<R>>,
    query: Query,
    prefix: Vec<u8>,
    next: Next,
    batch: VecDeque<Result<Arc<Resource>>>,
}

/// The beginning of the next page.
#[derive(Debug)]
enum Next {
    Start,
    After(Key),
    End,
}

impl<R: Held> Pages<R> {
    /// Takes the next page. Not all in it need match.
    fn fill(&mut self, last: Option<Vec<u8>>) {
        for (key, held) in range(&self.state.resources, &self.prefix, last).take(BATCH) {
            self.next = Next::After(Arc::clone(key));
            let resource = held.resource();
            if is_covered(&self.query, &resource) {
                self.batch.push_back(resource);
            }
        }
    }
}

impl<R: Held> Iterator for Pages<R> {
    type Item = Result<Arc<Resource>>;

    fn next(&mut self) -> Option<Result<Arc<Resource>>> {
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
