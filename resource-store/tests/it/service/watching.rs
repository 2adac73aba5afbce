//! Watches through the service.

use std::sync::Arc;

use futures::StreamExt as _;
use resource_store::{
    Code::Aborted,
    ResourceData as _,
    backend::{Backend as _, WatchEvent, memory::MemoryBackend},
    demo::{self, v1, v2},
    pb,
};

use crate::support::*;

/// Spec: RS63
#[tokio::test]
async fn a_watch_tells_of_every_change_in_order() {
    let service = service();
    let mut watch = service.follow::<v2::Artist>(None).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    let created = service.put(artist("korn")).await.unwrap();
    let updated = service.put(pb::Resource::clone(&created)).await.unwrap();
    service.remove(&id(&updated), &updated.version).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(created));
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(Arc::clone(&updated)));
    assert_eq!(next(&mut watch).await, WatchEvent::Delete(updated));
}

/// Spec: RS64
#[tokio::test(start_paused = true)]
async fn a_watch_sees_its_own_group_version_only() {
    let service = service();
    let mut watch = service.follow::<v1::Artist>(None).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    let created = service.put(artist("korn")).await.unwrap();
    let updated = service.put(pb::Resource::clone(&created)).await.unwrap();
    service.remove(&id(&updated), "").await.unwrap();
    let quiet = std::time::Duration::from_millis(250);
    assert!(tokio::time::timeout(quiet, watch.next()).await.is_err());
}

#[tokio::test]
async fn a_watch_ends_when_the_store_is_restored() {
    let backend = MemoryBackend::new();
    let service = builder_over(Arc::new(backend.clone())).build();
    let mut watch = service.follow::<v2::Artist>(None).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    backend.restore(backend.snapshot().await.unwrap()).await.unwrap();
    let end = watch.next().await.unwrap();
    assert_fails(
        end,
        Aborted,
        "watch closed by the storage backend (possibly due to snapshot restoration)",
    );
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_watch_filters_by_name_prefix() {
    let service = service();
    let request = pb::WatchListRequest {
        r#type: Some(v2::Artist::resource_type()),
        tenancy: Some(demo::default_tenancy()),
        name_prefix: "k".to_owned(),
    };
    service.put(artist("muse")).await.unwrap();
    let korn = service.put(artist("korn")).await.unwrap();
    let mut watch = service.watch_list(&anonymous(), request).await.unwrap();
    assert_eq!(snapshot(&mut watch).await, [korn]);
    service.put(artist("mogwai")).await.unwrap();
    let kyuss = service.put(artist("kyuss")).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(kyuss));
}
