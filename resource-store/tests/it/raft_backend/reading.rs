//! Strong reads of several nodes.

use std::time::Duration;

use resource_store::backend::{Backend as _, Consistency, raft::HeldCommits};

use super::cluster::{Cluster, id, put, thing, within};

/// A follower may hear that a change is committed, apply it and be read before its leader has
/// noted it. What the leader is asked for next is not older than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_gives_nothing_older_than_a_follower_gave_before() {
    let notes: [HeldCommits; 3] = Default::default();
    let cluster = Cluster::start_with(3, |number, config| {
        config.faults = config.faults.clone().with_commits(notes[number].clone());
    });
    let cluster = cluster.await;
    let leads = cluster.leader().await;
    let (leader, note) = (cluster.node(leads).clone(), &notes[leads]);
    let follower = cluster.node((leads + 1) % 3).clone();
    let mut stored = put(&leader, "one").await;

    within(async {
        loop {
            // It has all of before.
            assert_eq!(follower.read(Consistency::Strong, &id("one")).await.unwrap(), stored);
            note.hold();
            let change = stored.clone();
            let writing = tokio::spawn({
                let leader = leader.clone();
                async move { leader.write_cas((*change).clone()).await.unwrap() }
            });
            // Not always: a leader whose disk is slower than the followers' tells them later.
            let heard = async {
                while follower.read(Consistency::Eventual, &id("one")).await.unwrap() == stored {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let heard = tokio::time::timeout(Duration::from_millis(500), heard).await.is_ok();
            if heard {
                let before = follower.read(Consistency::Strong, &id("one")).await.unwrap();
                let mut reading = tokio::spawn({
                    let leader = leader.clone();
                    async move { leader.read(Consistency::Strong, &id("one")).await.unwrap() }
                });
                let early = tokio::time::timeout(Duration::from_millis(100), &mut reading).await;
                note.release();
                let after = match early {
                    Ok(read) => read.unwrap(),
                    Err(_it_waits) => reading.await.unwrap(),
                };
                assert_eq!(after, before);
                assert_eq!(writing.await.unwrap(), before);
                return;
            }
            note.release();
            stored = writing.await.unwrap();
        }
    })
    .await;
    leader.write_cas(thing("two")).await.unwrap();
}
