//! Many resources, restores, and limits.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use resource_store::{
    backend::{Backend as _, Consistency, Error, ResourceStream, postgres::PostgresBackend},
    pb::{Any, Resource},
};

use super::world::{closed, id, next, server, thing, things, upserted, watch_after};

const MANY: usize = 700;

fn many() -> Vec<Arc<Resource>> {
    let owned = |number: usize| {
        let mut resource = thing(&format!("thing-{number:04}"));
        resource.owner = Some(id(&format!("owner-{}", number % 2)));
        resource.version = format!("kept-{number}");
        Arc::new(resource)
    };
    (0..MANY).map(owned).collect()
}

fn all_fine(resources: &[Arc<Resource>]) -> ResourceStream {
    stream::iter(resources.to_vec()).map(Ok).boxed()
}

async fn everything(backend: &PostgresBackend) -> Vec<Arc<Resource>> {
    backend.snapshot().await.unwrap().try_collect().await.unwrap()
}

/// More than one statement takes, with versions that are kept; other processes follow.
#[tokio::test]
async fn a_restore_of_many_takes_the_place_of_the_rest() {
    let Some(server) = server("a restore of many takes the place of the rest").await else {
        return;
    };
    let (backend, other) = (server.backend().await, server.backend().await);
    let old = backend.write_cas(thing("old")).await.unwrap();
    let mut watch = watch_after(&other, 1).await;
    let many = many();
    backend.restore(all_fine(&many)).await.unwrap();

    closed(&mut watch).await;
    for backend in [&backend, &other] {
        assert_eq!(everything(backend).await, many);
        assert_eq!(backend.list_by_owner(&id("owner-0")).await.unwrap().len(), MANY / 2);
        let gone = backend.read(Consistency::Eventual, &id("old")).await.unwrap_err();
        assert!(matches!(gone, Error::NotFound), "{gone}");
        let refused = backend.write_cas(next(&old)).await.unwrap_err();
        assert!(matches!(refused, Error::CasFailure), "{refused}");
    }
    let mut watch = watch_after(&other, MANY).await;
    let changed = other.write_cas(next(&many[7])).await.unwrap();
    upserted(&mut watch, &changed).await;
    let refused = backend.write_cas(next(&many[7])).await.unwrap_err();
    assert!(matches!(refused, Error::CasFailure), "{refused}");
}

#[tokio::test]
async fn a_restore_that_is_cut_short_leaves_no_trace() {
    let Some(server) = server("a restore that is cut short leaves no trace").await else { return };
    let backend = server.backend().await;
    let old = backend.write_cas(thing("old")).await.unwrap();
    let mut watch = watch_after(&backend, 1).await;
    let broken = all_fine(&many()).chain(stream::once(async { Err(Error::NotFound) }));
    assert!(matches!(backend.restore(broken.boxed()).await, Err(Error::NotFound)));

    // Dropped when it has written some.
    let (reached, mut stuck) = tokio::sync::mpsc::channel::<()>(1);
    let endless = all_fine(&many()).chain(stream::once(async move {
        reached.send(()).await.unwrap();
        futures::future::pending().await
    }));
    tokio::select! {
        restored = backend.restore(endless.boxed()) => panic!("{restored:?}"),
        _ = stuck.recv() => {}
    }
    assert_eq!(everything(&backend).await, [Arc::clone(&old)]);
    let changed = backend.write_cas(next(&old)).await.unwrap();
    upserted(&mut watch, &changed).await;
    let staged = "SELECT count(*) FROM pg_class WHERE relname = 'resource_store_staged'";
    while server.number(staged).await > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// A snapshot that nobody finishes reading, and changes meanwhile.
#[tokio::test]
async fn long_lists_and_snapshots_come_whole() {
    let Some(server) = server("long lists and snapshots come whole").await else { return };
    let backend = server.backend().await;
    backend.restore(all_fine(&many())).await.unwrap();
    for mode in [Consistency::Eventual, Consistency::Strong] {
        assert_eq!(backend.list(mode, &things()).await.unwrap(), many());
        let some = things().with_name_prefix("thing-01");
        assert_eq!(backend.list(mode, &some).await.unwrap(), many()[100..200]);
    }
    let snapshot = backend.snapshot().await.unwrap();
    let dropped = backend.snapshot().await.unwrap();
    drop(dropped.take(3).try_collect::<Vec<_>>().await.unwrap());
    backend.delete_cas(&id("thing-0699"), "kept-699").await.unwrap();
    assert_eq!(snapshot.try_collect::<Vec<_>>().await.unwrap(), many());
}

/// One that is refused does not take those with it that share its statement.
#[tokio::test]
async fn what_is_too_large_is_refused_in_words() {
    let Some(server) = server("what is too large is refused in words").await else { return };
    let backend = server.backend().await;
    // What cannot be compressed away.
    let name: String = (0..20_000).map(|_| fastrand::alphanumeric()).collect();
    let large = backend.write_cas(thing(&name));
    let fine = (0..20).map(|number| backend.write_cas(thing(&format!("fine-{number}"))));
    let (refused, fine) = futures::join!(large, futures::future::join_all(fine));
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("takes keys"), "{refused}");
    assert!(!refused.is_retryable());
    assert!(fine.into_iter().all(|written| written.is_ok()));
    assert_eq!(everything(&backend).await.len(), 20);

    let data = Any { type_url: "test".to_owned(), value: vec![7; 20 << 20] };
    let large = Resource { data: Some(data), ..thing("large") };
    let stored = backend.write_cas(large).await.unwrap();
    assert_eq!(backend.read(Consistency::Strong, &id("large")).await.unwrap(), stored);
}
