//! A large cluster, one of whose nodes is killed, and which another one joins.

use std::{path::Path, time::Duration};

use resource_store::backend::raft::{Member, RaftBackend};
use tokio::time::Instant;

use crate::{
    Settings,
    load::Load,
    node::Node,
    print,
    store::{SERVER, free_address, import, memory_of, seconds, size},
};

struct Cluster<'a> {
    folder: &'a Path,
    nodes: Vec<Node>,
    peers: Vec<String>,
    arguments: Vec<Vec<String>>,
}

impl Cluster<'_> {
    /// Another node, which is not started.
    fn add(&mut self) -> Vec<String> {
        let number = self.nodes.len();
        let data = self.folder.join(format!("node-{number}")).to_str().unwrap().to_owned();
        let peer = free_address();
        let arguments = vec!["--data-dir".to_owned(), data, "--raft".to_owned(), peer.clone()];
        let log = self.folder.join("log");
        self.nodes.push(Node::new(SERVER, free_address(), arguments.clone(), log));
        self.peers.push(peer);
        self.arguments.push(arguments.clone());
        arguments
    }

    /// Starts a node, and waits until it serves and votes.
    async fn join(&mut self, number: usize) -> String {
        let started = Instant::now();
        let through = self.peers[0].clone();
        self.nodes[number].start(&["--join", &through]).await;
        let serves = seconds(started.elapsed());
        loop {
            let members = RaftBackend::members_at(&self.peers[0], None).await.unwrap();
            if members.iter().any(|m| m.address == self.peers[number] && m.voter) {
                return format!(
                    "{serves} until it serves, {} it votes",
                    seconds(started.elapsed())
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn leader(&self) -> Member {
        loop {
            let members = RaftBackend::members_at(&self.peers[0], None).await.unwrap();
            if let Some(leader) = members.into_iter().find(|member| member.leader) {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn memory(&self, when: &str) {
        for (number, node) in self.nodes.iter().enumerate() {
            print(&format!("memory of node {number}, {when}"), &memory_of(node));
        }
    }
}

pub(crate) async fn figures(settings: &Settings, folder: &Path, export: &Path) {
    let mut cluster =
        Cluster { folder, nodes: Vec::new(), peers: Vec::new(), arguments: Vec::new() };
    let mut arguments = cluster.add();
    arguments.push("--bootstrap".to_owned());
    import("into the first node", &arguments, export).await;
    for file in ["raft-snapshots", "raft-log"] {
        print(&format!("size of {file}"), &size(&folder.join("node-0").join(file)));
    }
    let started = Instant::now();
    cluster.nodes[0].start(&[]).await;
    print("start of the first node after a clean end", &seconds(started.elapsed()));
    for number in 1..3 {
        cluster.add();
        let took = cluster.join(number).await;
        print(&format!("node {number} joins, nobody writes"), &took);
    }
    cluster.memory("3 nodes");

    let leader = cluster.leader().await;
    let killed = (1..3).find(|n| cluster.peers[*n] != leader.address).unwrap();
    let staying: Vec<_> = (0..3).filter(|n| *n != killed).map(|n| &cluster.nodes[n]).collect();
    let mut load = Load::start(&staying, settings.writers);
    tokio::time::sleep(settings.time).await;
    print("3 nodes", &load.lately());

    cluster.nodes[killed].kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    print(&format!("node {killed}, a follower, is killed"), &load.lately());
    let started = Instant::now();
    cluster.nodes[killed].start(&[]).await;
    let took = seconds(started.elapsed());
    print("it is started again", &format!("{took} until it serves and has caught up"));
    print("meanwhile", &load.lately());
    tokio::time::sleep(settings.time).await;
    print("after it", &load.lately());

    cluster.add();
    let took = cluster.join(3).await;
    print("node 3 joins while clients write", &took);
    print("meanwhile", &load.lately());
    let changed = cluster.leader().await.id != leader.id;
    print("the leader changed meanwhile", if changed { "yes" } else { "no" });
    tokio::time::sleep(settings.time).await;
    print("4 nodes", &load.lately());
    cluster.memory("now");

    // Through the node that was killed before, which is a follower.
    cluster.nodes[killed].stop().await;
    load.lately();
    let arguments = cluster.arguments[killed].clone();
    import(&format!("through node {killed} into 4 nodes"), &arguments, export).await;
    print("meanwhile", &load.lately());
    let changed = cluster.leader().await.id != leader.id;
    print("the leader changed meanwhile", if changed { "yes" } else { "no" });
    load.stop().await;
    cluster.nodes[killed].start(&[]).await;
    cluster.memory("at the end");
}
