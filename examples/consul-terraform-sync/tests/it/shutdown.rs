//! Stops while a task runs, and hangups before there is anything to hang up.

use std::{fs, path::Path};

use consul_watch::types::HealthStatus;

use crate::{
    end_to_end::instance,
    network::{Network, Proxy},
    sync::SyncProcess,
    world::{World, applied, slow_task},
};

/// A daemon that has applied one instance, and begins to apply a second one.
async fn in_an_apply(world: &World, folder: &Path, settings: &str, seconds: u32) -> SyncProcess {
    let client = world.client();
    client.catalog_register(&instance("web", 1, HealthStatus::Passing)).await.unwrap();
    let config = format!("{settings}{}", slow_task(folder, "slow", "web"));
    let mut sync = SyncProcess::new(folder, &world.address(), &config);
    let place = folder.join("slow");
    fs::write(place.join("seconds"), "0").unwrap();
    sync.start_with(|command| world.set_path(command));
    sync.ran("slow", 1).await;
    fs::write(place.join("seconds"), seconds.to_string()).unwrap();
    fs::remove_file(place.join("begun")).unwrap();
    client.catalog_register(&instance("web", 2, HealthStatus::Passing)).await.unwrap();
    sync.until("the apply begins", || place.join("begun").exists()).await;
    sync
}

#[tokio::test]
async fn a_stop_waits_for_the_apply_that_runs() {
    let world = World::new("shutdown").await;
    let folder = tempfile::tempdir().unwrap();
    let mut sync = in_an_apply(&world, folder.path(), "", 2).await;
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
    assert_eq!(applied(folder.path(), "slow"), "web-1 web-2");
}

/// Both end an apply that would take five minutes; the next daemon finds no obstacle.
#[tokio::test]
async fn a_second_signal_and_the_time_limit_end_an_apply() {
    for settings in ["", "shutdown_timeout = \"1s\"\n"] {
        let world = World::new("shutdown").await;
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut sync = in_an_apply(&world, folder, settings, 300).await;
        sync.signal("-TERM").await;
        sync.until("the signal is told", || sync.log().contains("shutting down")).await;
        if settings.is_empty() {
            sync.signal("-TERM").await;
        }
        let ended = sync.ended().await;
        assert!(ended.code().is_some(), "{ended}\n{}", sync.log());
        assert_eq!(applied(folder, "slow"), "web-1", "{settings}\n{}", sync.log());

        fs::write(folder.join("slow/seconds"), "0").unwrap();
        let events = sync.log().matches("task completed").count();
        sync.start_with(|command| world.set_path(command));
        sync.until("the next one applies", || {
            applied(folder, "slow") == "web-1 web-2"
                && sync.log().matches("task completed").count() > events
        })
        .await;
        assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
    }
}

/// A hangup while Consul is waited for is honoured once the daemon runs.
#[tokio::test]
async fn a_hangup_before_the_daemon_is_ready_is_honoured_then() {
    let world = World::new("shutdown").await;
    let network = Proxy::start(world.address()).await;
    network.set(Network::Lost);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (one, two) = (slow_task(folder, "one", "none"), slow_task(folder, "two", "none"));
    let mut sync = SyncProcess::new(folder, &network.address.to_string(), &one);
    sync.start_with(|command| world.set_path(command));
    sync.until("Consul is waited for", || sync.log().contains("Consul is not ready")).await;
    let file = folder.join("sync.hcl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}{two}")).unwrap();
    sync.signal("-HUP").await;
    network.set(Network::Up);
    sync.ran("one", 1).await;
    sync.ran("two", 1).await;
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}
