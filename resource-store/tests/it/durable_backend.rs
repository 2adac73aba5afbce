//! The durable backend passes the conformance suite, and what it promises
//! beyond: restarts, policies, one process at a time.

use std::{path::Path, sync::Arc, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _};
use resource_store::{
    backend::{
        Backend, Consistency, Error, Query, WatchEvent,
        durable::{DurableBackend, DurableOptions, SyncPolicy},
    },
    demo,
    pb::{Id, Resource, Tenancy, Type},
};
use tempfile::TempDir;

use crate::support::{artist, id};

mod damage;
mod model;

pub(crate) fn options(sync: SyncPolicy) -> DurableOptions {
    let mut options = DurableOptions::default();
    options.sync = sync;
    options
}

pub(crate) async fn open(folder: &TempDir) -> DurableBackend {
    open_file(&folder.path().join("resources.redb"), SyncPolicy::EveryCommit).await.unwrap()
}

async fn open_file(file: &Path, sync: SyncPolicy) -> Result<DurableBackend, Error> {
    DurableBackend::open(file, options(sync)).await
}

async fn fixture_with(sync: SyncPolicy) -> (Arc<dyn Backend>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resources.redb");
    (Arc::new(open_file(&file, sync).await.unwrap()), folder)
}

async fn fixture() -> (Arc<dyn Backend>, TempDir) {
    fixture_with(SyncPolicy::EveryCommit).await
}

resource_store::storage_conformance!(fixture());

mod synced_later {
    use super::*;

    resource_store::storage_conformance!(fixture_with(SyncPolicy::Within(Duration::from_millis(
        20
    ))));
}

mod never_synced {
    use super::*;

    resource_store::storage_conformance!(fixture_with(SyncPolicy::Never));
}

fn all() -> Query {
    Query::new(id(&artist("x")).r#type.unwrap().group_kind(), Tenancy::new("*", "*"))
}

async fn contents(backend: &dyn Backend) -> Vec<Arc<Resource>> {
    backend.snapshot().await.unwrap().try_collect().await.unwrap()
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    for sync in
        [SyncPolicy::EveryCommit, SyncPolicy::Within(Duration::from_mins(1)), SyncPolicy::Never]
    {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resources.redb");
        let store = open_file(&file, sync).await.unwrap();
        let owner = store.write_cas(artist("korn")).await.unwrap();
        let child = Resource { owner: owner.id.clone(), ..artist("child") };
        let child = store.write_cas(child).await.unwrap();
        let gone = store.write_cas(artist("gone")).await.unwrap();
        store.delete_cas(&id(&gone), &gone.version).await.unwrap();
        store.close().await.unwrap();

        let store = open_file(&file, sync).await.unwrap();
        assert_eq!(contents(&store).await, [Arc::clone(&child), Arc::clone(&owner)]);
        assert_eq!(store.list_by_owner(&id(&owner)).await.unwrap(), [child]);
        assert_eq!(store.len().unwrap(), 2);
    }
}

/// A version that a crash took back is not given to other content.
#[tokio::test]
async fn versions_are_not_given_twice_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resources.redb");
    let later = SyncPolicy::Within(Duration::from_hours(1));
    let store = open_file(&file, later).await.unwrap();
    store.write_cas(artist("first")).await.unwrap();
    let lost = store.write_cas(artist("korn")).await.unwrap();
    // What the disk has at this moment is what a crash would leave.
    let left = folder.path().join("left.redb");
    std::fs::copy(&file, &left).unwrap();

    let store = open_file(&left, later).await.unwrap();
    let read = store.read(Consistency::Strong, &id(&lost)).await;
    assert!(matches!(read, Err(Error::NotFound)), "the policy lets it be lost: {read:?}");
    for _ in 0..3 {
        let other = store.write_cas(artist(&format!("other-{}", fastrand::u64(..)))).await.unwrap();
        assert!(
            other.version.parse::<u64>().unwrap() > lost.version.parse::<u64>().unwrap(),
            "{} came after {}",
            other.version,
            lost.version
        );
    }
}

#[tokio::test]
async fn a_change_is_on_the_disk_within_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resources.redb");
    let store = open_file(&file, SyncPolicy::Within(Duration::from_millis(5))).await.unwrap();
    let stored = store.write_cas(artist("korn")).await.unwrap();
    let left = folder.path().join("left.redb");
    loop {
        // A copy made amid a sync may be of no use; the next one is.
        std::fs::copy(&file, &left).unwrap();
        if let Ok(copy) = open_file(&left, SyncPolicy::EveryCommit).await {
            let read = copy.read(Consistency::Strong, &id(&stored)).await;
            copy.close().await.unwrap();
            if let Ok(read) = read {
                assert_eq!(read, stored);
                break;
            }
        }
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_second_opening_is_refused_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let file = folder.path().join("resources.redb");
    let again = open_file(&file, SyncPolicy::EveryCommit).await.unwrap_err().to_string();
    assert_eq!(
        again,
        format!(
            "open failed: {} is in use by another process, and only one may have it open",
            file.display()
        )
    );
    store.close().await.unwrap();
    open(&folder).await;
}

