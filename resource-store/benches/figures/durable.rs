//! The durable backend: writes by how they are synced, reads, and restarts of
//! a store of 1 GB.

use std::{path::Path, sync::Arc, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use resource_store::{
    ResourceData as _,
    backend::{
        Backend, Consistency, Query,
        durable::{DurableBackend, DurableOptions, SyncPolicy},
    },
    demo::{self, v2::Artist},
    pb,
};
use tokio::{task::JoinSet, time::Instant};

use super::{artist, name, percentiles, print, rate, resident_bytes};

pub(crate) async fn figures() {
    let folder = tempfile::tempdir().unwrap();
    let policies = [
        ("each commit synced", SyncPolicy::EveryCommit),
        ("synced within 50 ms", SyncPolicy::Within(Duration::from_millis(50))),
        ("never synced", SyncPolicy::Never),
    ];
    for (what, sync) in policies {
        for writers in [1, 8, 64, 256] {
            let file = folder.path().join("writes.redb");
            let store = open(&file, sync, true).await;
            let (took, times) = writes(&store, writers).await;
            let count = times.len();
            let figure = format!("{}, {}", rate(count, took), percentiles(times));
            print(&format!("durable write, {what}, {writers} writers"), &figure);
            store.close().await.unwrap();
            std::fs::remove_file(&file).unwrap();
        }
    }
    reads(&folder.path().join("reads.redb")).await;
    restarts(folder.path()).await;
}

async fn open(file: &Path, sync: SyncPolicy, check: bool) -> DurableBackend {
    let mut options = DurableOptions::default();
    options.sync = sync;
    options.check_on_open = check;
    DurableBackend::open(file, options).await.unwrap()
}

/// Writers that change a resource of their own for some seconds.
async fn writes(store: &DurableBackend, writers: usize) -> (Duration, Vec<Duration>) {
    let started = Instant::now();
    let mut set = JoinSet::new();
    for writer in 0..writers {
        let store = store.clone();
        set.spawn(async move {
            let mut times = Vec::new();
            let mut stored = store.write_cas(artist(writer)).await.unwrap();
            while started.elapsed() < Duration::from_secs(2) {
                let began = Instant::now();
                stored = store.write_cas(pb::Resource::clone(&stored)).await.unwrap();
                times.push(began.elapsed());
            }
            times
        });
    }
    let times = set.join_all().await.concat();
    (started.elapsed(), times)
}

async fn restored(file: &Path, count: usize, bytes: usize) -> DurableBackend {
    let store = open(file, SyncPolicy::EveryCommit, true).await;
    let owner = demo::artist(&name(0)).encode().id.unwrap().with_uid("u");
    let resources = (0..count).map(move |i| {
        let metadata = [("content".to_owned(), "x".repeat(bytes))].into();
        let owner = (i % 10 == 1).then(|| owner.clone());
        let version = (i + 1).to_string();
        Ok(Arc::new(pb::Resource { metadata, owner, version, ..artist(i) }))
    });
    store.restore(stream::iter(resources).boxed()).await.unwrap();
    store
}

async fn reads(file: &Path) {
    const COUNT: usize = 100_000;
    let store = restored(file, COUNT, 0).await;
    for tasks in [1, 2, 4, 8] {
        let total = 200_000;
        let started = Instant::now();
        let mut set = JoinSet::new();
        for task in 0..tasks {
            let store = store.clone();
            set.spawn(async move {
                let mut id = demo::artist("x").encode().id.unwrap();
                for i in 0..total / tasks {
                    id.name = name((task * 7919 + i * 31) % COUNT);
                    store.read(Consistency::Strong, &id).await.unwrap();
                }
            });
        }
        set.join_all().await;
        print(&format!("durable read, {tasks} tasks"), &rate(total, started.elapsed()));
    }
    let query = Query::new(Artist::resource_type().group_kind(), demo::default_tenancy())
        .with_name_prefix("artist-0000");
    let owner = demo::artist(&name(0)).encode().id.unwrap().with_uid("u");
    let (mut lists, mut owned) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let started = Instant::now();
        let found = store.list(Consistency::Strong, &query).await.unwrap().len();
        assert_eq!(found, 10_000);
        lists.push(started.elapsed());
        let started = Instant::now();
        let found = store.list_by_owner(&owner).await.unwrap().len();
        assert_eq!(found, 10_000);
        owned.push(started.elapsed());
    }
    print("durable list of 10000", &percentiles(lists));
    print("durable list by owner of 10000", &percentiles(owned));
    store.close().await.unwrap();
}

/// A store of 1 GB after it was closed, and as a kill leaves it.
async fn restarts(folder: &Path) {
    const COUNT: usize = 100_000;
    let (file, killed) = (folder.join("large.redb"), folder.join("killed.redb"));
    let started = Instant::now();
    let store = restored(&file, COUNT, 10_000).await;
    print("durable restore of 1 GB", &format!("{:?}", started.elapsed()));
    // Nothing is written meanwhile, so a kill would leave what is copied.
    std::fs::copy(&file, &killed).unwrap();
    print("memory after it", &format!("{} MB", resident_bytes() / 1_000_000));
    store.close().await.unwrap();
    let bytes = std::fs::metadata(&file).unwrap().len();
    print("durable file of it", &format!("{} MB", bytes / 1_000_000));
    for check in [true, false] {
        let word = if check { "checked" } else { "not checked" };
        let again = folder.join("again.redb");
        std::fs::copy(&killed, &again).unwrap();
        for (what, file) in [("closed", &file), ("killed", &again)] {
            let started = Instant::now();
            let store = open(file, SyncPolicy::EveryCommit, check).await;
            let id = demo::artist(&name(COUNT / 2)).encode().id.unwrap();
            store.read(Consistency::Strong, &id).await.unwrap();
            print(
                &format!("restart of 1 GB, {what}, {word}"),
                &format!("{:?}, {} MB", started.elapsed(), resident_bytes() / 1_000_000),
            );
            store.close().await.unwrap();
        }
    }
    let store = open(&file, SyncPolicy::EveryCommit, false).await;
    let mut snapshot = store.snapshot().await.unwrap();
    let mut most = 0;
    while snapshot.try_next().await.unwrap().is_some() {
        most = most.max(resident_bytes());
    }
    print("most memory in a snapshot of 1 GB", &format!("{} MB", most / 1_000_000));
    store.close().await.unwrap();
}
