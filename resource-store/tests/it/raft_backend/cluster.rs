//! A cluster within this process, over real sockets.

use std::{path::Path, sync::Arc, time::Duration};

use resource_store::{
    backend::{
        Backend, Consistency, Query, Result,
        raft::{Faults, RaftBackend, RaftConfig, Start},
    },
    pb::{Id, Resource, Tenancy, Type},
};
use tempfile::TempDir;

/// How long anything may take.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

pub(super) fn kind() -> Type {
    Type::new("test", "v1", "Thing")
}

pub(super) fn id(name: &str) -> Id {
    Id::new(kind(), Tenancy::new("default", "default"), name).with_uid("u")
}

pub(super) fn thing(name: &str) -> Resource {
    Resource::new(id(name))
}

pub(super) fn everything() -> Query {
    Query::new(kind().group_kind(), Tenancy::new("*", "*"))
}

/// A folder in memory, where there is one: these tests are not about disks.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    made.unwrap()
}

/// Nodes and their files. Nodes stop when it is dropped.
pub(super) struct Cluster {
    nodes: Vec<Option<RaftBackend>>,
    configs: Vec<RaftConfig>,
    pub(super) faults: Faults,
    folders: Vec<TempDir>,
}

impl Cluster {
    pub(super) async fn start(nodes: usize) -> Self {
        Self::start_with(nodes, |_, _| ()).await
    }

    /// Nodes that replace a lost leader soon.
    pub(super) fn hasty(config: &mut RaftConfig) {
        config.heartbeat = Duration::from_millis(50);
        config.election = (Duration::from_millis(250), Duration::from_millis(500));
    }

    pub(super) async fn start_with(
        nodes: usize,
        adjust: impl Fn(usize, &mut RaftConfig) + Send + Sync,
    ) -> Self {
        let mut cluster = Self {
            nodes: Vec::new(),
            configs: Vec::new(),
            faults: Faults::new(),
            folders: Vec::new(),
        };
        for number in 0..nodes {
            cluster.add(|config| adjust(number, config)).await.unwrap();
        }
        cluster
    }

    /// Another node joins; the first one founds the cluster.
    pub(super) async fn add(&mut self, adjust: impl Fn(&mut RaftConfig) + Send) -> Result<()> {
        let folder = folder();
        let mut config = RaftConfig::new(folder.path(), "127.0.0.1:0");
        config.election = (Duration::from_millis(500), Duration::from_secs(1));
        config.faults = self.faults.clone();
        adjust(&mut config);
        let start = match self.nodes.iter().flatten().next() {
            Some(other) => Start::Join(other.local_addr().to_string()),
            None => Start::Bootstrap,
        };
        let node = within(RaftBackend::start(config.clone(), start)).await?;
        config.listen = node.local_addr().to_string();
        self.nodes.push(Some(node));
        self.configs.push(config);
        self.folders.push(folder);
        Ok(())
    }

    pub(super) fn node(&self, number: usize) -> &RaftBackend {
        self.nodes[number].as_ref().unwrap()
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &RaftBackend> {
        self.nodes.iter().flatten()
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.running().map(RaftBackend::node_id).collect()
    }

    /// The number of the node that a majority takes for the leader.
    pub(super) async fn leader(&self) -> usize {
        within(async {
            loop {
                let opinions: Vec<_> = self
                    .running()
                    .filter_map(RaftBackend::leader)
                    .map(|leader| leader.id)
                    .collect();
                let found = self.nodes.iter().position(|node| {
                    let id = node.as_ref().map(RaftBackend::node_id);
                    let count = opinions.iter().filter(|opinion| Some(**opinion) == id).count();
                    count * 2 > self.nodes.len()
                });
                if let Some(number) = found {
                    return number;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// A node that does not lead.
    pub(super) async fn follower(&self) -> RaftBackend {
        let leader = self.leader().await;
        let number = (0..self.nodes.len()).find(|number| *number != leader);
        self.node(number.unwrap()).clone()
    }

    /// Stops a node and keeps its files.
    pub(super) async fn stop(&mut self, number: usize) {
        let node = self.nodes[number].take().unwrap();
        within(node.shutdown()).await;
    }

    /// Starts a node again, with what is in its files.
    pub(super) async fn restart(&mut self, number: usize) {
        self.restart_as(number, Start::Resume).await.unwrap();
    }

    pub(super) async fn restart_as(&mut self, number: usize, start: Start) -> Result<()> {
        let config = self.configs[number].clone();
        self.nodes[number] = Some(within(RaftBackend::start(config, start)).await?);
        Ok(())
    }

    /// Gives a node that is stopped another address.
    pub(super) fn move_away(&mut self, number: usize) {
        "127.0.0.1:0".clone_into(&mut self.configs[number].listen);
    }

    /// Gives a node that is stopped an empty folder.
    pub(super) fn wipe(&mut self, number: usize) {
        self.folders[number] = folder();
        self.configs[number].data_dir = self.folders[number].path().to_owned();
    }
}

/// Waits, but not forever.
pub(super) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it takes too long")
}

/// Writes something new, and gives what was stored.
pub(super) async fn put(node: &RaftBackend, name: &str) -> Arc<Resource> {
    within(async {
        loop {
            match node.write_cas(thing(name)).await {
                Ok(stored) => return stored,
                Err(error) if error.is_retryable() => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
    })
    .await
}

/// All names, as strong reads give them.
pub(super) async fn names(node: &RaftBackend) -> Vec<String> {
    within(async {
        loop {
            match node.list(Consistency::Strong, &everything()).await {
                Ok(found) => return found.iter().map(|r| r.name().to_owned()).collect(),
                Err(error) if error.is_retryable() => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}
