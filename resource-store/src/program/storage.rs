//! The backend that the command line asks for.

use std::{path::Path, sync::Arc};

use crate::{
    backend::{
        Backend,
        durable::{DurableBackend, DurableOptions},
        etcd::EtcdBackend,
        memory::MemoryBackend,
        postgres::PostgresBackend,
        raft::RaftBackend,
    },
    controller::Leadership,
};
use consul_watch::BoxError;

use super::{arguments::StorageOptions, etcd, postgres, raft::RaftOptions};

/// A backend, and what it needs to be ended well.
pub(crate) enum Storage {
    Memory(MemoryBackend),
    Durable(DurableBackend),
    Raft(RaftBackend),
    Etcd(EtcdBackend),
    Postgres(PostgresBackend),
}

impl Storage {
    pub(crate) async fn open(
        options: &StorageOptions,
        raft: &RaftOptions,
    ) -> Result<Self, BoxError> {
        if let (Some(_), Some(folder)) = (&raft.raft, &options.data_dir)
            && folder.join(STORE_FILE).exists()
        {
            let text = format!(
                "{} holds the store of a single server, which a cluster does not take over: \
                 export it, and import that into a node with an empty folder",
                folder.display()
            );
            return Err(text.into());
        }
        if let Some(node) = raft.start(options).await? {
            return Ok(Self::Raft(node));
        }
        if let Some(backend) = etcd::open(&options.etcd).await? {
            return Ok(Self::Etcd(backend));
        }
        if let Some(backend) = postgres::open(&options.postgres).await? {
            return Ok(Self::Postgres(backend));
        }
        match &options.data_dir {
            Some(folder) => Ok(Self::Durable(open_file(folder, options).await?)),
            None => Ok(Self::Memory(MemoryBackend::new())),
        }
    }

    /// Returns the lease that decides where controllers run which are to run once,
    /// if this process may not be the only one.
    pub(crate) fn leadership(&self) -> Option<Leadership> {
        match self {
            Self::Memory(_) | Self::Durable(_) | Self::Etcd(_) | Self::Postgres(_) => None,
            Self::Raft(backend) => Some(backend.leadership()),
        }
    }

    /// The node of a cluster that it is, if it is one.
    pub(crate) fn node(&self) -> Option<RaftBackend> {
        match self {
            Self::Raft(backend) => Some(backend.clone()),
            Self::Memory(_) | Self::Durable(_) | Self::Etcd(_) | Self::Postgres(_) => None,
        }
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Memory(backend) => Arc::new(backend.clone()),
            Self::Durable(backend) => Arc::new(backend.clone()),
            Self::Raft(backend) => Arc::new(backend.clone()),
            Self::Etcd(backend) => Arc::new(backend.clone()),
            Self::Postgres(backend) => Arc::new(backend.clone()),
        }
    }

    /// Waits until it cannot go on, and gives why.
    pub(crate) async fn failed(&self) -> BoxError {
        match self {
            Self::Memory(_) | Self::Durable(_) | Self::Etcd(_) | Self::Postgres(_) => {
                std::future::pending().await
            }
            Self::Raft(backend) => backend.failed().await.into(),
        }
    }

    /// Returns `true` if it lasts longer than this process.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Durable(_) | Self::Raft(_) | Self::Etcd(_) | Self::Postgres(_) => true,
        }
    }

    /// Brings to the disk what is to be there.
    pub(crate) async fn close(self) -> Result<(), BoxError> {
        match self {
            Self::Memory(_) | Self::Etcd(_) | Self::Postgres(_) => {}
            Self::Durable(backend) => backend.close().await?,
            Self::Raft(backend) => backend.shutdown().await,
        }
        Ok(())
    }
}

/// The file of a store in its folder.
pub(crate) const STORE_FILE: &str = "resources.redb";
/// Files by which the folder of a node of a cluster is recognised, of this version
/// or one before.
const NODE_FILES: [&str; 2] = ["raft-log", "raft-log.redb"];

/// Returns `true` if a folder belongs to a node of a cluster.
pub(crate) fn is_of_a_node(folder: &Path) -> bool {
    NODE_FILES.iter().any(|name| folder.join(name).exists())
}

async fn open_file(folder: &Path, options: &StorageOptions) -> Result<DurableBackend, BoxError> {
    // Else it would be served as if it were empty.
    if is_of_a_node(folder) {
        let text = format!(
            "{} belongs to a node of a cluster: give --raft and its address, or export from the \
             server with --server",
            folder.display()
        );
        return Err(text.into());
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))?;
    let how = DurableOptions {
        sync: options.sync,
        cache_bytes: usize::try_from(options.cache)?.saturating_mul(1 << 20),
        check_on_open: !options.no_check,
        ..DurableOptions::default()
    };
    Ok(DurableBackend::open(folder.join(STORE_FILE), how).await?)
}
