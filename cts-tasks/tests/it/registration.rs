//! A daemon's own registration.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    Client, QueryOptions,
    testing::{Fault, Log, TestConsul},
    types::{AgentService, AgentServiceRegistration, HealthStatus},
};
use cts_tasks::{
    Config, Daemon, DaemonOptions, Result, Stop, StopReason, testing::RecordingDriver,
};
use tokio::{task::JoinHandle, time::sleep};

use crate::{both::on_both, scene::on};

on_both! {
    /// Spec: CTS83
    registers_and_goes, registers_and_goes_on_the_double, registers_and_goes_on_a_real_consul;
    /// Spec: CTS83
    is_as_configured, is_as_configured_on_the_double, is_as_configured_on_a_real_consul;
    /// Spec: CTS83
    ends_with_a_failing_first_run, ends_with_a_failing_first_run_on_the_double,
        ends_with_a_failing_first_run_on_a_real_consul;
}

/// A daemon without tasks that serves its API on any free port.
fn daemon(consul: &Client, change: impl FnOnce(&mut Config)) -> Daemon {
    let mut config = Config::default();
    config.id = "cts-01".into();
    config.port = 0;
    change(&mut config);
    let driver = Arc::new(RecordingDriver::default());
    Daemon::with_client(config, driver, DaemonOptions::default(), consul.clone())
}

fn run(daemon: Daemon, stop: &Stop) -> JoinHandle<Result<()>> {
    let stop = stop.clone();
    tokio::spawn(async move { daemon.run(&stop).await })
}

async fn registered(consul: &Client) -> Option<AgentService> {
    let services = consul.agent_services(&QueryOptions::default()).await.unwrap();
    services.get("cts-01").cloned()
}

/// Waits for the registration, or for its end.
async fn wait_for(consul: &Client, there: bool) -> Option<AgentService> {
    loop {
        let service = registered(consul).await;
        if service.is_some() == there {
            return service;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// A daemon has itself registered with a check, and goes when it stops.
async fn registers_and_goes(consul: Client) {
    let stop = Stop::new();
    let running = run(daemon(&consul, |_| ()), &stop);
    let service = wait_for(&consul, true).await.unwrap();
    assert_eq!(service.service.name, "consul-terraform-sync");
    assert_eq!(service.service.tags, ["cts"]);
    assert_ne!(service.service.port, 0, "the port that was given out");

    let checks = consul.agent_checks(&QueryOptions::default()).await.unwrap();
    let check = &checks["cts-01-health"];
    assert_eq!(check.name, "CTS Health Status");
    assert_eq!(check.notes, "Check created by Consul-Terraform-Sync");
    assert_eq!(check.status, HealthStatus::Critical);

    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
    assert_eq!(registered(&consul).await, None);
}

/// Name and address are those of the configuration, and there may be no check.
async fn is_as_configured(consul: Client) {
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
    let checks = consul.agent_checks(&QueryOptions::default()).await.unwrap();
    assert!(!checks.contains_key("cts-01-health"), "{checks:?}");
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}

/// Spec: CTS83
#[tokio::test]
async fn a_denied_registration_is_told_with_what_it_needs_and_ends_nothing() {
    let log = Log::start();
    let consul = TestConsul::new();
    consul.inject(&Fault::status(403, "Permission denied"), 1);
    let stop = Stop::new();
    let denied = daemon(&consul.client(), |_| ());
    let engine = denied.engine().clone();
    let running = run(denied, &stop);
    while log.with("ERROR").is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let told = log.with("ERROR");
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [
        "CTS will continue without registering itself as a service with Consul",
        "service:write",
        "Permission denied",
    ] {
        assert!(told[0].contains(part), "{part} is not in {told:?}");
    }
    assert_eq!(engine.health(), Ok(()));
    assert!(!running.is_finished());
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
    assert_eq!(registered(&consul.client()).await, None);
}

/// Spec: CTS83
#[tokio::test]
async fn a_daemon_that_is_told_not_to_does_not_register() {
    let consul = TestConsul::new();
    let stop = Stop::new();
    let silent =
        daemon(&consul.client(), |config| config.consul.service_registration.enabled = false);
    let running = run(silent, &stop);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(consul.requests(), 0);
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}

/// It is there while a first run goes on, and no longer when that has failed.
async fn ends_with_a_failing_first_run(consul: Client) {
    consul.agent_register_service(&AgentServiceRegistration::new("web")).await.unwrap();
    let mut config = Config::default();
    config.id = "cts-01".into();
    config.port = 0;
    config.tasks = vec![on("t", &["web"])];
    let driver = RecordingDriver::default();
    let gate = driver.hold("t");
    driver.fail_next("t", "no", false);
    let options = DaemonOptions::default();
    let failing = Daemon::with_client(config, Arc::new(driver), options, consul.clone());
    let running = run(failing, &Stop::new());
    wait_for(&consul, true).await;
    drop(gate);
    assert_eq!(running.await.unwrap().unwrap_err().to_string(), "no");
    wait_for(&consul, false).await;
}
