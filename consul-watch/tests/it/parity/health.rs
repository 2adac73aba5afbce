//! Parity of health reads.

use consul_watch::{
    Answer, Client, QueryOptions, Result,
    client::HealthOptions,
    types::{CatalogDeregistration, HealthCheck, HealthStatus, ServiceEntry},
};
use futures::future::BoxFuture;

use super::{Env, instance};

super::cases![
    cp28_another_service_changes,
    cp29_one_of_two_instances_goes,
    cp30_last_instance_goes,
    cp31_absent_service,
    cp32_check_changes_its_state,
    cp33_same_check_again,
    cp34_node_check_turns_critical,
    cp35_node_metadata_changes,
    cp40_same_registration_again,
];

fn health(
    name: &str,
) -> impl Fn(Client, QueryOptions) -> BoxFuture<'static, Result<Answer<Vec<ServiceEntry>>>> {
    let name = name.to_owned();
    move |client, options| {
        let name = name.clone();
        Box::pin(async move { client.health_service(&name, &options.into()).await })
    }
}

async fn passing(env: &Env, name: &str) -> usize {
    let mut options = HealthOptions::default();
    options.passing = true;
    env.client.health_service(name, &options).await.unwrap().value.len()
}

async fn remove(env: &Env, node: &str) {
    env.client.catalog_deregister(&CatalogDeregistration::service(node, node)).await.unwrap();
}

/// Spec: CP28, CW41
async fn cp28_another_service_changes(env: &Env) {
    let (a, b) = (env.name("a"), env.name("b"));
    let (node_a, node_b) = (env.name("node-a"), env.name("node-b"));
    env.instance(&a, &node_a, "passing").await;
    env.instance(&b, &node_b, "passing").await;
    env.observe(health(&a), env.instance(&b, &node_b, "critical")).await.assert_quiet();
}

/// Spec: CP29
async fn cp29_one_of_two_instances_goes(env: &Env) {
    let (service, one, two) = (env.name("s"), env.name("one"), env.name("two"));
    env.instance(&service, &one, "passing").await;
    env.instance(&service, &two, "passing").await;
    let seen = env.observe(health(&service), remove(env, &one)).await;
    seen.assert_woken();
    assert_eq!(seen.last.len(), 1);
}

/// Spec: CP30
async fn cp30_last_instance_goes(env: &Env) {
    let (service, node) = (env.name("s"), env.name("node"));
    env.instance(&service, &node, "passing").await;
    let seen = env.observe(health(&service), remove(env, &node)).await;
    seen.assert_woken();
    assert!(seen.last.is_empty());
}

/// Spec: CP31
async fn cp31_absent_service(env: &Env) {
    let (missing, other) = (env.name("missing"), env.name("other"));
    let (one, two) = (env.name("one"), env.name("two"));
    // A service that loses its last instance; only the next such loss wakes from now on.
    env.instance(&other, &one, "passing").await;
    remove(env, &one).await;
    env.instance(&other, &two, "passing").await;
    env.observe(health(&missing), env.instance(&other, &one, "passing")).await.assert_quiet();
    env.observe(health(&missing), remove(env, &one)).await.assert_quiet();
    let seen = env.observe(health(&missing), remove(env, &two)).await;
    if env.is_1_8 {
        seen.assert_woken();
    } else {
        // The streaming backend tells of the service itself only.
        seen.assert_idle();
    }
    assert!(seen.last.is_empty());
}

/// Spec: CP32
async fn cp32_check_changes_its_state(env: &Env) {
    let (service, node) = (env.name("s"), env.name("node"));
    env.instance(&service, &node, "passing").await;
    assert_eq!(passing(env, &service).await, 1);
    for (status, expected) in
        [("warning", HealthStatus::Warning), ("critical", HealthStatus::Critical)]
    {
        let seen = env.observe(health(&service), env.instance(&service, &node, status)).await;
        seen.assert_woken();
        assert_eq!(seen.last[0].aggregated_status(), expected);
        assert_eq!(passing(env, &service).await, 0);
    }
}

/// Spec: CP33
async fn cp33_same_check_again(env: &Env) {
    let (service, node) = (env.name("s"), env.name("node"));
    env.instance(&service, &node, "passing").await;
    env.observe(health(&service), env.instance(&service, &node, "passing")).await.assert_quiet();
    let read = {
        let node = node.clone();
        move |client: Client, options: QueryOptions| {
            let node = node.clone();
            async move { client.health_node(&node, &options).await }
        }
    };
    let seen = env.observe(read, env.instance(&service, &node, "passing")).await;
    if env.is_1_8 {
        seen.assert_woken();
    } else {
        seen.assert_quiet();
    }
    assert_eq!(seen.first, seen.last);
}

/// Spec: CP34
async fn cp34_node_check_turns_critical(env: &Env) {
    let (service, node) = (env.name("s"), env.name("node"));
    env.instance(&service, &node, "passing").await;
    let check = HealthCheck::of_node(env.name("check"), HealthStatus::Critical);
    let registration = instance(&service, &node, "passing").with_check(check);
    let seen = env.observe(health(&service), env.client.catalog_register(&registration)).await;
    seen.assert_woken();
    assert_eq!(seen.last[0].aggregated_status(), HealthStatus::Critical);
    assert_eq!(passing(env, &service).await, 0);
}

/// Spec: CP35
async fn cp35_node_metadata_changes(env: &Env) {
    let (service, node) = (env.name("s"), env.name("node"));
    env.instance(&service, &node, "passing").await;
    let mut registration = instance(&service, &node, "passing");
    registration.node_meta.insert("rack".into(), "7".into());
    let seen = env.observe(health(&service), env.client.catalog_register(&registration)).await;
    seen.assert_woken();
    assert_eq!(seen.last[0].node.meta.get("rack").map(String::as_str), Some("7"));
}

/// Spec: CP40
async fn cp40_same_registration_again(env: &Env) {
    let (service, node) = (env.name("s"), env.name("node"));
    env.instance(&service, &node, "passing").await;
    let seen = env.observe(health(&service), env.instance(&service, &node, "passing")).await;
    seen.assert_quiet();
    assert_eq!(seen.first, seen.last);
}
