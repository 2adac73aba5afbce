//! The typed client: the resources of one Rust type, over any [`ResourceClient`].
//!
//! [`Api`] reads and writes, [`Api::watch`] follows, and [`Store`] keeps what a
//! watch says, to be read without a call.

mod status;
mod store;

use std::{fmt, marker::PhantomData, sync::Arc};

use futures::{Stream, StreamExt as _};

pub use self::{
    status::{HasStatus, StatusReport},
    store::Store,
};
use crate::{
    backend::WatchEvent,
    client::{ResourceClient, remove_finalizer, resuming_watch},
    code::{Code, RpcError},
    pb::{self, DeleteRequest, Id, ListRequest, Tenancy, WatchListRequest, WriteStatusRequest},
    tenancy::WILDCARD,
    typed::{DataError, Resource, ResourceData},
};

/// Number of times that others may be faster.
const ATTEMPTS: u32 = 10;

/// A call of the typed client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The service refused the call, or could not be asked.
    #[error("cannot {action} {subject}")]
    Call {
        /// The action, as `read`.
        action: &'static str,
        /// The resource, or the type.
        subject: String,
        /// The answer.
        source: RpcError,
    },
    /// The data have no form in protobuf, so that nothing was sent.
    #[error("cannot encode {id}")]
    Encode {
        /// The resource.
        id: Box<Id>,
        /// The fault in its data.
        source: DataError,
    },
    /// A stored resource is not of the Rust type.
    #[error("cannot decode {id}")]
    Data {
        /// The resource.
        id: Box<Id>,
        /// The fault in its data.
        source: DataError,
    },
}

impl ApiError {
    /// Returns the code of the service's answer; `None` for data that do not decode or
    /// encode.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Call { source, .. } => Some(source.code()),
            Self::Encode { .. } | Self::Data { .. } => None,
        }
    }

    /// Returns `true` if there is no such resource.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    /// Returns `true` if somebody else changed the resource since it was read.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(Code::Aborted)
    }
}

/// A change of the resources of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiEvent<K> {
    /// The resource is there, or has a new version.
    Applied(Arc<Resource<K>>),
    /// The resource is gone; this was its last version.
    Deleted(Arc<Resource<K>>),
    /// Everything that was there when the watch began has been told. Comes once.
    Complete,
}

/// The resources of one type in one tenancy, or in all of them.
///
/// Cheap to clone. Each call is one call of the client, unless it says otherwise.
///
#[cfg_attr(feature = "derive", doc = "```")]
#[cfg_attr(not(feature = "derive"), doc = "```ignore")]
/// use std::sync::Arc;
///
/// use futures::StreamExt as _;
/// use resource_store::{
///     Api, ApiEvent, LocalClient, Registry, Resource, ResourceService, Store,
///     backend::memory::MemoryBackend,
/// };
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
/// #[resource(group = "music", version = "v1", scope = "namespace")]
/// struct Album {
///     title: String,
///     year: u32,
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let mut registry = Registry::new()?;
/// registry.register_type::<Album>()?;
/// let service = ResourceService::builder(registry, Arc::new(MemoryBackend::new())).build();
///
/// let albums = Api::<Album>::new(LocalClient::new(service));
/// albums.apply("issues", Album { title: "Issues".to_owned(), year: 1998 }).await?;
/// // Reads, changes and writes, again where somebody else was faster.
/// let issues = albums.modify("issues", |album| album.data.year = 1999).await?;
/// assert_eq!(issues.data.year, 1999);
/// assert_eq!(albums.list().await?, [issues]);
///
/// let (store, mut changes) = Store::of(&albums);
/// while let Some(event) = changes.next().await {
///     if let ApiEvent::Complete = event? {
///         break;
///     }
/// }
/// assert_eq!(store.get("issues").unwrap().data.title, "Issues");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Api<K> {
    client: Arc<dyn ResourceClient>,
    tenancy: Tenancy,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        let (client, tenancy) = (Arc::clone(&self.client), self.tenancy.clone());
        Self { client, tenancy, kind: PhantomData }
    }
}

impl<K: ResourceData> fmt::Debug for Api<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("type", &K::resource_type().to_string())
            .field("tenancy", &self.tenancy)
            .finish_non_exhaustive()
    }
}

