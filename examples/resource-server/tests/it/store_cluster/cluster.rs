//! Several `resource-server` processes that are one store.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use consul_watch::testing::real::free_port;
use futures::future::join_all;
use resource_store::{backend::raft::RaftBackend, testing::Flow};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{
    SERVER, SUITE,
    fault::{Fault, Possible},
    node::{Node, Starting},
    peers::Network,
};
use crate::{
    clock::Clocks,
    etcd_server::Servers,
    slow_disk::{SlowDisk, Strace},
};

/// How long changing the members may take.
const CHANGE_LIMIT: Duration = Duration::from_secs(30);

/// Nodes, their files, and the network between them.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    network: Network,
    /// Where nodes of a Raft cluster reach each other.
    peers: Vec<SocketAddr>,
    /// What slows disks, if it is there and the nodes have any.
    strace: Option<Strace>,
    pub(super) clocks: Option<Clocks>,
    folder: TempDir,
}

/// How far a clock jumps at most, in seconds.
const FARTHEST_JUMP: i64 = 24 * 60 * 60;

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()))
}

impl Cluster {
    fn empty() -> Self {
        let folder = tempfile::Builder::new().prefix("cluster-").tempdir().unwrap();
        let clocks = Clocks::find(SUITE, "clocks that jump", folder.path());
        let (nodes, peers, network) = (Vec::new(), Vec::new(), Network::new());
        Self { nodes, network, peers, strace: None, clocks, folder }
    }

    /// One whose nodes have disks.
    async fn with_disks() -> Self {
        let strace = Strace::find(SUITE, "slow disks").await;
        Self { strace, ..Self::empty() }
    }

    /// What may happen to it.
    pub(super) fn possible(&self) -> Possible {
        Possible {
            network: !self.peers.is_empty(),
            disks: self.strace.is_some(),
            clocks: self.clocks.is_some(),
        }
    }

    fn push(&mut self, arguments: Vec<String>) {
        let number = self.nodes.len();
        let address = free_address().to_string();
        let mut node = Node::new(SERVER, address, arguments, self.log_of(number));
        if let Some(clocks) = &self.clocks {
            node.environment = clocks.environment(number);
        }
        self.nodes.push(node);
    }

