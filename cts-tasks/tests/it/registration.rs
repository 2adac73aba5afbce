//! A daemon's own registration, on an in-process Consul.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    QueryOptions,
    testing::{Fault, TestConsul},
    types::{AgentService, HealthStatus},
};
use cts_tasks::{
    Config, Daemon, DaemonOptions, Result, Stop, StopReason, testing::RecordingDriver,
};
use tokio::{task::JoinHandle, time::sleep};

use crate::scene::on;

/// A daemon without tasks that serves its API on any free port.
fn daemon(consul: &TestConsul, change: impl FnOnce(&mut Config)) -> Daemon {
    let mut config = Config::default();
    config.id = "cts-01".into();
    config.port = 0;
    change(&mut config);
    let driver = Arc::new(RecordingDriver::default());
    Daemon::with_client(config, driver, DaemonOptions::default(), consul.client())
}

fn run(daemon: Daemon, stop: &Stop) -> JoinHandle<Result<()>> {
    let stop = stop.clone();
    tokio::spawn(async move { daemon.run(&stop).await })
}

async fn registered(consul: &TestConsul) -> Option<AgentService> {
    let services = consul.client().agent_services(&QueryOptions::default()).await.unwrap();
    services.get("cts-01").cloned()
}

/// Waits for the registration, or for its end.
async fn wait_for(consul: &TestConsul, there: bool) -> Option<AgentService> {
    loop {
        let service = registered(consul).await;
        if service.is_some() == there {
            return service;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Spec: CTS83
#[tokio::test]
async fn a_daemon_registers_itself_with_a_check_and_goes_when_it_stops() {
    let consul = TestConsul::new();
    let stop = Stop::new();
    let running = run(daemon(&consul, |_| ()), &stop);
    let service = wait_for(&consul, true).await.unwrap();
    assert_eq!(service.service.name, "consul-terraform-sync");
    assert_eq!(service.service.tags, ["cts"]);
    assert_ne!(service.service.port, 0, "the port that was given out");

    let checks = consul.client().agent_checks(&QueryOptions::default()).await.unwrap();
    let check = &checks["cts-01-health"];
    assert_eq!(check.name, "CTS Health Status");
    assert_eq!(check.notes, "Check created by Consul-Terraform-Sync");
    assert_eq!(check.status, HealthStatus::Critical);

    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
    assert_eq!(registered(&consul).await, None);
}

/// Spec: CTS83
#[tokio::test]
async fn a_registration_is_as_configured() {
    let consul = TestConsul::new();
    let stop = Stop::new();
    let configured = daemon(&consul, |config| {
        let own = &mut config.consul.service_registration;
        own.service_name = "sync".into();
        own.address = "10.0.0.9".into();
        own.default_check_enabled = false;
    });
    let running = run(configured, &stop);
    let service = wait_for(&consul, true).await.unwrap();
    assert_eq!(
        (service.service.name.as_str(), service.service.address.as_str()),
        ("sync", "10.0.0.9")
    );
    assert!(consul.client().agent_checks(&QueryOptions::default()).await.unwrap().is_empty());
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}

/// Spec: CTS83
#[tokio::test]
async fn a_denied_registration_ends_nothing() {
    let consul = TestConsul::new();
    consul.inject(&Fault::status(403, "Permission denied"), 1);
    let stop = Stop::new();
    let denied = daemon(&consul, |_| ());
    let engine = denied.engine().clone();
    let running = run(denied, &stop);
    consul.wait_for_requests(1).await;
    assert_eq!(engine.health(), Ok(()));
    assert!(!running.is_finished());
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
    assert_eq!(registered(&consul).await, None);
}

/// Spec: CTS83
#[tokio::test]
async fn a_daemon_that_is_told_not_to_does_not_register() {
    let consul = TestConsul::new();
    let stop = Stop::new();
    let silent = daemon(&consul, |config| config.consul.service_registration.enabled = false);
    let running = run(silent, &stop);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(consul.requests(), 0);
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}

/// Spec: CTS83
#[tokio::test]
async fn a_first_run_that_fails_ends_the_registration_too() {
    let consul = TestConsul::new();
    consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Passing);
    let mut config = Config::default();
    config.id = "cts-01".into();
    config.port = 0;
    config.tasks = vec![on("t", &["web"])];
    let driver = RecordingDriver::default();
    let gate = driver.hold("t");
    driver.fail_next("t", "no", false);
    let options = DaemonOptions::default();
    let failing = Daemon::with_client(config, Arc::new(driver), options, consul.client());
    let running = run(failing, &Stop::new());
    wait_for(&consul, true).await;
    drop(gate);
    assert_eq!(running.await.unwrap().unwrap_err().to_string(), "no");
    wait_for(&consul, false).await;
}
