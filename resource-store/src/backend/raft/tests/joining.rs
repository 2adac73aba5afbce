//! Nodes on their way into a cluster.

use std::time::Duration;

use futures::FutureExt as _;
use openraft::ChangeMembers;
use tempfile::TempDir;

use crate::backend::raft::{RaftBackend, RaftConfig, Start};

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("it takes too long")
}

fn config(folder: &TempDir) -> RaftConfig {
    let mut config = RaftConfig::new(folder.path(), "127.0.0.1:0");
    config.patience = Duration::from_secs(1);
    config
}

/// A leader, a node that joined it, and their folders.
async fn two() -> (RaftBackend, RaftBackend, [TempDir; 2]) {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let leader = within(RaftBackend::start(config(&folders[0]), Start::Bootstrap)).await.unwrap();
    let join = Start::Join(leader.local_addr().to_string());
    let node = within(RaftBackend::start(config(&folders[1]), join)).await.unwrap();
    (leader, node, folders)
}

/// Waits until a node votes, which is settled.
async fn votes(leader: &RaftBackend, id: u64) {
    let address = leader.local_addr().to_string();
    let settled = async {
        loop {
            let members = RaftBackend::members_at(&address, None).await.unwrap();
            if members.iter().any(|member| member.id == id && member.voter) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(settled).await;
}

/// It is known, and does not vote yet; its own log says so.
async fn make_learner(leader: &RaftBackend, node: &RaftBackend) {
    let id = node.node_id();
    // Or it would be taken for a change that stands half done.
    let _changing = leader.node.members.changing.lock().await;
    let change = ChangeMembers::RemoveVoters([id].into());
    within(leader.node.raft.change_membership(change, true)).await.unwrap();
    let mut metrics = node.node.raft.metrics();
    let heard = metrics.wait_for(|now| {
        let membership = now.membership_config.membership();
        membership.get_joint_config().len() == 1 && membership.learner_ids().any(|l| l == id)
    });
    within(heard).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stopped_before_it_voted_goes_on() {
    let (leader, mut node, folders) = two().await;
    for again in [Start::Resume, Start::Join(leader.local_addr().to_string())] {
        make_learner(&leader, &node).await;
        node.shutdown().await;
        node = within(RaftBackend::start(config(&folders[1]), again)).await.unwrap();
        votes(&leader, node.node_id()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_removed_before_it_voted_finds_out() {
    let (leader, node, _folders) = two().await;
    make_learner(&leader, &node).await;
    within(leader.remove_member(node.node_id())).await.unwrap();
    let why = within(node.failed()).await.to_string();
    assert!(why.contains("it was removed from its cluster"), "{why}");
}

/// Whoever began it may have gone away before the second half.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_stands_half_done_is_gone_on_with() {
    let (leader, node, _folders) = two().await;
    votes(&leader, node.node_id()).await;
    let mut metrics = leader.node.raft.metrics();
    {
        let change = ChangeMembers::RemoveVoters([node.node_id()].into());
        let mut changing = Box::pin(leader.node.raft.change_membership(change, false));
        assert!(changing.as_mut().now_or_never().is_none());
        let half = metrics
            .wait_for(|now| now.membership_config.membership().get_joint_config().len() == 2);
        within(half).await.unwrap();
    }
    let whole =
        metrics.wait_for(|now| now.membership_config.membership().get_joint_config().len() == 1);
    within(whole).await.unwrap();
    assert_eq!(leader.members().len(), 1);
    let why = within(node.failed()).await.to_string();
    assert!(why.contains("it was removed from its cluster"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_the_leader_cannot_reach_is_told_so() {
    let (leader, follower, _folders) = two().await;
    for through in [&leader, &follower] {
        let folder = TempDir::new().unwrap();
        // Where nobody listens any more.
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut config = config(&folder);
        config.advertise = Some(gone.to_string());
        // So that it asks more than once.
        config.write_timeout = Duration::from_secs(3);
        let joining = RaftBackend::start(config, Start::Join(through.local_addr().to_string()));
        let refused = within(joining).await.unwrap_err().to_string();
        assert!(refused.contains(&format!("cannot reach the node at {gone}")), "{refused}");
    }
}