impl<K: ResourceData> Api<K> {
    /// The resources of the partition and namespace `default`, as far as the type has
    /// these ([`ResourceData::SCOPE`]).
    ///
    /// A type whose Rust type does not say its scope, and whose scope is less than a
    /// namespace, needs [`Api::in_tenancy`] with the units that it has not left empty.
    pub fn new(client: impl ResourceClient) -> Self {
        let tenancy = K::SCOPE.default_tenancy();
        Self { client: Arc::new(client), tenancy, kind: PhantomData }
    }

    /// The resources of another tenancy.
    #[must_use]
    pub fn in_tenancy(mut self, tenancy: Tenancy) -> Self {
        self.tenancy = tenancy;
        self
    }

    /// The resources of all tenancies, to be listed and watched. What names one
    /// resource is refused by the service.
    #[must_use]
    pub fn everywhere(self) -> Self {
        self.in_tenancy(Tenancy::new(WILDCARD, WILDCARD))
    }

    /// Returns the resources of another type over the same client, in the same tenancy, as
    /// far as the type has its units.
    pub fn of<L: ResourceData>(&self) -> Api<L> {
        let (client, mut tenancy) = (Arc::clone(&self.client), self.tenancy.clone());
        L::SCOPE.clear_foreign_units(&mut tenancy);
        Api { client, tenancy, kind: PhantomData }
    }

    /// Returns the identity of a name here, without a uid.
    pub fn id(&self, name: &str) -> Id {
        Id::new(K::resource_type(), self.tenancy.clone(), name)
    }

    /// Returns a resource to be created here.
    pub fn resource(&self, name: &str, data: K) -> Resource<K> {
        Resource::new(self.tenancy.clone(), name, data)
    }

    /// Reads a resource; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ApiError`], but not for one that is not found.
    pub async fn get(&self, name: &str) -> Result<Option<Resource<K>>, ApiError> {
        let id = self.id(name);
        match self.client.read(id.clone()).await {
            Err(error) if error.code() == Code::NotFound => Ok(None),
            read => decode(&read.map_err(failed("read", &id))?).map(Some),
        }
    }

    /// Lists the resources.
    ///
    /// # Errors
    ///
    /// [`ApiError`]; also if one of them does not decode.
    pub async fn list(&self) -> Result<Vec<Resource<K>>, ApiError> {
        self.list_prefix("").await
    }

    /// Lists the resources whose names begin so.
    ///
    /// # Errors
    ///
    /// As [`Api::list`].
    pub async fn list_prefix(&self, name_prefix: &str) -> Result<Vec<Resource<K>>, ApiError> {
        let request = ListRequest {
            r#type: Some(K::resource_type()),
            tenancy: Some(self.tenancy.clone()),
            name_prefix: name_prefix.to_owned(),
        };
        let found = self.client.list(request).await;
        found.map_err(failed("list", K::resource_type()))?.iter().map(decode).collect()
    }

    /// Lists the resources of this type that `owner` owns, in whichever tenancy.
    ///
    /// # Errors
    ///
    /// As [`Api::list`].
    pub async fn list_owned<O: ResourceData>(
        &self,
        owner: &Resource<O>,
    ) -> Result<Vec<Resource<K>>, ApiError> {
        let found = self.client.list_by_owner(owner.id.clone()).await;
        let found = found.map_err(failed("list what is owned by", &owner.id))?;
        let ours = found.iter().filter(|found| found.resource_type() == Some(&K::resource_type()));
        ours.map(decode).collect()
    }

    /// Creates a resource.
    ///
    /// # Errors
    ///
    /// [`ApiError`]; with [`Code::AlreadyExists`] if there is one of that name. That
    /// is looked up first: the protocol has no call that only creates, so of two that
    /// create at the same moment both may succeed, one after the other.
    pub async fn create(&self, resource: &Resource<K>) -> Result<Resource<K>, ApiError> {
        match self.client.read_strong(resource.id.clone()).await {
            Err(error) if error.code() == Code::NotFound => self.replace(resource).await,
            Err(error) => Err(failed("read", &resource.id)(error)),
            Ok(_) => {
                let there = RpcError::new(Code::AlreadyExists, "there is one of that name");
                Err(failed("create", &resource.id)(there))
            }
        }
    }

