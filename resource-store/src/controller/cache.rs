//! What a controller's watches saw, indexed.

mod error;
mod index;
mod key;
mod table;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

pub use error::CacheError;
pub use index::Index;
pub use key::{Key, RefOrId};
use table::Table;

use super::BoxError;
use crate::{
    gvk::GroupKind,
    pb::{Resource, Type},
};

/// A query that a controller registered by name.
pub type NamedQuery = Arc<dyn Fn(&Cache, &Key) -> Result<Vec<Resource>, BoxError> + Send + Sync>;

/// The resources that a controller's watches saw, indexed.
///
/// The index `id` is always there. Resources come as copies; the `shared` forms
/// give the cache's own objects, which are those of the store where it is in
/// the same process. A clone is another handle to the same cache.
#[derive(Clone, Default)]
pub struct Cache {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    tables: RwLock<HashMap<GroupKind, Table>>,
    queries: HashMap<String, NamedQuery>,
}

impl Cache {
    /// An empty cache with the indexes of each kind, and queries.
    ///
    /// # Errors
    ///
    /// If two indexes of a kind or two queries have the same name.
    pub fn new(
        kinds: impl IntoIterator<Item = (GroupKind, Vec<Index>)>,
        queries: impl IntoIterator<Item = (String, NamedQuery)>,
    ) -> Result<Self, CacheError> {
        let mut tables = HashMap::new();
        for (kind, indexes) in kinds {
            let table = tables.entry(kind).or_insert_with(Table::new);
            for index in indexes {
                table.add_index(index)?;
            }
        }
        let mut named = HashMap::new();
        for (name, query) in queries {
            if named.insert(name.clone(), query).is_some() {
                return Err(CacheError::DuplicateQuery(name));
            }
        }
        Ok(Self { shared: Arc::new(Shared { tables: RwLock::new(tables), queries: named }) })
    }

    /// The first resource under exactly this key.
    ///
    /// # Errors
    ///
    /// If the kind or the index is not known; so for the other reads.
    pub fn get(&self, ty: &Type, index: &str, key: &Key) -> Result<Option<Resource>, CacheError> {
        Ok(self.get_shared(ty, index, key)?.map(Arc::unwrap_or_clone))
    }

    /// The same, as the cache's own object.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    pub fn get_shared(
        &self,
        ty: &Type,
        index: &str,
        key: &Key,
    ) -> Result<Option<Arc<Resource>>, CacheError> {
        self.read(ty, |table| table.get(index, key))
    }

    /// Every resource whose key begins with this one.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    pub fn list(&self, ty: &Type, index: &str, key: &Key) -> Result<Vec<Resource>, CacheError> {
        Ok(self.list_shared(ty, index, key)?.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    /// The same, as the cache's own objects.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    pub fn list_shared(
        &self,
        ty: &Type,
        index: &str,
        key: &Key,
    ) -> Result<Vec<Arc<Resource>>, CacheError> {
        self.read(ty, |table| table.list(index, key))
    }

    /// Every resource whose key this one begins with.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    pub fn parents(&self, ty: &Type, index: &str, key: &Key) -> Result<Vec<Resource>, CacheError> {
        let found = self.read(ty, |table| table.parents(index, key))?;
        Ok(found.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    /// Runs a named query.
    ///
    /// # Errors
    ///
    /// If there is none of the name, or it fails.
    pub fn query(&self, name: &str, key: &Key) -> Result<Vec<Resource>, CacheError> {
        let query = self
            .shared
            .queries
            .get(name)
            .ok_or_else(|| CacheError::UnknownQuery(name.to_owned()))?;
        query(self, key).map_err(CacheError::Query)
    }

    /// Inserts a resource or replaces the one of its name, in all indexes at
    /// once; on an error nothing is changed.
    ///
    /// # Errors
    ///
    /// If the kind is not known, or an index refuses the resource.
    pub fn insert(&self, resource: &Arc<Resource>) -> Result<(), CacheError> {
        self.write(resource, |table| table.insert(resource))
    }

    /// Removes a resource; one that is not there is fine.
    ///
    /// # Errors
    ///
    /// If the kind is not known.
    pub fn delete(&self, resource: &Resource) -> Result<(), CacheError> {
        self.write(resource, |table| table.delete(resource))
    }

    fn read<T>(
        &self,
        ty: &Type,
        read: impl FnOnce(&Table) -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        let kind = ty.group_kind();
        let tables = self.shared.tables.read().unwrap_or_else(PoisonError::into_inner);
        // The copy shares its content, and is read without the lock.
        let table = tables.get(&kind).cloned().ok_or(CacheError::UnknownType);
        drop(tables);
        table.and_then(|table| read(&table)).map_err(|source| of_kind(kind, source))
    }

    fn write(
        &self,
        resource: &Resource,
        write: impl FnOnce(&mut Table) -> Result<(), CacheError>,
    ) -> Result<(), CacheError> {
        let kind = resource.resource_type().ok_or(CacheError::NoType)?.group_kind();
        let mut tables = self.shared.tables.write().unwrap_or_else(PoisonError::into_inner);
        let table = tables.get_mut(&kind).ok_or(CacheError::UnknownType);
        table.and_then(write).map_err(|source| of_kind(kind, source))
    }
}

fn of_kind(kind: GroupKind, source: CacheError) -> CacheError {
    CacheError::Kind { kind, source: Box::new(source) }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}

#[cfg(test)]
mod tests;
