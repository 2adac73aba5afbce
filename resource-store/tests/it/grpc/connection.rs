//! Connections that die without a word, and clients that go on.

use resource_store::{
    resuming_watch,
    testing::{Flows, Link},
};
use tokio::time::timeout;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// A client behind a link that can lose what passes, with short times.
async fn behind_link(server: &Running) -> (GrpcClient, Link) {
    let link = Link::to(server.address.parse().unwrap()).await.unwrap();
    let mut config = GrpcClientConfig::new(&format!("http://{}", link.address()));
    config.keepalive_interval = Some(Duration::from_millis(200));
    config.keepalive_timeout = Some(Duration::from_millis(200));
    config.call_timeout = Some(Duration::from_secs(2));
    (GrpcClient::new(&config).unwrap(), link)
}

/// Nothing arrives any more, and no connection ends: the watch does.
#[tokio::test]
async fn a_watch_over_a_dead_connection_ends() {
    let server = start(service(), ServerConfig::default()).await;
    let (client, link) = behind_link(&server).await;
    let mut watch = client.watch_list(watch_artists()).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    link.set(Flows::STOPPED);
    let end = timeout(PATIENCE, watch.next()).await.expect("it hangs").unwrap();
    assert_eq!(end.unwrap_err().code(), Code::Unavailable);
}

/// A question is answered in time or fails; of a change that was sent nobody
/// knows the outcome.
#[tokio::test]
async fn calls_over_a_dead_connection_end_in_time() {
    let server = start(service(), ServerConfig::default()).await;
    let (client, link) = behind_link(&server).await;
    client.write(artist("korn")).await.unwrap();
    link.set(Flows::STOPPED);
    let read = timeout(PATIENCE, client.read(id(&artist("korn")))).await.expect("it hangs");
    assert!(matches!(
        read.unwrap_err().code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
    ));

    link.set(Flows::default());
    link.cut();
    // The connection may be found dead by this one.
    drop(client.read(id(&artist("korn"))).await);
    client.read(id(&artist("korn"))).await.unwrap();
    link.set(Flows { back: resource_store::testing::Flow::Stopped, ..Flows::default() });
    let write = timeout(PATIENCE, client.write(artist("muse"))).await.expect("it hangs");
    let error = write.unwrap_err();
    assert!(error.outcome_is_unknown() && !error.is_retryable(), "{error}");

    // Nobody listens there: nothing was sent.
    let nobody = GrpcClient::new(&GrpcClientConfig::new("http://127.0.0.1:1")).unwrap();
    let error = nobody.write(artist("korn")).await.unwrap_err();
    assert!(error.code() == Code::Unavailable && error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_call_may_not_take_longer_than_its_deadline() {
    // It takes the connection and never says a word.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = GrpcClientConfig::new(&format!("http://{}", silent.local_addr().unwrap()));
    config.call_timeout = Some(Duration::from_millis(100));
    let client = GrpcClient::new(&config).unwrap();
    let read = timeout(PATIENCE, client.read(id(&artist("korn")))).await.expect("it hangs");
    assert!(read.unwrap_err().outcome_is_unknown());
    let watch = timeout(PATIENCE, client.watch_list(watch_artists())).await.expect("it hangs");
    assert!(watch.is_err());
}

/// The connection loses everything, then breaks; meanwhile resources are
/// deleted, changed, created, and created again. What comes is the difference.
#[tokio::test]
async fn a_resuming_watch_tells_the_difference() {
    let service = service();
    let server = start(service.clone(), ServerConfig::default()).await;
    let (client, link) = behind_link(&server).await;
    let mut stored = std::collections::BTreeMap::new();
    for name in ["again", "changed", "deleted", "same"] {
        stored.insert(name, service.put(artist(name)).await.unwrap());
    }
    let mut watch = resuming_watch(client, watch_artists());
    assert_eq!(snapshot(&mut watch).await, stored.values().cloned().collect::<Vec<_>>());

    link.set(Flows::STOPPED);
    service.remove(&id(&stored["deleted"]), "").await.unwrap();
    service.remove(&id(&stored["again"]), "").await.unwrap();
    let again = service.put(artist("again")).await.unwrap();
    let created = service.put(artist("created")).await.unwrap();
    service.put(artist("changed")).await.unwrap();
    let changed = service.put(artist("changed")).await.unwrap();
    let passing = service.put(artist("passing")).await.unwrap();
    service.remove(&id(&passing), "").await.unwrap();
    // Long enough for the connection to count as dead.
    link.cut();
    link.set(Flows::default());

    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(next(&mut watch).await);
    }
    assert_eq!(
        seen,
        [
            WatchEvent::Delete(Arc::clone(&stored["again"])),
            WatchEvent::Upsert(again),
            WatchEvent::Upsert(changed),
            WatchEvent::Upsert(created),
            WatchEvent::Delete(Arc::clone(&stored["deleted"])),
        ]
    );
    let last = service.put(artist("last")).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(last));
}

/// What no other watch would cure ends it.
#[tokio::test]
async fn a_resuming_watch_ends_where_it_is_refused() {
    let server = start(service(), ServerConfig::default()).await;
    let unknown = pb::Type::new("demo", "v9", "Artist");
    let request = WatchListRequest { r#type: Some(unknown), ..WatchListRequest::default() };
    let mut watch = resuming_watch(client(&server), request);
    assert_eq!(watch.next().await.unwrap().unwrap_err().code(), Code::InvalidArgument);
    assert!(watch.next().await.is_none());
}

/// A restored store ends every watch but this one.
#[tokio::test]
async fn a_resuming_watch_outlives_a_restore() {
    use resource_store::{
        LocalClient,
        backend::{Backend as _, memory::MemoryBackend},
    };
    let backend = MemoryBackend::new();
    let service = builder_over(Arc::new(backend.clone())).build();
    service.put(artist("old")).await.unwrap();
    let saved = backend.snapshot().await.unwrap();
    let newer = service.put(artist("newer")).await.unwrap();
    let mut watch = resuming_watch(LocalClient::new(service.clone()), watch_artists());
    assert_eq!(snapshot(&mut watch).await.len(), 2);
    backend.restore(saved).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Delete(newer));
}
