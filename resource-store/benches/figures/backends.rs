//! Every backend under the same load: reads, writes, watchers, and the memory of many resources.
//!
//! Each runs in a process of its own, so that its memory is its own.

#[cfg(feature = "etcd")]
#[path = "../../tests/it/etcd/server.rs"]
mod etcd_server;
#[cfg(feature = "postgres")]
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/it/postgres/server.rs"]
mod postgres_server;

use std::{
    future::Future,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use resource_store::{
    ResourceData as _,
    backend::{self, Backend, Consistency, Query, WatchEvent, memory::MemoryBackend},
    demo::{self, v2::Artist},
    pb,
};
use tokio::{
    sync::Notify,
    task::{JoinSet, yield_now},
    time::Instant,
};

use super::{artist, name, percentiles, rate, resident_bytes};

/// The word that has this program measure the backend whose name follows.
pub(crate) const ONE: &str = "one-backend";
const TURN: Duration = Duration::from_secs(3);
const CLIENTS: [usize; 2] = [1, 16];
const WATCHERS: usize = 1000;
const CHANGES: usize = 100;
/// Resources for the figures of memory, and the bytes in each besides its names.
const MANY: usize = 100_000;
const BYTES: usize = 1000;

const NAMES: &[&str] = &[
    "memory",
    #[cfg(feature = "durable")]
    "file",
    #[cfg(feature = "raft")]
    "raft",
    #[cfg(feature = "etcd")]
    "etcd",
    #[cfg(feature = "postgres")]
    "PostgreSQL",
];

/// Measures each backend in a process of its own, and prints rows of a table.
pub(crate) fn figures() {
    let clients = CLIENTS.map(|count| format!("{count}")).join(" / ");
    println!(
        "| backend | reads, {clients} clients | strong reads | writes | to the last of {WATCHERS} watchers | memory |"
    );
    println!("|---|---|---|---|---|---|");
    for name in NAMES {
        let program = std::env::current_exe().unwrap();
        let ended = Command::new(program).args([ONE, name]).status().unwrap();
        if !ended.success() {
            println!("| {name} | {ended} |");
        }
    }
}

/// Measures the backend of this name, and prints its row.
pub(crate) async fn one(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    match name {
        "memory" => row(name, Arc::new(MemoryBackend::new())).await,
        #[cfg(feature = "durable")]
        "file" => {
            use backend::durable::{DurableBackend, DurableOptions};
            let file = folder.path().join("resources.redb");
            let store = DurableBackend::open(&file, DurableOptions::default()).await.unwrap();
            row(name, Arc::new(store.clone())).await;
            store.close().await.unwrap();
        }
        #[cfg(feature = "raft")]
        "raft" => {
            use backend::raft::{RaftBackend, RaftConfig, Start};
            let config = RaftConfig::new(folder.path().join("node"), "127.0.0.1:0");
            let node = RaftBackend::start(config, Start::Bootstrap).await.unwrap();
            row(name, Arc::new(node.clone())).await;
            node.shutdown().await;
        }
        #[cfg(feature = "etcd")]
        "etcd" => {
            use backend::etcd::{EtcdBackend, EtcdConfig};
            let Some(part) = newest("etcd") else { return println!("| etcd | no etcd is here |") };
            let none = |_: &Path| Vec::new();
            let servers = etcd_server::Servers::start_with(&part, 1, "http", none).await;
            let store = EtcdBackend::connect(&EtcdConfig::new(servers.endpoints())).await.unwrap();
            row(name, Arc::new(store)).await;
            drop(servers);
        }
        #[cfg(feature = "postgres")]
        "PostgreSQL" => {
            use backend::postgres::{PostgresBackend, PostgresConfig};
            let suite = consul_watch::testing::parts::Suite("bench of backends");
            let Some(programs) = postgres_server::Programs::find(suite, "PostgreSQL") else {
                return println!("| PostgreSQL | no PostgreSQL is here |");
            };
            // The tests' servers do not wait for the disk.
            let server =
                postgres_server::Server::start_with(&programs, "trust", &["fsync=on"]).await;
            let config = PostgresConfig::from_url(&server.url()).unwrap();
            let store = PostgresBackend::connect(&config).await.unwrap();
            row(name, Arc::new(store)).await;
            drop(server);
        }
        other => panic!("no backend is called {other}"),
    }
}

/// Returns the newest of a program's versions that are here.
#[cfg(feature = "etcd")]
fn newest(name: &str) -> Option<std::path::PathBuf> {
    let found = consul_watch::testing::parts::find_all(name);
    found
        .into_iter()
        .max_by_key(consul_watch::testing::parts::Part::major_minor)
        .map(|part| part.path)
}

async fn row(name: &str, store: Arc<dyn Backend>) {
    let mut columns = vec![name.to_owned()];
    let stored: Vec<_> = {
        let mut stored = Vec::new();
        for i in 0..1000 {
            stored.push(store.write_cas(artist(i)).await.unwrap());
        }
        stored
    };
    for consistency in [Consistency::Eventual, Consistency::Strong] {
        let mut rates = Vec::new();
        for clients in CLIENTS {
            let read = |i: usize| {
                let (store, id) =
                    (Arc::clone(&store), stored[i % stored.len()].id.clone().unwrap());
                async move { drop(store.read(consistency, &id).await.unwrap()) }
            };
            rates.push(scaled(clients, read).await);
        }
        columns.push(rates.join(" / "));
    }
    let mut rates = Vec::new();
    for clients in CLIENTS {
        // Each client changes resources of its own.
        let write = |i: usize| {
            let store = Arc::clone(&store);
            let id = stored[i % stored.len()].id.clone().unwrap();
            async move {
                let known = store.read(Consistency::Strong, &id).await.unwrap();
                // The read before it is a client's own business where writes are what counts.
                drop(store.write_cas(pb::Resource::clone(&known)).await);
            }
        };
        rates.push(scaled(clients, write).await);
    }
    columns.push(rates.join(" / "));
    columns.push(percentiles(fan_out(Arc::clone(&store)).await));
    columns.push(memory(&*store).await);
    println!("| {} |", columns.join(" | "));
}

/// Has so many clients do something for a while.
async fn scaled<F>(clients: usize, each: impl Fn(usize) -> F + Copy + Send + Sync) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let started = Instant::now();
    let done = AtomicUsize::new(0);
    let client = |client: usize| {
        let done = &done;
        async move {
            let mut i = client;
            while started.elapsed() < TURN {
                each(i).await;
                done.fetch_add(1, Ordering::Relaxed);
                i += clients;
                // A call that never waits would keep the others from their turn.
                yield_now().await;
            }
        }
    };
    futures::future::join_all((0..clients).map(client)).await;
    rate(done.into_inner(), started.elapsed())
}

