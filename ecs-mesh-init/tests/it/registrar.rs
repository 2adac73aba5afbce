//! Registration with an agent and in the catalog: read back, repeated, taken away. Each case runs
//! on the double, and on a real Consul where there is one.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    Client, QueryOptions,
    client::Request,
    testing::{TestConsul, parts::Suite, real::Consul},
    types::{HealthCheck, HealthStatus},
};
use ecs_mesh_init::{
    Config,
    metadata::Task,
    registration::{AgentRegistrar, CatalogRegistrar, MeshService, Registrar, TaskPlan},
};

const SUITE: Suite = Suite("ecs-mesh-init registrars");
const NODE: &str = "arn:aws:ecs:us-east-1:123456789:cluster/test";

fn plan(config: &str) -> TaskPlan {
    let task = br#"{"Cluster":"test","TaskARN":"arn:aws:ecs:us-east-1:123456789:task/test/abcdef","Family":"web",
        "Containers":[{"Networks":[{"IPv4Addresses":["10.0.1.7"]}]}]}"#;
    TaskPlan::new(&Config::parse(config).unwrap(), &Task::parse(task).unwrap(), None).unwrap()
}

const EARLY: &str = r#"{"bootstrapDir":"/consul","healthSyncContainers":["app"],"service":{"port":8080,"tags":["a"]},
    "proxy":{"upstreams":[{"destinationName":"backend","localBindPort":1234}]}}"#;
const CURRENT: &str = r#"{"bootstrapDir":"/consul","consulServers":{"hosts":"h"},"healthSyncContainers":["app"],
    "service":{"port":8080,"tags":["a"]},"transparentProxy":{"enabled":false},
    "proxy":{"upstreams":[{"destinationName":"backend","localBindPort":1234}]}}"#;

async fn conforms(
    registrar: &dyn Registrar,
    client: &Client,
    plan: &TaskPlan,
    sidecar_checks: usize,
) {
    for _again in 0..2 {
        for service in plan.services() {
            registrar.register(service).await.unwrap();
        }
    }
    let service = plan.service.as_ref().unwrap();
    let found = instance(client, service).await;
    assert_eq!(found["ServicePort"], 8080);
    assert_eq!(found["ServiceTags"], serde_json::json!(["a"]));
    assert_eq!(found["ServiceMeta"]["task-id"], "abcdef");
    let proxy = instance(client, &plan.proxy).await;
    assert_eq!(proxy["ServiceKind"], "connect-proxy");
    assert_eq!(proxy["ServiceProxy"]["DestinationServiceID"], "web-abcdef");
    assert_eq!(proxy["ServiceProxy"]["Upstreams"][0]["LocalBindPort"], 1234);
    assert_eq!(checks_until(client, &plan.proxy, |_| true).await.len(), sidecar_checks);

    let mut reported = registrar.checks(service).await.unwrap();
    assert!(!reported.is_empty());
    for check in &mut reported {
        assert_eq!(check.status, HealthStatus::Critical);
        check.status = HealthStatus::Passing;
        check.output = "reported".into();
    }
    registrar.report(&reported).await.unwrap();
    let passes = |checks: &[HealthCheck]| {
        checks
            .iter()
            .all(|check| check.status == HealthStatus::Passing && check.output == "reported")
    };
    checks_until(client, service, passes).await;
    // A second mesh-init of the same task: health-sync writes a state once.
    registrar.register(service).await.unwrap();
    let kept = client.health_checks(&service.name, &QueryOptions::default()).await.unwrap().value;
    assert!(!kept.is_empty() && passes(&kept), "{kept:?}");

    for _again in 0..2 {
        registrar.deregister(&plan.proxy).await.unwrap();
        registrar.deregister(service).await.unwrap();
    }
}

/// The one instance of a service, when the catalog has it: an agent brings it there a moment later.
async fn instance(client: &Client, service: &MeshService) -> serde_json::Value {
    checks_until(client, service, |checks| !checks.is_empty()).await;
    let request = Request::get("test", "/v1/catalog/service").segment(&service.name);
    let answer = client.read::<serde_json::Value>(request).await.unwrap().value;
    assert_eq!(answer.as_array().unwrap().len(), 1);
    answer[0].clone()
}

/// The checks of a service, when they are as expected.
async fn checks_until(
    client: &Client,
    service: &MeshService,
    expected: impl Fn(&[HealthCheck]) -> bool,
) -> Vec<HealthCheck> {
    let mut options = QueryOptions::default();
    options.wait = Some(Duration::from_secs(10));
    loop {
        let answer = client.health_checks(&service.name, &options).await.unwrap();
        if expected(&answer.value) {
            return answer.value;
        }
        options.index = answer.meta.index;
    }
}

#[tokio::test]
async fn an_agent_that_is_a_double() {
    SUITE.double("consul");
    let consul = TestConsul::new();
    let client = consul.client();
    conforms(&AgentRegistrar::new(Arc::new(client.clone())), &client, &plan(EARLY), 2).await;
}

#[tokio::test]
async fn a_catalog_that_is_a_double() {
    SUITE.double("consul");
    let consul = TestConsul::new();
    let client = consul.client();
    conforms(&CatalogRegistrar::new(client.clone(), NODE), &client, &plan(CURRENT), 1).await;
}

#[tokio::test]
async fn an_agent_and_a_catalog_that_are_real() {
    for part in SUITE.parts("consul", "registration") {
        let consul = Consul::start(&part.path).await.unwrap();
        let client = consul.client();
        conforms(&AgentRegistrar::new(Arc::new(client.clone())), &client, &plan(EARLY), 2).await;
        conforms(&CatalogRegistrar::new(client.clone(), NODE), &client, &plan(CURRENT), 1).await;
    }
}
