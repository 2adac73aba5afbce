//! Tests of differences: applied one after the other they give the newest snapshot.

use std::sync::Arc;

use futures::StreamExt as _;
use proptest::prelude::*;

use super::*;
use crate::QueryMeta;

fn snapshot(seq: u64, index: u64, items: &[(&str, u8)]) -> Data {
    let data = items.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
    let meta = QueryMeta { index: Some(index), ..QueryMeta::default() };
    Snapshot { data: Arc::new(data), meta, seq, history: 1 }
}

fn later(history: u64, snapshot: Data) -> Data {
    Snapshot { history, ..snapshot }
}

type Data = Snapshot<BTreeMap<String, u8>>;

fn failure() -> WatchError {
    WatchError::closed()
}

async fn events(items: Vec<Result<Data, WatchError>>) -> Vec<String> {
    let diff = Diff::new(futures::stream::iter(items));
    let shown = diff.map(|event| match event {
        Ok(Event::Init(items)) => format!("init {}", items.len()),
        Ok(Event::Resync) => "resync".to_owned(),
        Ok(Event::Removed { key, old }) => format!("-{key}{old}"),
        Ok(Event::Changed { key, old, new }) => format!("{key}{old}>{new}"),
        Ok(Event::Added { key, new }) => format!("+{key}{new}"),
        Err(_) => "error".to_owned(),
    });
    shown.collect().await
}

#[tokio::test]
async fn events_are_removed_changed_added_each_by_key() {
    let found = events(vec![
        Ok(snapshot(1, 5, &[("a", 1), ("b", 1), ("c", 1), ("d", 1)])),
        Ok(snapshot(2, 6, &[("c", 2), ("a", 2), ("f", 1), ("e", 1)])),
        Ok(snapshot(3, 7, &[])),
    ])
    .await;
    let expected =
        ["init 4", "-b1", "-d1", "a1>2", "c1>2", "+e1", "+f1", "-a2", "-c2", "-e1", "-f1"];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn an_error_does_not_void_what_was_delivered() {
    let found = events(vec![
        Ok(snapshot(1, 5, &[("a", 1)])),
        Err(failure()),
        Ok(snapshot(4, 9, &[("a", 1), ("b", 1)])),
    ])
    .await;
    assert_eq!(found, ["init 1", "error", "+b1"]);
}

/// Spec: CP54
#[tokio::test]
async fn another_history_is_a_resync_with_the_differences_only() {
    let found = events(vec![
        Ok(snapshot(1, 50, &[("a", 1), ("b", 1)])),
        // The one in which it began was missed.
        Ok(later(2, snapshot(3, 60, &[("a", 1), ("c", 1)]))),
        Ok(later(2, snapshot(4, 60, &[("a", 1)]))),
    ])
    .await;
    assert_eq!(found, ["init 2", "resync", "-b1", "+c1", "-c1"]);
}

/// As those of events do, whose index is a hash.
#[tokio::test]
async fn a_lower_index_alone_is_no_resync() {
    let found =
        events(vec![Ok(snapshot(1, 50, &[("a", 1)])), Ok(snapshot(2, 20, &[("b", 1)]))]).await;
    assert_eq!(found, ["init 1", "-a1", "+b1"]);
}

#[test]
fn an_item_is_known_by_its_identity() {
    let intention = types::Intention::new("a", "b", types::IntentionAction::Allow);
    let other = types::Intention::new("a", "b", types::IntentionAction::Deny);
    assert_eq!(intention.key(), other.key());
    let found = changes(&vec![intention], &vec![other]);
    assert!(matches!(&found[..], [Event::Changed { .. }]));
    let entry = |id: &str, peer: &str| {
        let mut entry = types::ServiceEntry::default();
        entry.service.id = id.to_owned();
        entry.service.peer_name = peer.to_owned();
        entry
    };
    assert!(entry("a", "").key() < entry("b", "").key());
    assert_ne!(entry("a", "").key(), entry("a", "east").key());
    assert!(changes(&None::<types::KvPair>, &None).is_empty());
}

proptest! {
    /// Applying the events to the old data gives the new data.
    #[test]
    fn events_lead_from_old_to_new(
        old in proptest::collection::btree_map(0..20_u8, 0..3_u8, 0..12),
        new in proptest::collection::btree_map(0..20_u8, 0..3_u8, 0..12),
    ) {
        let mut data = old.clone();
        for event in changes(&old, &new) {
            match event {
                Event::Removed { key, old } => prop_assert_eq!(data.remove(&key), Some(old)),
                Event::Changed { key, old, new } => {
                    prop_assert!(old != new);
                    prop_assert_eq!(data.insert(key, new), Some(old));
                }
                Event::Added { key, new } => prop_assert_eq!(data.insert(key, new), None),
                Event::Init(_) | Event::Resync => prop_assert!(false, "not a difference"),
            }
        }
        prop_assert_eq!(data, new);
    }
}
