//! What a leader's own batches come to: results, refusals, and the end of leadership.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    client::{DeleteOptions, PutOptions},
    types::{KvOp, TxnResult},
};
use cts_ha::{
    Candidate, Consul, ConsulElector, Elector as _, Error, Leadership, Loss, Timing,
    tasks::{ClusterOptions, CtsCluster, HighAvailability},
};
use cts_tasks::{Cluster as _, Config, Permit as _, Stop};
use tokio::time::{Instant, sleep};

use crate::place::{Place, Trouble, cases, eventually};

cases!(
    a_batch_gives_the_results_of_its_own_operations,
    a_stale_index_refuses_the_batch_and_leaves_leadership_alone,
    a_batch_of_a_deposed_leader_ends_its_leadership,
    a_full_batch_has_sixty_three_operations,
    a_leader_asks_consul_before_what_cannot_be_taken_back,
    a_leader_that_cannot_ask_does_not_go_on,
    a_lost_term_is_urgent_while_nobody_else_can_lead
);

async fn leader(place: &Place) -> (Leadership, String) {
    let key = place.name("leader");
    (place.elector(&place.consul(), &key, "one").campaign().await.unwrap(), key)
}

fn keys(results: &[TxnResult]) -> Vec<&str> {
    let mut keys = Vec::new();
    for result in results {
        let TxnResult::Kv(pair) = result else { unreachable!("{result:?}") };
        keys.push(pair.key.as_str());
    }
    keys
}

async fn a_batch_gives_the_results_of_its_own_operations(place: &Place) {
    let (leadership, _) = leader(place).await;
    let (a, b) = (place.name("a"), place.name("b"));
    let written = leadership.commit(vec![KvOp::set(&a, "1"), KvOp::set(&b, "2")]).await.unwrap();
    assert_eq!(keys(&written), [&a, &b]);
    let found = leadership.commit(vec![KvOp::get(&b)]).await.unwrap();
    let [TxnResult::Kv(pair)] = &found[..] else { unreachable!("{found:?}") };
    assert_eq!((pair.key.as_str(), pair.text()), (b.as_str(), Some("2")));
    assert_eq!(leadership.commit(vec![KvOp::delete(&a)]).await.unwrap(), []);
    leadership.resign().await;
}

async fn a_stale_index_refuses_the_batch_and_leaves_leadership_alone(place: &Place) {
    let (leadership, _) = leader(place).await;
    let (a, b) = (place.name("a"), place.name("b"));
    leadership.commit(vec![KvOp::set(&a, "1")]).await.unwrap();
    let batch = vec![KvOp::set(&b, "2"), KvOp::cas(&a, "3", 1)];
    let error = leadership.commit(batch).await.unwrap_err();
    let Error::RolledBack { refused } = &error else { unreachable!("{error}") };
    let [only] = &refused[..] else { unreachable!("{refused:?}") };
    assert_eq!((only.index, only.verb.as_str(), &only.key), (1, "cas", &a));
    let text = error.to_string();
    assert!(text.contains(&format!("operation 1 (cas {a})")), "{text}");
    assert!(text.contains("index is stale"), "{text}");
    assert!(leadership.check().is_ok(), "another leads only when the lock says so");
    let kept = leadership.commit(vec![KvOp::get(&a)]).await.unwrap();
    assert_eq!(keys(&kept), [&a]);
    assert!(leadership.commit(vec![KvOp::get(&b)]).await.is_err(), "nothing was written");
    leadership.resign().await;
}

async fn a_batch_of_a_deposed_leader_ends_its_leadership(place: &Place) {
    let (leadership, key) = leader(place).await;
    let a = place.name("a");
    // A plain write of the lock's key keeps its session; deleting it deposes the holder.
    place.client.kv_put(&key, "x", &PutOptions::default()).await.unwrap();
    leadership.commit(vec![KvOp::set(&a, "1")]).await.unwrap();
    place.client.kv_delete(&key, &DeleteOptions::default()).await.unwrap();
    let stale = vec![KvOp::cas(&a, "2", 1)];
    let error = leadership.commit(stale).await.unwrap_err();
    assert!(matches!(error, Error::Ended(Loss::Refused | Loss::Taken)), "{error}");
    assert!(leadership.check().is_err());
}

