//! A double of etcd: transactions, watches and compaction, in memory.

mod store;

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{Stream, StreamExt as _};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming, transport::Server};

use self::store::Store;
use crate::backend::etcd::pb::{
    AuthenticateRequest, AuthenticateResponse, ResponseHeader, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchRequest, WatchResponse,
    auth_server::{Auth, AuthServer},
    kv_server::{Kv, KvServer},
    watch_request::RequestUnion,
    watch_server::{Watch, WatchServer},
};

/// Number of responses of a watch that may wait for a slow reader.
const WATCH_BUFFER: usize = 16;

/// An etcd of one member in memory, for tests where there is no real one.
///
/// It does what [`EtcdBackend`](crate::backend::etcd::EtcdBackend) asks of
/// etcd: transactions with etcd's limits and errors, reads of past revisions,
/// watches from a past revision, and compaction. It knows no users. A clone is
/// another handle to the same store.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use resource_store::{
///     backend::{Backend as _, Consistency, Error},
///     backend::etcd::{EtcdBackend, EtcdConfig},
///     demo,
///     testing::etcd::TestEtcd,
/// };
///
/// let etcd = TestEtcd::new().serve().await.unwrap();
/// let backend = EtcdBackend::connect(&EtcdConfig::new([etcd.endpoint()])).await.unwrap();
/// let id = demo::artist("korn").encode().id.unwrap();
/// assert!(matches!(backend.read(Consistency::Strong, &id).await, Err(Error::NotFound)));
/// # });
/// ```
#[derive(Debug, Clone, Default)]
pub struct TestEtcd {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Mutex<Store>,
    /// The revision, for whoever waits for a later one.
    revision: watch::Sender<i64>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { store: Mutex::default(), revision: watch::Sender::new(1) }
    }
}

/// A [`TestEtcd`] that listens. Dropping it ends that; connections that are
/// there go on.
#[derive(Debug)]
pub struct ServedEtcd {
    address: SocketAddr,
    _serving: AbortOnDropHandle<Result<(), tonic::transport::Error>>,
}

impl ServedEtcd {
    /// Returns the address on which it listens: `http://127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl TestEtcd {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the history up to now.
    pub fn compact(&self) {
        self.store(Store::compact);
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.store(|store| store.count())
    }

    /// Serves the store on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// If the system gives no port.
    pub async fn serve(&self) -> io::Result<ServedEtcd> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = Server::builder()
            .add_service(KvServer::new(self.clone()).max_decoding_message_size(usize::MAX))
            .add_service(WatchServer::new(self.clone()))
            .add_service(AuthServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        Ok(ServedEtcd { address, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) })
    }

    fn store<T>(&self, with: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.shared.store.lock().unwrap_or_else(PoisonError::into_inner);
        let result = with(&mut store);
        let revision = store.revision();
        // Told while the store is held, so that revisions come in order.
        self.shared.revision.send_if_modified(|known| {
            let changed = *known != revision;
            *known = revision;
            changed
        });
        result
    }
}

fn header(revision: i64) -> ResponseHeader {
    ResponseHeader { cluster_id: 1, member_id: 1, revision, raft_term: 1 }
}

#[tonic::async_trait]
impl Kv for TestEtcd {
    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let request = request.into_inner();
        self.store(|store| store.txn(&request)).map(Response::new)
    }
}

#[tonic::async_trait]
impl Auth for TestEtcd {
    async fn authenticate(
        &self,
        _: Request<AuthenticateRequest>,
    ) -> Result<Response<AuthenticateResponse>, Status> {
        Err(Status::failed_precondition("etcdserver: authentication is not enabled"))
    }
}

#[tonic::async_trait]
impl Watch for TestEtcd {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (responses, receiver) = mpsc::channel(WATCH_BUFFER);
        let etcd = self.clone();
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            etcd.serve_watch(request.into_inner(), responses).await;
        }));
        // The task ends with the stream.
        let stream = ReceiverStream::new(receiver).map(move |response| {
            let _serving = &task;
            Ok(response)
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

impl TestEtcd {
    async fn serve_watch(
        &self,
        mut requests: Streaming<WatchRequest>,
        responses: mpsc::Sender<WatchResponse>,
    ) -> Option<()> {
        let request = requests.message().await.ok()??;
        let Some(RequestUnion::CreateRequest(create)) = request.request_union else { return None };
        let mut revisions = self.shared.revision.subscribe();
        let now = *revisions.borrow_and_update();
        let mut next = if create.start_revision > 0 { create.start_revision } else { now + 1 };
        let created =
            WatchResponse { header: Some(header(now)), created: true, ..Default::default() };
        responses.send(created).await.ok()?;
        loop {
            let response = self.changes(&create, next);
            next = next.max(response.header.as_ref().map_or(0, |header| header.revision) + 1);
            let canceled = response.canceled;
            if canceled || !response.events.is_empty() {
                responses.send(response).await.ok()?;
            }
            if canceled {
                return None;
            }
            revisions.changed().await.ok()?;
        }
    }

    fn changes(&self, create: &WatchCreateRequest, from: i64) -> WatchResponse {
        self.store(|store| {
            let response =
                WatchResponse { header: Some(header(store.revision())), ..Default::default() };
            match store.changes(&create.key, &create.range_end, from) {
                Ok(events) => WatchResponse { events, ..response },
                Err(compacted) => {
                    WatchResponse { canceled: true, compact_revision: compacted, ..response }
                }
            }
        })
    }
}
