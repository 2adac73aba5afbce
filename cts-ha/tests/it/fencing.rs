//! What a leader's own batches come to: results, refusals, and the end of leadership.

use consul_watch::{
    WriteOptions,
    client::PutOptions,
    types::{KvOp, TxnResult},
};
use cts_ha::{Elector as _, Error, Leadership, Loss};

use crate::place::{Place, cases};

cases!(
    a_batch_gives_the_results_of_its_own_operations,
    a_stale_index_refuses_the_batch_and_leaves_leadership_alone,
    a_batch_of_a_deposed_leader_ends_its_leadership,
    a_full_batch_has_sixty_three_operations
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
    let mut delete = consul_watch::client::DeleteOptions::default();
    delete.write = WriteOptions::default();
    place.client.kv_delete(&key, &delete).await.unwrap();
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
