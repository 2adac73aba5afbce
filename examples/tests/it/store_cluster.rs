//! Clusters of `resource-server` whose nodes and network fail, and the checker
//! of what clients saw.
//!
//! Not here, because it takes privileges: other clocks than the machine's (the
//! nodes measure time by clocks that do not jump), and a slow disk.

mod cluster;
mod fault;
pub(crate) mod node;
mod peers;

use std::time::Duration;

use consul_watch::testing::{parts::Suite, real::free_port};
use resource_store::testing::history::{Load, LoadNode, LoadOptions, LoadReport};
use tokio::time::Instant;

use self::{
    cluster::Cluster,
    fault::{Fault, Possible},
    node::Node,
};
use crate::etcd_server::Servers;

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

/// One history, in which the given number of faults happens.
async fn round(cluster: &mut Cluster, seed: u64, faults: usize, possible: Possible) -> LoadReport {
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
async fn rounds(
    cluster: &mut Cluster,
    first_seed: u64,
    faults: usize,
    possible: Possible,
    time: Duration,
) -> Figures {
    let (began, mut figures) = (Instant::now(), Figures::default());
    for seed in first_seed.. {
        let report = round(cluster, seed, faults, possible).await;
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
    for (size, seed) in [(3, 3000), (5, 5000)] {
        let mut cluster = Cluster::of_raft(size).await;
        let (faults, time) = if is_soak() { (20, HALF) } else { (6, Duration::ZERO) };
        let figures = rounds(&mut cluster, seed, faults, Possible::ALL, time).await;
        figures.print(&format!("{size} nodes, seeds from {seed}"));
    }
}

/// A file outlives its process; its clients find out what was not answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_outlives_its_server() {
    let mut cluster = Cluster::of_one_file().await;
    let (faults, time) = if is_soak() { (20, Duration::from_mins(2)) } else { (3, Duration::ZERO) };
    let figures = rounds(&mut cluster, 1000, faults, Possible::PROCESSES, time).await;
    figures.print("one file, seeds from 1000");
}

/// Three servers over one etcd of three members.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_over_etcd_keep_their_promises() {
    let Some(part) = SUITE.part("etcd", "servers over etcd") else { return };
    let etcd = Servers::start_with(&part.path, 3, "http", |_| Vec::new()).await;
    let mut cluster = Cluster::over_etcd(&etcd, 3).await;
    let (faults, time) = if is_soak() { (20, Duration::from_mins(2)) } else { (4, Duration::ZERO) };
    let figures = rounds(&mut cluster, 2000, faults, Possible::PROCESSES, time).await;
    figures.print("three servers over etcd, seeds from 2000");
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
