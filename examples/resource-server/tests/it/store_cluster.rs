//! Clusters of `resource-server` whose nodes and network fail, and the checker
//! of what clients saw.
//!
//! Disks are slowed by strace, and clocks set by libfaketime, neither of which
//! takes privileges. Where they are not there, the report says so.
//!
//! `SEED` sets another seed for the first round of each kind of cluster. Which
//! faults a seed stands for depends on which of the two are there. `NODES`, 3 or
//! 5, has Raft clusters of that size only.

mod cluster;
mod control;
mod fault;
pub(crate) mod node;
mod peers;

use std::time::{Duration, SystemTime};

use consul_watch::testing::{parts::Suite, real::free_port};
use resource_store::{
    Clock as _, ResourceClient as _, SystemClock,
    backend::Consistency,
    demo,
    testing::history::{Load, LoadNode, LoadOptions, LoadReport},
};
use tokio::time::Instant;
use ulid::Ulid;

use self::{cluster::Cluster, fault::Fault, node::Node};
use crate::{
    etcd_server::Servers,
    postgres_server::{Programs, Server},
    resource_server::called,
    slow_disk::Strace,
};

const SUITE: Suite = Suite("clusters of resource-server");
const SERVER: &str = env!("CARGO_BIN_EXE_resource-server");

/// What happened in all rounds.
#[derive(Debug, Default)]
struct Figures {
    rounds: usize,
    faults: usize,
    changed: usize,
    refused: usize,
    unknown: usize,
    reads: usize,
    failed_reads: usize,
    events: usize,
}

impl Figures {
    fn add(&mut self, faults: usize, report: &LoadReport) {
        self.rounds += 1;
        self.faults += faults;
        self.changed += report.changed;
        self.refused += report.refused;
        self.unknown += report.unknown;
        self.reads += report.reads;
        self.failed_reads += report.failed_reads;
        self.events += report.events;
    }

    #[expect(clippy::print_stdout, reason = "figures for who runs the long form")]
    fn print(&self, what: &str) {
        println!("{what}: {self:?}, 0 violations");
    }
}

fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some_and(|value| value == "1")
}

fn first_seed(unless_set: u64) -> u64 {
    std::env::var("SEED").map_or(unless_set, |seed| seed.parse().unwrap())
}

/// One history, in which the given number of faults happens.
async fn round(cluster: &mut Cluster, seed: u64, faults: usize) -> LoadReport {
    let possible = cluster.possible();
    let mut random = fastrand::Rng::with_seed(seed);
    let nodes = cluster.nodes.iter().map(Node::for_load).collect();
    let load = Load::start(nodes, LoadOptions::new(seed, &format!("round-{seed}-")));
    let mut struck = Vec::new();
    for _ in 0..faults {
        let fault = Fault::random(&mut random, cluster.nodes.len(), possible);
        struck.push(fault);
        cluster.strike(fault, &mut random).await;
    }
    let checked = match load.finish().await {
        Ok(report) => report.history.check().map(|()| report),
        Err(violation) => Err(violation),
    };
    checked.unwrap_or_else(|violation| {
        panic!("seed {seed}, {struck:?}: {violation}\n{}", cluster.log())
    })
}

/// Rounds of `faults` each, until the time is over; one at least.
async fn rounds(cluster: &mut Cluster, first_seed: u64, faults: usize, time: Duration) -> Figures {
    let (began, mut figures) = (Instant::now(), Figures::default());
    for seed in first_seed.. {
        let report = round(cluster, seed, faults).await;
        figures.add(faults, &report);
        if began.elapsed() >= time {
            break;
        }
    }
    assert!(figures.changed > 10 && figures.reads > 10, "too little was done: {figures:?}");
    figures
}

/// How long each of the two sizes of cluster is tried in the long form.
const HALF: Duration = Duration::from_mins(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clusters_keep_their_promises_whatever_fails() {
    let only: Option<usize> = std::env::var("NODES").ok().map(|nodes| nodes.parse().unwrap());
    for (size, seed) in [(3, 3000), (5, 5000)] {
        if only.is_some_and(|only| only != size) {
            continue;
        }
        let seed = first_seed(seed);
        let mut cluster = Cluster::of_raft(size).await;
        let (faults, time) = if is_soak() { (20, HALF) } else { (8, Duration::ZERO) };
        let figures = rounds(&mut cluster, seed, faults, time).await;
        figures.print(&format!("{size} nodes, seeds from {seed}"));
    }
}

/// A file outlives its process; its clients find out what was not answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_outlives_its_server() {
    let mut cluster = Cluster::of_one_file().await;
    let (faults, time) = if is_soak() { (20, Duration::from_mins(2)) } else { (3, Duration::ZERO) };
    let seed = first_seed(1000);
    let figures = rounds(&mut cluster, seed, faults, time).await;
    figures.print(&format!("one file, seeds from {seed}"));
}

/// Three servers over one etcd of three members.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_over_etcd_keep_their_promises() {
    let Some(part) = SUITE.part("etcd", "servers over etcd") else { return };
    let etcd = Servers::start_with(&part.path, 3, "http", |_| Vec::new()).await;
    let mut cluster = Cluster::over_etcd(&etcd, 3).await;
    let (faults, time) = if is_soak() { (20, Duration::from_mins(2)) } else { (4, Duration::ZERO) };
    let seed = first_seed(2000);
    let figures = rounds(&mut cluster, seed, faults, time).await;
    figures.print(&format!("three servers over etcd, seeds from {seed}"));

    is_taken_away(["--etcd", &etcd.endpoints().join(",")]).await;
}

