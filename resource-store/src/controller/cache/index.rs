//! How the cache finds resources.

use std::{fmt, sync::Arc};

use super::{CacheError, Key};
use crate::{
    controller::BoxError,
    pb::{self, Reference},
    typed::{Resource, ResourceData},
};

type Keys = dyn Fn(&pb::Resource) -> Result<Vec<Key>, BoxError> + Send + Sync;

/// The definition of an index: under which keys a resource is found.
///
/// The same definition may serve several caches; the data is each cache's own.
#[derive(Clone)]
pub struct Index {
    name: String,
    required: bool,
    keys: Arc<Keys>,
}

impl Index {
    /// Each resource under any number of keys.
    pub fn new(
        name: &str,
        keys: impl Fn(&pb::Resource) -> Result<Vec<Key>, BoxError> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.to_owned(), required: false, keys: Arc::new(keys) }
    }

    /// Each resource under any number of keys from its decoded data.
    pub fn decoded<T: ResourceData>(
        name: &str,
        keys: impl Fn(&Resource<T>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |resource| Ok(keys(&Resource::decode(resource)?)))
    }

    /// Each resource under the references that a function finds in it.
    pub fn references(
        name: &str,
        find: impl Fn(&pb::Resource) -> Result<Vec<Reference>, BoxError> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |resource| Ok(find(resource)?.iter().map(Key::of).collect()))
    }

    /// Each resource under its own identity.
    pub fn id(name: &str) -> Self {
        Self::new(name, |resource| Ok(resource.id.iter().map(Key::of).collect()))
    }

    /// Each resource under its owner, if it has one.
    pub fn owner(name: &str) -> Self {
        Self::new(name, |resource| Ok(resource.owner.iter().map(Key::of).collect()))
    }

    /// Refuses resources without a key.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The keys of a resource, without repetitions.
    pub(super) fn keys(&self, resource: &pb::Resource) -> Result<Vec<Vec<u8>>, CacheError> {
        let failed = |source| CacheError::Indexer { index: self.name.clone(), source };
        let mut keys: Vec<_> =
            (self.keys)(resource).map_err(failed)?.into_iter().map(Key::into_bytes).collect();
        keys.sort();
        keys.dedup();
        if self.required && keys.is_empty() {
            return Err(CacheError::Required(self.name.clone()));
        }
        Ok(keys)
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("name", &self.name)
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}
