//! The indexed resources of one kind.

use std::sync::Arc;

use imbl::OrdMap;

use super::{CacheError, Index, Key};
use crate::pb::Resource;

/// The name of the index that every kind has.
pub(super) const ID_INDEX: &str = "id";

/// The resources of one kind under all their keys. A clone shares its content,
/// so that readers need no lock.
#[derive(Debug, Clone)]
pub(super) struct Table {
    columns: Vec<Column>,
}

#[derive(Debug, Clone)]
struct Column {
    index: Index,
    /// Under each key, in the order of insertion.
    entries: OrdMap<Vec<u8>, Vec<Arc<Resource>>>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { columns: vec![Column::new(Index::id(ID_INDEX))] }
    }

    pub(super) fn add_index(&mut self, index: Index) -> Result<(), CacheError> {
        if index.name().is_empty() {
            return Err(CacheError::UnnamedIndex);
        }
        if self.columns.iter().any(|column| column.index.name() == index.name()) {
            return Err(CacheError::DuplicateIndex(index.name().to_owned()));
        }
        self.columns.push(Column::new(index));
        Ok(())
    }

    /// Inserts or replaces; on an error nothing is changed.
    pub(super) fn insert(&mut self, resource: &Arc<Resource>) -> Result<(), CacheError> {
        // All keys before any change: an indexer is user code and may fail.
        let old = self.find(resource);
        let mut plan = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let old_keys =
                old.as_ref().map(|old| column.index.keys(old)).transpose()?.unwrap_or_default();
            plan.push((old_keys, column.index.keys(resource)?));
        }
        for (column, (old_keys, new_keys)) in self.columns.iter_mut().zip(plan) {
            for gone in old_keys.iter().filter(|key| !new_keys.contains(key)) {
                column.remove(gone, resource);
            }
            for key in new_keys {
                column.put(key, resource);
            }
        }
        Ok(())
    }

    /// Removes; what is not there is fine.
    pub(super) fn delete(&mut self, resource: &Resource) -> Result<(), CacheError> {
        let Some(old) = self.find(resource) else { return Ok(()) };
        let mut plan = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            plan.push(column.index.keys(&old)?);
        }
        for (column, keys) in self.columns.iter_mut().zip(plan) {
            for key in keys {
                column.remove(&key, &old);
            }
        }
        Ok(())
    }

    fn find(&self, resource: &Resource) -> Option<Arc<Resource>> {
        let key = Key::of(resource.id.as_ref()?);
        self.columns.first()?.entries.get(key.bytes())?.first().cloned()
    }

    fn column(&self, index: &str) -> Result<&Column, CacheError> {
        let found = self.columns.iter().find(|column| column.index.name() == index);
        found.ok_or_else(|| CacheError::UnknownIndex(index.to_owned()))
    }

    pub(super) fn get(&self, index: &str, key: &Key) -> Result<Option<Arc<Resource>>, CacheError> {
        Ok(self.column(index)?.entries.get(key.bytes()).and_then(|list| list.first().cloned()))
    }

    /// Everything whose key begins with `key`.
    pub(super) fn list(&self, index: &str, key: &Key) -> Result<Vec<Arc<Resource>>, CacheError> {
        let entries = self.column(index)?.entries.range(key.bytes().to_vec()..);
        let matching = entries.take_while(|(found, _)| found.starts_with(key.bytes()));
        Ok(matching.flat_map(|(_, list)| list.iter().cloned()).collect())
    }

    /// Everything whose key `key` begins with.
    pub(super) fn parents(&self, index: &str, key: &Key) -> Result<Vec<Arc<Resource>>, CacheError> {
        let column = self.column(index)?;
        // A look-up for each length costs less than going through all keys before this one.
        let prefixes = (0..=key.bytes().len()).filter_map(|end| key.bytes().get(..end));
        Ok(prefixes.filter_map(|prefix| column.entries.get(prefix)).flatten().cloned().collect())
    }
}

impl Column {
    fn new(index: Index) -> Self {
        Self { index, entries: OrdMap::new() }
    }

    /// A resource of the same name keeps its place.
    fn put(&mut self, key: Vec<u8>, resource: &Arc<Resource>) {
        let list = self.entries.entry(key).or_default();
        match list.iter_mut().find(|other| same_name(other, resource)) {
            Some(place) => *place = Arc::clone(resource),
            None => list.push(Arc::clone(resource)),
        }
    }

    fn remove(&mut self, key: &[u8], resource: &Resource) {
        let Some(list) = self.entries.get_mut(key) else { return };
        list.retain(|other| !same_name(other, resource));
        if list.is_empty() {
            self.entries.remove(key);
        }
    }
}

/// Returns `true` if both have the same place in the store; the kind is that of the
/// table.
fn same_name(a: &Resource, b: &Resource) -> bool {
    match (&a.id, &b.id) {
        (Some(a), Some(b)) => a.name == b.name && a.tenancy == b.tenancy,
        _ => false,
    }
}