async fn a_full_batch_has_sixty_three_operations(place: &Place) {
    let (leadership, _) = leader(place).await;
    let sets = |count: u32| {
        (0..count).map(|number| KvOp::set(place.name("x"), number.to_string())).collect()
    };
    assert_eq!(leadership.commit(sets(63)).await.unwrap().len(), 63);
    leadership.resign().await;
}

/// A leader whose monitor does not look at the lock for a minute.
async fn unwatched(place: &Place) -> (Leadership, Trouble, String) {
    let key = place.name("leader");
    let (client, trouble) = place.troubled();
    let mut options = place.election();
    (options.monitor_retries, options.monitor_retry_time) = (5, Duration::from_mins(1));
    let elector =
        ConsulElector::new(&Consul::new(client), &key, Candidate::new("one"), options).unwrap();
    let leadership = elector.campaign().await.unwrap();
    let before = trouble.count("GET /v1/kv");
    trouble.answer("GET /v1/kv", 1, 500, "trouble");
    // Wakes the monitor if it reads already.
    let mut options = PutOptions::default();
    options.flags = cts_ha::LOCK_FLAGS;
    place.client.kv_put(&key, "woken", &options).await.unwrap();
    eventually("the monitor has failed", Duration::from_secs(5), async || {
        trouble.count("GET /v1/kv") > before
    })
    .await;
    (leadership, trouble, key)
}

/// Waits until the last renewal is so old that the clock alone is not believed.
async fn until_old(place: &Place, trouble: &Trouble) {
    let renewals = trouble.count("PUT /v1/session/renew");
    eventually("a renewal", place.ttl, async || trouble.count("PUT /v1/session/renew") > renewals)
        .await;
    sleep(place.ttl / 10 * 3).await;
}

async fn a_leader_asks_consul_before_what_cannot_be_taken_back(place: &Place) {
    let (leadership, trouble, key) = unwatched(place).await;
    let reads = trouble.count("GET /v1/kv");
    leadership.confirm().await.unwrap();
    assert_eq!(trouble.count("GET /v1/kv"), reads, "a fresh session is believed");
    until_old(place, &trouble).await;
    leadership.confirm().await.unwrap();
    assert_eq!(trouble.count("GET /v1/kv"), reads + 1);
    place.client.kv_delete(&key, &DeleteOptions::default()).await.unwrap();
    assert!(leadership.check().is_ok(), "nothing has noticed it yet");
    let error = leadership.confirm().await.unwrap_err();
    assert!(matches!(error, Error::Ended(Loss::Taken)), "{error}");
    assert!(leadership.check().is_err());
}

async fn a_leader_that_cannot_ask_does_not_go_on(place: &Place) {
    let (leadership, trouble, _) = unwatched(place).await;
    until_old(place, &trouble).await;
    trouble.cut(true);
    let start = Instant::now();
    let error = leadership.confirm().await.unwrap_err();
    assert!(error.is_retryable() || leadership.check().is_err(), "{error}");
    assert!(start.elapsed() < place.ttl / 2, "{:?}", start.elapsed());
}

/// The sum of the lease, the time for winding up and a kill stays below the TTL.
async fn a_lost_term_is_urgent_while_nobody_else_can_lead(place: &Place) {
    let (client, trouble) = place.troubled();
    let mut settings = HighAvailability::new(place.name("cluster").replace('/', "-"));
    (settings.session_ttl, settings.lock_delay) = (place.ttl, place.delay);
    let mut options = ClusterOptions::default();
    options.clock = Arc::clone(&place.clock);
    let cluster = CtsCluster::with_client(&Config::default(), settings, options, client).unwrap();
    let stop = Stop::new();
    let term = cluster.lead(&stop).await.unwrap();
    cluster.confirm().await.unwrap();
    trouble.cut(true);
    let cut = Instant::now();
    term.stopped().await;
    let lost = Instant::now();
    assert!(!term.is_urgent(), "work may wind up");
    assert!(cluster.confirm().await.is_err());
    term.urgent().await;
    let timing = Timing::new(place.ttl, place.delay).unwrap();
    assert!(lost.elapsed() >= timing.wind_up() / 2, "{:?}", lost.elapsed());
    assert!(cut.elapsed() < place.ttl, "urgent only after {:?}", cut.elapsed());
    assert!(!stop.is_urgent());
}
