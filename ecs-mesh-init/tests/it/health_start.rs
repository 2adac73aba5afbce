//! The start of health-sync while Consul does not give the checks.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use consul_watch::{
    Client, QueryOptions,
    testing::TestConsul,
    types::{HealthCheck, HealthStatus},
};
use ecs_mesh_init::{
    Config, Error, HealthSync, Result,
    metadata::Task,
    registration::{CatalogRegistrar, MeshService, Registrar, TaskPlan},
    testing::TestTaskMetadata,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::health_sync::{HEALTHY, NODE, document};

/// A catalog whose checks cannot be read for a while.
#[derive(Debug)]
struct Late {
    inner: CatalogRegistrar,
    until: Instant,
    status: u16,
}

#[async_trait]
impl Registrar for Late {
    async fn register(&self, service: &MeshService) -> Result<()> {
        self.inner.register(service).await
    }

    async fn checks(&self, service: &MeshService) -> Result<Vec<HealthCheck>> {
        if Instant::now() < self.until {
            return Err(Error::Consul {
                operation: "reading the checks".to_owned(),
                source: consul_watch::Error::Status {
                    operation: "health.checks",
                    status: self.status.try_into().unwrap(),
                    message: "ACL not found".to_owned(),
                    retry_after: None,
                },
            });
        }
        self.inner.checks(service).await
    }

    async fn report(&self, checks: &[HealthCheck]) -> Result<()> {
        self.inner.report(checks).await
    }

    async fn deregister(&self, service: &MeshService) -> Result<()> {
        self.inner.deregister(service).await
    }
}

/// Starts where Consul answers with this status for so many seconds.
async fn late(
    seconds: u64,
    status: u16,
) -> (Client, Arc<TestTaskMetadata>, CancellationToken, JoinHandle<Result<()>>) {
    let client = TestConsul::new().client();
    let config = Config::parse(
        r#"{"bootstrapDir":"/c","service":{"port":1},"healthSyncContainers":["app"],"consulServers":{"hosts":"h"}}"#,
    )
    .unwrap();
    let metadata = Arc::new(TestTaskMetadata::new(&document(HEALTHY)).unwrap());
    let plan = TaskPlan::new(&config, &Task::parse(&document(HEALTHY)).unwrap(), None).unwrap();
    let until = Instant::now() + Duration::from_secs(seconds);
    let inner = CatalogRegistrar::new(client.clone(), NODE);
    let registrar = Arc::new(Late { inner, until, status });
    for service in plan.services() {
        registrar.register(service).await.unwrap();
    }
    let containers = config.health_sync_containers.clone();
    let source = Arc::<TestTaskMetadata>::clone(&metadata);
    let sync = HealthSync::new(config.generation, containers, plan, source, registrar);
    let stop = CancellationToken::new();
    let run = tokio::spawn(sync.run(stop.clone()));
    (client, metadata, stop, run)
}

async fn status_of_app(client: &Client) -> HealthStatus {
    let checks = client.health_checks("web", &QueryOptions::default()).await.unwrap().value;
    checks.into_iter().find(|check| check.check_id == "web-abc-app").unwrap().status
}

/// Not every server knows a token that was just made: what refuses it at first is asked again.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_known_at_once_is_waited_for() {
    let (client, _metadata, stop, run) = late(40, 403).await;
    sleep(Duration::from_secs(39)).await;
    assert_eq!(status_of_app(&client).await, HealthStatus::Critical);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(status_of_app(&client).await, HealthStatus::Passing);
    stop.cancel();
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_token_that_stays_unknown_is_an_error_after_a_minute() {
    let began = Instant::now();
    let (_client, _metadata, _stop, run) = late(600, 403).await;
    let error = run.await.unwrap().unwrap_err();
    assert!(consul_watch::error_chain(&error).contains("ACL not found"), "{error}");
    let waited = began.elapsed();
    assert!(waited > Duration::from_secs(50) && waited < Duration::from_secs(61), "{waited:?}");
}

/// A Consul that is away when health-sync starts is no reason to leave the task's checks as they
/// are.
#[tokio::test(start_paused = true)]
async fn a_consul_that_is_away_at_the_start_is_waited_for() {
    let (client, _metadata, stop, run) = late(600, 500).await;
    sleep(Duration::from_secs(590)).await;
    assert!(!run.is_finished());
    sleep(Duration::from_secs(20)).await;
    assert_eq!(status_of_app(&client).await, HealthStatus::Passing);
    stop.cancel();
    run.abort();
}

/// A task that ends before Consul gave the checks leaves no service behind either.
#[tokio::test(start_paused = true)]
async fn a_termination_at_the_start_also_deregisters() {
    let (client, metadata, stop, run) = late(600, 500).await;
    sleep(Duration::from_secs(3)).await;
    stop.cancel();
    sleep(Duration::from_secs(3)).await;
    assert!(!run.is_finished(), "the proxy has not stopped");
    metadata.change(|task| *task = Task::parse(&document(&[])).unwrap());
    run.await.unwrap().unwrap();
    let services = client.catalog_services(&QueryOptions::default()).await.unwrap().value;
    assert!(!services.contains_key("web") && !services.contains_key("web-sidecar-proxy"));
}
