//! Nodes that stop, come back, or are cut off.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt as _;
use resource_store::{
    backend::{
        Backend, Consistency, Error, Query, ResourceStream, Result, Watch, WatchEvent,
        raft::RaftBackend,
    },
    controller::Lease as _,
    pb::{Id, Resource},
    testing::history::{self, HistoryOptions},
};

use super::cluster::{Cluster, everything, id, names, put, thing, within};

async fn hasty(nodes: usize) -> Cluster {
    Cluster::start_with(nodes, |_, config| Cluster::hasty(config)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_leads_when_the_leader_stops() {
    let mut cluster = hasty(3).await;
    let before = put(cluster.node(0), "before").await;
    let first = cluster.leader().await;
    cluster.stop(first).await;
    let second = cluster.leader().await;
    assert_ne!(first, second);
    put(cluster.node(second), "meanwhile").await;
    for node in cluster.running() {
        assert_eq!(names(node).await, ["before", "meanwhile"]);
    }
    cluster.restart(first).await;
    let node = cluster.node(first);
    within(node.wait_until_caught_up(Duration::from_secs(30))).await.unwrap();
    let read = node.read(Consistency::Eventual, &id("before")).await.unwrap();
    assert_eq!(read, before);
    assert_eq!(names(node).await, ["before", "meanwhile"]);
    assert_eq!(node.members().iter().filter(|member| member.voter).count(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_start_again_with_what_was_acknowledged() {
    let mut cluster = hasty(3).await;
    let mut stored = Vec::new();
    for number in 0..30 {
        stored.push(put(cluster.node(number % 3), &format!("name-{number:02}")).await);
    }
    let ids = cluster.ids();
    for _ in 0..2 {
        for number in 0..3 {
            cluster.stop(number).await;
        }
        for number in 0..3 {
            cluster.restart(number).await;
        }
        assert_eq!(cluster.ids(), ids);
        for node in cluster.running() {
            within(node.wait_until_caught_up(Duration::from_secs(30))).await.unwrap();
            let found = node.list(Consistency::Eventual, &everything()).await.unwrap();
            assert_eq!(found, stored);
        }
    }
    put(cluster.node(1), "later").await;
}

/// Nothing is acknowledged by a leader without a majority, and nothing that was
/// acknowledged is lost. Watches go on, in order, on both sides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_acknowledges_nothing() {
    let cluster = Cluster::start_with(3, |_, config| {
        Cluster::hasty(config);
        config.patience = Duration::from_secs(1);
        config.write_timeout = Duration::from_secs(2);
    })
    .await;
    let old = cluster.leader().await;
    let mut lease = cluster.node(old).leadership().held();
    assert!(within(lease.next()).await.unwrap());
    put(cluster.node(old), "first").await;
    let mut watch = cluster.node(old).watch_list(&everything()).await.unwrap();

    let cut_off = cluster.node(old).node_id();
    let others: Vec<_> = cluster.ids().into_iter().filter(|id| *id != cut_off).collect();
    cluster.faults.isolate(cut_off, &others);
    let node = cluster.node(old);
    let lost = within(node.write_cas(thing("lost"))).await.unwrap_err();
    assert!(lost.to_string().contains("outcome is unknown"), "{lost}");
    assert!(!lost.is_retryable());
    let read = within(node.read(Consistency::Strong, &id("first"))).await;
    assert!(matches!(read, Err(Error::Inconsistent { .. })), "{read:?}");
    node.read(Consistency::Eventual, &id("first")).await.unwrap();
    assert!(!within(lease.next()).await.unwrap(), "controllers stop");

    let new = within(async {
        loop {
            let leader = cluster.leader().await;
            if leader != old {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    put(cluster.node(new), "second").await;
    cluster.faults.heal();
    within(node.wait_until_caught_up(Duration::from_secs(30))).await.unwrap();
    assert_eq!(names(node).await, ["first", "second"]);

    let mut seen = Vec::new();
    while seen.len() < 2 {
        match within(watch.next()).await.unwrap().unwrap() {
            WatchEvent::Upsert(resource) => seen.push(resource.name().to_owned()),
            WatchEvent::EndOfSnapshot => {}
            WatchEvent::Delete(resource) => panic!("{resource:?}"),
        }
    }
    assert_eq!(seen, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_calls_fail_in_time_and_can_be_repeated() {
    let mut cluster = Cluster::start_with(3, |_, config| {
        Cluster::hasty(config);
        config.patience = Duration::from_millis(500);
        config.write_timeout = Duration::from_secs(1);
    })
    .await;
    put(cluster.node(0), "first").await;
    let leader = cluster.leader().await;
    let alone = (leader + 1) % 3;
    let query = everything();
    cluster.node(alone).list(Consistency::Strong, &query).await.unwrap();
    cluster.stop(leader).await;
    cluster.stop((leader + 2) % 3).await;
    let node = cluster.node(alone);
    // The loss of the connection may be told once.
    let refused = within(async {
        loop {
            match node.write_cas(thing("second")).await.unwrap_err() {
                error @ Error::Inconsistent { .. } => return error,
                error => assert!(error.to_string().contains("unknown"), "{error}"),
            }
        }
    })
    .await;
    assert!(refused.is_retryable());
    let read = within(node.read(Consistency::Strong, &id("first"))).await;
    assert!(matches!(read, Err(Error::Inconsistent { .. })), "{read:?}");
    assert_eq!(node.list(Consistency::Eventual, &query).await.unwrap().len(), 1);
}

/// Writes and strong reads go to any node, all else to one.
#[derive(Debug)]
struct Spread {
    nodes: Vec<RaftBackend>,
    turn: AtomicUsize,
}

impl Spread {
    fn any(&self) -> &RaftBackend {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.nodes[turn % self.nodes.len()]
    }
}

#[async_trait]
impl Backend for Spread {
    async fn read(&self, consistency: Consistency, id: &Id) -> Result<Arc<Resource>> {
        let node = if consistency == Consistency::Strong { self.any() } else { &self.nodes[0] };
        node.read(consistency, id).await
    }

    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
        self.any().write_cas(resource).await
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        self.any().delete_cas(id, version).await
    }

    async fn list(&self, consistency: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        self.any().list(consistency, query).await
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        self.nodes[0].list_by_owner(owner).await
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        self.nodes[0].watch_list(query).await
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        self.nodes[0].snapshot().await
    }

    async fn restore(&self, resources: ResourceStream) -> Result<()> {
        self.any().restore(resources).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_users_of_all_nodes_see_what_the_contract_allows() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.running().cloned().collect();
    let spread = Spread { nodes, turn: AtomicUsize::new(0) };
    let mut options = HistoryOptions::default();
    options.operations = 2000;
    options.watchers = 8;
    let history = within(history::run(Arc::new(spread), &options)).await.unwrap();
    history.check().unwrap();
    assert!(history.operations.len() >= 2000);
}

/// Without a majority nothing can be written or read for sure, and the node says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_leader_is_not_ready() {
    let mut cluster = hasty(3).await;
    put(cluster.node(0), "before").await;
    within(cluster.node(2).ready()).await.unwrap();
    cluster.stop(0).await;
    cluster.stop(1).await;
    // The last one may lead on for as long as its lease.
    let not_ready = async { while cluster.node(2).ready().await.is_ok() {} };
    within(not_ready).await;
    cluster.restart(0).await;
    let ready = async { while cluster.node(2).ready().await.is_err() {} };
    within(ready).await;
}
