//! Connections break, answers are lost, and servers stop and start.

use std::{sync::Arc, time::Duration};

use consul_watch::testing::real::free_port;
use resource_store::{
    backend::{
        Backend as _, Consistency, Error, WatchEvent,
        postgres::{PostgresBackend, PostgresConfig},
    },
    testing::{Flow, Flows, Link},
};

use super::{
    server::{OWNER, Server},
    world::{
        closed, deleted, event, id, next, programs, server, thing, things, upserted, watch_after,
    },
};

/// A config that reaches a server through a link.
fn through(link: &Link) -> PostgresConfig {
    let mut config = PostgresConfig::new([link.address().to_string()]);
    OWNER.clone_into(&mut config.user);
    config
}

#[tokio::test]
async fn a_watch_goes_on_after_its_connection_broke() {
    let Some(server) = server("a watch goes on after its connection broke").await else { return };
    let link = Link::to(server.address()).await.unwrap();
    let watched = PostgresBackend::connect(&through(&link)).await.unwrap();
    let other = server.backend().await;
    let old = other.write_cas(thing("old")).await.unwrap();
    let mut watch = watch_after(&watched, 1).await;

    link.set(Flows::STOPPED);
    link.cut();
    let one = other.write_cas(thing("one")).await.unwrap();
    let mut last = other.write_cas(next(&one)).await.unwrap();
    other.delete_cas(&id("old"), &old.version).await.unwrap();
    // More than is read at a time.
    let mut missed = Vec::new();
    for _ in 0..1200 {
        missed.push(Arc::clone(&last));
        last = other.write_cas(next(&last)).await.unwrap();
    }
    link.set(Flows::default());

    upserted(&mut watch, &one).await;
    upserted(&mut watch, &missed[0]).await;
    deleted(&mut watch, &old).await;
    for expected in missed.iter().skip(1).chain([&last]) {
        upserted(&mut watch, expected).await;
    }
    assert_eq!(watched.read(Consistency::Eventual, &id("one")).await.unwrap(), last);
}

#[tokio::test]
async fn a_watch_closes_where_changes_that_it_missed_are_gone() {
    let Some(server) = server("a watch closes where changes are gone").await else { return };
    let link = Link::to(server.address()).await.unwrap();
    let watched = PostgresBackend::connect(&through(&link)).await.unwrap();
    let mut config = server.config();
    config.keep_changes = 100;
    let other = PostgresBackend::connect(&config).await.unwrap();
    let mut watch = watch_after(&watched, 0).await;
    let mut up_to_date = watch_after(&other, 0).await;

    link.set(Flows::STOPPED);
    link.cut();
    let mut stored = other.write_cas(thing("one")).await.unwrap();
    upserted(&mut up_to_date, &stored).await;
    for _ in 0..1100 {
        stored = other.write_cas(next(&stored)).await.unwrap();
        upserted(&mut up_to_date, &stored).await;
    }
    // It is removed after the answer to the write that made it too much.
    while server.number("SELECT count(*) FROM resource_store.change").await > 1024 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    link.set(Flows::default());

    closed(&mut watch).await;
    let mut watch = watch_after(&watched, 1).await;
    stored = other.write_cas(next(&stored)).await.unwrap();
    upserted(&mut watch, &stored).await;
    upserted(&mut up_to_date, &stored).await;
}

