//! A standby takes the place of its primary.

use std::time::Duration;

use resource_store::backend::{
    Backend as _, Consistency, Error, WatchEvent, postgres::PostgresBackend,
};

use super::{
    server::Server,
    world::{closed, event, id, next, programs, thing, things, upserted, watch_after},
};

/// A primary whose commits wait for its standby, and that standby.
async fn pair(case: &str) -> Option<(Server, Server)> {
    let programs = programs(case)?;
    let mut primary =
        Server::prepare(&programs, "trust", &["synchronous_standby_names=*", "max_wal_senders=4"]);
    let mut standby = primary.standby();
    primary.launch();
    primary.answers().await;
    standby.launch();
    standby.answers().await;
    Some((primary, standby))
}

/// The primary dies, or hangs; the standby is promoted. The client has both addresses.
#[tokio::test]
async fn a_promoted_standby_takes_over() {
    for hangs in [false, true] {
        let Some((mut primary, standby)) = pair("a promoted standby takes over").await else {
            return;
        };
        let mut config = primary.config();
        // The standby comes first: it must not be written to, nor read from, before its time.
        config.hosts.insert(0, standby.host());
        config.attempt_timeout = Duration::from_secs(3);
        let backend = PostgresBackend::connect(&config).await.unwrap();
        let first = backend.write_cas(thing("one")).await.unwrap();
        let mut watch = watch_after(&backend, 1).await;
        let stored = backend.write_cas(next(&first)).await.unwrap();
        upserted(&mut watch, &stored).await;
        for mode in [Consistency::Eventual, Consistency::Strong] {
            assert_eq!(backend.read(mode, &id("one")).await.unwrap(), stored);
        }

        let _hangs = if hangs {
            Some(primary.pause())
        } else {
            primary.kill();
            None
        };
        let write = tokio::spawn({
            let (backend, next) = (backend.clone(), next(&stored));
            async move { backend.write_cas(next).await }
        });
        standby.execute("SELECT pg_promote()").await;

        let written = write.await.unwrap().unwrap();
        // What was acknowledged is there, and nothing else.
        assert_eq!(
            backend.list(Consistency::Strong, &things()).await.unwrap(),
            std::slice::from_ref(&written)
        );
        // A watch does not guess what a standby may lack: it begins anew. Before, it may tell
        // of what the primary committed while it died.
        match event(&mut watch).await {
            Ok(told) => {
                assert_eq!(told, WatchEvent::Upsert(written.clone()));
                closed(&mut watch).await;
            }
            Err(error) => assert!(matches!(error, Error::WatchClosed), "{error}"),
        }
        let mut watch = watch_after(&backend, 1).await;
        let last = backend.write_cas(next(&written)).await.unwrap();
        upserted(&mut watch, &last).await;
        backend.delete_cas(&id("one"), &last.version).await.unwrap();
        assert!(backend.read(Consistency::Strong, &id("one")).await.is_err());
    }
}

/// No server takes writes: the error says so, and of whom.
#[tokio::test]
async fn a_standby_alone_is_refused() {
    let Some((_primary, standby)) = pair("a standby alone is refused").await else { return };
    let mut config = standby.config();
    config.timeout = Duration::from_millis(500);
    let error = PostgresBackend::connect(&config).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("does not allow writes") && text.contains(&standby.host()), "{text}");
    assert!(error.is_retryable());
}
