//! Connections break, servers die, and etcd compacts.

use std::{sync::Arc, time::Duration};

use consul_watch::testing::real::free_port;
use futures::StreamExt as _;
use resource_store::{
    backend::{
        Backend as _, Consistency, Error, WatchEvent,
        etcd::{EtcdBackend, EtcdConfig},
    },
    testing::{Flow, Flows, Link},
};

use super::{
    server::Servers,
    world::{
        SUITE, World, closed, deleted, id, next, on_both, thing, things, upserted, watch_after,
    },
};

on_both! {
    a_watch_goes_on_after_its_connection_broke
    a_watch_closes_where_etcd_forgot_what_it_missed
    compaction_does_not_matter_to_who_is_up_to_date
    a_lost_answer_is_found_out
    a_creation_is_not_repeated_after_a_delete
    a_watch_far_behind_misses_nothing
    a_dead_endpoint_is_passed_over
}

/// A backend behind a link, and the link.
async fn behind_link(world: &World) -> (EtcdBackend, Link) {
    let link = Link::to(world.address()).await.unwrap();
    let config = EtcdConfig::new([link.address().to_string()]);
    (EtcdBackend::connect(&config).await.unwrap(), link)
}

async fn a_watch_goes_on_after_its_connection_broke(world: World) {
    let (watched, link) = behind_link(&world).await;
    let other = world.backend().await;
    let old = other.write_cas(thing("old")).await.unwrap();
    let mut watch = watch_after(&watched, 1).await;

    link.set(Flows::STOPPED);
    link.cut();
    let one = other.write_cas(thing("one")).await.unwrap();
    let two = other.write_cas(next(&one)).await.unwrap();
    other.delete_cas(&id("old"), &old.version).await.unwrap();
    link.set(Flows::default());

    upserted(&mut watch, &one).await;
    upserted(&mut watch, &two).await;
    deleted(&mut watch, &old).await;
    let last = other.write_cas(next(&two)).await.unwrap();
    upserted(&mut watch, &last).await;
    assert_eq!(watched.read(Consistency::Eventual, &id("one")).await.unwrap(), last);
}

async fn a_watch_closes_where_etcd_forgot_what_it_missed(world: World) {
    let (watched, link) = behind_link(&world).await;
    let other = world.backend().await;
    let mut watch = watch_after(&watched, 0).await;
    let seen = other.write_cas(thing("seen")).await.unwrap();
    upserted(&mut watch, &seen).await;

    link.set(Flows::STOPPED);
    link.cut();
    let missed = other.write_cas(thing("missed")).await.unwrap();
    other.delete_cas(&id("missed"), &missed.version).await.unwrap();
    other.write_cas(thing("there")).await.unwrap();
    world.compact().await;
    link.set(Flows::default());

    closed(&mut watch).await;
    let mut watch = watch_after(&watched, 2).await;
    let last = other.write_cas(thing("last")).await.unwrap();
    upserted(&mut watch, &last).await;
}

async fn compaction_does_not_matter_to_who_is_up_to_date(world: World) {
    let backend = world.backend().await;
    let one = backend.write_cas(thing("one")).await.unwrap();
    let mut watch = watch_after(&backend, 1).await;
    world.compact().await;
    let two = backend.write_cas(next(&one)).await.unwrap();
    upserted(&mut watch, &two).await;
    world.compact().await;
    backend.delete_cas(&id("one"), &two.version).await.unwrap();
    deleted(&mut watch, &two).await;
    assert!(backend.list(Consistency::Strong, &things()).await.unwrap().is_empty());
}

/// The first endpoint does what it is told and does not answer; the second one
/// tells what came of it.
async fn a_lost_answer_is_found_out(world: World) {
    let link = Link::to(world.address()).await.unwrap();
    let mut config = EtcdConfig::new([link.address().to_string(), world.endpoint()]);
    config.attempt_timeout = Duration::from_millis(300);
    let other = world.backend().await;
    let mut watch = watch_after(&other, 0).await;

    let connect = async || {
        link.set(Flows::default());
        let backend = EtcdBackend::connect(&config).await.unwrap();
        link.set(Flows { back: Flow::Stopped, ..Flows::default() });
        backend
    };
    let created = connect().await.write_cas(thing("one")).await.unwrap();
    upserted(&mut watch, &created).await;
    assert_eq!(other.read(Consistency::Strong, &id("one")).await.unwrap(), created);

    let refused = connect().await.write_cas(thing("one")).await.unwrap_err();
    // What it found may be what it wrote, and been changed since: it cannot tell.
    let text = refused.to_string();
    assert!(text.contains("the outcome is unknown") && !refused.is_retryable(), "{text}");

    connect().await.delete_cas(&id("one"), &created.version).await.unwrap();
    deleted(&mut watch, &created).await;
    let again = connect().await.write_cas(thing("one")).await.unwrap();
    upserted(&mut watch, &again).await;
}

