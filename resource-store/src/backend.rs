//! Where resources are kept: the seam, and the backends.

#[cfg(feature = "durable")]
pub mod durable;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "raft")]
pub mod raft;
pub(crate) mod store;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
pub use error::{Error, Result};
use futures::stream::BoxStream;

use crate::{
    gvk::GroupKind,
    pb::{Id, Resource, Tenancy},
};

/// Freshness that a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consistency {
    /// Monotonic in one process, without a promise on how far behind.
    #[default]
    Eventual,
    /// Linearizable.
    Strong,
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eventual => "Eventual Consistency",
            Self::Strong => "Strong Consistency",
        })
    }
}

/// The resources that a list or a watch covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The kind; all its versions are meant.
    pub kind: GroupKind,
    /// The tenancy, in which each unit may be [`WILDCARD`](crate::WILDCARD).
    pub tenancy: Tenancy,
    /// Prefix of the names; empty for all.
    pub name_prefix: String,
}

impl Query {
    /// Builds a query for everything of a kind in a tenancy.
    pub fn new(kind: GroupKind, tenancy: Tenancy) -> Self {
        Self { kind, tenancy, name_prefix: String::new() }
    }

    /// Narrows the query to names with this prefix.
    #[must_use]
    pub fn with_name_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.name_prefix);
        self
    }

    /// Returns `true` if a resource of the kind has a tenancy and a name that
    /// the query covers.
    pub fn covers(&self, resource: &Resource) -> bool {
        let Some(id) = &resource.id else { return false };
        self.tenancy.covers(id.partition(), id.namespace())
            && id.name.starts_with(&self.name_prefix)
    }
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// Created or changed, or part of the snapshot that the watch begins with.
    Upsert(Arc<Resource>),
    /// Deleted; with the resource as it was last stored.
    Delete(Arc<Resource>),
    /// The snapshot is complete; what follows are changes.
    EndOfSnapshot,
}

/// The events of one watch. After an error it ends.
pub type Watch = BoxStream<'static, Result<WatchEvent>>;

/// Resources one after the other.
pub type ResourceStream = BoxStream<'static, Result<Arc<Resource>>>;

