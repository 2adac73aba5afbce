//! Restores of several parts, while other things happen.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use resource_store::{
    backend::{
        Backend, Consistency, Error, ResourceStream, Result,
        raft::{RaftBackend, RaftConfig},
    },
    pb::{Any, Resource},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::cluster::{Cluster, everything, names, put, thing, within};

/// So that a few resources are many parts.
fn small_parts(config: &mut RaftConfig) {
    Cluster::hasty(config);
    config.restore_part_bytes = 200;
    config.write_timeout = Duration::from_secs(10);
}

async fn cluster() -> Cluster {
    Cluster::start_with(3, |_, config| small_parts(config)).await
}

fn named(number: usize) -> String {
    format!("name-{number:03}")
}

fn restored(number: usize) -> Arc<Resource> {
    Arc::new(Resource { version: (1000 + number).to_string(), ..thing(&named(number)) })
}

async fn content(node: &RaftBackend) -> Vec<Arc<Resource>> {
    within(node.wait_until_caught_up(Duration::from_secs(30))).await.unwrap();
    node.snapshot().await.unwrap().try_collect().await.unwrap()
}

/// A restore whose stream stands still in the middle.
struct Halfway {
    go_on: oneshot::Sender<()>,
    restoring: JoinHandle<Result<()>>,
}

impl Halfway {
    /// Begins to restore 100 resources, and waits until some of them were taken.
    async fn start(node: &RaftBackend) -> Self {
        let (reached, mut middle) = mpsc::channel(1);
        let (go_on, wait) = oneshot::channel();
        let first = stream::iter((0..50).map(|number| Ok(restored(number))));
        let pause = stream::once(async move {
            reached.send(()).await.unwrap();
            wait.await.unwrap();
            Ok(restored(50))
        });
        let rest = stream::iter((51..100).map(|number| Ok(restored(number))));
        let resources: ResourceStream = first.chain(pause).chain(rest).boxed();
        let node = node.clone();
        let restoring = tokio::spawn(async move { node.restore(resources).await });
        within(middle.recv()).await.unwrap();
        Self { go_on, restoring }
    }

    async fn finish(self) -> Result<()> {
        self.go_on.send(()).unwrap();
        within(self.restoring).await.unwrap()
    }
}

