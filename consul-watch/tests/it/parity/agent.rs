//! Parity of the local agent: services, checks, TTLs, maintenance.

use std::time::Duration;

use consul_watch::{
    Client, QueryOptions,
    types::{
        AgentCheckRegistration, AgentServiceRegistration, CheckSpec, HealthStatus, ServiceEntry,
    },
};

use super::Env;

super::cases![
    cp46_ttl_check,
    cp47_maintenance,
    cp48_service_by_hash,
    cp59_deregister_of_an_unknown_id,
    cw42_output_alone_does_not_reach_the_catalog_at_once,
    agent_itself,
];

/// Follows a service's health until it is as wanted.
async fn until(
    env: &Env,
    name: &str,
    wanted: impl Fn(&[ServiceEntry]) -> bool,
) -> Vec<ServiceEntry> {
    let mut options = QueryOptions::default();
    options.wait = Some(Duration::from_secs(30));
    loop {
        let answer = env.client.health_service(name, &options.clone().into()).await.unwrap();
        if wanted(&answer.value) {
            return answer.value;
        }
        options.index = answer.meta.index;
    }
}

fn is(status: HealthStatus) -> impl Fn(&[ServiceEntry]) -> bool {
    move |entries| {
        entries
            .first()
            .is_some_and(|entry| entry.checks.len() > 1 && entry.aggregated_status() == status)
    }
}

async fn register(client: &Client, name: &str, ttl: Duration) {
    let mut registration = AgentServiceRegistration::new(name);
    registration.port = 80;
    registration.tags = vec!["a".into()];
    registration.checks.push(CheckSpec::ttl(format!("{name}-check"), ttl));
    client.agent_register_service(&registration).await.unwrap();
}

async fn remove(client: &Client, name: &str) {
    client.agent_deregister_service(name, None).await.unwrap();
}

/// Spec: CP46
async fn cp46_ttl_check(env: &Env) {
    let name = env.name("s");
    let check = format!("{name}-check");
    register(&env.client, &name, Duration::from_secs(1)).await;
    until(env, &name, is(HealthStatus::Critical)).await;
    env.client.agent_pass_check(&check, "fine").await.unwrap();
    until(env, &name, is(HealthStatus::Passing)).await;
    // From here nobody reports.
    let entries = until(env, &name, is(HealthStatus::Critical)).await;
    let output =
        entries[0].checks.iter().find(|found| found.check_id == check).unwrap().output.clone();
    assert!(output.contains("TTL expired"), "{output}");
    env.client.agent_update_check(&check, &HealthStatus::Warning, "so so").await.unwrap();
    until(env, &name, is(HealthStatus::Warning)).await;
    remove(&env.client, &name).await;
    until(env, &name, <[ServiceEntry]>::is_empty).await;
}

/// Spec: CP47
async fn cp47_maintenance(env: &Env) {
    let name = env.name("s");
    register(&env.client, &name, Duration::from_mins(5)).await;
    env.client.agent_pass_check(&format!("{name}-check"), "").await.unwrap();
    until(env, &name, is(HealthStatus::Passing)).await;
    env.client.agent_service_maintenance(&name, true, "a reason").await.unwrap();
    let entries = until(env, &name, is(HealthStatus::Maintenance)).await;
    assert!(
        entries[0]
            .checks
            .iter()
            .any(|check| check.check_id == format!("_service_maintenance:{name}"))
    );
    env.client.agent_service_maintenance(&name, false, "").await.unwrap();
    until(env, &name, is(HealthStatus::Passing)).await;
    env.client.agent_maintenance(true, "the node").await.unwrap();
    until(env, &name, is(HealthStatus::Maintenance)).await;
    env.client.agent_maintenance(false, "").await.unwrap();
    until(env, &name, is(HealthStatus::Passing)).await;
    remove(&env.client, &name).await;
}

