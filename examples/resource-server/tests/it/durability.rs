//! `resource-server` is killed at random moments under write load: what it
//! acknowledged is there afterwards, and nothing is half there.
//!
//! 20 kills by default; `scripts/soak durable`, `durable-raft` and
//! `durable-cluster` make 200. `SEED` sets another seed than 11.

mod kills;
mod ledger;
mod load;

use kills::Kills;
use ledger::Ledger;

fn soak() -> bool {
    std::env::var_os("SOAK").is_some_and(|value| value == "1")
}

fn seed() -> u64 {
    std::env::var("SEED").map_or(11, |seed| seed.parse().unwrap())
}

/// Kills a store as often as given, or 200 times; nothing may be lost.
#[expect(clippy::print_stdout, reason = "the figures of a long run")]
async fn nothing_is_lost(store: &str, mut kills: Kills, rounds: usize) {
    let rounds = if soak() { 200 } else { rounds };
    for round in 0..rounds {
        if let Err(lost) = kills.kill_once().await {
            panic!("{store}, seed {}, kill {round}: {lost}\n{}", seed(), kills.log());
        }
    }
    let (slow, slowest) = (kills.on_slow_disks, kills.slowest_start);
    let Ledger { acknowledged, unknown, survived, .. } = kills.ledger;
    println!(
        "{store}, seed {}: {rounds} kills, {slow} of them on slow disks, {acknowledged} changes \
         acknowledged, {unknown} under way at a kill, of which {survived} were stored; 0 lost; \
         slowest start {slowest:?}",
        seed(),
    );
    assert!(acknowledged > rounds * 5, "{acknowledged} acknowledged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_outlives_every_kill() {
    nothing_is_lost("a file", Kills::of_a_file(&[]).await, 20).await;
}

/// A node alone: there is nothing but its own disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_raft_node_acknowledged_outlives_every_kill() {
    nothing_is_lost("one Raft node", Kills::of_raft(1).await, 20).await;
}

/// All nodes are killed at once: there is nothing but their disks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_raft_cluster_acknowledged_outlives_every_kill_of_all() {
    nothing_is_lost("three Raft nodes", Kills::of_raft(3).await, 20).await;
}

/// A server that acknowledges before it syncs does lose changes, and this is
/// noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_losses_are_noticed() {
    let mut kills = Kills::of_a_file(&["--sync", "1h"]).await;
    for _ in 0..5 {
        if let Err(lost) = kills.kill_once().await {
            assert!(lost.contains("was acknowledged"), "{lost}");
            return;
        }
    }
    panic!("nothing was noticed");
}

/// Disks that forget what they said they had, as those of all nodes do here,
/// do lose changes, and this is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_losses_of_raft_are_noticed() {
    for size in [1, 3] {
        let mut kills = Kills::of_raft(size).await;
        kills.kill_once().await.unwrap();
        kills.load_and_kill().await;
        kills.settle().await.unwrap();
        kills.kill().await;
        let older = kills.copy_of_disks();
        kills.settle().await.unwrap();
        kills.load_and_kill().await;
        kills.put_back(&older);
        let lost = kills.settle().await.unwrap_err();
        assert!(lost.contains("was acknowledged"), "{lost}");
    }
}