/// The server does what it is told, and its answer is cut off; another way to it tells what
/// came of it.
#[tokio::test]
async fn a_lost_answer_is_found_out() {
    let Some(server) = server("a lost answer is found out").await else { return };
    let link = Link::to(server.address()).await.unwrap();
    let mut config = through(&link);
    config.hosts.push(server.host());
    config.attempt_timeout = Duration::from_millis(500);
    config.connect_timeout = Duration::from_millis(500);
    let other = server.backend().await;
    let mut watch = watch_after(&other, 0).await;
    let lossy = async || {
        link.set(Flows::default());
        let backend = PostgresBackend::connect(&config).await.unwrap();
        link.set(Flows { back: Flow::Stopped, ..Flows::default() });
        backend
    };

    let created = lossy().await.write_cas(thing("one")).await.unwrap();
    upserted(&mut watch, &created).await;
    let changed = lossy().await.write_cas(next(&created)).await.unwrap();
    upserted(&mut watch, &changed).await;
    assert_eq!(other.read(Consistency::Strong, &id("one")).await.unwrap(), changed);

    // Each is known to have been refused, though its answer was lost.
    let refused = lossy().await.write_cas(next(&created)).await.unwrap_err();
    assert!(matches!(refused, Error::CasFailure), "{refused}");
    let refused = lossy().await.delete_cas(&id("one"), &created.version).await.unwrap_err();
    assert!(matches!(refused, Error::CasFailure), "{refused}");
    // But a creation that found something there may yet be on its way.
    let unknown = lossy().await.write_cas(thing("one")).await.unwrap_err();
    assert!(matches!(unknown, Error::OutcomeUnknown { .. }), "{unknown}");

    lossy().await.delete_cas(&id("one"), &changed.version).await.unwrap();
    deleted(&mut watch, &changed).await;
    let again = lossy().await.write_cas(thing("one")).await.unwrap();
    upserted(&mut watch, &again).await;
}

/// A write takes place and its answer is lost; then someone changes or deletes what it wrote.
/// That the write took place is told by the changes since.
#[tokio::test]
async fn a_lost_answer_is_found_out_after_later_changes() {
    let Some(server) = server("a lost answer is found out after later changes").await else {
        return;
    };
    let other = server.backend().await;
    let mut watch = watch_after(&other, 0).await;
    for (name, create, delete) in
        [("a", true, false), ("b", true, true), ("c", false, false), ("d", false, true)]
    {
        let link = Link::to(server.address()).await.unwrap();
        let mut config = through(&link);
        config.hosts.push(server.host());
        config.attempt_timeout = Duration::from_secs(1);
        config.connect_timeout = Duration::from_millis(500);
        let backend = PostgresBackend::connect(&config).await.unwrap();
        let mut resource = thing(name);
        if !create {
            let first = other.write_cas(resource).await.unwrap();
            upserted(&mut watch, &first).await;
            resource = next(&first);
        }
        link.set(Flows { back: Flow::Stopped, ..Flows::default() });
        let writing = tokio::spawn(async move { backend.write_cas(resource).await });
        let WatchEvent::Upsert(written) = event(&mut watch).await.unwrap() else {
            panic!("{name}")
        };
        if delete {
            other.delete_cas(&id(name), &written.version).await.unwrap();
            deleted(&mut watch, &written).await;
        } else {
            let later = other.write_cas(next(&written)).await.unwrap();
            upserted(&mut watch, &later).await;
        }
        assert_eq!(writing.await.unwrap().unwrap(), written, "{name}: it took place");
        let found = other.read(Consistency::Strong, &id(name)).await;
        assert_eq!(found.is_err(), delete, "{name}: nothing was repeated");
    }
}

/// The statement never reaches the server, or does after its sender gave up: a creation is
/// not said to have failed, and a change is made once.
#[tokio::test]
async fn a_lost_statement_is_not_said_to_have_failed() {
    let Some(server) = server("a lost statement is not said to have failed").await else { return };
    let link = Link::to(server.address()).await.unwrap();
    let mut config = through(&link);
    config.hosts.push(server.host());
    config.attempt_timeout = Duration::from_millis(500);
    config.connect_timeout = Duration::from_millis(500);
    let other = server.backend().await;
    let mut watch = watch_after(&other, 0).await;

    let backend = PostgresBackend::connect(&config).await.unwrap();
    link.set(Flows { there: Flow::Stopped, ..Flows::default() });
    let unknown = backend.write_cas(thing("one")).await.unwrap_err();
    assert!(matches!(unknown, Error::OutcomeUnknown { .. }), "{unknown}");
    assert!(matches!(other.read(Consistency::Strong, &id("one")).await, Err(Error::NotFound)));
    link.cut();
    link.set(Flows::default());

    let created = other.write_cas(thing("two")).await.unwrap();
    upserted(&mut watch, &created).await;
    let backend = PostgresBackend::connect(&config).await.unwrap();
    link.set(Flows { there: Flow::Stopped, ..Flows::default() });
    let changed = backend.write_cas(next(&created)).await.unwrap();
    upserted(&mut watch, &changed).await;
}