async fn is_restored(cluster: &Cluster) {
    for node in cluster.running() {
        let content = content(node).await;
        assert_eq!(content.len(), 100);
        assert!(content.iter().enumerate().all(|(number, found)| *found == restored(number)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_and_reads_go_on_during_a_restore_and_are_replaced_at_its_end() {
    let cluster = cluster().await;
    let before = put(cluster.node(0), "before").await;
    let follower = cluster.follower().await;
    let mut watch = follower.watch_list(&everything()).await.unwrap();
    let halfway = Halfway::start(&follower).await;
    for number in 0..3 {
        let during = put(cluster.node(number), &format!("during-{number}")).await;
        assert!(during.version.parse::<u64>().unwrap() < 1000);
        let read = cluster.node(number).read(Consistency::Strong, before.id.as_ref().unwrap());
        assert_eq!(read.await.unwrap(), before);
    }
    assert_eq!(names(&follower).await, ["before", "during-0", "during-1", "during-2"]);
    halfway.finish().await.unwrap();
    is_restored(&cluster).await;
    let closed = within(async {
        loop {
            if let Err(error) = watch.next().await.unwrap() {
                return error;
            }
        }
    });
    assert!(matches!(closed.await, Error::WatchClosed));
    let after = put(cluster.node(0), "after").await;
    assert!(after.version.parse::<u64>().unwrap() > 1099, "{}", after.version);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_begins_takes_the_place_of_another() {
    let cluster = cluster().await;
    let halfway = Halfway::start(cluster.node(0)).await;
    let other = stream::iter([Ok(Arc::new(thing("other")))]).boxed();
    within(cluster.node(1).restore(other)).await.unwrap();
    let refused = halfway.finish().await.unwrap_err();
    let expected = "restore failed: nothing was restored: another restore took its place";
    assert_eq!(refused.to_string(), expected);
    assert!(!refused.is_retryable());
    assert_eq!(names(cluster.node(2)).await, ["other"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_fails_or_is_dropped_changes_nothing() {
    let cluster = cluster().await;
    let follower = cluster.follower().await;
    put(&follower, "before").await;
    let broken = || Error::Other { operation: "test", retryable: false, source: "broken".into() };
    let fails = stream::iter((0..50).map(|number| Ok(restored(number))))
        .chain(stream::once(async move { Err(broken()) }));
    let error = within(follower.restore(fails.boxed())).await.unwrap_err();
    assert_eq!(error.to_string(), broken().to_string());
    let huge = Any { type_url: "t".to_owned(), value: vec![7; 65 << 20] };
    let too_large = Arc::new(Resource { data: Some(huge), ..thing("huge") });
    let error = within(follower.restore(stream::iter([Ok(too_large)]).boxed())).await.unwrap_err();
    assert!(error.to_string().contains("at most 67108864 are taken"), "{error}");
    let nameless = Arc::new(Resource { id: None, ..thing("nameless") });
    let resources = stream::iter([Ok(restored(0)), Ok(nameless)]).boxed();
    let error = within(follower.restore(resources)).await.unwrap_err();
    assert!(error.to_string().ends_with("nothing was restored: resource has no id"), "{error}");

    Halfway::start(&follower).await.restoring.abort();
    assert_eq!(names(&follower).await, ["before"]);

    Halfway::start(&follower).await.finish().await.unwrap();
    is_restored(&cluster).await;
}

/// What was sent so far is on a majority, so the next leader goes on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_outlives_a_change_of_the_leader() {
    let mut cluster = cluster().await;
    put(cluster.node(0), "before").await;
    let leader = cluster.leader().await;
    let follower = cluster.node((leader + 1) % 3).clone();
    let halfway = Halfway::start(&follower).await;
    cluster.stop(leader).await;
    let next = cluster.leader().await;
    assert_ne!(next, leader);
    assert_eq!(names(&follower).await, ["before"]);
    halfway.finish().await.unwrap();
    cluster.restart(leader).await;
    is_restored(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_loses_the_cluster_during_a_restore_learns_that_nothing_was_restored() {
    let cluster = Cluster::start_with(3, |_, config| {
        small_parts(config);
        config.patience = Duration::from_secs(1);
        config.write_timeout = Duration::from_secs(2);
    })
    .await;
    put(cluster.node(0), "before").await;
    let leader = cluster.leader().await;
    // The leader finds its part in its log, and may lead no more later.
    for number in [leader, (leader + 1) % 3] {
        let node = cluster.node(number);
        let halfway = Halfway::start(node).await;
        let others: Vec<_> =
            cluster.ids().into_iter().filter(|other| *other != node.node_id()).collect();
        cluster.faults.isolate(node.node_id(), &others);
        let error = halfway.finish().await.unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::Inconsistent { .. }) || text.contains("nothing was restored: "),
            "{text}"
        );
        cluster.faults.heal();
        assert_eq!(names(node).await, ["before"]);
    }
    Halfway::start(cluster.node(1)).await.finish().await.unwrap();
    is_restored(&cluster).await;
}

/// A node that was cut off gets the restore so far with the snapshot, over the network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_gets_a_snapshot_in_the_middle_comes_to_the_same() {
    let cluster = Cluster::start_with(3, |_, config| {
        small_parts(config);
        config.snapshot_after_entries = 40;
        config.keep_entries = 10;
    })
    .await;
    let leader = cluster.leader().await;
    let behind = cluster.node((leader + 1) % 3);
    put(cluster.node(leader), "before").await;
    let mut watch = behind.watch_list(&everything()).await.unwrap();
    let others: Vec<_> = cluster.ids().into_iter().filter(|id| *id != behind.node_id()).collect();
    cluster.faults.isolate(behind.node_id(), &others);
    let halfway = Halfway::start(cluster.node(leader)).await;
    for number in 0..200 {
        put(cluster.node(leader), &format!("during-{number}")).await;
    }
    cluster.faults.heal();
    // Its watches close because of the snapshot.
    let closed = within(async {
        loop {
            if let Err(error) = watch.next().await.unwrap() {
                return error;
            }
        }
    });
    assert!(matches!(closed.await, Error::WatchClosed));
    assert_eq!(content(behind).await.len(), 201);
    halfway.finish().await.unwrap();
    is_restored(&cluster).await;
}
