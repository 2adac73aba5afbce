//! Clusters that change, and nodes that need a snapshot.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use resource_store::{
    backend::{
        Backend, Consistency, Error,
        raft::{RaftBackend, RaftConfig},
    },
    pb::{Any, Resource},
};

use super::cluster::{Cluster, everything, put, thing, within};

fn short_log(config: &mut RaftConfig) {
    Cluster::hasty(config);
    config.snapshot_after_entries = 40;
    config.keep_entries = 10;
}

/// The content of a node, once it has caught up.
async fn content(node: &RaftBackend) -> Vec<Arc<Resource>> {
    within(node.wait_until_caught_up(Duration::from_secs(30))).await.unwrap();
    node.snapshot().await.unwrap().try_collect().await.unwrap()
}

/// The new node gets a snapshot, because the log does not reach back, and then
/// what was written since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_catches_up_while_writes_go_on() {
    let mut cluster = Cluster::start_with(1, |_, config| short_log(config)).await;
    for number in 0..100 {
        put(cluster.node(0), &format!("old-{number}")).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (node, stop) = (cluster.node(0).clone(), Arc::clone(&stop));
        async move {
            let mut count = 0;
            while !stop.load(Ordering::SeqCst) {
                put(&node, &format!("new-{count}")).await;
                count += 1;
            }
            count
        }
    });
    cluster.add(short_log).await.unwrap();
    cluster.add(short_log).await.unwrap();
    stop.store(true, Ordering::SeqCst);
    let count = writing.await.unwrap();
    let expected = content(cluster.node(0)).await;
    assert_eq!(expected.len(), 100 + count);
    for node in cluster.running() {
        assert_eq!(content(node).await, expected);
        assert_eq!(node.members().iter().filter(|member| member.voter).count(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_far_behind_gets_a_snapshot_and_its_watches_close() {
    let cluster = Cluster::start_with(3, |_, config| short_log(config)).await;
    let leader = cluster.leader().await;
    let behind = cluster.node((leader + 1) % 3);
    let mut watch = behind.watch_list(&everything()).await.unwrap();
    let others: Vec<_> = cluster.ids().into_iter().filter(|id| *id != behind.node_id()).collect();
    cluster.faults.isolate(behind.node_id(), &others);
    for number in 0..200 {
        put(cluster.node(leader), &format!("name-{number}")).await;
    }
    cluster.faults.heal();
    let expected = content(cluster.node(leader)).await;
    assert_eq!(content(behind).await, expected);
    let closed = within(async {
        loop {
            match watch.next().await.unwrap() {
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    })
    .await;
    assert!(matches!(closed, Error::WatchClosed), "{closed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_resources_and_lists_get_through_a_follower() {
    let cluster = Cluster::start_with(3, |_, config| {
        config.max_resource_bytes = 24 << 20;
    })
    .await;
    let follower = cluster.follower().await;
    let large = |name: &str, bytes: usize| Resource {
        data: Some(Any { type_url: "t".to_owned(), value: vec![7; bytes] }),
        ..thing(name)
    };
    within(follower.write_cas(large("huge", 20 << 20))).await.unwrap();
    for number in 0..10 {
        within(follower.write_cas(large(&format!("n{number}"), 1 << 20))).await.unwrap();
    }
    let found = within(follower.list(Consistency::Strong, &everything())).await.unwrap();
    assert_eq!(found.len(), 11);
    let refused = within(follower.write_cas(large("too-large", 25 << 20))).await.unwrap_err();
    assert!(refused.to_string().contains("at most 25165824 are taken"), "{refused}");
}
