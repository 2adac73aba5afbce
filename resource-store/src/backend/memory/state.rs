//! One immutable state of the store, and the pure changes from one to the next.

use std::{collections::VecDeque, ops::Bound, sync::Arc};

use imbl::OrdMap;

use super::key::{self, Key};
use crate::{
    backend::{Error, Query, Result, WatchEvent},
    pb::{Id, Resource},
};

/// One change of the store, as watches see it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// The position of the change among all changes.
    pub(super) index: u64,
    pub(super) kind: ChangeKind,
    pub(super) resource: Arc<Resource>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Upsert,
    Delete,
}

impl Change {
    pub(super) fn into_event(self) -> WatchEvent {
        match self.kind {
            ChangeKind::Upsert => WatchEvent::Upsert(self.resource),
            ChangeKind::Delete => WatchEvent::Delete(self.resource),
        }
    }
}

/// One state of the store. A clone shares everything with its original.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Grows by one with each change.
    index: u64,
    resources: OrdMap<Key, Arc<Resource>>,
    /// Owned resources by owner, then by their own key.
    owned: OrdMap<Key, Arc<Resource>>,
}

impl State {
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn read(&self, id: &Id) -> Result<Arc<Resource>> {
        let stored = self.resources.get(key::resource_key(id).as_slice()).ok_or(Error::NotFound)?;
        if !id.uid.is_empty() && id.uid != stored.uid() {
            return Err(Error::NotFound);
        }
        match (&id.r#type, stored.resource_type()) {
            (Some(requested), Some(ty)) if requested.group_version != ty.group_version => {
                Err(Error::GroupVersionMismatch {
                    requested: Box::new(requested.clone()),
                    stored: Arc::clone(stored),
                })
            }
            _ => Ok(Arc::clone(stored)),
        }
    }

    /// Stores a resource under a new version.
    pub(super) fn write(&mut self, mut resource: Resource, new_version: String) -> Result<Change> {
        let key: Key = resource_key_of(&resource)?.into();
        let stored = self.resources.get(&key);
        match stored {
            Some(stored) if stored.uid() != resource.uid() => return Err(Error::WrongUid),
            Some(stored) if stored.version != resource.version => return Err(Error::CasFailure),
            None if !resource.version.is_empty() => return Err(Error::CasFailure),
            Some(_) | None => {}
        }
        let old_owner = stored.and_then(|stored| stored.owner.clone());
        resource.version = new_version;
        let resource = Arc::new(resource);
        self.put(key, &resource, old_owner.as_ref());
        Ok(self.changed(ChangeKind::Upsert, resource))
    }

    /// Deletes a resource; nothing if it is another incarnation.
    pub(super) fn delete(&mut self, id: &Id, version: &str) -> Result<Option<Change>> {
        let key = key::resource_key(id);
        let Some(stored) = self.resources.get(key.as_slice()) else { return Ok(None) };
        if stored.uid() != id.uid {
            return Ok(None);
        }
        if stored.version != version {
            return Err(Error::CasFailure);
        }
        let stored = Arc::clone(stored);
        self.resources.remove(key.as_slice());
        if let (Some(owner), Some(id)) = (&stored.owner, &stored.id) {
            self.owned.remove(key::owned_key(owner, id).as_slice());
        }
        Ok(Some(self.changed(ChangeKind::Delete, stored)))
    }

    /// Takes a resource as it is, for a restored store.
    pub(super) fn insert_restored(&mut self, resource: &Arc<Resource>) -> Result<()> {
        let key: Key = resource_key_of(resource)?.into();
        let old_owner = self.resources.get(&key).and_then(|stored| stored.owner.clone());
        self.put(key, resource, old_owner.as_ref());
        Ok(())
    }

    /// Lets the changes of a restored store count on from those before.
    pub(super) fn continue_after(&mut self, before: &Self) {
        self.index = before.index + 1;
    }

    pub(super) fn list(&self, query: &Query) -> Vec<Arc<Resource>> {
        let prefix = key::query_prefix(query);
        let matching = range(&self.resources, &prefix, None).map(|(_, resource)| resource);
        matching.filter(|resource| query.covers(resource)).cloned().collect()
    }

    /// Puts up to `most` of the listed resources after `last` into `into`.
    /// Gives the key to go on from, or nothing at the end.
    pub(super) fn page(
        &self,
        prefix: &[u8],
        last: Option<Vec<u8>>,
        most: usize,
        query: &Query,
        into: &mut VecDeque<Arc<Resource>>,
    ) -> Option<Vec<u8>> {
        let mut end = None;
        for (key, resource) in range(&self.resources, prefix, last).take(most) {
            end = Some(key);
            if query.covers(resource) {
                into.push_back(Arc::clone(resource));
            }
        }
        end.map(|key| key.to_vec())
    }

    pub(super) fn list_by_owner(&self, owner: &Id) -> Vec<Arc<Resource>> {
        let prefix = key::owner_prefix(owner);
        range(&self.owned, &prefix, None).map(|(_, resource)| Arc::clone(resource)).collect()
    }

    pub(super) fn resources(&self) -> OrdMap<Key, Arc<Resource>> {
        self.resources.clone()
    }

    fn put(&mut self, key: Key, resource: &Arc<Resource>, old_owner: Option<&Id>) {
        if let Some(id) = &resource.id {
            if let Some(owner) = old_owner.filter(|owner| Some(*owner) != resource.owner.as_ref()) {
                self.owned.remove(key::owned_key(owner, id).as_slice());
            }
            if let Some(owner) = &resource.owner {
                self.owned.insert(key::owned_key(owner, id).into(), Arc::clone(resource));
            }
        }
        self.resources.insert(key, Arc::clone(resource));
    }

    fn changed(&mut self, kind: ChangeKind, resource: Arc<Resource>) -> Change {
        self.index += 1;
        Change { index: self.index, kind, resource }
    }
}

fn resource_key_of(resource: &Resource) -> Result<Vec<u8>> {
    resource.id.as_ref().map(key::resource_key).ok_or_else(|| Error::Other {
        operation: "write",
        retryable: false,
        source: "resource has no id".into(),
    })
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
