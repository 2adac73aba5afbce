//! health-sync against the double, with time that the test moves.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::{
    Client, QueryOptions,
    testing::TestConsul,
    types::{HealthCheck, HealthStatus},
};
use ecs_mesh_init::{
    Config, Error, HealthSync, Result,
    metadata::Task,
    registration::{AgentRegistrar, CatalogRegistrar, MeshService, Registrar, TaskPlan},
    testing::TestTaskMetadata,
};
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::log::Log;

pub(crate) const NODE: &str = "arn:aws:ecs:us-east-1:1:cluster/test";

pub(crate) fn document(containers: &[(&str, &str)]) -> Vec<u8> {
    let containers: Vec<_> = containers
        .iter()
        .map(|(name, status)| {
            json!({"Name": name, "DesiredStatus": "RUNNING", "KnownStatus": "RUNNING", "Health": {"status": status}})
        })
        .collect();
    json!({"TaskARN": "arn:aws:ecs:us-east-1:1:task/test/abc", "Family": "web", "Containers": containers})
        .to_string()
        .into_bytes()
}

/// A registrar that counts writes and can be told to fail.
#[derive(Debug)]
struct Watched {
    inner: Box<dyn Registrar>,
    writes: Mutex<Vec<usize>>,
    fails: Mutex<bool>,
}

#[async_trait]
impl Registrar for Watched {
    async fn register(&self, service: &MeshService) -> Result<()> {
        self.inner.register(service).await
    }

    async fn checks(&self, service: &MeshService) -> Result<Vec<HealthCheck>> {
        self.inner.checks(service).await
    }

    async fn report(&self, checks: &[HealthCheck]) -> Result<()> {
        self.writes.lock().unwrap().push(checks.len());
        if *self.fails.lock().unwrap() {
            return Err(Error::Other {
                operation: "report",
                retryable: true,
                source: "as asked".into(),
            });
        }
        self.inner.report(checks).await
    }

    async fn deregister(&self, service: &MeshService) -> Result<()> {
        self.inner.deregister(service).await
    }
}

struct Running {
    client: Client,
    metadata: Arc<TestTaskMetadata>,
    registrar: Arc<Watched>,
    stop: CancellationToken,
    run: JoinHandle<Result<()>>,
}

