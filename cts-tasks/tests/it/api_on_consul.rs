//! What of the HTTP API touches Consul, on the double and on a real agent.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    Client, QueryOptions,
    client::PutOptions,
    testing::{TestConsul, parts::Suite, real},
    types::HealthStatus,
};
use cts_tasks::{
    Config, Daemon, DaemonOptions, FirstRun, Status, Stop, StopReason, client::ClientConfig,
    config::Registry, testing::RecordingDriver, wire::TaskDocument,
};
use tokio::time::sleep;

use crate::{
    authority::{Authority, tls},
    both::in_time,
    config::support::{AnyDriver, loader_of, source, task},
};

const SUITE: Suite = Suite("cts-tasks' API with a real Consul");

/// An agent of every version that is there.
async fn real_consuls(case: &str) -> Vec<real::Consul> {
    let mut all = Vec::new();
    for part in SUITE.parts("consul", case) {
        all.push(real::Consul::start(&part.path).await.unwrap());
    }
    all
}

/// The port that the daemon registered with.
async fn registered_port(consul: &Client) -> u16 {
    loop {
        let services = consul.agent_services(&QueryOptions::default()).await.unwrap();
        if let Some(own) = services.get("cts-01") {
            return own.service.tcp_port().expect("a port");
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn health(consul: &Client) -> HealthStatus {
    let checks = consul.agent_checks(&QueryOptions::default()).await.unwrap();
    checks["cts-01-health"].status.clone()
}

/// A daemon on this Consul.
fn daemon(consul: &Client, change: impl FnOnce(&mut Config)) -> Daemon {
    let driver = AnyDriver::new("terraform", &[]);
    let loader = loader_of(Registry::new().driver(driver));
    let text = "id = \"cts-01\"\nport = 0\nbuffer_period { enabled = false }";
    let loaded = loader.load_sources(vec![source("test.hcl", text)]).unwrap();
    let mut config = loaded.config;
    change(&mut config);
    let mut options = DaemonOptions::default();
    options.rules = Some(loaded.rules);
    Daemon::with_client(config, Arc::new(RecordingDriver::default()), options, consul.clone())
}

/// Runs a daemon for as long as somebody works with it. One that ends by itself
/// is not waited for.
async fn beside(daemon: Daemon, stop: &Stop, work: impl Future<Output = ()>) {
    let mut running = Box::pin(daemon.run(stop));
    let work = Box::pin(in_time(work));
    tokio::select! {
        ended = &mut running => panic!("the daemon has ended: {ended:?}"),
        () = work => stop.stop(StopReason::Shutdown),
    }
    running.await.unwrap();
}

fn client(port: u16) -> cts_tasks::client::Client {
    let mut config = ClientConfig::default();
    config.address = format!("http://localhost:{port}");
    cts_tasks::client::Client::new(&config).unwrap()
}

/// What Consul refuses is not created.
async fn refuses(api: &cts_tasks::client::Client) {
    for (condition, text) in [
        ("services\" { names = [\"web\"] datacenter = \"none\" }", "No path to datacenter"),
        ("services\" { names = [\"web\"] filter = \"Service.Nope == 1\" }", "Selector"),
    ] {
        let task = TaskDocument::from(&task(&format!("condition \"{condition}")));
        let error = api.create_task(&task, FirstRun::Now).await.unwrap_err();
        assert_eq!(error.status().unwrap(), 500, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(api.tasks().await.unwrap().is_empty());
}

/// A task's life through the API: it is inspected and created, and runs when
/// Consul changes.
async fn lives(consul: &Client) {
    let stop = Stop::new();
    let daemon = daemon(consul, |_| ());
    Box::pin(beside(daemon, &stop, async {
        let api = client(registered_port(consul).await);
        refuses(&api).await;
        let right = TaskDocument::from(&task("condition \"consul-kv\" { path = \"k\" }"));
        api.inspect_new_task(&right).await.unwrap();
        assert_eq!(api.task("t").await.unwrap_err().status().unwrap(), 404);
        api.create_task(&right, FirstRun::Now).await.unwrap();
        assert_eq!(api.task_status("t", false).await.unwrap().status, Status::Successful);
        consul.kv_put("k", "v", &PutOptions::default()).await.unwrap();
        while api.task_status("t", true).await.unwrap().events.len() < 2 {
            sleep(Duration::from_millis(10)).await;
        }
        api.health().await.unwrap();
    }))
    .await;
}

/// Spec: CTS65, CTS78
#[tokio::test]
async fn a_task_lives_through_the_api_on_the_double() {
    SUITE.double("consul");
    lives(&TestConsul::new().client()).await;
}

/// Spec: CTS65, CTS78
#[tokio::test]
async fn a_task_lives_through_the_api_on_a_real_consul() {
    for consul in real_consuls("a task's life through the API").await {
        lives(&consul.client()).await;
    }
}

/// A real agent asks for the health, over https as well, and finds it passing.
///
/// Spec: CTS83, CTS84
#[tokio::test]
async fn a_real_agent_finds_the_registered_api_healthy() {
    for consul in real_consuls("the agent's check of the API").await {
        finds_the_api_healthy(&consul.client()).await;
    }
}

async fn finds_the_api_healthy(consul_client: &Client) {
    let authority = Authority::new();
    let pair = authority.sign("server", &["localhost"]);
    for secured in [false, true] {
        let stop = Stop::new();
        let daemon = daemon(consul_client, |config| {
            config.tls = secured.then(|| tls(&pair, ""));
        });
        Box::pin(beside(daemon, &stop, async {
            registered_port(consul_client).await;
            while health(consul_client).await != HealthStatus::Passing {
                sleep(Duration::from_millis(50)).await;
            }
        }))
        .await;
        let services = consul_client.agent_services(&QueryOptions::default()).await.unwrap();
        assert!(!services.contains_key("cts-01"), "deregistered");
    }
}