/// Keeps resources.
///
/// One object is kept for each group, kind, tenancy and name, whatever the
/// version of the group. A stored object never changes; who wants another one
/// writes it. Strings are taken as they are: the service checks names, the
/// backend does not, but none holds a zero byte.
///
/// Every backend promises:
///
/// - **Writes** are all or nothing, and conditional on the version. There are
///   no partial updates: the caller passes the whole resource, its status
///   included.
/// - **Eventual reads** are monotonic in one process: a read is never older
///   than an earlier one. They need not show the process's own writes.
/// - **Strong reads** are linearizable.
/// - **Watches** see every change between their snapshot and their end, once,
///   in the order of the commits, and never go back. Where many
///   changes happen before the watcher has taken the whole snapshot, and what
///   piled up meanwhile, those may be left out that a later one undoes or
///   replaces. A write in another version of the group appears as a delete of
///   the old version, then an upsert of the new one.
/// - **A read after an event**: once a watch got an upsert, an eventual read in
///   the same process gives that version or a newer one; once it got a delete,
///   the object is gone, or a newer incarnation, or in another version of its
///   group.
/// - **Owned resources**: once a watch got the delete event of an owner,
///   [`Backend::list_by_owner`] shows every resource that referred to it when
///   it was deleted. Nothing is promised for those created later.
/// - **The uid** of an object does not change. After a delete, another may be
///   used. Deleting an owner does not touch what it owns.
///
/// Dropping a future of a write leaves open whether it took place.
///
/// [`testing::storage`](crate::testing) tests these sentences.
///
/// Source: `internal/storage/storage.go`, Consul 1.21.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Reads one resource.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is none, or one of another incarnation
    /// than a uid that is given; then [`Error::GroupVersionMismatch`] if it is
    /// stored with another version of the group.
    async fn read(&self, consistency: Consistency, id: &Id) -> Result<Arc<Resource>>;

    /// Stores a resource if `resource.version` is what is stored; an empty
    /// version means that there must be none. The version of the group does not
    /// matter. Gives the stored copy, with a new version that is not empty.
    ///
    /// # Errors
    ///
    /// [`Error::WrongUid`] if there is one with another uid, checked before
    /// [`Error::CasFailure`]; [`Error::Inconsistent`] if there is no quorum or
    /// leader, and so nothing was done; [`Error::Other`], not to be retried,
    /// if it is unknown what became of it.
    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>>;

    /// Deletes a resource of exactly the given uid and version. If there is
    /// none, or one of another uid (also than an empty one), nothing happens
    /// and that is fine. The version of the group does not matter.
    ///
    /// # Errors
    ///
    /// [`Error::CasFailure`] if the version is another, also than an empty one;
    /// else as [`Backend::write_cas`].
    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()>;

    /// Lists by partition, namespace and name, mixing versions of the group.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] if a strong list is not available.
    async fn list(&self, consistency: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>>;

    /// Lists what names `owner`, uid included, as its owner: by group, kind,
    /// partition, namespace and name.
    ///
    /// # Errors
    ///
    /// If the backend cannot tell.
    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>>;

    /// Follows a list: upserts for what is there, one end-of-snapshot mark,
    /// then changes.
    ///
    /// A watcher that reads slower than changes come costs bounded memory. As
    /// long as it has not caught up with its snapshot, changes are merged, and
    /// its watch stays: so each watch gets a watcher to a whole snapshot, at
    /// whatever pace. Once it has caught up, and then falls behind by too much,
    /// its watch closes with [`Error::WatchClosed`], and it starts again; a
    /// watch also closes where what slow watchers have yet to read takes too
    /// much memory, and every watch when the store is restored.
    /// Dropping the stream ends the watch.
    ///
    /// # Errors
    ///
    /// If no watch can be started.
    async fn watch_list(&self, query: &Query) -> Result<Watch>;

    /// Everything that is stored at one moment, in the order of the keys.
    /// Later writes do not show.
    ///
    /// # Errors
    ///
    /// If no snapshot can be taken.
    async fn snapshot(&self) -> Result<ResourceStream>;

    /// Replaces everything by the given resources, whose versions and uids are
    /// kept, and closes every watch.
    ///
    /// Where versions are decimal numbers, those given later are higher than
    /// any such number among the restored ones, and than any given before: so
    /// no version ever stands for two contents.
    ///
    /// All or nothing: an error in the stream, or dropping the future before
    /// the end, leaves the store as it was.
    ///
    /// # Errors
    ///
    /// The first error of the stream, or one of the backend.
    async fn restore(&self, resources: ResourceStream) -> Result<()>;

    /// Finds out whether reads and writes can be served now, without changing
    /// anything. A server's health follows it. A backend that has nothing to
    /// lose is always ready, which is the default.
    ///
    /// # Errors
    ///
    /// The reason why the next strong read or write would fail, as far as that
    /// is known before it is tried.
    async fn ready(&self) -> Result<()> {
        Ok(())
    }
}

macro_rules! delegate_backend {
    ($($pointer:ident),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<B: Backend + ?Sized> Backend for $pointer<B> {
            async fn read(&self, consistency: Consistency, id: &Id) -> Result<Arc<Resource>> {
                (**self).read(consistency, id).await
            }

            async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
                (**self).write_cas(resource).await
            }

            async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
                (**self).delete_cas(id, version).await
            }

            async fn list(&self, consistency: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
                (**self).list(consistency, query).await
            }

            async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
                (**self).list_by_owner(owner).await
            }

            async fn watch_list(&self, query: &Query) -> Result<Watch> {
                (**self).watch_list(query).await
            }

            async fn snapshot(&self) -> Result<ResourceStream> {
                (**self).snapshot().await
            }

            async fn restore(&self, resources: ResourceStream) -> Result<()> {
                (**self).restore(resources).await
            }

            async fn ready(&self) -> Result<()> {
                (**self).ready().await
            }
        }
    )*};
}

delegate_backend!(Arc, Box);
