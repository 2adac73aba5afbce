//! How long a node leads, and what it says meanwhile, when its disk, the other
//! nodes or the network are slow.

use std::time::Duration;

use futures::{FutureExt as _, future::select_all};
use openraft::{ChangeMembers, storage::RaftLogStorage as _};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    backend::{
        Backend as _, Consistency,
        raft::{Faults, HeldDisk, RaftBackend, RaftConfig, Start, types::Peer},
    },
    demo,
    lease::Lease as _,
    pb::Resource,
};

const PATIENCE: Duration = Duration::from_secs(30);

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it takes too long")
}

fn artist(name: &str) -> Resource {
    let mut artist = demo::artist(name).encode();
    artist.id.as_mut().unwrap().uid = "u".to_owned();
    artist
}

struct Cluster {
    nodes: Vec<RaftBackend>,
    disks: Vec<HeldDisk>,
    _folders: Vec<TempDir>,
}

impl Cluster {
    /// Starts nodes, the first of which leads.
    async fn start(count: usize, adjust: impl Fn(&mut RaftConfig)) -> Self {
        let (mut nodes, mut disks, mut folders) =
            (Vec::<RaftBackend>::new(), Vec::new(), Vec::new());
        let faults = Faults::new();
        for _ in 0..count {
            let (folder, disk) = (TempDir::new().unwrap(), HeldDisk::default());
            let mut config = RaftConfig::new(folder.path(), "127.0.0.1:0");
            config.faults = faults.clone().with_disk(disk.clone());
            adjust(&mut config);
            let start = match nodes.first() {
                Some(first) => Start::Join(first.local_addr().to_string()),
                None => Start::Bootstrap,
            };
            nodes.push(within(RaftBackend::start(config, start)).await.unwrap());
            disks.push(disk);
            folders.push(folder);
        }
        within(nodes[0].node.leads()).await;
        Self { nodes, disks, _folders: folders }
    }
}

impl crate::backend::raft::node::Node {
    /// Waits until the node holds the leadership.
    async fn leads(&self) {
        let mut held = self.leadership.held();
        while !futures::StreamExt::next(&mut held).await.unwrap() {}
    }
}

fn patient(config: &mut RaftConfig) {
    config.election = (Duration::from_secs(10), Duration::from_secs(20));
}

/// What no majority has on its disks was told to nobody, so reads need not wait
/// for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strong_reads_wait_for_no_write_of_the_leaders_disk() {
    let nodes = Cluster::start(2, patient).await;
    let leader = &nodes.nodes[0];
    let stored = leader.write_cas(artist("korn")).await.unwrap();
    let id = stored.id.clone().unwrap();
    nodes.disks[0].hang();
    let before = leader.node.raft.metrics().borrow().last_log_index;
    let mut writing = Box::pin(leader.write_cas(artist("nina")));
    assert!(writing.as_mut().now_or_never().is_none());
    // The other one has it on the disk.
    for node in &nodes.nodes {
        let mut metrics = node.node.raft.metrics();
        within(metrics.wait_for(|now| now.last_log_index > before)).await.unwrap();
    }
    for node in &nodes.nodes {
        let read = timeout(Duration::from_secs(3), node.read(Consistency::Strong, &id)).await;
        assert_eq!(read.expect("an answer before patience ends").unwrap(), stored);
    }
    assert!(writing.as_mut().now_or_never().is_none());
    nodes.disks[0].release();
    let stored = within(writing).await.unwrap();
    for node in &nodes.nodes {
        let id = stored.id.as_ref().unwrap();
        assert_eq!(within(node.read(Consistency::Strong, id)).await.unwrap(), stored);
    }
}

/// A follower whose disk hangs says that it follows, and reads go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_without_entries_wait_for_no_disk() {
    let nodes = Cluster::start(2, |_| ()).await;
    let (leader, follower) = (&nodes.nodes[0], &nodes.nodes[1]);
    let stored = within(leader.write_cas(artist("korn"))).await.unwrap();
    let id = stored.id.clone().unwrap();
    nodes.disks[1].hang();
    let mut writing = Box::pin(leader.write_cas(artist("nina")));
    assert!(writing.as_mut().now_or_never().is_none());
    let vote = follower.node.raft.metrics().borrow().vote;
    let (began, long) = (Instant::now(), leader.node.config.election.1 * 3);
    while began.elapsed() < long {
        for node in &nodes.nodes {
            let read = timeout(Duration::from_secs(3), node.read(Consistency::Strong, &id)).await;
            assert_eq!(read.expect("an answer before patience ends").unwrap(), stored);
        }
        assert!(leader.leadership().is_held(), "after {:?}", began.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
    assert!(writing.as_mut().now_or_never().is_none(), "no majority has it");
    nodes.disks[1].release();
    within(writing).await.unwrap();
    assert_eq!(follower.node.raft.metrics().borrow().vote, vote, "still its leader");
}

/// Two of three have it on their disks, so it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_need_no_disk_of_the_leader_if_a_majority_has_them() {
    let nodes = Cluster::start(3, patient).await;
    let leader = &nodes.nodes[0];
    nodes.disks[0].hang();
    for name in ["korn", "nina"] {
        let writing = timeout(Duration::from_secs(3), leader.write_cas(artist(name))).await;
        let stored = writing.expect("a majority has it").unwrap();
        let id = stored.id.as_ref().unwrap();
        for node in &nodes.nodes {
            let read = timeout(Duration::from_secs(3), node.read(Consistency::Strong, id)).await;
            assert_eq!(read.expect("an answer before patience ends").unwrap(), stored);
        }
    }
    nodes.disks[0].release();
    within(leader.write_cas(artist("miles"))).await.unwrap();
}