    fn log_of(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("log-{node}"))
    }

    fn data_of(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("data-{node}"))
    }

    pub(super) async fn of_raft(size: usize) -> Self {
        let mut cluster = Self::with_disks().await;
        for number in 0..size {
            let listen = free_address();
            let advertise = cluster.network.add(listen).await;
            cluster.peers.push(advertise);
            let data = cluster.data_of(number).to_str().unwrap().to_owned();
            cluster.push(
                [
                    ("--data-dir", data),
                    ("--raft", listen.to_string()),
                    ("--advertise", advertise.to_string()),
                    // So that logs are cut off and snapshots are sent.
                    ("--raft-snapshot-threshold", "500".to_owned()),
                    ("--raft-trailing-logs", "100".to_owned()),
                ]
                .into_iter()
                .flat_map(|(name, value)| [name.to_owned(), value])
                .collect(),
            );
        }
        cluster.launch(0, &["--bootstrap"]).await;
        for number in 1..size {
            cluster.join(number, 0).await;
        }
        cluster
    }

    pub(super) async fn of_one_file() -> Self {
        let mut cluster = Self::with_disks().await;
        let data = cluster.data_of(0).to_str().unwrap().to_owned();
        cluster.push(vec!["--data-dir".to_owned(), data]);
        cluster.launch(0, &[]).await;
        cluster
    }

    pub(super) async fn over_etcd(etcd: &Servers, size: usize) -> Self {
        let mut cluster = Self::empty();
        for number in 0..size {
            cluster.push(vec!["--etcd".to_owned(), etcd.endpoints().join(",")]);
            cluster.launch(number, &[]).await;
        }
        cluster
    }

    pub(super) async fn over_postgres(url: &str, size: usize) -> Self {
        let mut cluster = Self::empty();
        for number in 0..size {
            cluster.push(vec!["--postgres".to_owned(), url.to_owned()]);
            cluster.launch(number, &[]).await;
        }
        cluster
    }

    /// What the nodes said.
    pub(super) fn log(&self) -> String {
        let read = |node| std::fs::read_to_string(self.log_of(node)).unwrap_or_default();
        let said: Vec<_> = (0..self.nodes.len()).map(read).collect();
        said.join("\n")
    }

    async fn launch(&mut self, node: usize, more: &[&str]) {
        self.begin(node, more).serves().await;
    }

    /// Starts a node; it does not serve yet.
    fn begin(&mut self, node: usize, more: &[&str]) -> Starting {
        let starting = self.nodes[node].launch(more);
        let process = self.nodes[node].pid();
        self.network.is(process, node);
        if let Some(clocks) = &self.clocks {
            clocks.is(process, node);
        }
        starting
    }

    async fn join(&mut self, node: usize, through: usize) {
        let through = self.peers[through].to_string();
        self.launch(node, &["--join", &through]).await;
    }

    /// The node that leads, as some node knows.
    async fn leader(&self) -> Option<usize> {
        for peer in &self.peers {
            let peer = peer.to_string();
            let members = RaftBackend::members_at(&peer, None);
            let Ok(Ok(members)) = tokio::time::timeout(Duration::from_secs(1), members).await
            else {
                continue;
            };
            if let Some(leader) = members.into_iter().find(|member| member.leader) {
                return self.peers.iter().position(|peer| peer.to_string() == leader.address);
            }
        }
        None
    }

    /// Lets a fault happen, and ends it.
    pub(super) async fn strike(&mut self, fault: Fault, random: &mut fastrand::Rng) {
        let last = Duration::from_millis(random.u64(300..1500));
        match fault {
            Fault::Kill(node) => self.kill(vec![node], last).await,
            Fault::KillLeader => {
                let leader = self.leader().await.unwrap_or(0);
                self.kill(vec![leader], last).await;
            }
            Fault::KillAll => self.kill(self.all(), last).await,
            Fault::Pause(node) => {
                self.nodes[node].pause();
                sleep(last).await;
                self.nodes[node].resume();
            }
            Fault::Restarts => {
                for node in 0..self.nodes.len() {
                    self.nodes[node].stop().await;
                    self.launch(node, &[]).await;
                }
            }
            Fault::Replace(node) => self.replace(node).await,
            Fault::SlowDisk(node) => self.slow_disks(&[node], last, random).await,
            Fault::SlowDiskOfLeader => {
                let leader = self.leader().await.unwrap_or(0);
                self.slow_disks(&[leader], last, random).await;
            }
            Fault::SlowDisks => self.slow_disks(&self.all(), last, random).await,
            Fault::KillOnSlowDisk(node) => self.kill_on_slow_disks(vec![node], last, random).await,
            Fault::KillAllOnSlowDisks => self.kill_on_slow_disks(self.all(), last, random).await,
            Fault::ClockJump(node) => {
                if let Some(clocks) = &self.clocks {
                    clocks.set(node, random.i64(-FARTHEST_JUMP..=FARTHEST_JUMP));
                }
                sleep(last).await;
            }
            Fault::Isolate(_)
            | Fault::Mute(_)
            | Fault::Deaf(_)
            | Fault::Split(_)
            | Fault::Slow(_) => {
                self.network.set(|from, to| fault.flow(from, to));
                sleep(last).await;
                self.network.heal();
            }
        }
        sleep(Duration::from_millis(random.u64(200..800))).await;
    }

    /// All nodes, by their places.
    fn all(&self) -> Vec<usize> {
        (0..self.nodes.len()).collect()
    }

    /// Slows disks until what is returned is dropped.
    async fn with_slow_disks(&self, nodes: &[usize], random: &mut fastrand::Rng) -> Vec<SlowDisk> {
        let Some(strace) = &self.strace else { return Vec::new() };
        // From less than a heartbeat to as long as an election.
        let by = Duration::from_millis([5, 50, 500][random.usize(..3)]);
        let processes = nodes.iter().filter_map(|node| self.nodes[*node].pid());
        join_all(processes.map(|process| strace.slow(process, by))).await
    }

    async fn slow_disks(&self, nodes: &[usize], last: Duration, random: &mut fastrand::Rng) {
        let slow = self.with_slow_disks(nodes, random).await;
        sleep(last).await;
        join_all(slow.into_iter().map(SlowDisk::end)).await;
    }

    async fn kill_on_slow_disks(
        &mut self,
        nodes: Vec<usize>,
        last: Duration,
        random: &mut fastrand::Rng,
    ) {
        let slow = self.with_slow_disks(&nodes, random).await;
        sleep(Duration::from_millis(random.u64(100..800))).await;
        self.kill(nodes, last).await;
        join_all(slow.into_iter().map(SlowDisk::end)).await;
    }

    /// Kills nodes, and starts them again after a while.
    async fn kill(&mut self, nodes: Vec<usize>, after: Duration) {
        for node in &nodes {
            self.nodes[*node].strike();
        }
        sleep(after).await;
        // One that is held up at its disk takes longer to go, and its files with it.
        for node in &nodes {
            self.nodes[*node].gone().await;
        }
        // Together: none may serve before the others do.
        let mut starting = Vec::new();
        for node in nodes {
            starting.push(self.begin(node, &[]).serves());
        }
        join_all(starting).await;
    }

    /// A node leaves for good, and a new one takes its place.
    async fn replace(&mut self, node: usize) {
        let other = (node + 1) % self.nodes.len();
        let (peer, through) = (self.peers[node].to_string(), self.peers[other].to_string());
        let limit = Instant::now() + CHANGE_LIMIT;
        loop {
            match remove(&through, &peer).await {
                Ok(()) => break,
                Err(error) if Instant::now() > limit => panic!("{error}\n{}", self.log()),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
        self.nodes[node].strike();
        self.nodes[node].gone().await;
        std::fs::remove_dir_all(self.data_of(node)).unwrap();
        self.join(node, other).await;
    }
}

/// Removes the node at `peer`, if it is there.
async fn remove(through: &str, peer: &str) -> Result<(), resource_store::backend::Error> {
    let members = RaftBackend::members_at(through, None).await?;
    let Some(member) = members.into_iter().find(|member| member.address == peer) else {
        return Ok(());
    };
    RaftBackend::remove_member_at(through, None, member.id, Duration::from_secs(5)).await
}

/// What becomes of packets.
impl Fault {
    fn flow(self, from: usize, to: usize) -> Flow {
        let stopped = match self {
            Self::Isolate(node) => from == node || to == node,
            Self::Mute(node) => from == node,
            Self::Deaf(node) => to == node,
            Self::Split(first) => (from < first) != (to < first),
            Self::Slow(node) if from == node || to == node => {
                return Flow::Slow(Duration::from_millis(50));
            }
            _ => false,
        };
        if stopped { Flow::Stopped } else { Flow::Open }
    }
}
