//! The memory backend passes the conformance suite, bare and behind pointers, and
//! its watches hold a bounded number of resources.

use std::{
    collections::BTreeMap,
    future::{Ready, ready},
    sync::{Arc, Weak},
};

use futures::{FutureExt as _, StreamExt as _};
use resource_store::{
    ResourceData as _,
    backend::{Backend, Consistency, Error, Query, Watch, WatchEvent, memory::MemoryBackend},
    demo::v2,
    pb,
};

use crate::support::*;

fn fixture() -> Ready<(Arc<dyn Backend>, ())> {
    ready((Arc::new(MemoryBackend::new()), ()))
}

resource_store::storage_conformance!(fixture());

mod boxed {
    use super::*;

    fn fixture() -> Ready<(Arc<dyn Backend>, ())> {
        ready((Arc::new(Box::new(MemoryBackend::new())), ()))
    }

    resource_store::storage_conformance!(fixture());
}

fn artists() -> Query {
    Query::new(v2::Artist::resource_type().group_kind(), default_tenancy())
}

async fn put(backend: &MemoryBackend, name: &str, bytes: usize) -> Arc<pb::Resource> {
    let mut resource = artist(name);
    resource.metadata.insert("large".to_owned(), "x".repeat(bytes));
    if let Ok(stored) = backend.read(Consistency::Strong, &id(&resource)).await {
        resource.version.clone_from(&stored.version);
    }
    backend.write_cas(resource).await.unwrap()
}

async fn remove(backend: &MemoryBackend, name: &str) {
    if let Ok(stored) = backend.read(Consistency::Strong, &id(&artist(name))).await {
        backend.delete_cas(&id(&stored), &stored.version).await.unwrap();
    }
}

type State = BTreeMap<String, Arc<pb::Resource>>;

fn apply(state: &mut State, event: WatchEvent) {
    match event {
        WatchEvent::Upsert(resource) => {
            state.insert(resource.name().to_owned(), resource);
        }
        WatchEvent::Delete(resource) => {
            assert!(state.remove(resource.name()).is_some(), "a delete of what was told");
        }
        WatchEvent::EndOfSnapshot => {}
    }
}

async fn listed(backend: &MemoryBackend) -> State {
    let found = backend.list(Consistency::Strong, &artists()).await.unwrap();
    found.into_iter().map(|resource| (resource.name().to_owned(), resource)).collect()
}

/// While a watcher takes one resource of a large snapshot, several change, and
/// so for many more changes than are kept for watchers.
#[tokio::test]
async fn a_large_busy_watch_catches_up() {
    let backend = MemoryBackend::with_watch_buffer(16);
    for i in 0..500 {
        put(&backend, &format!("artist-{i}"), 0).await;
    }
    let mut rng = fastrand::Rng::with_seed(4);
    let mut watch = backend.watch_list(&artists()).await.unwrap();
    let mut state = State::new();
    loop {
        for _ in 0..5 {
            let name = format!("artist-{}", rng.u32(0..700));
            if rng.u8(0..3) == 0 {
                remove(&backend, &name).await;
            } else {
                put(&backend, &name, 0).await;
            }
        }
        let event = watch.next().await.unwrap().unwrap();
        let end = event == WatchEvent::EndOfSnapshot;
        apply(&mut state, event);
        if end {
            break;
        }
    }
    while let Some(Some(event)) = watch.next().now_or_never() {
        apply(&mut state, event.unwrap());
    }
    assert_eq!(state, listed(&backend).await);
    // From here on, it is told of every change again.
    for _ in 0..3 {
        let stored = put(&backend, "artist-0", 0).await;
        assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::Upsert(stored));
    }
}

fn alive(resources: &[Weak<pb::Resource>]) -> usize {
    resources.iter().filter(|resource| resource.strong_count() > 0).count()
}

async fn after_snapshot(backend: &MemoryBackend) -> Watch {
    let mut watch = backend.watch_list(&artists()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::EndOfSnapshot);
    watch
}

/// What every watcher was told of, and what nobody watches any more, is not
/// kept for them.
#[tokio::test]
async fn replaced_resources_are_given_back() {
    let backend = MemoryBackend::new();
    let mut watch = after_snapshot(&backend).await;
    let mut stored = Vec::new();
    for _ in 0..1000 {
        stored.push(Arc::downgrade(&put(&backend, "korn", 1000).await));
        assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Upsert(_)))));
    }
    assert!(alive(&stored) <= 130, "{} of 1000 are kept", alive(&stored));
    drop(watch);
    assert_eq!(alive(&stored), 1, "the one that is stored");
    for _ in 0..100 {
        stored.push(Arc::downgrade(&put(&backend, "korn", 1000).await));
    }
    assert_eq!(alive(&stored), 1, "nobody watches");
}

/// A watcher that stands still holds large resources up to a number of bytes,
/// then starts anew.
#[tokio::test]
async fn a_watcher_that_stands_still_holds_a_bounded_number_of_bytes() {
    const MIB: usize = 1 << 20;
    let backend = MemoryBackend::new();
    let mut watch = after_snapshot(&backend).await;
    let mut stored = Vec::new();
    for _ in 0..200 {
        stored.push(Arc::downgrade(&put(&backend, "korn", MIB).await));
    }
    assert!(alive(&stored) <= 65, "{} MiB are kept", alive(&stored));
    assert!(matches!(watch.next().await, Some(Err(Error::WatchClosed))));
}
