//! Who belongs to a cluster, and who does not any more.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use resource_store::backend::{
    Backend, Consistency,
    raft::{RaftBackend, RaftConfig, Start},
};

use super::cluster::{Cluster, everything, id, names, put, thing, within};

/// After how long a node without a leader asks whether it was removed.
const ASKS_AFTER: Duration = Duration::from_millis(800);

/// Nodes that ask soon whether they still belong to the cluster.
fn impatient(config: &mut RaftConfig) {
    Cluster::hasty(config);
    config.patience = ASKS_AFTER;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_listed_and_removed() {
    let mut cluster = Cluster::start_with(3, |_, config| Cluster::hasty(config)).await;
    let leader = cluster.leader().await;
    let members = cluster.node(leader).members();
    assert_eq!(members.len(), 3);
    assert!(members.iter().all(|member| member.voter));
    let gone = cluster.node((leader + 1) % 3).node_id();
    let rest = (leader + 2) % 3;
    // Through a follower, which says who leads.
    within(cluster.node(rest).remove_member(gone)).await.unwrap();
    cluster.stop((leader + 1) % 3).await;
    put(cluster.node(rest), "with two").await;
    let address = cluster.node(rest).local_addr().to_string();
    let listed = RaftBackend::members_at(&address, None).await.unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|member| member.id != gone));
    // One that is not there is gone already.
    let patience = Duration::from_secs(10);
    within(RaftBackend::remove_member_at(&address, None, gone, patience)).await.unwrap();

    let leader = cluster.leader().await;
    let other = listed.iter().find(|m| m.id != cluster.node(leader).node_id()).unwrap().id;
    within(cluster.node(leader).remove_member(other)).await.unwrap();
    let alone = cluster.node(leader);
    let refused = within(alone.remove_member(alone.node_id())).await.unwrap_err();
    assert!(refused.to_string().contains("the only node that votes"), "{refused}");
    put(alone, "alone").await;
    assert_eq!(names(alone).await, ["alone", "with two"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_node_finds_out_and_stops() {
    let mut cluster = Cluster::start_with(3, |_, config| impatient(config)).await;
    put(cluster.node(0), "before").await;
    let leader = cluster.leader().await;
    let number = (leader + 1) % 3;
    let removed = cluster.node(number).clone();
    let mut watch = removed.watch_list(&everything()).await.unwrap();
    within(cluster.node(leader).remove_member(removed.node_id())).await.unwrap();
    put(cluster.node(leader), "after").await;

    let why = within(removed.failed()).await.to_string();
    assert!(why.contains("it was removed from its cluster"), "{why}");
    let write = within(removed.write_cas(thing("x"))).await.unwrap_err();
    assert_eq!(write.to_string(), why);
    within(removed.read(Consistency::Strong, &id("before"))).await.unwrap_err();
    within(async { while !matches!(watch.next().await, None | Some(Err(_))) {} }).await;
    // What it holds is old.
    within(removed.shutdown()).await;
    within(removed.read(Consistency::Eventual, &id("before"))).await.unwrap_err();

    drop(removed);
    cluster.stop(number).await;
    cluster.restart(number).await;
    let again = within(cluster.node(number).failed()).await.to_string();
    assert_eq!(again, why);
    cluster.stop(number).await;
    let through = Start::Join(cluster.node(leader).local_addr().to_string());
    // Its log may say that it was removed, or not.
    let refused = match cluster.restart_as(number, through.clone()).await {
        Ok(()) => {
            let why = within(cluster.node(number).failed()).await;
            cluster.stop(number).await;
            why
        }
        Err(refused) => refused,
    };
    assert!(refused.to_string().contains("was removed from"), "{refused}");
    assert_eq!(cluster.node(leader).members().len(), 2);
    cluster.wipe(number);
    cluster.restart_as(number, through).await.unwrap();
    assert_eq!(names(cluster.node(number)).await, ["after", "before"]);
}

/// One that nobody reaches is not taken for one that was removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_cut_off_still_belongs_to_the_cluster() {
    let cluster = Cluster::start_with(3, |_, config| impatient(config)).await;
    let node = cluster.follower().await;
    let others: Vec<_> = cluster.ids().into_iter().filter(|id| *id != node.node_id()).collect();
    cluster.faults.isolate(node.node_id(), &others);
    within(async {
        while node.leader().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // It asks in vain.
    tokio::time::sleep(ASKS_AFTER * 2).await;
    assert!(node.failed().now_or_never().is_none());
    cluster.faults.heal();
    tokio::time::sleep(ASKS_AFTER * 2).await;
    within(node.wait_until_caught_up(Duration::from_secs(30))).await.unwrap();
    assert!(node.failed().now_or_never().is_none());
}

/// The cluster does not take it for a node that has moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_node_does_not_come_back_at_another_address() {
    let mut cluster = Cluster::start_with(3, |_, config| impatient(config)).await;
    let leader = cluster.leader().await;
    let number = (leader + 1) % 3;
    let removed = cluster.node(number).node_id();
    cluster.stop(number).await;
    within(cluster.node(leader).remove_member(removed)).await.unwrap();
    cluster.move_away(number);
    cluster.restart(number).await;
    let why = within(cluster.node(number).failed()).await.to_string();
    assert!(why.contains("it was removed from its cluster"), "{why}");
    assert_eq!(cluster.node(leader).members().len(), 2);
}

/// It would be a second voter where only one can be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_files_does_not_join_beside_its_old_self() {
    let mut cluster = Cluster::start_with(3, |_, config| Cluster::hasty(config)).await;
    put(cluster.node(0), "kept").await;
    let leader = cluster.leader().await;
    let number = (leader + 1) % 3;
    let (old, address) = {
        let node = cluster.node(number);
        (node.node_id(), node.local_addr().to_string())
    };
    cluster.stop(number).await;
    let asked = cluster.node(leader).local_addr().to_string();
    let listed = RaftBackend::members_at(&asked, None);
    let silent: Vec<_> =
        within(listed).await.unwrap().into_iter().filter(|m| m.silent.is_some()).collect();
    assert_eq!(silent.len(), 1);
    assert_eq!(silent[0].id, old);
    let why = silent[0].silent.clone().unwrap();
    assert!(why.starts_with("Connection refused"), "{why}");

    cluster.wipe(number);
    let through = Start::Join(cluster.node(leader).local_addr().to_string());
    let refused = cluster.restart_as(number, through.clone()).await.unwrap_err().to_string();
    let expected = format!("node {old:016x} of this cluster has the address {address}: ");
    assert!(refused.contains(&expected), "{refused}");
    assert_eq!(cluster.node(leader).members().len(), 3);

    within(cluster.node(leader).remove_member(old)).await.unwrap();
    cluster.restart_as(number, through).await.unwrap();
    assert_eq!(cluster.node(leader).members().len(), 3);
    assert_eq!(names(cluster.node(number)).await, ["kept"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_one_cluster_does_not_join_another() {
    let mut cluster = Cluster::start(1).await;
    let other = Cluster::start(1).await;
    put(cluster.node(0), "mine").await;
    cluster.stop(0).await;
    let through = Start::Join(other.node(0).local_addr().to_string());
    let refused = cluster.restart_as(0, through).await.unwrap_err().to_string();
    assert!(refused.contains("belongs to cluster"), "{refused}");
    // One that does not answer may be its own.
    cluster.restart_as(0, Start::Join("127.0.0.1:1".to_owned())).await.unwrap();
    assert_eq!(names(cluster.node(0)).await, ["mine"]);
    assert_eq!(other.node(0).members().len(), 1);
}

/// Others would look for it in vain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_alone_tells_itself_its_new_address() {
    let mut cluster = Cluster::start_with(1, |_, config| Cluster::hasty(config)).await;
    put(cluster.node(0), "before").await;
    cluster.stop(0).await;
    cluster.move_away(0);
    cluster.restart(0).await;
    let address = cluster.node(0).local_addr().to_string();
    within(async {
        while cluster.node(0).members()[0].address != address {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    cluster.add(Cluster::hasty).await.unwrap();
    put(cluster.node(1), "through another").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_nobody_reaches_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for address in ["nonsense", "127.0.0.1", ":8503", "host:0", "0.0.0.0:5", "[::]:5", "host:x"] {
        let mut config = RaftConfig::new(folder.path(), "127.0.0.1:0");
        config.advertise = Some(address.to_owned());
        let refused = RaftBackend::start(config, Start::Bootstrap).await.unwrap_err().to_string();
        let expected = format!("no other node can reach {address}: ");
        assert!(refused.contains(&expected), "{refused}");
    }
}
