//! Lists, snapshots and restores.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{Capabilities, MODES, id_of, is, read_until, seed, write};
use crate::{
    backend::{Backend, Consistency, Error, Query, WatchEvent},
    pb::Resource,
};

/// A list gives what the query covers, whatever the group version, in the order
/// of partition, namespace and name.
///
/// Spec: RSC22, RSC23, RSC24, RSC25, RSC26, RSC27, RSC28
pub async fn lists_give_what_the_query_covers(
    backend: Arc<dyn Backend>,
    capabilities: Capabilities,
) {
    let stored = seed::store(&backend).await;
    for row in seed::rows() {
        let mut expected: Vec<_> = row.expected.iter().map(|&i| Arc::clone(&stored[i])).collect();
        expected.sort_by_key(|resource| place(resource));
        for mode in MODES {
            if mode == Consistency::Strong && !capabilities.strong_list {
                continue;
            }
            let read = || backend.list(mode, &row.query);
            let complete = |result: &Result<Vec<_>, Error>| result.as_ref().ok() == Some(&expected);
            assert_eq!(
                read_until(mode, read, complete).await.unwrap(),
                expected,
                "{mode}: {:?}",
                row.query
            );
        }
    }
}

fn place(resource: &Resource) -> [String; 4] {
    let id = id_of(resource);
    let kind = resource.resource_type().map(|ty| ty.kind.clone()).unwrap_or_default();
    [kind, id.partition().to_owned(), id.namespace().to_owned(), id.name]
}

/// A snapshot is the state of one moment.
pub async fn snapshots_do_not_show_later_writes(backend: Arc<dyn Backend>, _: Capabilities) {
    let mut expected = seed::store(&backend).await;
    backend.read(Consistency::Strong, &id_of(&expected[5])).await.unwrap();
    let snapshot = backend.snapshot().await.unwrap();
    write(&backend, seed::resource(seed::b(), seed::default_tenancy(), "late")).await;
    let taken: Vec<_> = snapshot.try_collect().await.unwrap();
    expected.sort_by_key(|resource| place(resource));
    assert_eq!(taken, expected);
}

/// A restored store holds what the snapshot held, and nothing else; open
/// watches close.
///
/// Spec: RS65
pub async fn a_restore_replaces_everything_and_closes_watches(
    backend: Arc<dyn Backend>,
    _: Capabilities,
) {
    let old = write(&backend, seed::resource(seed::a_v1(), seed::default_tenancy(), "old")).await;
    backend.read(Consistency::Strong, &id_of(&old)).await.unwrap();
    let snapshot: Vec<_> = backend.snapshot().await.unwrap().collect().await;
    backend.delete_cas(&id_of(&old), &old.version).await.unwrap();
    let new = write(&backend, seed::resource(seed::a_v1(), seed::default_tenancy(), "new")).await;
    let query = Query::new(seed::a_v1().group_kind(), seed::default_tenancy());
    let mut watch = backend.watch_list(&query).await.unwrap();
    while watch.next().await.unwrap().unwrap() != WatchEvent::EndOfSnapshot {}

    backend.restore(stream::iter(snapshot).boxed()).await.unwrap();

    for mode in MODES {
        let id = id_of(&old);
        let read = read_until(mode, || backend.read(mode, &id), Result::is_ok).await.unwrap();
        assert_eq!(read, old, "{mode}");
        let id = id_of(&new);
        let gone = read_until(mode, || backend.read(mode, &id), |r| is(r, &Error::NotFound)).await;
        assert!(is(&gone, &Error::NotFound), "{mode}");
    }
    assert!(is(&watch.next().await.unwrap(), &Error::WatchClosed));
    assert!(watch.next().await.is_none());
}

/// A restore whose source breaks off leaves the store, and its watches, alone.
pub async fn a_failed_restore_changes_nothing(backend: Arc<dyn Backend>, _: Capabilities) {
    let stored =
        write(&backend, seed::resource(seed::a_v1(), seed::default_tenancy(), "kept")).await;
    let other = Arc::new(seed::resource(seed::a_v1(), seed::default_tenancy(), "other"));
    let broken =
        stream::iter([Ok(Arc::clone(&other)), Err(Error::Inconsistent { reason: String::new() })]);
    assert!(backend.restore(broken.boxed()).await.is_err());
    assert_eq!(backend.read(Consistency::Strong, &id_of(&stored)).await.unwrap(), stored);
    assert!(is(&backend.read(Consistency::Strong, &id_of(&other)).await, &Error::NotFound));
}

/// A version that was given before a restore, or came with it, is never given
/// again, so that an old one is refused and not taken for a new one.
pub async fn versions_after_a_restore_are_new(backend: Arc<dyn Backend>, _: Capabilities) {
    let named = |name| seed::resource(seed::a_v1(), seed::default_tenancy(), name);
    let before = write(&backend, named("before")).await;
    let brought = Resource { version: "1000000".to_owned(), ..named("web") };
    backend.restore(stream::iter([Ok(Arc::new(brought.clone()))]).boxed()).await.unwrap();
    let id = brought.id.clone().unwrap();
    let restored = backend.read(Consistency::Strong, &id).await.unwrap();
    let mut known = vec![before.version.clone(), brought.version, restored.version.clone()];

    for name in ["web-1", "web-2"] {
        let later = write(&backend, named(name)).await;
        assert!(!known.contains(&later.version), "{} was given before: {known:?}", later.version);
        known.push(later.version.clone());
    }
    let changed = write(&backend, Resource::clone(&restored)).await;
    assert!(!known.contains(&changed.version), "{} was given before: {known:?}", changed.version);
    for old in known {
        let stale = Resource { version: old, ..Resource::clone(&changed) };
        let refused = backend.write_cas(stale.clone()).await;
        assert!(is(&refused, &Error::CasFailure), "{}: {refused:?}", stale.version);
    }
    let gone = backend.write_cas(Resource::clone(&before)).await;
    assert!(is(&gone, &Error::CasFailure), "{gone:?}");
}
