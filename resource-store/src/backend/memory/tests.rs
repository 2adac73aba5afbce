use std::collections::BTreeMap;

use futures::StreamExt as _;

use super::*;
use crate::{
    backend::{Error, WatchEvent, store::topics::MANY_TOPICS},
    demo,
    typed::ResourceData as _,
};

fn artists() -> Query {
    Query::new(demo::v2::Artist::resource_type().group_kind(), demo::default_tenancy())
}

async fn put(backend: &MemoryBackend, name: &str) -> Arc<Resource> {
    backend.write_cas(demo::artist(name).encode()).await.unwrap()
}

#[tokio::test]
async fn a_watcher_that_falls_behind_is_told_to_start_anew() {
    let backend = MemoryBackend::with_watch_buffer(4);
    let mut slow = backend.watch_list(&artists()).await.unwrap();
    assert_eq!(slow.next().await.unwrap().unwrap(), WatchEvent::EndOfSnapshot);
    for i in 0..5 {
        put(&backend, &format!("artist-{i}")).await;
    }
    assert!(matches!(slow.next().await, Some(Err(Error::WatchClosed))));
    assert!(slow.next().await.is_none());

    let anew = backend.watch_list(&artists()).await.unwrap();
    let events: Vec<_> = anew.take(6).collect().await;
    assert!(matches!(events.last(), Some(Ok(WatchEvent::EndOfSnapshot))));
}

/// However many changes come between two events that a watcher takes, it gets
/// the whole snapshot and catches up.
#[tokio::test]
async fn a_slow_watcher_gets_its_snapshot_whole_under_continuing_writes() {
    const RESOURCES: usize = 50;
    let backend = MemoryBackend::with_watch_buffer(4);
    let mut known = BTreeMap::new();
    let mut stored = Vec::new();
    for i in 0..RESOURCES {
        stored.push(put(&backend, &format!("artist-{i}")).await);
    }
    let mut slow = backend.watch_list(&artists()).await.unwrap();
    let (mut marks, mut taken) = (0, 0);
    // It takes one event for each thirty changes, until there is the whole
    // snapshot and each resource once more.
    while marks == 0 || taken < 4 * RESOURCES {
        for i in 0..30 {
            let place = &mut stored[(taken * 7 + i) % RESOURCES];
            *place = backend.write_cas(Resource::clone(place)).await.unwrap();
        }
        taken += 1;
        match slow.next().await.unwrap().unwrap() {
            WatchEvent::Upsert(resource) => drop(known.insert(name(&resource), resource)),
            WatchEvent::Delete(resource) => drop(known.remove(&name(&resource))),
            WatchEvent::EndOfSnapshot => marks += 1,
        }
    }
    assert_eq!(marks, 1);
    // Now it catches up, and is told of single changes again.
    let last = put(&backend, "last").await;
    loop {
        match slow.next().await.unwrap().unwrap() {
            WatchEvent::Upsert(resource) if resource == last => break,
            WatchEvent::Upsert(resource) => drop(known.insert(name(&resource), resource)),
            other => panic!("{other:?}"),
        }
    }
    let expected = stored.into_iter().map(|resource| (name(&resource), resource)).collect();
    assert_eq!(known, expected);
}

fn name(resource: &Resource) -> String {
    resource.name().to_owned()
}

#[tokio::test]
async fn a_watcher_that_keeps_up_sees_more_than_the_buffer_holds() {
    let backend = MemoryBackend::with_watch_buffer(2);
    let mut watch = backend.watch_list(&artists()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::EndOfSnapshot);
    for i in 0..10 {
        let stored = put(&backend, &format!("artist-{i}")).await;
        assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::Upsert(stored));
    }
}

#[tokio::test]
async fn changes_between_subscribing_and_the_snapshot_come_once() {
    let backend = MemoryBackend::new();
    let reader = backend.shared.topics.subscribe(&artists());
    let stored = put(&backend, "korn").await;
    let (found, index) = backend.shared.moment(&artists());
    let mut watch = StoreWatch::new(artists(), reader, index, stream::iter(found));
    let later = put(&backend, "muse").await;
    for expected in
        [WatchEvent::Upsert(stored), WatchEvent::EndOfSnapshot, WatchEvent::Upsert(later)]
    {
        assert_eq!(watch.next().await.unwrap().unwrap(), expected);
    }
}

#[tokio::test]
async fn a_snapshot_larger_than_a_page_comes_whole_though_most_is_filtered() {
    let backend = MemoryBackend::new();
    for i in 0..300 {
        put(&backend, &format!("artist-{i:03}")).await;
    }
    let mut query = artists().with_name_prefix("artist-29");
    query.tenancy = Tenancy::new("*", "*");
    let watch = backend.watch_list(&query).await.unwrap();
    let events: Vec<_> = watch.take(11).map(Result::unwrap).collect().await;
    assert_eq!(events[10], WatchEvent::EndOfSnapshot);
}

#[tokio::test]
async fn topics_that_nobody_reads_are_thrown_out() {
    let backend = MemoryBackend::new();
    for i in 0..500 {
        let mut query = artists();
        query.tenancy.namespace = format!("ns-{i}");
        drop(backend.watch_list(&query).await.unwrap());
    }
    assert!(backend.shared.topics.len() <= MANY_TOPICS);
}

#[tokio::test]
async fn versions_go_on_after_a_restore() {
    let backend = MemoryBackend::new();
    let stored = put(&backend, "korn").await;
    let snapshot = backend.snapshot().await.unwrap();
    let other = MemoryBackend::new();
    other.restore(snapshot).await.unwrap();
    assert_ne!(put(&other, "muse").await.version, stored.version);
}
