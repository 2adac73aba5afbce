//! The etcd backend passes the conformance suite: on a real etcd, and on the
//! double.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use consul_watch::testing::parts::Suite;
use resource_store::{
    backend::{
        Backend,
        etcd::{EtcdBackend, EtcdConfig},
    },
    testing::{
        etcd::{ServedEtcd, TestEtcd},
        history::{self, HistoryOptions},
    },
};
use tokio::sync::OnceCell;

use crate::etcd::server::Servers;

const SUITE: Suite = Suite("etcd backend");

/// One server of each version for the tests of this file, each of which has a
/// prefix of its own; the oldest first.
static SERVERS: OnceCell<Vec<Servers>> = OnceCell::const_new();
static STORES: AtomicUsize = AtomicUsize::new(0);

/// A config for an empty store in the real etcd, if there is one; if not, in a
/// double, and the report says which cases did not run.
async fn store(which: Which) -> (EtcdConfig, Option<ServedEtcd>) {
    let start = || async {
        let mut servers = Vec::new();
        for part in SUITE.parts("etcd", "conformance on a real etcd") {
            servers.push(Servers::start(&part.path, 1).await);
        }
        servers
    };
    let servers = SERVERS.get_or_init(start).await;
    let server = match which {
        Which::Oldest => servers.first(),
        Which::Newest => servers.last(),
    };
    let (mut config, served) = if let Some(server) = server {
        (server.config(), None)
    } else {
        let served = TestEtcd::new().serve().await.unwrap();
        (EtcdConfig::new([served.endpoint()]), Some(served))
    };
    config.prefix = format!("store-{}/", STORES.fetch_add(1, Ordering::Relaxed));
    (config, served)
}

/// A version of etcd.
#[derive(Clone, Copy)]
enum Which {
    Oldest,
    Newest,
}

async fn on(which: Which) -> (Arc<dyn Backend>, Option<ServedEtcd>) {
    let (config, served) = store(which).await;
    (Arc::new(EtcdBackend::connect(&config).await.unwrap()), served)
}

resource_store::storage_conformance!(on(Which::Oldest));

mod newest {
    use super::*;

    resource_store::storage_conformance!(on(Which::Newest));

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_users_see_what_the_contract_allows() {
        check_history(on(Which::Newest).await, 1).await;
    }
}

mod double {
    use super::*;

    async fn fixture() -> (Arc<dyn Backend>, ServedEtcd) {
        SUITE.double("etcd");
        let served = TestEtcd::new().serve().await.unwrap();
        let config = EtcdConfig::new([served.endpoint()]);
        (Arc::new(EtcdBackend::connect(&config).await.unwrap()), served)
    }

    resource_store::storage_conformance!(fixture());

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_users_see_what_the_contract_allows() {
        check_history(fixture().await, 1).await;
    }
}

async fn check_history<G>((backend, guard): (Arc<dyn Backend>, G), seed: u64) {
    let mut options = HistoryOptions::default();
    options.seed = seed;
    options.operations = 2000;
    let history = history::run(backend, &options).await.unwrap();
    if let Err(violation) = history.check() {
        panic!("seed {seed}: {violation}");
    }
    assert_eq!(history.watches.len(), options.watchers, "nobody fell behind");
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_users_see_what_the_contract_allows() {
    check_history(on(Which::Oldest).await, 1).await;
}

/// Watchers that fall behind start anew, and what they see between is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_watchers_see_gapless_stretches() {
    let (mut config, guard) = store(Which::Oldest).await;
    config.watch_buffer = 8;
    let backend = Arc::new(EtcdBackend::connect(&config).await.unwrap());
    let mut options = HistoryOptions::default();
    options.seed = 2;
    options.operations = 1000;
    history::run(backend, &options).await.unwrap().check().unwrap();
    drop(guard);
}