    /// Writes a resource as it is: on condition that it still has the version that
    /// it was read with, or, without one, whatever is there.
    ///
    /// # Errors
    ///
    /// [`ApiError`]; [`ApiError::is_conflict`] if somebody else was faster.
    pub async fn replace(&self, resource: &Resource<K>) -> Result<Resource<K>, ApiError> {
        let written = self.client.write(without_status(resource)?).await;
        decode(&written.map_err(failed("write", &resource.id))?)
    }

    /// Gives a resource these data, and creates it where it is not there. Owner,
    /// metadata and status of one that is there stay. Nothing is written where
    /// the data are the same, or would be once the hooks of the type have run.
    ///
    /// Two calls, three for a change: where somebody else is faster, it is tried again, up to
    /// ten times.
    ///
    /// # Errors
    ///
    /// [`ApiError`].
    pub async fn apply(&self, name: &str, data: K) -> Result<Resource<K>, ApiError> {
        let applied = self.change(name, |before| match before {
            None => Some(self.resource(name, data.clone())),
            Some(before) if before.data == data => None,
            Some(before) => Some(Resource { data: data.clone(), ..before.clone() }),
        });
        Ok(applied.await?.unwrap_or_else(|| self.resource(name, data)))
    }

    /// Reads a resource, changes it and writes it on condition that nobody else
    /// did; where somebody did, again, up to ten times. Nothing is written where
    /// `change` changes nothing.
    ///
    /// # Errors
    ///
    /// [`ApiError`]; [`ApiError::is_not_found`] if it is not there.
    pub async fn modify(
        &self,
        name: &str,
        change: impl Fn(&mut Resource<K>) + Send + Sync,
    ) -> Result<Resource<K>, ApiError> {
        let changed = self.change(name, |before| {
            let mut after = before?.clone();
            change(&mut after);
            (Some(&after) != before).then_some(after)
        });
        changed.await?.ok_or_else(|| {
            let text = "there is none of that name";
            failed("change", self.id(name))(RpcError::new(Code::NotFound, text))
        })
    }

    /// Writes what `next` makes of the stored resource; nothing if that is `None`.
    /// Gives what is stored then, if anything is.
    async fn change(
        &self,
        name: &str,
        next: impl Fn(Option<&Resource<K>>) -> Option<Resource<K>> + Send + Sync,
    ) -> Result<Option<Resource<K>>, ApiError> {
        let id = self.id(name);
        let mut lost = RpcError::new(Code::Aborted, "others were faster");
        for _ in 0..ATTEMPTS {
            let before = match self.client.read_strong(id.clone()).await {
                Err(error) if error.code() == Code::NotFound => None,
                read => Some(decode::<K>(&read.map_err(failed("read", &id))?)?),
            };
            let Some(after) = next(before.as_ref()) else { return Ok(before) };
            if let Some(before) = &before
                && self.stays(before, &after).await?
            {
                return Ok(Some(before.clone()));
            }
            match self.client.write(without_status(&after)?).await {
                Err(error) if error.code() == Code::Aborted => lost = error,
                written => return decode(&written.map_err(failed("write", &id))?).map(Some),
            }
        }
        Err(failed("write", id)(lost))
    }

    /// Returns `true` if the hooks of the type make of `after` what is stored already,
    /// as where they fill in what was left out. Written anyway, it would be a new
    /// version, and a controller that applies would be called for it for ever.
    async fn stays(&self, before: &Resource<K>, after: &Resource<K>) -> Result<bool, ApiError> {
        let made = self.client.mutate_and_validate(without_status(after)?).await;
        let made = decode::<K>(&made.map_err(failed("write", &after.id))?)?;
        Ok(made.data == before.data
            && made.metadata == before.metadata
            && made.owner == before.owner)
    }

    /// Sets one key of the status of a resource, for the version that was read.
    /// Nothing is written where the status says that already, its time aside.
    ///
    /// # Errors
    ///
    /// [`ApiError`]; [`ApiError::is_conflict`] if somebody else changed the resource.
    pub async fn patch_status(
        &self,
        resource: &Resource<K>,
        key: &str,
        status: pb::Status,
    ) -> Result<Resource<K>, ApiError> {
        if crate::equal_status(resource.status.get(key), Some(&status)) {
            return Ok(resource.clone());
        }
        let request = WriteStatusRequest {
            id: Some(resource.id.clone()),
            version: resource.version.clone(),
            key: key.to_owned(),
            status: Some(status),
        };
        let written = self.client.write_status(request).await;
        decode(&written.map_err(failed("write the status of", &resource.id))?)
    }

