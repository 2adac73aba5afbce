//! Moving resources between backends.

use std::{io, sync::Arc};

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use resource_store::{
    backend::{Backend, Consistency, Error as BackendError, memory::MemoryBackend},
    pb,
    transfer::{self, Error},
};

use crate::support::{Calls as _, artist, builder_over, id, status_of};

async fn exported(backend: &dyn Backend) -> Vec<u8> {
    let chunks = transfer::export(backend.snapshot().await.unwrap());
    chunks.try_collect::<Vec<_>>().await.unwrap().concat()
}

/// The bytes in pieces of a size.
fn pieces(bytes: &[u8], size: usize) -> impl Stream<Item = io::Result<Vec<u8>>> + use<> {
    let pieces: Vec<_> = bytes.chunks(size).map(|piece| Ok(piece.to_vec())).collect();
    stream::iter(pieces)
}

async fn imported(backend: &dyn Backend, bytes: &[u8]) -> Result<transfer::Summary, Error> {
    transfer::import(backend, || pieces(bytes, 1000)).await
}

async fn contents(backend: &dyn Backend) -> Vec<Arc<pb::Resource>> {
    backend.snapshot().await.unwrap().try_collect().await.unwrap()
}

/// An owner with a status, finalizers and a child.
async fn source() -> MemoryBackend {
    let backend = MemoryBackend::new();
    let service = builder_over(Arc::new(backend.clone())).build();
    let mut owner = artist("korn");
    owner.metadata.insert("finalizers".to_owned(), "f1 f2".to_owned());
    let owner = service.put(owner).await.unwrap();
    service.set_status(&id(&owner), "", "consul.io/x", status_of(&owner)).await.unwrap();
    let child = pb::Resource { owner: owner.id.clone(), ..artist("child") };
    service.put(child).await.unwrap();
    backend
}

fn without_versions(resources: &[Arc<pb::Resource>]) -> Vec<pb::Resource> {
    let plain = |resource: &Arc<pb::Resource>| pb::Resource {
        version: String::new(),
        ..pb::Resource::clone(resource)
    };
    resources.iter().map(plain).collect()
}

#[tokio::test]
async fn everything_but_the_version_survives() {
    let old = source().await;
    let new = MemoryBackend::new();
    let summary = imported(&new, &exported(&old).await).await.unwrap();
    assert_eq!(summary.resources, 2);
    let (before, after) = (contents(&old).await, contents(&new).await);
    assert!(before.iter().any(|resource| !resource.status.is_empty()));
    assert!(before.iter().any(|resource| resource.owner.is_some()));
    assert_eq!(without_versions(&before), without_versions(&after));
    let owner = after.iter().find(|resource| resource.name() == "korn").unwrap();
    assert_eq!(new.list_by_owner(&id(owner)).await.unwrap().len(), 1);
}

/// No version that either store ever gave is one that is given after an import.
#[tokio::test]
async fn versions_of_before_are_refused() {
    let (old, new) = (MemoryBackend::new(), MemoryBackend::new());
    let mut given = Vec::new();
    for store in [&old, &new] {
        for _ in 0..300 {
            let stored = store.read(Consistency::Strong, &id(&artist("korn"))).await;
            let version = stored.map(|stored| stored.version.clone()).unwrap_or_default();
            let write = pb::Resource { version, ..artist("korn") };
            given.push(store.write_cas(write).await.unwrap().version.clone());
        }
        // Its number is lost to the snapshot.
        let gone = store.write_cas(artist("gone")).await.unwrap();
        store.delete_cas(&id(&gone), &gone.version).await.unwrap();
        given.push(gone.version.clone());
    }
    imported(&new, &exported(&old).await).await.unwrap();
    for _ in 0..20 {
        let stored = new.read(Consistency::Strong, &id(&artist("korn"))).await.unwrap();
        for old in &given {
            let old = pb::Resource { version: old.clone(), ..pb::Resource::clone(&stored) };
            assert!(matches!(new.write_cas(old).await, Err(BackendError::CasFailure)));
        }
        given.push(stored.version.clone());
        new.write_cas(pb::Resource::clone(&stored)).await.unwrap();
    }
    let anew = new.write_cas(artist("gone")).await.unwrap();
    assert!(!given.contains(&anew.version));
}

#[tokio::test]
async fn it_may_be_cut_anywhere() {
    let old = source().await;
    let bytes = exported(&old).await;
    for size in [1, 2, 7, 8, 9, 64, bytes.len()] {
        let summary = transfer::check(pieces(&bytes, size)).await.unwrap();
        assert_eq!(summary.resources, 2, "pieces of {size}");
    }
    let empty = exported(&MemoryBackend::new()).await;
    assert_eq!(imported(&old, &empty).await.unwrap().resources, 0);
    assert!(contents(&old).await.is_empty());
}