impl Running {
    /// Starts on a double, with a container each of this name and health.
    async fn start(early: bool, containers: &[(&str, &str)]) -> Self {
        let client = TestConsul::new().client();
        let extra = if early { "" } else { r#","consulServers":{"hosts":"h"}"# };
        let config = format!(
            r#"{{"bootstrapDir":"/c","service":{{"port":1}},"healthSyncContainers":["app","log"]{extra}}}"#
        );
        let config = Config::parse(&config).unwrap();
        let metadata = Arc::new(TestTaskMetadata::new(&document(containers)).unwrap());
        let task = Task::parse(&document(containers)).unwrap();
        let plan = TaskPlan::new(&config, &task, None).unwrap();
        let inner: Box<dyn Registrar> = if early {
            Box::new(AgentRegistrar::new(Arc::new(client.clone())))
        } else {
            Box::new(CatalogRegistrar::new(client.clone(), NODE))
        };
        let registrar =
            Arc::new(Watched { inner, writes: Mutex::default(), fails: Mutex::default() });
        for service in plan.services() {
            registrar.register(service).await.unwrap();
        }
        let sync = HealthSync::new(
            config.generation,
            config.health_sync_containers.clone(),
            plan,
            Arc::<TestTaskMetadata>::clone(&metadata),
            Arc::<Watched>::clone(&registrar),
        );
        let stop = CancellationToken::new();
        let run = tokio::spawn(sync.run(stop.clone()));
        let running = Self { client, metadata, registrar, stop, run };
        running.tick().await;
        running
    }

    /// Lets a second pass, on the paused clock.
    async fn tick(&self) {
        sleep(Duration::from_millis(1100)).await;
    }

    fn set(&self, containers: &[(&str, &str)]) {
        self.metadata.change(|task| *task = Task::parse(&document(containers)).unwrap());
    }

    fn writes(&self) -> Vec<usize> {
        std::mem::take(&mut *self.registrar.writes.lock().unwrap())
    }

    async fn checks(&self, service: &str) -> Vec<HealthCheck> {
        self.client.health_checks(service, &QueryOptions::default()).await.unwrap().value
    }

    async fn status(&self, service: &str, id: &str) -> HealthStatus {
        let checks = self.checks(service).await;
        checks.into_iter().find(|check| check.check_id == id).unwrap().status
    }

    async fn app(&self) -> HealthStatus {
        self.status("web", "web-abc-app").await
    }

    async fn proxy(&self) -> (HealthStatus, HealthStatus) {
        let own = self.status("web-sidecar-proxy", "web-abc-sidecar-proxy-consul-dataplane").await;
        (self.status("web", "web-abc-consul-dataplane").await, own)
    }
}

pub(crate) const HEALTHY: &[(&str, &str)] =
    &[("app", "HEALTHY"), ("log", "HEALTHY"), ("consul-dataplane", "HEALTHY")];
const PASSING: (HealthStatus, HealthStatus) = (HealthStatus::Passing, HealthStatus::Passing);
const CRITICAL: (HealthStatus, HealthStatus) = (HealthStatus::Critical, HealthStatus::Critical);

/// Case MI30: an unchanged status is not written again, nor that of a container that is still
/// missing.
#[tokio::test(start_paused = true)]
async fn what_has_not_changed_is_not_written() {
    let running = Running::start(false, HEALTHY).await;
    assert_eq!(running.writes(), [4]);
    assert_eq!((running.app().await, running.proxy().await), (HealthStatus::Passing, PASSING));
    let before = running.checks("web").await;
    assert!(before.iter().any(
        |check| check.output == r#"ECS health status is "HEALTHY" for container "web-abc-app""#
    ));
    for _ in 0..5 {
        running.tick().await;
    }
    assert_eq!(running.writes(), [0_usize; 0]);
    assert_eq!(running.checks("web").await, before, "also no index has moved");

    running.set(&[("app", "HEALTHY"), ("log", "HEALTHY")]);
    running.tick().await;
    running.tick().await;
    assert_eq!(running.writes(), [2], "a proxy that is missing is written once");
    assert_eq!((running.app().await, running.proxy().await), (HealthStatus::Passing, CRITICAL));
}

/// Case MI31: after a failed write the next tick writes the same change again.
#[tokio::test(start_paused = true)]
async fn a_write_that_failed_is_tried_again() {
    const UPDATED: &str = "container health check updated in Consul";
    let log = Log::default();
    let _logged = tracing::subscriber::set_default(log.clone());
    let running = Running::start(false, &[("app", "UNHEALTHY")]).await;
    assert_eq!(running.writes(), [4]);
    assert!(log.has(UPDATED));
    *running.registrar.fails.lock().unwrap() = true;
    running.set(HEALTHY);
    running.tick().await;
    running.tick().await;
    assert_eq!(running.app().await, HealthStatus::Critical);
    assert!(running.writes().len() >= 2);
    assert!(!log.has(UPDATED), "nothing was");
    *running.registrar.fails.lock().unwrap() = false;
    running.tick().await;
    assert!(log.has(UPDATED));
    assert_eq!((running.app().await, running.proxy().await), (HealthStatus::Passing, PASSING));
}

/// Case MI32: a missing container that reappears healthy makes its check passing, and the
/// dataplane's.
#[tokio::test(start_paused = true)]
async fn a_container_that_comes_back_passes_again() {
    let running =
        Running::start(false, &[("log", "HEALTHY"), ("consul-dataplane", "HEALTHY")]).await;
    assert_eq!((running.app().await, running.proxy().await), (HealthStatus::Critical, CRITICAL));
    running.set(HEALTHY);
    running.tick().await;
    assert_eq!((running.app().await, running.proxy().await), (HealthStatus::Passing, PASSING));
    running.metadata.fail(true);
    running.tick().await;
    assert_eq!(running.app().await, HealthStatus::Passing, "without metadata nothing changes");
}

/// Case MI33: all changes of one tick are one request.
#[tokio::test(start_paused = true)]
async fn the_changes_of_one_moment_are_one_write() {
    let running = Running::start(false, HEALTHY).await;
    running.writes();
    running.set(&[("app", "UNHEALTHY"), ("log", "UNKNOWN"), ("consul-dataplane", "HEALTHY")]);
    running.tick().await;
    assert_eq!(running.writes(), [4]);
    assert_eq!((running.app().await, running.proxy().await), (HealthStatus::Critical, CRITICAL));
    let mut all = running.checks("web").await;
    all.extend(running.checks("web-sidecar-proxy").await);
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|check| check.modify_index == all[0].modify_index), "{all:?}");
    running.set(&[("app", "HEALTHY"), ("log", "HEALTHY"), ("consul-dataplane", "UNHEALTHY")]);
    running.tick().await;
    assert_eq!(running.writes(), [2], "the proxy does not touch the applications' checks");
    assert_eq!(running.app().await, HealthStatus::Passing);
}