    /// Deletes a resource of any version, or marks it for deletion while finalizers
    /// hold it. One that is not there is fine.
    ///
    /// # Errors
    ///
    /// [`ApiError`].
    pub async fn delete(&self, name: &str) -> Result<(), ApiError> {
        let id = self.id(name);
        let request = DeleteRequest { id: Some(id.clone()), version: String::new() };
        self.client.delete(request).await.map_err(failed("delete", id))
    }

    /// Deletes a resource on condition that it still has the version that it was
    /// read with, and is the same incarnation.
    ///
    /// # Errors
    ///
    /// [`ApiError`]; [`ApiError::is_conflict`] if somebody else changed it.
    pub async fn delete_version(&self, resource: &Resource<K>) -> Result<(), ApiError> {
        let (id, version) = (Some(resource.id.clone()), resource.version.clone());
        let deleted = self.client.delete(DeleteRequest { id, version }).await;
        deleted.map_err(failed("delete", &resource.id))
    }

    /// Removes a finalizer, and deletes a resource that is marked and has no other
    /// one ([`remove_finalizer`]).
    ///
    /// # Errors
    ///
    /// [`ApiError`].
    pub async fn release(&self, resource: &Resource<K>, finalizer: &str) -> Result<(), ApiError> {
        let released = remove_finalizer(&*self.client, resource.id.clone(), finalizer).await;
        released.map_err(failed("release", &resource.id))
    }

    /// Follows the resources: all that are there, [`ApiEvent::Complete`], then changes.
    ///
    /// Goes on through lost connections and restored stores ([`resuming_watch`]), and
    /// ends with an error that repeating does not cure. A resource that does not
    /// decode is an error that does not end it.
    pub fn watch(
        &self,
    ) -> impl Stream<Item = Result<ApiEvent<K>, ApiError>> + Send + Unpin + use<K> {
        let request = WatchListRequest {
            r#type: Some(K::resource_type()),
            tenancy: Some(self.tenancy.clone()),
            name_prefix: String::new(),
        };
        resuming_watch(Arc::clone(&self.client), request).map(|event| {
            Ok(match event.map_err(failed("watch", K::resource_type()))? {
                WatchEvent::Upsert(resource) => ApiEvent::Applied(Arc::new(decode(&resource)?)),
                WatchEvent::Delete(resource) => ApiEvent::Deleted(Arc::new(decode(&resource)?)),
                WatchEvent::EndOfSnapshot => ApiEvent::Complete,
            })
        })
    }
}

/// Encodes for a write, which keeps the stored status where none is given: with the one that was
/// read, a status that somebody wrote since would make the write invalid, and not a conflict.
fn without_status<K: ResourceData>(resource: &Resource<K>) -> Result<pb::Resource, ApiError> {
    let failed = |source| ApiError::Encode { id: Box::new(resource.id.clone()), source };
    let encoded = resource.try_encode().map_err(failed)?;
    Ok(pb::Resource { status: std::collections::BTreeMap::new(), ..encoded })
}

fn decode<K: ResourceData>(resource: &pb::Resource) -> Result<Resource<K>, ApiError> {
    let failed =
        |source| ApiError::Data { id: Box::new(resource.id.clone().unwrap_or_default()), source };
    Resource::decode(resource).map_err(failed)
}

fn failed(action: &'static str, subject: impl fmt::Display) -> impl FnOnce(RpcError) -> ApiError {
    let subject = subject.to_string();
    move |source| ApiError::Call { action, subject, source }
}

impl<K> Resource<K> {
    /// The name.
    pub fn name(&self) -> &str {
        &self.id.name
    }

    /// The same, owned by another resource: deleted after it by the reaper.
    #[must_use]
    pub fn owned_by<O>(mut self, owner: &Resource<O>) -> Self {
        self.owner = Some(owner.id.clone());
        self
    }

    /// Returns `true` if the resource is to be deleted once its finalizers are gone.
    pub fn is_marked_for_deletion(&self) -> bool {
        self.metadata.contains_key(crate::metadata::DELETION_TIMESTAMP)
    }
}
