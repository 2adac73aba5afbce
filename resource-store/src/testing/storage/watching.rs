//! Watches.

use std::sync::Arc;

use futures::StreamExt as _;

use super::{Capabilities, PATIENCE, id_of, is, seed, write};
use crate::{
    backend::{Backend, Consistency, Error, Query, Watch, WatchEvent},
    gvk::GroupKind,
    pb::{Resource, Tenancy},
};

async fn next(watch: &mut Watch) -> WatchEvent {
    tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap()
}

fn upserted(event: WatchEvent) -> Arc<Resource> {
    match event {
        WatchEvent::Upsert(resource) => resource,
        other => panic!("no upsert: {other:?}"),
    }
}

/// A watch begins with an upsert for each resource that the query covers, and
/// one end-of-snapshot mark.
///
/// Spec: RSC22, RSC23, RSC24, RSC25, RSC26, RSC27, RSC28
pub async fn watches_begin_with_a_snapshot(backend: Arc<dyn Backend>, capabilities: Capabilities) {
    let stored = seed::store(&backend).await;
    for row in seed::rows() {
        let mut watch = backend.watch_list(&row.query).await.unwrap();
        let mut expected: Vec<_> = row.expected.iter().map(|&i| Arc::clone(&stored[i])).collect();
        while !expected.is_empty() {
            let event = next(&mut watch).await;
            if event == WatchEvent::EndOfSnapshot && !capabilities.complete_snapshots {
                continue;
            }
            let resource = upserted(event);
            let place = expected.iter().position(|e| *e == resource);
            expected.remove(place.unwrap_or_else(|| panic!("unexpected: {resource:?}")));
        }
        if capabilities.complete_snapshots {
            assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot, "{:?}", row.query);
        }
    }
}

/// A watch goes on with every change, and what it told of can be read.
///
/// Spec: RSC22, RSC23, RSC24, RSC25, RSC26, RSC27, RSC28
pub async fn watches_follow_with_every_change(backend: Arc<dyn Backend>, _: Capabilities) {
    for row in seed::rows() {
        let mut watch = backend.watch_list(&row.query).await.unwrap();
        assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
        let stored = seed::store(&backend).await;
        for &index in row.expected {
            let resource = upserted(next(&mut watch).await);
            assert_eq!(resource, stored[index]);
            let read = backend.read(Consistency::Eventual, &id_of(&resource)).await.unwrap();
            assert_eq!(read, resource);
        }
        delete_and_see(&backend, &mut watch, &stored[row.expected[0]]).await;
        drop(watch);
        for kind in [seed::a_v1().group_kind(), seed::b().group_kind()] {
            clear(&backend, kind).await;
        }
    }
}

async fn delete_and_see(backend: &Arc<dyn Backend>, watch: &mut Watch, resource: &Arc<Resource>) {
    let id = id_of(resource);
    backend.delete_cas(&id, &resource.version).await.unwrap();
    assert_eq!(next(watch).await, WatchEvent::Delete(Arc::clone(resource)));
    assert!(is(&backend.read(Consistency::Eventual, &id).await, &Error::NotFound));
}

/// Deletes all that is known of a kind, and waits until a watch saw that.
async fn clear(backend: &Arc<dyn Backend>, kind: GroupKind) {
    let query = Query::new(kind, Tenancy::new("*", "*"));
    let mut watch = backend.watch_list(&query).await.unwrap();
    let mut left = 0;
    let mut complete = false;
    while left > 0 || !complete {
        match next(&mut watch).await {
            WatchEvent::Upsert(resource) => {
                left += 1;
                backend.delete_cas(&id_of(&resource), &resource.version).await.unwrap();
            }
            WatchEvent::Delete(_) => left -= 1,
            WatchEvent::EndOfSnapshot => complete = true,
        }
    }
}

/// A write in another version of the group is a delete of the old one, then an
/// upsert of the new one, for whoever watches one version only.
pub async fn a_change_of_group_version_is_a_delete_and_an_upsert(
    backend: Arc<dyn Backend>,
    _: Capabilities,
) {
    let query = Query::new(seed::a_v1().group_kind(), seed::default_tenancy());
    let mut watch = backend.watch_list(&query).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    let first = write(&backend, seed::resource(seed::a_v1(), seed::default_tenancy(), "x")).await;
    let second = seed::resource(seed::a_v2(), seed::default_tenancy(), "x");
    let second = write(&backend, Resource { version: first.version.clone(), ..second }).await;
    assert_eq!(upserted(next(&mut watch).await), first);
    assert_eq!(next(&mut watch).await, WatchEvent::Delete(first));
    assert_eq!(upserted(next(&mut watch).await), second);
}
