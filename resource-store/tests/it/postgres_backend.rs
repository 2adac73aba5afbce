//! The `PostgreSQL` backend passes the conformance suite and the history checker.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use consul_watch::testing::parts::Suite;
use resource_store::{
    backend::{
        Backend,
        memory::MemoryBackend,
        postgres::{PostgresBackend, PostgresConfig},
    },
    testing::history::{self, HistoryOptions},
};
use tokio::sync::OnceCell;

use crate::postgres::{
    Several,
    server::{Programs, Server},
};

const SUITE: Suite = Suite("postgres backend");

/// One server for the tests of this file, each of which has a schema of its own.
static SERVER: OnceCell<Option<Server>> = OnceCell::const_new();
static STORES: AtomicUsize = AtomicUsize::new(0);

/// A config for an empty store; none, and the report says so, without a server.
async fn store() -> Option<PostgresConfig> {
    let start = || async {
        let programs = Programs::find(SUITE, "conformance on a real PostgreSQL")?;
        Some(Server::start(&programs).await)
    };
    let mut config = SERVER.get_or_init(start).await.as_ref()?.config();
    config.schema = format!("store \"{}\"", STORES.fetch_add(1, Ordering::Relaxed));
    config.connections = 4;
    Some(config)
}

/// Without a server the suite runs over memory, so that its cases need no other form; the
/// report has the missing part.
async fn fixture() -> (Arc<dyn Backend>, ()) {
    match store().await {
        Some(config) => (Arc::new(PostgresBackend::connect(&config).await.unwrap()), ()),
        None => (Arc::new(MemoryBackend::new()), ()),
    }
}

resource_store::storage_conformance!(fixture());

async fn check_history(backend: Arc<dyn Backend>, seed: u64) {
    let mut options = HistoryOptions::default();
    options.seed = seed;
    options.operations = 2000;
    let history = history::run(backend, &options).await.unwrap();
    if let Err(violation) = history.check() {
        panic!("seed {seed}: {violation}");
    }
    assert_eq!(history.watches.len(), options.watchers, "nobody fell behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_users_see_what_the_contract_allows() {
    check_history(fixture().await.0, 1).await;
}

/// Several processes, whose writes meet in the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn users_of_several_processes_see_what_the_contract_allows() {
    let Some(config) = store().await else { return };
    let mut backends = Vec::new();
    for _ in 0..4 {
        backends.push(PostgresBackend::connect(&config).await.unwrap());
    }
    check_history(Arc::new(Several::new(backends)), 2).await;
}

/// Watchers that fall behind start anew, and what they see between is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_watchers_see_gapless_stretches() {
    let Some(mut config) = store().await else { return };
    config.watch_buffer = 8;
    let backend = Arc::new(PostgresBackend::connect(&config).await.unwrap());
    let mut options = HistoryOptions::default();
    options.seed = 3;
    options.operations = 1000;
    history::run(backend, &options).await.unwrap().check().unwrap();
}
