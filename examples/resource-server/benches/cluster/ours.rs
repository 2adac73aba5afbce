//! Three nodes of `resource-server --raft`.

use std::{path::Path, time::Duration};

use consul_watch::testing::real::free_port;
use resource_store::{
    Code, GrpcClient, RequestContext, ResourceClient as _,
    backend::{Consistency, raft::RaftBackend},
    pb::{Id, Resource, Tenancy, Type},
};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::{
    measure::{Client, Store, Work},
    node::Node,
};

pub(crate) struct Ours {
    nodes: Mutex<Vec<Node>>,
    addresses: Vec<String>,
    peers: Vec<String>,
    value: String,
    folder: TempDir,
}

impl Ours {
    pub(crate) async fn start(value: usize) -> Self {
        let folder = tempfile::Builder::new().prefix("ours-").tempdir().unwrap();
        let free = || format!("127.0.0.1:{}", free_port().unwrap());
        let peers: Vec<String> = (0..3).map(|_| free()).collect();
        let mut nodes = Vec::new();
        for (number, peer) in peers.iter().enumerate() {
            let data = folder.path().join(format!("data-{number}")).to_str().unwrap().to_owned();
            let arguments = ["--data-dir", &data, "--raft", peer].map(str::to_owned).to_vec();
            let program = env!("CARGO_BIN_EXE_resource-server");
            let log = folder.path().join("log");
            let mut node = Node::new(program, free(), arguments, log);
            match number {
                0 => node.start(&["--bootstrap"]).await,
                _ => node.start(&["--join", &peers[0]]).await,
            }
            nodes.push(node);
        }
        Self {
            addresses: nodes.iter().map(|node| node.address.clone()).collect(),
            nodes: Mutex::new(nodes),
            peers,
            value: "x".repeat(value),
            folder,
        }
    }

    /// Ends all nodes, which have to be well.
    pub(crate) async fn stop(&self) {
        for node in &mut *self.nodes.lock().await {
            node.stop().await;
        }
    }
}

impl Store for Ours {
    type Client = OurClient;

    const PROGRAM: &'static str = "resource-server";

    fn client(&self, node: usize, key: usize) -> OurClient {
        let address = self.addresses[node].clone();
        let unused = Node::new("", address, Vec::new(), "".into());
        let strong = unused.client(Consistency::Strong);
        // Over the same connection.
        let eventual = strong.clone().with_context(RequestContext::anonymous());
        OurClient {
            strong,
            eventual,
            id: Id::new(
                Type::new("demo", "v1", "Concept"),
                Tenancy::new("default", "default"),
                &format!("key-{key}"),
            ),
            value: self.value.clone(),
            stored: None,
        }
    }

    async fn leader(&self) -> usize {
        loop {
            for peer in &self.peers {
                let Ok(members) = RaftBackend::members_at(peer, None).await else { continue };
                if let Some(leader) = members.iter().find(|member| member.leader) {
                    return self.peers.iter().position(|p| *p == leader.address).unwrap();
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn kill(&self, node: usize) {
        self.nodes.lock().await[node].kill();
    }

    async fn revive(&self, node: usize) {
        self.nodes.lock().await[node].start(&[]).await;
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

pub(crate) struct OurClient {
    strong: GrpcClient,
    eventual: GrpcClient,
    id: Id,
    value: String,
    stored: Option<Resource>,
}

impl OurClient {
    async fn write(&mut self) -> Result<(), String> {
        loop {
            let resource = self.stored.clone().ok_or("nothing is prepared")?;
            match self.strong.write(resource).await {
                Ok(stored) => {
                    self.stored = Some(stored);
                    return Ok(());
                }
                // A node that lags does not know the version that it gave; a
                // strong read makes it catch up. Its time counts, too.
                Err(error) if error.code() == Code::Aborted => self.prepare().await?,
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Client for OurClient {
    fn turn_to(&mut self, key: usize) {
        self.id.name = format!("key-{key}");
        self.stored = None;
    }

    async fn prepare(&mut self) -> Result<(), String> {
        self.stored = match self.strong.read(self.id.clone()).await {
            Ok(stored) => Some(stored),
            Err(error) if error.code() == Code::NotFound => {
                let mut resource = Resource::new(self.id.clone());
                resource.metadata.insert("value".to_owned(), self.value.clone());
                Some(self.strong.write(resource).await.map_err(|e| e.to_string())?)
            }
            Err(error) => return Err(error.to_string()),
        };
        Ok(())
    }

    async fn work(&mut self, work: Work) -> Result<(), String> {
        let done = match work {
            Work::Write => return self.write().await,
            Work::StrongRead => self.strong.read(self.id.clone()).await.map(drop),
            Work::LocalRead => self.eventual.read(self.id.clone()).await.map(drop),
        };
        done.map_err(|e| e.to_string())
    }
}