/// Spec: CP48, CW13
async fn cp48_service_by_hash(env: &Env) {
    let name = env.name("s");
    let absent = env.client.agent_service(&name, &QueryOptions::default()).await.unwrap();
    assert_eq!((absent.value, absent.meta.content_hash), (None, None));
    let mut registration = AgentServiceRegistration::new(&name);
    env.client.agent_register_service(&registration).await.unwrap();
    let first = env.client.agent_service(&name, &QueryOptions::default()).await.unwrap();
    let hash = first.meta.content_hash.clone().expect("a hash");
    assert_eq!(first.value.map(|service| service.content_hash), Some(hash.clone()));

    let held = |hash: &str| {
        let mut options = QueryOptions::default();
        (options.hash, options.wait) = (Some(hash.to_owned()), Some(Duration::from_secs(30)));
        let (client, name) = (env.client.clone(), name.clone());
        tokio::spawn(async move { client.agent_service(&name, &options).await.unwrap() })
    };
    let blocked = held(&hash);
    registration.tags.push("new".into());
    env.client.agent_register_service(&registration).await.unwrap();
    let second = blocked.await.unwrap();
    let changed = second.meta.content_hash.clone().expect("a hash");
    assert_ne!(changed, hash);
    assert_eq!(second.value.map(|service| service.service.tags), Some(vec!["new".to_owned()]));

    let blocked = held(&changed);
    remove(&env.client, &name).await;
    assert_eq!(blocked.await.unwrap().value, None);
}

/// Spec: CP59
async fn cp59_deregister_of_an_unknown_id(env: &Env) {
    let unknown = env.name("nothing");
    let service = env.client.agent_deregister_service(&unknown, None).await;
    let check = env.client.agent_deregister_check(&unknown).await;
    let report = env.client.agent_pass_check(&unknown, "").await.unwrap_err();
    if env.is_1_8 {
        assert!(service.is_ok() && check.is_ok());
        assert!(report.to_string().contains("does not have associated TTL"), "{report}");
        assert!(!report.is_retryable());
    } else {
        assert!(service.unwrap_err().is_not_found() && check.unwrap_err().is_not_found());
        assert!(report.is_not_found());
    }
}

/// Spec: CW42
async fn cw42_output_alone_does_not_reach_the_catalog_at_once(env: &Env) {
    let name = env.name("s");
    let check = format!("{name}-check");
    register(&env.client, &name, Duration::from_hours(1)).await;
    env.client.agent_pass_check(&check, "first").await.unwrap();
    until(env, &name, is(HealthStatus::Passing)).await;
    let read = {
        let name = name.clone();
        move |client: Client, options: QueryOptions| {
            let name = name.clone();
            async move { client.health_service(&name, &options.into()).await }
        }
    };
    let seen = env.observe(read, env.client.agent_pass_check(&check, "second")).await;
    seen.assert_quiet();
    let local = env.client.agent_checks(&QueryOptions::default()).await.unwrap();
    assert_eq!(local.get(&check).map(|check| check.output.as_str()), Some("second"));
    remove(&env.client, &name).await;
}

async fn agent_itself(env: &Env) {
    let own = env.client.agent_self().await.unwrap();
    assert_eq!((own.config.node_name.as_str(), own.config.datacenter.as_str()), (env.node, "dc1"));
    assert!(own.config.server && !own.config.version.is_empty() && !own.config.node_id.is_empty());
    let members = env.client.agent_members(false).await.unwrap();
    assert_eq!(
        members.iter().map(|member| (member.name.as_str(), member.status)).collect::<Vec<_>>(),
        [(env.node, 1)]
    );
    let check = env.name("check");
    let registration =
        AgentCheckRegistration::of_node(CheckSpec::ttl(&check, Duration::from_hours(1)));
    env.client.agent_register_check(&registration).await.unwrap();
    let checks = env.client.agent_checks(&QueryOptions::default()).await.unwrap();
    assert_eq!(checks.get(&check).map(|check| check.status.clone()), Some(HealthStatus::Critical));
    env.client.agent_deregister_check(&check).await.unwrap();
    let services = env.client.agent_services(&QueryOptions::default()).await.unwrap();
    assert!(services.values().all(|service| !service.service.name.is_empty()));
}