/// The first endpoint creates and does not answer; somebody deletes what it
/// created; the second endpoint finds nothing there, as before the creation.
async fn a_creation_is_not_repeated_after_a_delete(world: World) {
    let link = Link::to(world.address()).await.unwrap();
    let mut config = EtcdConfig::new([link.address().to_string(), world.endpoint()]);
    config.attempt_timeout = Duration::from_secs(1);
    let other = world.backend().await;
    let mut watch = watch_after(&other, 0).await;
    let backend = EtcdBackend::connect(&config).await.unwrap();
    link.set(Flows { back: Flow::Stopped, ..Flows::default() });

    let creating = tokio::spawn(async move { backend.write_cas(thing("one")).await });
    let Some(Ok(WatchEvent::Upsert(created))) = watch.next().await else { panic!("not created") };
    other.delete_cas(&id("one"), &created.version).await.unwrap();
    deleted(&mut watch, &created).await;

    let error = creating.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error}");
    let found = other.read(Consistency::Strong, &id("one")).await;
    assert!(matches!(found, Err(Error::NotFound)), "it came back: {found:?}");
}

/// Etcd sends what a watch missed in batches of 1,000 revisions, and says with
/// each how far it is itself.
async fn a_watch_far_behind_misses_nothing(world: World) {
    let (watched, link) = behind_link(&world).await;
    let other = world.backend().await;
    let mut watch = watch_after(&watched, 0).await;
    let mut stored = other.write_cas(thing("one")).await.unwrap();
    upserted(&mut watch, &stored).await;

    link.set(Flows::STOPPED);
    link.cut();
    let mut missed = Vec::new();
    for _ in 0..2500 {
        stored = other.write_cas(next(&stored)).await.unwrap();
        missed.push(Arc::clone(&stored));
    }
    link.set(Flows::default());
    for expected in &missed {
        upserted(&mut watch, expected).await;
    }
    let last = other.write_cas(next(&stored)).await.unwrap();
    upserted(&mut watch, &last).await;
}

async fn a_dead_endpoint_is_passed_over(world: World) {
    let dead = format!("http://127.0.0.1:{}", free_port().unwrap());
    let config = EtcdConfig::new([dead.clone(), world.endpoint()]);
    let backend = EtcdBackend::connect(&config).await.unwrap();
    let mut watch = watch_after(&backend, 0).await;
    let one = backend.write_cas(thing("one")).await.unwrap();
    upserted(&mut watch, &one).await;
    let conflict = backend.write_cas(thing("one")).await.unwrap_err();
    assert!(matches!(conflict, Error::CasFailure), "{conflict}");

    let mut config = EtcdConfig::new([dead]);
    config.timeout = Duration::from_millis(200);
    let error = EtcdBackend::connect(&config).await.unwrap_err();
    assert!(matches!(error, Error::Inconsistent { .. }) && error.is_retryable());
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

/// Killed while watched, and started again on its data.
#[tokio::test]
async fn a_watch_outlives_the_server() {
    for part in SUITE.parts("etcd", "a watch outlives the server") {
        let mut servers = Servers::start(&part.path, 1).await;
        let backend = servers.backend().await;
        let mut watch = watch_after(&backend, 0).await;
        let mut stored = backend.write_cas(thing("one")).await.unwrap();
        upserted(&mut watch, &stored).await;
        for _ in 0..3 {
            servers.kill(0);
            let write = tokio::spawn({
                let (backend, next) = (backend.clone(), next(&stored));
                async move { backend.write_cas(next).await }
            });
            servers.launch(0);
            assert!(servers.answers().await, "{}", servers.log());
            // Nothing else writes, so a lost answer is found out.
            stored = write.await.unwrap().unwrap();
            upserted(&mut watch, &stored).await;
        }
    }
}

/// One member of three after the other dies, and comes back.
#[tokio::test]
async fn a_cluster_serves_while_a_member_is_dead() {
    for part in SUITE.parts("etcd", "a cluster serves while a member is dead") {
        let mut servers = Servers::start(&part.path, 3).await;
        let backend = servers.backend().await;
        let mut watch = watch_after(&backend, 0).await;
        let mut stored = backend.write_cas(thing("one")).await.unwrap();
        upserted(&mut watch, &stored).await;
        for dead in 0..3 {
            servers.kill(dead);
            stored = backend.write_cas(next(&stored)).await.unwrap();
            upserted(&mut watch, &stored).await;
            for mode in [Consistency::Eventual, Consistency::Strong] {
                assert_eq!(backend.read(mode, &id("one")).await.unwrap(), stored);
            }
            servers.launch(dead);
            assert!(servers.answers().await, "{}", servers.log());
        }
    }
}

/// All data is thrown away: nobody takes the new store for the old one.
#[tokio::test]
async fn an_etcd_that_was_set_up_anew_is_another_store() {
    for part in SUITE.parts("etcd", "an etcd that was set up anew") {
        let mut servers = Servers::start(&part.path, 1).await;
        let backend = servers.backend().await;
        let mut watch = watch_after(&backend, 0).await;
        let old = backend.write_cas(thing("one")).await.unwrap();
        upserted(&mut watch, &old).await;

        servers.kill(0);
        servers.forget(0);
        servers.launch(0);
        assert!(servers.answers().await, "{}", servers.log());

        closed(&mut watch).await;
        let gone = backend.read(Consistency::Eventual, &id("one")).await.unwrap_err();
        assert!(matches!(gone, Error::NotFound), "{gone}");
        let new = backend.write_cas(thing("one")).await.unwrap();
        assert_ne!(new.version, old.version);
        let refused = backend.write_cas(next(&old)).await.unwrap_err();
        assert!(matches!(refused, Error::CasFailure), "{refused}");
        let mut watch = watch_after(&backend, 1).await;
        let changed: Arc<_> = backend.write_cas(next(&new)).await.unwrap();
        upserted(&mut watch, &changed).await;
    }
}