#[tokio::test]
async fn a_dead_host_is_passed_over() {
    let Some(server) = server("a dead host is passed over").await else { return };
    let dead = format!("127.0.0.1:{}", free_port().unwrap());
    let mut config = server.config();
    config.hosts.insert(0, dead.clone());
    let backend = PostgresBackend::connect(&config).await.unwrap();
    let mut watch = watch_after(&backend, 0).await;
    let one = backend.write_cas(thing("one")).await.unwrap();
    upserted(&mut watch, &one).await;
    let conflict = backend.write_cas(thing("one")).await.unwrap_err();
    assert!(matches!(conflict, Error::CasFailure), "{conflict}");

    config.hosts = vec![dead.clone()];
    config.timeout = Duration::from_millis(200);
    let error = PostgresBackend::connect(&config).await.unwrap_err();
    assert!(matches!(error, Error::Inconsistent { .. }) && error.is_retryable());
    let text = error.to_string();
    assert!(text.contains(&dead) && text.contains("database postgres"), "{text}");
}

/// Stopped at once or killed while watched, and started again on its data.
#[tokio::test]
async fn a_watch_outlives_the_server() {
    let Some(mut server) = server("a watch outlives the server").await else { return };
    let backend = server.backend().await;
    let mut watch = watch_after(&backend, 0).await;
    let mut stored = backend.write_cas(thing("one")).await.unwrap();
    upserted(&mut watch, &stored).await;
    for how in ["-QUIT", "kill", "-INT"] {
        match how {
            "kill" => server.kill(),
            signal => server.stop(signal).await,
        }
        let write = tokio::spawn({
            let (backend, next) = (backend.clone(), next(&stored));
            async move { backend.write_cas(next).await }
        });
        server.launch();
        server.answers().await;
        // It expects a version, so a lost answer is found out.
        stored = write.await.unwrap().unwrap();
        upserted(&mut watch, &stored).await;
        assert_eq!(backend.list(Consistency::Eventual, &things()).await.unwrap(), [stored.clone()]);
    }
}

/// The files of an earlier time are put back, as from a snapshot of the disk: nobody takes
/// what was written since for what is there, and no version comes twice.
#[tokio::test]
async fn a_server_that_went_back_in_time_is_noticed() {
    let Some(programs) = programs("a server that went back in time is noticed") else { return };
    let mut server = Server::start(&programs).await;
    let backend = server.backend().await;
    let old = backend.write_cas(thing("old")).await.unwrap();
    let mut watch = watch_after(&backend, 1).await;
    server.stop("-INT").await;
    let earlier = server.copy();
    server.launch();
    server.answers().await;
    let lost = backend.write_cas(thing("lost")).await.unwrap();
    upserted(&mut watch, &lost).await;
    let lost = backend.write_cas(next(&lost)).await.unwrap();
    upserted(&mut watch, &lost).await;

    server.stop("-INT").await;
    server.take_data_of(&earlier);
    server.launch();
    server.answers().await;
    closed(&mut watch).await;
    let mut watch = watch_after(&backend, 1).await;
    let refused = backend.write_cas(next(&lost)).await.unwrap_err();
    assert!(matches!(refused, Error::CasFailure), "{refused}");
    let changed = backend.write_cas(next(&old)).await.unwrap();
    upserted(&mut watch, &changed).await;
}
