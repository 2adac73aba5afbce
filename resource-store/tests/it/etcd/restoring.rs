//! Many resources, restores, and limits.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use resource_store::{
    backend::{Backend as _, Consistency, Error, etcd::EtcdBackend},
    pb::{Any, Resource},
};

use super::world::{World, closed, id, next, on_both, thing, things, upserted, watch_after};

on_both! {
    a_restore_of_many_takes_the_place_of_the_rest
    a_restore_that_is_cut_short_leaves_no_trace
    the_newest_of_two_restores_wins
    long_lists_come_whole
    what_is_too_large_is_refused_in_words
}

const MANY: usize = 400;

fn many() -> Vec<Arc<Resource>> {
    let owned = |number: usize| {
        let mut resource = thing(&format!("thing-{number:04}"));
        resource.owner = Some(id(&format!("owner-{}", number % 2)));
        resource.version = format!("kept-{number}");
        Arc::new(resource)
    };
    (0..MANY).map(owned).collect()
}

fn all_fine(resources: &[Arc<Resource>]) -> resource_store::backend::ResourceStream {
    stream::iter(resources.to_vec()).map(Ok).boxed()
}

async fn everything(backend: &EtcdBackend) -> Vec<Arc<Resource>> {
    backend.snapshot().await.unwrap().try_collect().await.unwrap()
}

/// More than one transaction of etcd takes, with versions that are kept; other
/// processes follow.
async fn a_restore_of_many_takes_the_place_of_the_rest(world: World) {
    let (backend, other) = (world.backend().await, world.backend().await);
    let old = backend.write_cas(thing("old")).await.unwrap();
    let mut watch = watch_after(&other, 1).await;

    let many = many();
    backend.restore(all_fine(&many)).await.unwrap();

    closed(&mut watch).await;
    for backend in [&backend, &other] {
        assert_eq!(everything(backend).await, many);
        let owned = backend.list_by_owner(&id("owner-0")).await.unwrap();
        assert_eq!(owned.len(), MANY / 2);
        let gone = backend.read(Consistency::Eventual, &id("old")).await.unwrap_err();
        assert!(matches!(gone, Error::NotFound), "{gone}");
        let refused = backend.write_cas(next(&old)).await.unwrap_err();
        assert!(matches!(refused, Error::CasFailure), "{refused}");
    }
    let mut watch = watch_after(&other, MANY).await;
    let changed = other.write_cas(next(&many[7])).await.unwrap();
    assert_ne!(changed.version, many[7].version);
    upserted(&mut watch, &changed).await;
    let refused = backend.write_cas(next(&many[7])).await.unwrap_err();
    assert!(matches!(refused, Error::CasFailure), "{refused}");
    // Each resource, its entry by owner, and the name of the generation.
    assert_eq!(world.count().await, 2 * MANY + 1);
}

async fn a_restore_that_is_cut_short_leaves_no_trace(world: World) {
    let backend = world.backend().await;
    let old = backend.write_cas(thing("old")).await.unwrap();
    let before = world.count().await;
    let mut watch = watch_after(&backend, 1).await;

    let broken = all_fine(&many()).chain(stream::once(async { Err(Error::NotFound) }));
    assert!(matches!(backend.restore(broken.boxed()).await, Err(Error::NotFound)));
    assert_eq!(world.count().await, before, "it cleaned up");

    // Dropped when it has written some: it cannot clean up.
    let (reached, mut stuck) = tokio::sync::mpsc::channel::<()>(1);
    let endless = all_fine(&many()).chain(stream::once(async move {
        reached.send(()).await.unwrap();
        futures::future::pending().await
    }));
    tokio::select! {
        restored = backend.restore(endless.boxed()) => panic!("{restored:?}"),
        _ = stuck.recv() => {}
    }
    assert!(world.count().await > before);
    assert_eq!(everything(&backend).await, [Arc::clone(&old)]);
    let changed = backend.write_cas(next(&old)).await.unwrap();
    upserted(&mut watch, &changed).await;

    backend.restore(all_fine(&many()[..1])).await.unwrap();
    assert_eq!(world.count().await, 3, "the next one cleaned up");
}

async fn the_newest_of_two_restores_wins(world: World) {
    let (backend, other) = (world.backend().await, world.backend().await);
    let (reached, mut waits) = tokio::sync::mpsc::channel::<()>(1);
    let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
    let first = all_fine(&many()).chain(stream::once(async move {
        reached.send(()).await.unwrap();
        may_go_on.await.unwrap();
        Ok(Arc::new(thing("last")))
    }));
    let first = tokio::spawn(async move { other.restore(first.boxed()).await });
    waits.recv().await.unwrap();
    let second = vec![Arc::new(Resource { version: "1".to_owned(), ..thing("second") })];
    backend.restore(all_fine(&second)).await.unwrap();
    go_on.send(()).unwrap();
    let lost = first.await.unwrap().unwrap_err();
    assert!(lost.to_string().contains("another restore"), "{lost}");
    assert_eq!(everything(&backend).await, second);
}

/// Longer than a page.
async fn long_lists_come_whole(world: World) {
    let backend = world.backend().await;
    backend.restore(all_fine(&many())).await.unwrap();
    for mode in [Consistency::Eventual, Consistency::Strong] {
        assert_eq!(backend.list(mode, &things()).await.unwrap(), many());
        let some = things().with_name_prefix("thing-01");
        assert_eq!(backend.list(mode, &some).await.unwrap(), many()[100..200]);
    }
    let snapshot = backend.snapshot().await.unwrap();
    backend.delete_cas(&id("thing-0399"), "kept-399").await.unwrap();
    assert_eq!(snapshot.try_collect::<Vec<_>>().await.unwrap(), many());
}

async fn what_is_too_large_is_refused_in_words(world: World) {
    let backend = world.backend().await;
    for bytes in [1_600_000, 3_000_000] {
        let data = Any { type_url: "test".to_owned(), value: vec![0; bytes] };
        let large = Arc::new(Resource { data: Some(data), ..thing("large") });
        let refused = backend.write_cas(Resource::clone(&large)).await.unwrap_err();
        assert!(refused.to_string().contains("--max-request-bytes"), "{refused}");
        assert!(!refused.is_retryable());
        let refused = backend.restore(all_fine(&[large])).await.unwrap_err();
        assert!(refused.to_string().contains("--max-request-bytes"), "{refused}");
    }
    assert!(everything(&backend).await.is_empty());
    assert_eq!(world.count().await, 1);
}