/// Measures from a write to the last watcher.
async fn fan_out(store: Arc<dyn Backend>) -> Vec<Duration> {
    let query = Query::new(Artist::resource_type().group_kind(), demo::default_tenancy());
    let (left, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let mut set = JoinSet::new();
    for _ in 0..WATCHERS {
        let query = query.clone().with_name_prefix(&name(1));
        let mut watch = store.watch_list(&query).await.unwrap();
        while watch.next().await.unwrap().unwrap() != WatchEvent::EndOfSnapshot {}
        let (left, done) = (Arc::clone(&left), Arc::clone(&done));
        set.spawn(async move {
            while let Some(Ok(_)) = watch.next().await {
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    done.notify_one();
                }
            }
        });
    }
    let mut times = Vec::new();
    let id = artist(1).id.unwrap().without_uid();
    for _ in 0..CHANGES {
        let known = store.read(Consistency::Strong, &id).await.unwrap();
        left.store(WATCHERS, Ordering::Release);
        let started = Instant::now();
        store.write_cas(pb::Resource::clone(&known)).await.unwrap();
        done.notified().await;
        times.push(started.elapsed());
    }
    set.shutdown().await;
    times
}

/// Fills the store, and gives what this process and those that it started take.
async fn memory(store: &dyn Backend) -> String {
    let resources = (0..MANY).map(|i| {
        let metadata = [("content".to_owned(), "x".repeat(BYTES))].into();
        let version = (i + 1).to_string();
        Ok(Arc::new(pb::Resource { metadata, version, ..artist(i) }))
    });
    store.restore(stream::iter(resources).boxed()).await.unwrap();
    let own = format!("{} MB", resident_bytes() / 1_000_000);
    match children_bytes() {
        0 => own,
        theirs => format!("{own}, and {} MB of its server", theirs / 1_000_000),
    }
}

/// The memory of the processes that this one started, each page shared among them counted once,
/// as Linux tells it.
fn children_bytes() -> usize {
    let mut family = vec![std::process::id()];
    let mut bytes = 0;
    while let Some(parent) = family.pop() {
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(stat) = std::fs::read_to_string(process.path().join("stat")).ok() else {
                continue;
            };
            // After the name in brackets: the state, and the parent.
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            if fields.nth(1).and_then(|field| field.parse().ok()) != Some(parent) {
                continue;
            }
            family.extend(process.file_name().to_str().and_then(|id| id.parse::<u32>().ok()));
            let map = std::fs::read_to_string(process.path().join("smaps_rollup"));
            let pss = map.unwrap_or_default();
            let line = pss.lines().find_map(|line| line.strip_prefix("Pss:"));
            let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            bytes += kilobytes.unwrap_or(0) * 1024;
        }
    }
    bytes
}