/// Whatever is wrong with a stream, the backend stays as it was.
#[tokio::test]
async fn a_bad_stream_is_refused_and_changes_nothing() {
    let bytes = exported(&source().await).await;
    let target = MemoryBackend::new();
    let kept = target.write_cas(artist("kept")).await.unwrap();
    let mut watch = target.watch_list(&query(&kept)).await.unwrap();
    assert!(watch.next().await.unwrap().is_ok());

    for length in 0..bytes.len() {
        let error = imported(&target, &bytes[..length]).await.unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{length} bytes: {error}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        imported(&target, &flipped).await.unwrap_err();
    }
    let longer = [bytes.as_slice(), b"!"].concat();
    let text = imported(&target, &longer).await.unwrap_err().to_string();
    assert!(text.contains("something follows its end"), "{text}");

    assert_eq!(contents(&target).await, [kept]);
    target.write_cas(artist("later")).await.unwrap();
    // The watch was not closed.
    assert!(watch.next().await.unwrap().is_ok());
}

fn query(resource: &pb::Resource) -> resource_store::backend::Query {
    let kind = resource.resource_type().unwrap().group_kind();
    resource_store::backend::Query::new(kind, pb::Tenancy::new("*", "*"))
}

#[tokio::test]
async fn bad_streams_are_told_apart() {
    let bytes = exported(&source().await).await;
    let said =
        async |bytes: &[u8]| transfer::check(pieces(bytes, 10)).await.unwrap_err().to_string();
    assert_eq!(
        said(b"{\"id\": {}}").await,
        "this is no export of resources: it does not begin with RESOURCE"
    );
    let mut later = bytes.clone();
    later[8] = 2;
    assert_eq!(said(&later).await, "this export has format 2, and only format 1 is known here");
    assert_eq!(
        said(&bytes[..20]).await,
        "the export ends at byte 20, after 0 resources, before it is complete"
    );
    let mut flipped = bytes.clone();
    flipped[30] ^= 1;
    let text = said(&flipped).await;
    let start = "the export is damaged at byte 9, after 0 resources: its checksum is ";
    assert!(text.starts_with(start), "{text}");
}

/// Frames of sound exports, put together anew.
#[tokio::test]
async fn frames_that_are_lost_moved_or_added_are_found() {
    let store = MemoryBackend::new();
    for name in ["a", "b", "c"] {
        store.write_cas(artist(name)).await.unwrap();
    }
    let chunks: Vec<Vec<u8>> =
        transfer::export(store.snapshot().await.unwrap()).try_collect().await.unwrap();
    let [head_a, b, c, end] = chunks.as_slice() else { panic!("{} chunks", chunks.len()) };
    for wrong in [vec![head_a, c, end], vec![head_a, c, b, end], vec![head_a, b, b, c, end]] {
        let wrong: Vec<_> = wrong.into_iter().cloned().map(Ok).collect();
        let error = transfer::check(stream::iter(wrong)).await.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_version_without_room_above_it_is_refused() {
    let store = MemoryBackend::new();
    let high = pb::Resource { version: (u64::MAX - 10).to_string(), ..artist("korn") };
    store.restore(stream::iter([Ok(Arc::new(high))]).boxed()).await.unwrap();
    let error = imported(&MemoryBackend::new(), &exported(&store).await).await.unwrap_err();
    assert!(matches!(error, Error::VersionTooHigh { .. }), "{error}");
}

#[tokio::test]
async fn what_changes_between_the_readings_is_refused() {
    let (full, empty) = (exported(&source().await).await, exported(&MemoryBackend::new()).await);
    let target = MemoryBackend::new();
    let kept = target.write_cas(artist("kept")).await.unwrap();
    let mut readings = [full, empty].into_iter();
    let error = transfer::import(&target, || pieces(&readings.next().unwrap(), 100)).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "import failed: the export changed while it was read"
    );
    assert_eq!(contents(&target).await, [kept]);
}

#[cfg(feature = "durable")]
#[tokio::test]
async fn from_memory_to_a_file_and_back() {
    let memory = source().await;
    let folder = tempfile::tempdir().unwrap();
    let file = crate::durable_backend::open(&folder).await;
    imported(&file, &exported(&memory).await).await.unwrap();
    assert_eq!(
        without_versions(&contents(&file).await),
        without_versions(&contents(&memory).await)
    );
    let back = MemoryBackend::new();
    imported(&back, &exported(&file).await).await.unwrap();
    assert_eq!(
        without_versions(&contents(&back).await),
        without_versions(&contents(&memory).await)
    );
}
