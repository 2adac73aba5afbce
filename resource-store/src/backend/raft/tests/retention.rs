//! How much of the log stays.

use std::time::Duration;

use tempfile::TempDir;

use crate::{
    backend::{
        Backend as _,
        raft::{RaftBackend, RaftConfig, Start},
    },
    demo,
    pb::Resource,
};

async fn node(adjust: impl Fn(&mut RaftConfig)) -> (RaftBackend, TempDir) {
    let folder = TempDir::new().unwrap();
    let mut config = RaftConfig::new(folder.path(), "127.0.0.1:0");
    adjust(&mut config);
    (RaftBackend::start(config, Start::Bootstrap).await.unwrap(), folder)
}

/// Creates and deletes.
async fn write(node: &RaftBackend, count: usize, bytes: usize) {
    for _ in 0..count / 2 {
        let mut resource: Resource = demo::artist("korn").encode();
        resource.id.as_mut().unwrap().uid = "u".to_owned();
        resource.metadata.insert("content".to_owned(), "x".repeat(bytes));
        let written = node.write_cas(resource).await.unwrap();
        node.delete_cas(written.id.as_ref().unwrap(), &written.version).await.unwrap();
    }
}

async fn has_snapshot_after(node: &RaftBackend, index: u64) {
    let mut metrics = node.node.raft.metrics();
    let taken = metrics.wait_for(|now| now.snapshot.is_some_and(|last| last.index > index));
    tokio::time::timeout(Duration::from_secs(20), taken).await.unwrap().unwrap();
}

fn purged(node: &RaftBackend) -> u64 {
    node.node.raft.metrics().borrow().purged.map_or(0, |purged| purged.index)
}

async fn is_purged(node: &RaftBackend, upto: u64) {
    let mut metrics = node.node.raft.metrics();
    let cut = metrics.wait_for(|now| now.purged.is_some_and(|purged| purged.index >= upto));
    tokio::time::timeout(Duration::from_secs(20), cut).await.unwrap().unwrap();
}

#[tokio::test]
async fn few_large_entries_are_cut_off_by_their_bytes() {
    let (node, _folder) = node(|config| config.keep_bytes = 1 << 20).await;
    write(&node, 120, 100_000).await;
    is_purged(&node, 30).await;
    // Some stay.
    assert!(purged(&node) < 110);
}

#[tokio::test]
async fn entries_stay_for_a_node_that_gets_a_snapshot() {
    let (node, _folder) = node(|config| {
        config.snapshot_after_entries = 20;
        config.keep_entries = 5;
    })
    .await;
    write(&node, 30, 1).await;
    is_purged(&node, 10).await;
    let until = purged(&node) + 3;
    let hold = node.node.network.holds.after(9, until);
    write(&node, 100, 1).await;
    is_purged(&node, until).await;
    // Two more occasions to cut it off; at the second, the first is over.
    for _ in 0..2 {
        let snapshot = node.node.raft.metrics().borrow().snapshot.map_or(0, |last| last.index);
        write(&node, 60, 1).await;
        has_snapshot_after(&node, snapshot).await;
    }
    assert_eq!(purged(&node), until);
    drop(hold);
}
