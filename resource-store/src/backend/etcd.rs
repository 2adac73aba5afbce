//! The backend on an etcd that is there already.

mod cluster;
mod config;
mod failure;
mod follow;
mod layout;
mod pages;
pub(crate) mod pb;
mod reading;
mod record;
mod restore;
mod session;
mod writing;

use std::sync::Arc;

use async_trait::async_trait;
pub use config::{EtcdConfig, EtcdTls, EtcdUser};
use futures::{StreamExt as _, TryStreamExt as _};

use self::{cluster::Cluster, layout::Layout, session::Session};
use super::{
    Backend, Consistency, Error, Query, ResourceStream, Result, Watch, store::watch::StoreWatch,
};
use crate::pb::{Id, Resource};

/// Limit of restarts of a watch because the store is being restored.
const WATCH_ATTEMPTS: usize = 5;

/// Keeps resources in etcd, version 3.4 or newer.
///
/// - **Writes** are one transaction on the revision of what is stored. When the
///   answer is lost, the transaction is repeated on another member, which is
///   safe because only one can take effect; a mark in the record tells whose it
///   was. Where that is no longer known, the write ends with
///   [`Error::Inconsistent`].
/// - **Strong reads** are etcd's linearizable reads. **Eventual reads** are
///   answered by one member from what it knows; when that is older than what
///   this process has seen, they become strong ones. Long lists are read in
///   pages at one revision.
/// - **Watches** share one watch of etcd for all resources of the store, which
///   is there while anyone watches, and goes on after the last revision when its
///   connection breaks. When etcd has compacted that revision meanwhile, or was
///   set up again, every watch closes with [`Error::WatchClosed`].
/// - **A restore** is written aside and takes the place of the rest in one
///   transaction, so that etcd holds both for a while. One that is cut short
///   leaves what it wrote to the next one to remove.
///
/// Versions are the name of the store and the revision of etcd; a store that
/// was restored, or an etcd that was set up again, has another name, so that an
/// old version is never taken for a new one.
///
/// One resource may take 1.5 MiB, unless etcd was started with another
/// `--max-request-bytes`. Compacting etcd (`--auto-compaction-retention`) is up
/// to whoever runs it.
///
/// A clone is another handle to the same store.
///
/// Source: `api/etcdserverpb/rpc.proto`, etcd 3.4.
#[derive(Debug, Clone)]
pub struct EtcdBackend {
    session: Arc<Session>,
}

impl EtcdBackend {
    /// Connects to etcd and finds the store, or begins one.
    ///
    /// To be called in a tokio runtime, which also runs the watch.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] if the configuration is malformed or etcd refuses the
    /// user; [`Error::Inconsistent`] if no member answers in time.
    pub async fn connect(config: &EtcdConfig) -> Result<Self> {
        let cluster = Cluster::new(config)?;
        let session = Session::new(cluster, Layout::new(&config.prefix), config.watch_buffer);
        session.generation().await?;
        Ok(Self { session: Arc::new(session) })
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    async fn read(&self, consistency: Consistency, id: &Id) -> Result<Arc<Resource>> {
        self.session.get(consistency, id).await
    }

    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
        self.session.write(resource).await
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        self.session.delete(id, version).await
    }

    async fn list(&self, consistency: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        reading::list(&self.session, consistency, query).await
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        reading::list_by_owner(&self.session, owner).await
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        for _ in 0..WATCH_ATTEMPTS {
            let following = follow::following(&self.session).await?;
            let Some(reader) = following.subscribe(query) else { continue };
            let snapshot =
                reading::pages_of_query(&self.session, Consistency::Strong, query).await?;
            if snapshot.generation != *following.history() {
                continue;
            }
            let index = u64::try_from(snapshot.revision).unwrap_or_default();
            // What etcd compacts while it is read has to be read again.
            let resources = snapshot
                .into_resources(Some(query.clone()))
                .map_err(|error| if error.is_retryable() { Error::WatchClosed } else { error })
                .boxed();
            let watch = StoreWatch::new(query.clone(), reader, index, resources);
            // As long as someone has this stream, etcd is watched.
            return Ok(watch
                .map(move |event| {
                    let _watched = &following;
                    event
                })
                .boxed());
        }
        Err(Error::WatchClosed)
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        reading::snapshot(&self.session).await
    }

    async fn restore(&self, resources: ResourceStream) -> Result<()> {
        restore::restore(&self.session, resources).await
    }

    /// Asks for what any strong read asks.
    async fn ready(&self) -> Result<()> {
        let asked = self.session.read(Consistency::Strong, "asking etcd", |_| Vec::new());
        asked.await.map(drop)
    }
}
