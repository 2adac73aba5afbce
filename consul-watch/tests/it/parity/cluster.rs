//! Parity of what servers and agents say about themselves.

use std::time::Duration;

use consul_watch::{
    QueryOptions, WriteOptions,
    types::{
        AgentServiceRegistration, CatalogRegistration, CheckSpec, Coordinate, HealthStatus,
        NodeCoordinate,
    },
};

use super::{Env, acl::holder, status};

super::cases![places_of_nodes, servers, health_of_the_agents_services];

mod sealed {
    super::super::cases![sealed: the_cluster_is_the_operators];
    use super::the_cluster_is_the_operators;
}

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn at(first: f64) -> Coordinate {
    let mut place = Coordinate::default();
    place.vec = vec![first, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    (place.error, place.height) = (1.5, 0.1);
    place
}

async fn places_of_nodes(env: &Env) {
    let (node, write) = (env.name("node"), WriteOptions::default());
    env.client.catalog_register(&CatalogRegistration::new(&node, "10.0.0.1")).await.unwrap();
    assert_eq!(env.client.coordinate_node(&node, &read()).await.unwrap().value, []);
    let place = NodeCoordinate::new(&node, at(0.001));
    env.client.coordinate_update(&place, &write).await.unwrap();
    // A real server takes it some seconds later.
    let mut options = read();
    options.wait = Some(Duration::from_secs(15));
    loop {
        let all = env.client.coordinate_nodes(&options).await.unwrap();
        if all.value.contains(&place) {
            break;
        }
        options.index = all.meta.index;
    }
    assert_eq!(env.client.coordinate_node(&node, &read()).await.unwrap().value, [place]);
    let mut flat = NodeCoordinate::new(&node, at(0.0));
    flat.coord.vec = vec![0.0, 0.0];
    let error = env.client.coordinate_update(&flat, &write).await.unwrap_err();
    assert_eq!(status(&error), 500);
    assert!(error.to_string().contains("incompatible coordinate"), "{error}");
    // The real server of this suite gossips with no other datacenter and so has no place there.
    let datacenters = env.client.coordinate_datacenters().await.unwrap();
    let shown: Vec<_> =
        datacenters.iter().map(|of| (of.datacenter.as_str(), of.area_id.as_str())).collect();
    assert_eq!(shown, if env.double.is_some() { vec![("dc1", "wan")] } else { vec![] });
}

async fn servers(env: &Env) {
    let raft = env.client.operator_raft_configuration(&read()).await.unwrap();
    assert_eq!(raft.servers.len(), 1);
    let server = &raft.servers[0];
    assert_eq!((server.node.as_str(), server.leader, server.voter), (env.node, true, true));
    let health = env.client.operator_autopilot_health(&read()).await.unwrap();
    assert_eq!((&health.servers[0].id, health.failure_tolerance), (&server.id, 0));
    let error = env.client.operator_raft_remove_peer("x").await.unwrap_err();
    assert_eq!(status(&error), 500);
    assert!(error.to_string().contains(r#"id "x" was not found in the Raft configuration"#));
}

async fn health_of_the_agents_services(env: &Env) {
    let name = env.name("web");
    let check = format!("{name}-check");
    let mut service = AgentServiceRegistration::new(&name);
    service.checks.push(CheckSpec::ttl(&check, Duration::from_mins(1)));
    env.client.agent_register_service(&service).await.unwrap();
    let of = async || env.client.agent_health_service_by_id(&name).await.unwrap().unwrap();
    assert_eq!(of().await.aggregated_status, HealthStatus::Critical);
    for status in [HealthStatus::Warning, HealthStatus::Passing] {
        if status == HealthStatus::Warning {
            env.client.agent_warn_check(&check, "").await.unwrap();
        } else {
            env.client.agent_pass_check(&check, "").await.unwrap();
        }
        let found = of().await;
        assert_eq!((found.aggregated_status, found.checks.len()), (status.clone(), 1));
        let by_name = env.client.agent_health_service_by_name(&name).await.unwrap();
        assert_eq!(by_name[0].aggregated_status, status);
    }
    env.client.agent_service_maintenance(&name, true, "x").await.unwrap();
    assert_eq!(of().await.aggregated_status.as_str(), "maintenance");
    env.client.agent_deregister_service(&name, None).await.unwrap();
    assert!(env.client.agent_health_service_by_id(&name).await.unwrap().is_none());
    assert!(env.client.agent_health_service_by_name(&name).await.unwrap().is_empty());
}

async fn the_cluster_is_the_operators(env: &Env) {
    let rules = format!(r#"node "{}" {{ policy = "read" }}"#, env.node);
    let who = holder(env, &[rules]).await;
    let place = NodeCoordinate::new(env.node, at(0.0));
    let update = who.coordinate_update(&place, &WriteOptions::default()).await.unwrap_err();
    let other = who.coordinate_node("other", &read()).await.unwrap_err();
    let raft = who.operator_raft_configuration(&read()).await.unwrap_err();
    let health = who.operator_autopilot_health(&read()).await.unwrap_err();
    let peer = who.operator_raft_remove_peer("x").await.unwrap_err();
    for error in [update, other, raft, health, peer] {
        assert!(error.is_permission_denied(), "{error}");
    }
    let seen = who.coordinate_nodes(&read()).await.unwrap().value;
    assert!(seen.iter().all(|place| place.node == env.node));
    who.coordinate_datacenters().await.unwrap();
}