/// Three servers over one PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_over_postgres_keep_their_promises() {
    let Some(programs) = Programs::find(SUITE, "servers over PostgreSQL") else { return };
    let postgres = Server::start(&programs).await;
    let mut cluster = Cluster::over_postgres(&postgres.url(), 3).await;
    let (faults, time) = if is_soak() { (20, Duration::from_mins(2)) } else { (4, Duration::ZERO) };
    let seed = first_seed(4000);
    let figures = rounds(&mut cluster, seed, faults, time).await;
    figures.print(&format!("three servers over PostgreSQL, seeds from {seed}"));
    is_taken_away(["--postgres", &postgres.url()]).await;
}

/// A password is nothing for an argument, which others can see.
#[tokio::test]
async fn a_password_in_the_address_of_postgres_is_refused() {
    let refused = called(&["--postgres", "postgres://me:pl4nted@127.0.0.1:1/x"]).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("PGPASSWORD"), "{said}");
    assert!(!said.contains("pl4nted"), "{said}");
}

/// What there is in a store can be taken away, without any of its servers.
async fn is_taken_away(store: [&str; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, data) = (path("export"), path("data"));
    let exported = called(&["export", store[0], store[1], &file]).await;
    let said = String::from_utf8(exported.stderr).unwrap();
    let count = said.strip_suffix(" resources exported\n").unwrap();
    let imported = called(&["import", "--data-dir", &data, &file]).await;
    let said = String::from_utf8(imported.stdout).unwrap();
    assert_eq!(said, format!("{count} resources imported\n"));
}

/// Writes once, and tells how long that took and the time in the uid.
async fn written(node: &Node, name: &str) -> (Duration, SystemTime) {
    let began = Instant::now();
    let written = node.client(Consistency::Strong).write(demo::artist(name).encode()).await;
    let uid: Ulid = written.unwrap().id.unwrap().uid.parse().unwrap();
    (began.elapsed(), uid.datetime())
}

/// What the faults with disks rely on: an acknowledged write waits for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_waits_for_a_slow_disk() {
    let Some(strace) = Strace::find(SUITE, "slow disks").await else { return };
    let by = Duration::from_millis(500);
    for mut cluster in [Cluster::of_raft(1).await, Cluster::of_one_file().await] {
        let node = &cluster.nodes[0];
        let fastest = async |from| {
            let mut fastest = Duration::MAX;
            for number in from..from + 10 {
                fastest = fastest.min(written(node, &format!("n-{number}")).await.0);
            }
            fastest
        };
        let before = fastest(0).await;
        let slow = strace.slow(node.pid().unwrap(), by).await;
        let meanwhile = written(node, "slow").await.0;
        slow.end().await;
        let after = fastest(100).await;
        assert!(before < by && meanwhile >= by && after < by, "{before:?} {meanwhile:?} {after:?}");

        // A process may be killed meanwhile, and strace, too.
        let slow = strace.slow(node.pid().unwrap(), by).await;
        cluster.nodes[0].strike();
        slow.end().await;
        cluster.nodes[0].gone().await;
        cluster.nodes[0].start(&[]).await;
        drop(strace.slow(cluster.nodes[0].pid().unwrap(), by).await);
        written(&cluster.nodes[0], "again").await;
        cluster.nodes[0].stop().await;
    }
}

/// What the faults with clocks rely on: the time of day of one node jumps, both
/// ways, and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_clock_of_one_node_jumps() {
    let cluster = Cluster::of_raft(2).await;
    let Some(clocks) = &cluster.clocks else { return };
    for (number, jump) in [0, 3 * 3600, -2 * 3600, 60, 0].into_iter().enumerate() {
        clocks.set(0, jump);
        let began = SystemClock.now();
        let times = [
            written(&cluster.nodes[0], &format!("jumps-{number}")).await.1,
            written(&cluster.nodes[1], &format!("stays-{number}")).await.1,
        ];
        let ended = SystemClock.now();
        for (time, jump) in times.into_iter().zip([jump, 0]) {
            let by = Duration::from_secs(jump.unsigned_abs());
            let time = if jump < 0 { time + by } else { time - by };
            // A ULID has whole milliseconds.
            let earliest = began - Duration::from_millis(1);
            assert!(earliest <= time && time <= ended, "{jump}: {time:?}");
        }
    }
}

/// The planted violation: two servers that know nothing of each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_split_brain_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    for number in 0..2 {
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let log = folder.path().join(format!("log-{number}"));
        let mut node = Node::new(SERVER, address, Vec::new(), log);
        node.start(&[]).await;
        nodes.push(node);
    }
    let clients: Vec<LoadNode> = nodes.iter().map(Node::for_load).collect();
    let load = Load::start(clients, LoadOptions::new(1, "split-"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let checked = match load.finish().await {
        Ok(report) => report.history.check(),
        Err(violation) => Err(violation),
    };
    assert!(checked.is_err(), "two brains were taken for one");
}
