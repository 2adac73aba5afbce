//! The network between nodes: each link can be cut in one direction.
//!
//! All peers of a node connect to one proxy before it. Who connects is found
//! out from the system's table of sockets.

use std::{
    collections::HashMap,
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use resource_store::testing::{Flow, Flows, Link};
use tokio::sync::watch;

/// What becomes of packets, by who sends them to whom.
type Packets = HashMap<(usize, usize), Flow>;

/// The proxies before all nodes.
pub(crate) struct Network {
    shared: Arc<Shared>,
    links: Vec<Link>,
}

struct Shared {
    packets: Mutex<Packets>,
    /// Which process is which node.
    nodes: Mutex<HashMap<u32, usize>>,
    /// The connections, by who made them to whom.
    connections: Mutex<HashMap<(usize, usize), watch::Sender<Flows>>>,
    /// Of a connection that nobody of the cluster made.
    stranger: watch::Sender<Flows>,
}

impl Network {
    pub(crate) fn new() -> Self {
        let shared = Shared {
            packets: Mutex::default(),
            nodes: Mutex::default(),
            connections: Mutex::default(),
            stranger: watch::Sender::new(Flows::default()),
        };
        Self { shared: Arc::new(shared), links: Vec::new() }
    }

    /// A way to a new node that listens at `target`: where others reach it.
    pub(crate) async fn add(&mut self, target: SocketAddr) -> SocketAddr {
        let (node, shared) = (self.links.len(), Arc::clone(&self.shared));
        let link = Link::with_rule(target, move |from| shared.rule(from, node)).await.unwrap();
        let address = link.address();
        self.links.push(link);
        address
    }

    /// From now on the process is that node.
    pub(crate) fn is(&self, pid: Option<u32>, node: usize) {
        let mut nodes = self.shared.nodes.lock().unwrap();
        nodes.retain(|_, known| *known != node);
        nodes.extend(pid.map(|pid| (pid, node)));
    }

    /// Decides what becomes of packets from now on.
    pub(crate) fn set(&self, flow: impl Fn(usize, usize) -> Flow) {
        let count = self.links.len();
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let packets = pairs.map(|(from, to)| ((from, to), flow(from, to))).collect();
        *self.shared.packets.lock().unwrap() = packets;
        for ((from, to), flows) in &*self.shared.connections.lock().unwrap() {
            flows.send_replace(self.shared.flows(*from, *to));
        }
    }

    pub(crate) fn heal(&self) {
        self.set(|_, _| Flow::Open);
    }
}

impl Shared {
    /// Of a connection that `from` made to `to`.
    fn flows(&self, from: usize, to: usize) -> Flows {
        let packets = self.packets.lock().unwrap();
        let flow = |pair| packets.get(&pair).copied().unwrap_or_default();
        Flows { there: flow((from, to)), back: flow((to, from)) }
    }

    fn rule(&self, from: SocketAddr, to: usize) -> watch::Receiver<Flows> {
        let nodes = self.nodes.lock().unwrap().clone();
        let Some(from) = owner(from, &nodes) else { return self.stranger.subscribe() };
        let mut connections = self.connections.lock().unwrap();
        connections
            .entry((from, to))
            .or_insert_with(|| watch::Sender::new(self.flows(from, to)))
            .subscribe()
    }
}

/// The node whose process has a socket with this address of its own.
fn owner(address: SocketAddr, nodes: &HashMap<u32, usize>) -> Option<usize> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = table.lines().find_map(|line| inode_at(line, address))?;
    let socket = format!("socket:[{inode}]");
    let has_it = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|to| to.as_os_str() == socket.as_str())
    };
    nodes.iter().find(|(pid, _)| has_it(pid)).map(|(_, node)| *node)
}

/// The inode of a line of the table, if its local address is this one.
fn inode_at(line: &str, address: SocketAddr) -> Option<&str> {
    let SocketAddr::V4(address) = address else { return None };
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let wanted =
        format!("{:08X}:{:04X}", u32::from_le_bytes(address.ip().octets()), address.port());
    if local == wanted { fields.nth(7) } else { None }
}

#[tokio::test]
async fn the_one_who_connects_is_known() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (_there, from) = listener.accept().await.unwrap();
    assert_eq!(from, here.local_addr().unwrap());
    let nodes = HashMap::from([(std::process::id(), 7)]);
    assert_eq!(owner(from, &nodes), Some(7));
    assert_eq!(owner(from, &HashMap::from([(1, 3)])), None);
}
