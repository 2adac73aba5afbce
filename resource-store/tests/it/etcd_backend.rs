//! The etcd backend passes the conformance suite: on a real etcd, and on the
//! double.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use consul_watch::testing::parts::{Part, Suite};
use resource_store::backend::{
    Backend,
    etcd::{EtcdBackend, EtcdConfig},
};
use tokio::sync::OnceCell;

use crate::etcd::server::Servers;

const SUITE: Suite = Suite("etcd backend");

/// One server for the tests of this file, each of which has a prefix of its own.
static SERVER: OnceCell<Option<Servers>> = OnceCell::const_new();
static STORES: AtomicUsize = AtomicUsize::new(0);

/// An empty store in a real etcd.
async fn fixture() -> (Arc<dyn Backend>, ()) {
    let part = || SUITE.part("etcd", "all");
    let server = SERVER
        .get_or_init(|| async {
            let Part { path, .. } = part()?;
            Some(Servers::start(&path, 1).await)
        })
        .await;
    let mut config = server.as_ref().unwrap().config();
    config.prefix = format!("store-{}/", STORES.fetch_add(1, Ordering::Relaxed));
    (Arc::new(EtcdBackend::connect(&config).await.unwrap()), ())
}

resource_store::storage_conformance!(fixture());