#[tokio::test]
async fn a_closed_store_refuses_and_its_watches_end() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let stored = store.write_cas(artist("korn")).await.unwrap();
    let mut watch = store.watch_list(&all()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::Upsert(Arc::clone(&stored)));
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::EndOfSnapshot);
    store.close().await.unwrap();
    assert!(matches!(watch.next().await, Some(Err(Error::WatchClosed))));
    let refused = store.write_cas(artist("muse")).await.unwrap_err().to_string();
    assert!(refused.ends_with("resources.redb was closed"), "{refused}");
    assert!(store.read(Consistency::Strong, &id(&stored)).await.is_err());
    assert!(store.close().await.is_err());
}

/// The last handle lets go of the file, without being told to close it.
#[tokio::test]
async fn a_dropped_store_can_be_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let mut watch = store.watch_list(&all()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::EndOfSnapshot);
    let stored = store.write_cas(artist("korn")).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::Upsert(Arc::clone(&stored)));
    drop(store);
    // The watch ends after the file is closed.
    assert!(matches!(watch.next().await, Some(Err(Error::WatchClosed))));
    assert_eq!(contents(&open(&folder).await).await, [stored]);
}

#[tokio::test]
async fn a_restore_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let stored = store.write_cas(artist("korn")).await.unwrap();
    let mut watch = store.watch_list(&all()).await.unwrap();
    let broken = (0..2000).map(|i| Ok(Arc::new(artist(&format!("artist-{i}")))));
    let broken = broken.chain([Err(Error::WatchClosed)]);
    store.restore(futures::stream::iter(broken).boxed()).await.unwrap_err();

    // One that is given up midway.
    let endless = futures::stream::iter((0..).map(|i| Ok(Arc::new(artist(&format!("a-{i}"))))));
    let endless = endless.take(3000).chain(futures::stream::pending()).boxed();
    let given_up = tokio::time::timeout(Duration::from_millis(50), store.restore(endless)).await;
    assert!(given_up.is_err());

    assert_eq!(contents(&store).await, [Arc::clone(&stored)]);
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::Upsert(Arc::clone(&stored)));
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::EndOfSnapshot);
    let later = store.write_cas(artist("muse")).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::Upsert(later));

    // What the failed ones had brought does not come with the next.
    let only = Arc::new(Resource { version: "77".to_owned(), ..artist("only") });
    let stream = futures::stream::iter([Ok(Arc::clone(&only))]).boxed();
    store.restore(stream).await.unwrap();
    assert_eq!(contents(&store).await, [Arc::clone(&only)]);
    assert!(matches!(watch.next().await, Some(Err(Error::WatchClosed))));
    store.close().await.unwrap();
    assert_eq!(contents(&open(&folder).await).await, [only]);
}

#[tokio::test]
async fn versions_go_on_after_a_restore_and_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let high = Arc::new(Resource { version: "5000000000".to_owned(), ..artist("korn") });
    store.restore(futures::stream::iter([Ok(high)]).boxed()).await.unwrap();
    let number = |resource: &Resource| resource.version.parse::<u64>().unwrap();
    let first = store.write_cas(artist("first")).await.unwrap();
    assert!(number(&first) > 5_000_000_000);
    store.close().await.unwrap();
    let second = open(&folder).await.write_cas(artist("second")).await.unwrap();
    assert!(number(&second) > number(&first));
}

/// A snapshot and a watch over more than a page, with the owner index.
#[tokio::test]
async fn many_resources_come_whole_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let owner = id(&artist("owner")).with_uid("u");
    let many = (0..1000).map(|i| {
        let name = format!("artist-{i:04}");
        let owner = (i % 2 == 0).then(|| owner.clone());
        Ok(Arc::new(Resource { owner, version: format!("{i}"), ..artist(&name) }))
    });
    let many: Vec<_> = many.collect();
    store.restore(futures::stream::iter(many).boxed()).await.unwrap();
    let listed = store.list(Consistency::Strong, &all()).await.unwrap();
    assert_eq!(listed.len(), 1000);
    assert!(listed.is_sorted_by_key(|resource| resource.name().to_owned()));
    assert_eq!(contents(&store).await, listed);
    assert_eq!(store.list_by_owner(&owner).await.unwrap().len(), 500);
    let watch = store.watch_list(&all().with_name_prefix("artist-09")).await.unwrap();
    let seen: Vec<_> = watch.take(101).map(Result::unwrap).collect().await;
    assert_eq!(seen.last(), Some(&WatchEvent::EndOfSnapshot));
}

#[tokio::test]
async fn what_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no").join("resources.redb");
    let text = open_file(&missing, SyncPolicy::EveryCommit).await.unwrap_err().to_string();
    assert!(text.starts_with(&format!("open failed: {}: it cannot be made", missing.display())));
    let text = open_file(folder.path(), SyncPolicy::EveryCommit).await.unwrap_err().to_string();
    assert!(text.starts_with(&format!("open failed: {}: ", folder.path().display())), "{text}");
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_is_for_its_owner_only_and_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let _store = open(&folder).await;
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_resource_without_an_id_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let (refused, stored) =
        tokio::join!(store.write_cas(Resource::default()), store.write_cas(artist("korn")));
    assert_eq!(refused.unwrap_err().to_string(), "write failed: resource has no id");
    assert_eq!(contents(&store).await, [stored.unwrap()]);
}

/// Some id of no demo type.
fn other_id(name: &str) -> Id {
    Id::new(Type::new("test", "v1", "Other"), demo::default_tenancy(), name)
}
