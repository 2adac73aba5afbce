use std::{path::Path, time::Duration};

use consul_watch::{
    Client, Watcher,
    query::HealthService,
    testing::{TestConsul, parts::Suite, real::Consul},
    types::HealthStatus,
};
use serde_json::json;
use tokio::time::timeout;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

use super::{
    ads::ControlPlane,
    task::{EcsTask, free_port},
};

const SUITE: Suite = Suite("consul-ecs from T0 to T2 with Envoy");
const TOKEN: &str = "c9a52720-bf6c-4aa6-b8bc-66881a5ade95";
const LIMIT: Duration = Duration::from_mins(1);

/// Waits until the application's check is as wanted.
async fn application_is(client: &Client, status: HealthStatus) {
    let watcher = Watcher::new(client.clone());
    let mut watch = watcher.watch(HealthService::new("web"));
    let wanted = async {
        loop {
            let entries = watch.changed().await.unwrap().data;
            let checks = entries.iter().flat_map(|entry| &entry.checks);
            let mut of_app = checks.filter(|check| check.check_id == "web-abcdef-web-consul-ecs");
            if of_app.next().is_some_and(|check| check.status == status) {
                return;
            }
        }
    };
    timeout(LIMIT, wanted).await.unwrap();
}

/// The application answers through the proxy.
async fn is_served(port: u16) {
    let answer = reqwest::get(format!("http://127.0.0.1:{port}/")).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "the application");
}

async fn lives(client: &Client, envoy: &Path) {
    let backend = MockServer::start().await;
    Mock::given(any())
        .respond_with(ResponseTemplate::new(200).set_body_string("the application"))
        .mount(&backend)
        .await;
    let port = free_port();
    let control = ControlPlane::start(port, backend.address().port()).await;

    let mut task = EcsTask::start().await;
    let config = json!({
        "bootstrapDir": task.file(""), "healthSyncContainers": ["web"],
        "service": {"port": backend.address().port()}, "proxy": {"publicListenerPort": port},
    });
    task.set_var("CONSUL_ECS_CONFIG_JSON", config.to_string());
    task.set_var("CONSUL_HTTP_ADDR", client.address());
    task.set_var("CONSUL_HTTP_TOKEN", TOKEN);
    task.set_var("CONSUL_GRPC_ADDR", format!("127.0.0.1:{}", control.port));

    // T0: mesh-init registers the task and leaves a bootstrap.
    let (code, log) = task.run(&["mesh-init"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains(TOKEN), "{log}");
    let address = format!("127.0.0.1:{port}");
    assert_eq!(task.run(&["net-dial", &address]).await.0, Some(2), "no proxy yet");

    // T1: the proxy and health-sync start.
    let proxy = task.spawn_envoy(envoy);
    let health_sync = task.spawn(&["health-sync"]);
    let accepted = timeout(LIMIT, control.listener_accepted()).await;
    assert!(accepted.is_ok(), "{}", task.log());
    let introduction = control.introduction();
    assert_eq!(introduction.node.id, "web-abcdef-sidecar-proxy");
    assert_eq!(introduction.node.cluster, "web");
    assert_eq!(introduction.token, TOKEN);
    let metadata = introduction.node.metadata.unwrap().fields;
    for (name, value) in [("namespace", "default"), ("partition", "default")] {
        let kind = prost_types::value::Kind::StringValue(value.to_owned());
        assert_eq!(metadata[name].kind, Some(kind), "{name}");
    }

    // T2: the proxy is healthy, so the application starts; its health reaches Consul.
    assert_eq!(task.run(&["net-dial", &address]).await.0, Some(0));
    application_is(client, HealthStatus::Critical).await;
    task.application("RUNNING", "HEALTHY");
    application_is(client, HealthStatus::Passing).await;
    is_served(port).await;

    // The end: all are told at once, and the proxy outlives the application.
    let polls = task.metadata_polls().await;
    proxy.terminate();
    health_sync.terminate();
    application_is(client, HealthStatus::Critical).await;
    assert_eq!(health_sync.exit_code().await, Some(0));
    while task.metadata_polls().await < polls + 3 {
        tokio::task::yield_now().await;
    }
    is_served(port).await;
    task.application("STOPPED", "UNHEALTHY");
    assert_eq!(timeout(LIMIT, proxy.exit_code()).await.unwrap(), Some(0));
    assert!(!task.log().contains(TOKEN), "{}", task.log());
}

#[tokio::test]
async fn a_task_lives_with_a_consul_that_is_a_double() {
    let Some(envoy) = SUITE.part("envoy", "a task's whole life") else { return };
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    lives(&consul.client(), &envoy.path).await;
}

#[tokio::test]
async fn a_task_lives_with_a_consul_that_is_real() {
    let Some(envoy) = SUITE.part("envoy", "a task's whole life") else { return };
    for part in SUITE.parts("consul", "a task's whole life") {
        let consul = Consul::start(&part.path).await.unwrap();
        lives(&consul.client(), &envoy.path).await;
    }
}