/// What is refused is not begun, and there is room again once the disk goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_under_way_are_bounded_in_bytes() {
    let nodes = Cluster::start(2, |config| {
        patient(config);
        config.max_pending_bytes = 1000;
    })
    .await;
    let [leader, follower] = [&nodes.nodes[0], &nodes.nodes[1]];
    nodes.disks[0].hang();
    let write = |name: &'static str| {
        let leader = leader.clone();
        tokio::spawn(async move { leader.write_cas(artist(name)).await })
    };
    let mut writing = vec![write("n0"), write("n1"), write("n2"), write("n3"), write("n4")];
    for node in [leader, follower] {
        let refused = loop {
            match timeout(Duration::from_secs(1), node.write_cas(artist("x"))).await {
                Ok(refused) => break refused.unwrap_err(),
                Err(_it_was_taken) => {}
            }
        };
        assert!(matches!(refused, crate::backend::Error::Overloaded { .. }), "{refused}");
    }
    nodes.disks[0].release();
    let mut done = 0;
    for writing in writing.drain(..) {
        done += usize::from(within(writing).await.unwrap().is_ok());
    }
    assert!(done > 0, "none was taken");
    within(leader.write_cas(artist("later"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_hangs_is_replaced_and_leads_no_more() {
    let nodes = Cluster::start(3, |_| ()).await;
    let old = &nodes.nodes[0];
    nodes.disks[0].hang();
    // Its consensus waits for the disk, and tells nothing any more.
    let peer = Peer { address: old.node.members.address.clone() };
    let moving = ChangeMembers::SetNodes([(old.node.id(), peer)].into());
    let mut moving = Box::pin(old.node.raft.change_membership(moving, true));
    assert!(moving.as_mut().now_or_never().is_none());
    let others = nodes.nodes[1..].iter().map(|node| Box::pin(node.node.leads()));
    drop(within(select_all(others)).await);
    assert!(!old.leadership().is_held(), "another node leads");
    nodes.disks[0].release();
    // It may be done or not, but the node goes on.
    drop(within(moving).await);
    within(old.write_cas(artist("nina"))).await.unwrap();
}

/// Here the consensus goes on, and is told that its entries are in the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_write_entries_is_replaced() {
    let nodes = Cluster::start(3, |_| ()).await;
    let old = &nodes.nodes[0];
    nodes.disks[0].hang();
    let mut writing = Box::pin(old.write_cas(artist("korn")));
    assert!(writing.as_mut().now_or_never().is_none());
    let others = nodes.nodes[1..].iter().map(|node| Box::pin(node.node.leads()));
    drop(within(select_all(others)).await);
    assert!(!old.leadership().is_held(), "another node leads");
    nodes.disks[0].release();
    drop(within(writing).await);
    within(old.write_cas(artist("nina"))).await.unwrap();
}

/// Nothing of the program runs when it looks: the runtime was held up as long,
/// as if the process had been stopped.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the runtime is to be held up")]
async fn a_leader_that_was_stopped_leads_no_more_before_it_notices() {
    let nodes = Cluster::start(2, |_| ()).await;
    let leadership = nodes.nodes[0].leadership();
    assert!(leadership.is_held());
    std::thread::sleep(Duration::from_secs(1));
    assert!(!leadership.is_held());
    // Either may lead then.
    let both = nodes.nodes.iter().map(|node| Box::pin(node.node.leads()));
    drop(within(select_all(both)).await);
}

/// The library gives each message as long as there is between two heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_nodes_may_answer_later_than_the_next_heartbeat() {
    let nodes = Cluster::start(2, |config| {
        patient(config);
        config.faults = config.faults.clone().with_latency(config.heartbeat * 3 / 2);
    })
    .await;
    let leader = &nodes.nodes[0];
    let stored = within(leader.write_cas(artist("korn"))).await.unwrap();
    let id = stored.id.as_ref().unwrap();
    for node in &nodes.nodes {
        let read = timeout(Duration::from_secs(3), node.read(Consistency::Strong, id)).await;
        assert_eq!(read.expect("an answer before patience ends").unwrap(), stored);
    }
}

/// What was acknowledged late says how it was when it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_acknowledgements_are_no_new_lease() {
    let nodes = Cluster::start(2, |config| {
        config.election = (Duration::from_secs(1), Duration::from_secs(2));
    })
    .await;
    let (leader, follower) = (&nodes.nodes[0], &nodes.nodes[1]);
    // The follower takes entries, and nothing more until its disk has them.
    nodes.disks[1].hang();
    let mut log = follower.node.log.clone();
    let last = log.get_log_state().await.unwrap().last_log_id;
    let mut writing = Box::pin(leader.write_cas(artist("korn")));
    assert!(writing.as_mut().now_or_never().is_none());
    let taken = async {
        while log.get_log_state().await.unwrap().last_log_id == last {
            sleep(Duration::from_millis(1)).await;
        }
    };
    within(taken).await;
    let began = Instant::now();
    leader.node.network.faults.cut(leader.node.id(), follower.node.id());
    let vote = follower.node.raft.metrics().borrow().vote;
    let mut held = leader.leadership().held();
    while within(futures::StreamExt::next(&mut held)).await.unwrap() {}
    // What was asked before the cut, and may be answered now, holds no longer.
    tokio::time::sleep_until(began + leader.node.config.election.1).await;
    // Now the answer comes, which says how it was when the leader asked.
    nodes.disks[1].release();
    within(writing).await.unwrap();
    let renewed = timeout(Duration::from_millis(500), leader.node.leads()).await;
    assert!(renewed.is_err(), "the entries were sent {:?} ago", began.elapsed());
    assert_eq!(follower.node.raft.metrics().borrow().vote, vote, "still its leader");
}
