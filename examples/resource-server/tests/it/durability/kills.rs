//! A store whose servers are all killed at once.

use std::{fs, path::Path, time::Duration};

use consul_watch::testing::{parts::Suite, real::free_port};
use futures::future::join_all;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{
    ledger::{Ledger, Stored},
    load::Load,
    seed,
};
use crate::{
    slow_disk::{SlowDisk, Strace},
    store_cluster::node::Node,
};

const SUITE: Suite = Suite("kills of resource-server");

/// Kills a store many times, and looks at what is left after each.
pub(crate) struct Kills {
    nodes: Vec<Node>,
    running: bool,
    /// Each node has one folder in it.
    disks: TempDir,
    logs: TempDir,
    strace: Option<Strace>,
    random: fastrand::Rng,
    /// How long the last start took.
    last_start: Duration,
    pub(crate) ledger: Ledger,
    pub(crate) slowest_start: Duration,
    pub(crate) on_slow_disks: usize,
}

fn address() -> String {
    format!("127.0.0.1:{}", free_port().unwrap())
}

impl Kills {
    async fn new(arguments: impl FnOnce(&Path) -> Vec<Vec<String>>) -> Self {
        let [disks, logs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let program = env!("CARGO_BIN_EXE_resource-server");
        let log = |number| logs.path().join(format!("log-{number}"));
        let arguments = arguments(disks.path()).into_iter().enumerate();
        let nodes = arguments
            .map(|(number, arguments)| Node::new(program, address(), arguments, log(number)))
            .collect();
        Self {
            nodes,
            running: false,
            disks,
            logs,
            strace: Strace::find(SUITE, "kills on slow disks").await,
            random: fastrand::Rng::with_seed(seed()),
            last_start: Duration::ZERO,
            ledger: Ledger::default(),
            slowest_start: Duration::ZERO,
            on_slow_disks: 0,
        }
    }

    /// One server over a file.
    pub(crate) async fn of_a_file(more: &[&str]) -> Self {
        Self::new(|disks| {
            let disk = disks.join("0").display().to_string();
            let arguments = ["--data-dir", &disk].into_iter().chain(more.iter().copied());
            vec![arguments.map(str::to_owned).collect()]
        })
        .await
    }

    /// So many nodes that are one store.
    pub(crate) async fn of_raft(size: usize) -> Self {
        let peers: Vec<String> = (0..size).map(|_| address()).collect();
        Self::new(|disks| {
            let arguments = |(number, peer): (usize, &String)| {
                let disk = disks.join(number.to_string()).display().to_string();
                // Of no effect on a node that is a member.
                let enters = match number {
                    0 => vec!["--bootstrap"],
                    _ => vec!["--join", &peers[0]],
                };
                let all = ["--data-dir", &disk, "--raft", peer].into_iter().chain(enters);
                all.map(str::to_owned).collect()
            };
            peers.iter().enumerate().map(arguments).collect()
        })
        .await
    }

    /// What the servers said.
    pub(crate) fn log(&self) -> String {
        let files = (0..self.nodes.len()).map(|node| self.logs.path().join(format!("log-{node}")));
        files.map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
    }

    async fn start(&mut self) {
        if !self.running {
            let began = Instant::now();
            // Together: none may serve before the others do.
            join_all(self.nodes.iter_mut().map(|node| node.launch(&[]).serves())).await;
            self.last_start = began.elapsed();
            self.running = true;
        }
    }

    /// Kills all servers at once.
    pub(crate) async fn kill(&mut self) {
        self.nodes.iter().for_each(Node::strike);
        for node in &mut self.nodes {
            node.gone().await;
        }
        self.running = false;
    }

    /// Loads the servers, kills them, and says what their successors have lost.
    pub(crate) async fn kill_once(&mut self) -> Result<(), String> {
        self.load_and_kill().await;
        // Now and then they are killed again while they start.
        if self.random.u8(..4) == 0 {
            let long = self.random.f64() * self.last_start.as_secs_f64();
            let starting: Vec<_> = self.nodes.iter_mut().map(|node| node.launch(&[])).collect();
            sleep(Duration::from_secs_f64(long)).await;
            self.kill().await;
            drop(starting);
        }
        self.settle().await
    }

    pub(crate) async fn load_and_kill(&mut self) {
        self.start().await;
        let slow = self.slow_disks().await;
        let load = Load::start(&self.nodes, &mut self.ledger, &mut self.random).await;
        // After some answers, and then at any point of what follows.
        load.wait_for_answers(self.random.usize(1..60)).await;
        let most = if slow.is_empty() { 5_000 } else { 50_000 };
        sleep(Duration::from_micros(self.random.u64(..most))).await;
        self.kill().await;
        load.end(&mut self.ledger).await;
        join_all(slow.into_iter().map(SlowDisk::end)).await;
    }

    /// Each disk is slow at every other kill, so that much is on the way to it,
    /// and what some nodes have on theirs others do not.
    async fn slow_disks(&mut self) -> Vec<SlowDisk> {
        let Some(strace) = &self.strace else { return Vec::new() };
        let mut slow = Vec::new();
        for process in self.nodes.iter().filter_map(Node::pid) {
            let by = Duration::from_millis(self.random.u64(1..50));
            if self.random.bool() {
                slow.push(strace.slow(process, by));
            }
        }
        self.on_slow_disks += usize::from(!slow.is_empty());
        join_all(slow).await
    }

    /// Says what servers have lost that start now. They go on.
    pub(crate) async fn settle(&mut self) -> Result<(), String> {
        let began = Instant::now();
        self.start().await;
        let stored = Stored::of(&self.nodes[0]).await;
        self.slowest_start = self.slowest_start.max(began.elapsed());
        for node in &self.nodes[1..] {
            if Stored::of(node).await != stored {
                return Err("the nodes do not have the same".to_owned());
            }
        }
        self.ledger.settle(&stored)
    }

    /// Keeps what the disks have, while no server runs.
    pub(crate) fn copy_of_disks(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_folders(self.disks.path(), copy.path());
        copy
    }

    /// Has the disks be as they were.
    pub(crate) fn put_back(&self, copy: &TempDir) {
        copy_folders(copy.path(), self.disks.path());
    }
}

/// Makes a folder hold what another one holds, and nothing else.
fn copy_folders(from: &Path, to: &Path) {
    for entry in fs::read_dir(to).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_folders(&path, &target);
        } else {
            fs::copy(path, target).unwrap();
        }
    }
}