/// Case MI34: `SIGTERM` makes every check critical in one request; when the dataplane has stopped,
/// services and token go.
#[tokio::test(start_paused = true)]
async fn a_termination_makes_all_critical_and_deregisters_when_the_proxy_has_stopped() {
    let running = Running::start(false, HEALTHY).await;
    running.writes();
    running.stop.cancel();
    running.tick().await;
    assert_eq!(running.writes(), [4], "one write");
    running.tick().await;
    assert_eq!((running.app().await, running.proxy().await), (HealthStatus::Critical, CRITICAL));
    assert!(running.writes().is_empty() && !running.run.is_finished());
    running.metadata.fail(true);
    running.tick().await;
    assert!(!running.run.is_finished());
    running.metadata.fail(false);
    running.set(&[]);
    let (client, run) = (running.client, running.run);
    run.await.unwrap().unwrap();
    let services = client.catalog_services(&QueryOptions::default()).await.unwrap().value;
    assert!(!services.contains_key("web") && !services.contains_key("web-sidecar-proxy"));
}

/// Also where ECS names no proxy: others are to see the critical checks before the service goes.
#[tokio::test(start_paused = true)]
async fn critical_checks_stay_for_a_second_before_the_service_goes() {
    for early in [false, true] {
        let running = Running::start(early, &[("app", "HEALTHY"), ("log", "HEALTHY")]).await;
        let began = tokio::time::Instant::now();
        running.stop.cancel();
        running.run.await.unwrap().unwrap();
        let took = began.elapsed();
        let second = Duration::from_secs(1);
        assert_eq!(took >= second, !early, "{took:?}");
        assert!(took < second * 2, "{took:?}");
    }
}

/// Consul is away at the moment of the termination: the checks become critical when it is back.
#[tokio::test(start_paused = true)]
async fn checks_that_could_not_be_made_critical_are_tried_again() {
    let running = Running::start(false, HEALTHY).await;
    running.writes();
    *running.registrar.fails.lock().unwrap() = true;
    running.stop.cancel();
    running.tick().await;
    assert!(!running.writes().is_empty());
    assert_eq!((running.app().await, running.proxy().await), (HealthStatus::Passing, PASSING));
    *running.registrar.fails.lock().unwrap() = false;
    running.tick().await;
    running.tick().await;
    assert_eq!((running.app().await, running.proxy().await), (HealthStatus::Critical, CRITICAL));
    running.writes();
    running.tick().await;
    assert!(running.writes().is_empty(), "once is enough");
    running.set(&[]);
    running.run.await.unwrap().unwrap();
}

/// Case MI35: a sidecar with no or several checks is an error at the start.
#[tokio::test(start_paused = true)]
async fn a_sidecar_without_its_one_check_is_an_error() {
    let client = TestConsul::new().client();
    let config = Config::parse(
        r#"{"bootstrapDir":"/c","consulServers":{"hosts":"h"},"service":{"port":1}}"#,
    )
    .unwrap();
    let task = Task::parse(&document(HEALTHY)).unwrap();
    let plan = TaskPlan::new(&config, &task, None).unwrap();
    let registrar = Arc::new(CatalogRegistrar::new(client, NODE));
    let metadata = Arc::new(TestTaskMetadata::new(&document(HEALTHY)).unwrap());
    let sync = HealthSync::new(config.generation, Vec::new(), plan, metadata, registrar);
    let error = sync.run(CancellationToken::new()).await.unwrap_err().to_string();
    assert!(
        error.starts_with("only one check should be associated with the sidecar proxy service"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_gets_each_change_by_itself_until_the_end() {
    let running = Running::start(true, &[("app", "HEALTHY")]).await;
    assert_eq!(running.writes(), [1, 1]);
    assert_eq!(running.status("web", "web-abc-app-consul-ecs").await, HealthStatus::Passing);
    assert_eq!(running.status("web", "web-abc-log-consul-ecs").await, HealthStatus::Critical);
    let checks = running.checks("web").await;
    let output = r#"ECS health status is "HEALTHY" for task "web-abc-app-consul-ecs""#;
    assert!(checks.iter().any(|check| check.output == output), "{checks:?}");
    running.stop.cancel();
    let (client, run) = (running.client.clone(), running.run);
    run.await.unwrap().unwrap();
    let checks = client.health_checks("web", &QueryOptions::default()).await.unwrap().value;
    assert!(checks.iter().all(|check| check.status == HealthStatus::Critical));
    assert_eq!(checks.len(), 2, "the agent deregisters when it leaves");
}
