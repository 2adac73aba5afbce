//! Parity of the catalog's reads and writes.

use consul_watch::{Answer, Client, QueryOptions, Result, types::HealthCheck, types::HealthStatus};
use futures::future::BoxFuture;

use super::{Env, instance};

super::cases![
    cp36_catalog_services,
    cp37_catalog_nodes_and_a_service,
    cp38_unknown_node,
    a_check_of_an_unknown_service_is_refused,
    an_unknown_node_without_address_is_refused,
];

type Services = std::collections::BTreeMap<String, Vec<String>>;

fn services(client: Client, options: QueryOptions) -> BoxFuture<'static, Result<Answer<Services>>> {
    Box::pin(async move { client.catalog_services(&options).await })
}

/// Spec: CP36
async fn cp36_catalog_services(env: &Env) {
    let (service, node) = (env.name("s"), env.name("node"));
    env.instance(&service, &node, "passing").await;
    let mut tagged = instance(&service, &node, "passing");
    tagged.service.as_mut().unwrap().tags = vec!["v2".into(), "v1".into()];
    let seen = env.observe(services, env.client.catalog_register(&tagged)).await;
    seen.assert_woken();
    assert_eq!(seen.last.get(&service).map(Vec::len), Some(2));
    let mut critical = tagged.clone();
    critical.checks[0].status = HealthStatus::Critical;
    env.observe(services, env.client.catalog_register(&critical)).await.assert_quiet();
}

/// Spec: CP37
async fn cp37_catalog_nodes_and_a_service(env: &Env) {
    let (service, node) = (env.name("s"), env.name("node"));
    env.instance(&service, &node, "passing").await;
    let mut other = instance(&env.name("s2"), &node, "passing");
    other.service.as_mut().unwrap().id = env.name("id");
    other.checks.clear();
    let read =
        |client: Client, options: QueryOptions| async move { client.catalog_nodes(&options).await };
    let seen = env.observe(read, env.client.catalog_register(&other)).await;
    // With current servers the index grows, and nobody is woken.
    seen.assert_idle();
    assert_eq!(seen.after > seen.before, !env.is_1_8);
    assert_eq!(seen.first, seen.last);
}

/// Spec: CP38
async fn cp38_unknown_node(env: &Env) {
    let answer =
        env.client.catalog_node(&env.name("nobody"), &QueryOptions::default()).await.unwrap();
    assert_eq!(answer.value, None);
    assert!(answer.meta.index.is_some_and(|index| index >= 1));
    if env.is_1_8 {
        assert_eq!(answer.meta.index, Some(1));
    }
    let own =
        env.client.catalog_node(env.node, &QueryOptions::default()).await.unwrap().value.unwrap();
    assert!(own.services.contains_key("consul"));
}

async fn a_check_of_an_unknown_service_is_refused(env: &Env) {
    let (service, node) = (env.name("s"), env.name("node"));
    let check = HealthCheck::of_service("nothing", "c", HealthStatus::Passing);
    let registration = instance(&service, &node, "passing").with_check(check);
    let error = env.client.catalog_register(&registration).await.unwrap_err();
    let text = if env.is_1_8 { "Missing service registration" } else { "Unknown service ID" };
    assert!(error.to_string().contains(text), "{error}");
}

async fn an_unknown_node_without_address_is_refused(env: &Env) {
    let mut registration = instance(&env.name("s"), &env.name("node"), "passing");
    registration.address = String::new();
    let error = env.client.catalog_register(&registration).await.unwrap_err();
    assert!(error.to_string().contains("Must provide address"), "{error}");
    assert!(!error.is_retryable());
}
