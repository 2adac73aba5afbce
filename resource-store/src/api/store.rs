//! What a watch says, kept to be read without a call.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use futures::{Stream, StreamExt as _};
use tokio::sync::watch;

use super::{Api, ApiError, ApiEvent};
use crate::{
    backend::store::key,
    pb::Id,
    typed::{Resource, ResourceData},
};

/// The resources of a watch as they are now. A clone is another handle to the same store.
///
/// It changes as its stream is polled ([`Store::of`]).
pub struct Store<K> {
    kept: Arc<Kept<K>>,
    api: Api<K>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { kept: Arc::clone(&self.kept), api: self.api.clone() }
    }
}

impl<K: ResourceData> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("api", &self.api)
            .field("resources", &self.len())
            .finish_non_exhaustive()
    }
}

struct Kept<K> {
    resources: RwLock<BTreeMap<Vec<u8>, Arc<Resource<K>>>>,
    complete: watch::Sender<bool>,
}

impl<K: ResourceData> Store<K> {
    /// A store with the stream that fills it: the events of [`Api::watch`], each
    /// of which the store has before the stream gives it.
    ///
    /// Somebody has to poll the stream, as a task with
    /// `while changes.next().await.is_some() {}`; dropped, it leaves the store as it is.
    pub fn of(
        api: &Api<K>,
    ) -> (Self, impl Stream<Item = Result<ApiEvent<K>, ApiError>> + Send + Unpin + use<K>) {
        let kept =
            Arc::new(Kept { resources: RwLock::default(), complete: watch::Sender::new(false) });
        let store = Self { kept: Arc::clone(&kept), api: api.clone() };
        let changes = api.watch().inspect(move |event| {
            if let Ok(event) = event {
                kept.take(event);
            }
        });
        (store, changes)
    }

    /// Returns a resource of the API's tenancy by its name.
    pub fn get(&self, name: &str) -> Option<Arc<Resource<K>>> {
        self.get_id(&self.api.id(name))
    }

    /// Returns a resource of any tenancy; a uid has to be that of the stored one.
    pub fn get_id(&self, id: &Id) -> Option<Arc<Resource<K>>> {
        let found = self.read(|resources| resources.get(&key::resource_key(id)).cloned())?;
        (id.uid.is_empty() || id.uid == found.id.uid).then_some(found)
    }

    /// Returns all resources, by tenancy and name.
    pub fn state(&self) -> Vec<Arc<Resource<K>>> {
        self.read(|resources| resources.values().cloned().collect())
    }

    /// Returns how many resources there are.
    pub fn len(&self) -> usize {
        self.read(BTreeMap::len)
    }

    /// Returns `true` if there are no resources, or none are known yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until everything is known that was there when the watch began; for
    /// ever where nobody polls the stream.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn wait_until_complete(&self) {
        // The sender lives in this handle.
        drop(self.kept.complete.subscribe().wait_for(|complete| *complete).await);
    }

    fn read<T>(&self, read: impl FnOnce(&BTreeMap<Vec<u8>, Arc<Resource<K>>>) -> T) -> T {
        read(&self.kept.resources.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K> Kept<K> {
    fn take(&self, event: &ApiEvent<K>) {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            ApiEvent::Applied(resource) => {
                resources.insert(key::resource_key(&resource.id), Arc::clone(resource));
            }
            ApiEvent::Deleted(resource) => {
                resources.remove(&key::resource_key(&resource.id));
            }
            ApiEvent::Complete => {
                drop(resources);
                self.complete.send_replace(true);
            }
        }
    }
}
