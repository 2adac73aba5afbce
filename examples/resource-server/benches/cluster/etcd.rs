//! Three members of etcd, and a client of its gRPC API.

use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::sync::Mutex;
use tonic::{
    Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::{
    measure::{Client, Store, Work},
    server::Servers,
};

/// The messages of etcd that are needed; fields have etcd's numbers.
mod message {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Header {
        #[prost(int64, tag = "3")]
        pub revision: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct KeyValue {
        #[prost(int64, tag = "3")]
        pub mod_revision: i64,
        #[prost(bytes = "vec", tag = "5")]
        pub value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Range {
        #[prost(bytes = "vec", tag = "1")]
        pub key: Vec<u8>,
        #[prost(bool, tag = "7")]
        pub serializable: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Found {
        #[prost(message, repeated, tag = "2")]
        pub kvs: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Put {
        #[prost(bytes = "vec", tag = "1")]
        pub key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Operation {
        #[prost(message, optional, tag = "2")]
        pub put: Option<Put>,
    }

    /// That a key was last changed at a revision.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Compare {
        #[prost(int32, tag = "2")]
        pub target: i32,
        #[prost(bytes = "vec", tag = "3")]
        pub key: Vec<u8>,
        /// In etcd one of several, so that 0 is sent, too.
        #[prost(int64, optional, tag = "6")]
        pub mod_revision: Option<i64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Txn {
        #[prost(message, repeated, tag = "1")]
        pub compare: Vec<Compare>,
        #[prost(message, repeated, tag = "2")]
        pub success: Vec<Operation>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Done {
        #[prost(message, optional, tag = "1")]
        pub header: Option<Header>,
        #[prost(bool, tag = "2")]
        pub succeeded: bool,
    }
}

use message::{Compare, Done, Found, Operation, Put, Range, Txn};

const MOD_REVISION: i32 = 2;

pub(crate) struct Etcd {
    servers: Mutex<Servers>,
    endpoints: Vec<String>,
    folder: PathBuf,
    value: Vec<u8>,
}

impl Etcd {
    /// With etcd's own heartbeats and elections.
    pub(crate) async fn start(program: &Path, value: usize) -> Self {
        let usual = ["--heartbeat-interval=100", "--election-timeout=1000"];
        let usual = usual.map(str::to_owned).to_vec();
        let servers = Servers::start_with(program, 3, "http", |_| usual.clone()).await;
        let endpoints = servers.endpoints();
        let folder = servers.folder.path().to_owned();
        Self { servers: Mutex::new(servers), endpoints, folder, value: vec![b'x'; value] }
    }
}

impl Store for Etcd {
    type Client = EtcdClient;

    const PROGRAM: &'static str = "etcd";

    fn client(&self, node: usize, key: usize) -> EtcdClient {
        let endpoint = Endpoint::from_shared(self.endpoints[node].clone()).unwrap();
        EtcdClient {
            grpc: Grpc::new(endpoint.tcp_nodelay(true).connect_lazy()),
            key: format!("key-{key}").into_bytes(),
            value: self.value.clone(),
            revision: 0,
        }
    }

    async fn leader(&self) -> usize {
        let servers = self.servers.lock().await;
        for node in 0..3 {
            let status = servers.call(node, "/v3/maintenance/status", json!({})).await;
            if status["leader"] == status["header"]["member_id"] {
                return node;
            }
        }
        panic!("etcd has no leader")
    }

    async fn kill(&self, node: usize) {
        self.servers.lock().await.kill(node);
    }

    async fn revive(&self, node: usize) {
        let mut servers = self.servers.lock().await;
        servers.launch(node);
        assert!(servers.answers().await, "{}", servers.log());
    }

    fn folder(&self) -> &Path {
        &self.folder
    }
}

pub(crate) struct EtcdClient {
    grpc: Grpc<Channel>,
    key: Vec<u8>,
    value: Vec<u8>,
    revision: i64,
}

impl EtcdClient {
    async fn call<Q, A>(&mut self, path: &'static str, message: Q) -> Result<A, String>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        self.grpc.ready().await.map_err(|e| e.to_string())?;
        let path = PathAndQuery::from_static(path);
        let answer = self.grpc.unary(Request::new(message), path, ProstCodec::default()).await;
        Ok(answer.map_err(|e| e.to_string())?.into_inner())
    }

    async fn read(&mut self, serializable: bool) -> Result<Found, String> {
        let range = Range { key: self.key.clone(), serializable };
        self.call("/etcdserverpb.KV/Range", range).await
    }

    async fn write(&mut self) -> Result<(), String> {
        let key = || self.key.clone();
        let revision = Some(self.revision);
        let compare = Compare { target: MOD_REVISION, key: key(), mod_revision: revision };
        let put = Some(Put { key: key(), value: self.value.clone() });
        let txn = Txn { compare: vec![compare], success: vec![Operation { put }] };
        let done: Done = self.call("/etcdserverpb.KV/Txn", txn).await?;
        if !done.succeeded {
            return Err("another revision is there".to_owned());
        }
        self.revision = done.header.ok_or("no header")?.revision;
        Ok(())
    }
}

impl Client for EtcdClient {
    fn turn_to(&mut self, key: usize) {
        self.key = format!("key-{key}").into_bytes();
        self.revision = 0;
    }

    async fn prepare(&mut self) -> Result<(), String> {
        let found = self.read(false).await?;
        self.revision = found.kvs.first().map_or(0, |kv| kv.mod_revision);
        if self.revision == 0 { self.write().await } else { Ok(()) }
    }

    async fn work(&mut self, work: Work) -> Result<(), String> {
        match work {
            Work::Write => self.write().await,
            Work::StrongRead => self.read(false).await.map(drop),
            Work::LocalRead => self.read(true).await.map(drop),
        }
    }
}
