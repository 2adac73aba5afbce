//! Requests of calls about agents, servers and their cluster, as they go over the wire.

use super::*;
use crate::{
    Consistency, QueryOptions, WriteOptions,
    types::{
        CatalogVerb, CheckOp, Coordinate, HealthCheck, HealthStatus, KvOp, KvVerb, Node,
        NodeCoordinate, NodeOp, PreparedQuery, Service, ServiceOp, SessionId, TxnOp, TxnOutcome,
        TxnResult,
    },
};

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn write() -> WriteOptions {
    WriteOptions::default()
}

fn session() -> SessionId {
    "s1".parse().unwrap()
}

#[tokio::test]
async fn transactions_send_one_object_for_each_operation() {
    let wire = Wire::new(200, captured!("txn-committed")).await;
    let node = Node { name: "ext".into(), address: "10.0.0.9".into(), ..Node::default() };
    let check = HealthCheck {
        node: "ext".into(),
        ..HealthCheck::of_service("e1", "c1", HealthStatus::Passing)
    };
    let operations: Vec<TxnOp> = vec![
        KvOp::set("t/1", "x").with_flags(7).into(),
        KvOp::get("a//b").into(),
        KvOp::lock("l", "", session()).into(),
        NodeOp { verb: CatalogVerb::Set, node }.into(),
        ServiceOp {
            verb: CatalogVerb::Delete,
            node: "ext".into(),
            service: Service::new("web", "e1"),
        }
        .into(),
        CheckOp { verb: CatalogVerb::Cas, check }.into(),
    ];
    let outcome = wire.client.txn(&operations, &TxnOptions::default()).await.unwrap();
    let results = outcome.into_result().unwrap();
    assert!(matches!(&results[0], TxnResult::Kv(pair) if pair.flags == 7 && pair.value.is_empty()));
    assert!(matches!(&results[1], TxnResult::Kv(pair) if pair.text() == Some("hello")));
    assert!(matches!(&results[3], TxnResult::Node(node) if node.name == "ext"));
    assert!(matches!(&results[4], TxnResult::Service(service) if service.port == 99));
    assert!(matches!(&results[5], TxnResult::Check(check) if check.check_id == "c1"));
    let sent = wire.sent().await;
    let (head, body) = sent.split_once(" [").unwrap();
    assert_eq!(head, "PUT /v1/txn");
    for part in [
        r#"{"KV":{"Verb":"set","Key":"t/1","Value":"eA==","Flags":7}}"#,
        r#"{"KV":{"Verb":"get","Key":"a//b"}}"#,
        r#"{"KV":{"Verb":"lock","Key":"l","Session":"s1"}}"#,
        r#"{"Node":{"Verb":"set","Node":{"Node":"ext","Address":"10.0.0.9"}}}"#,
        r#"{"Service":{"Verb":"delete","Node":"ext","Service":{"ID":"e1","Service":"web""#,
        r#"{"Check":{"Verb":"cas","Check":{"Node":"ext","CheckID":"c1""#,
    ] {
        assert!(body.contains(part), "{part} in {body}");
    }
}

#[tokio::test]
async fn every_kv_operation_has_its_verb() {
    let operations = [
        (KvOp::delete("k"), r#"{"Verb":"delete","Key":"k"}"#),
        (KvOp::delete_cas("k", 3), r#"{"Verb":"delete-cas","Key":"k","Index":3}"#),
        (KvOp::new(KvVerb::DeleteTree, "k"), r#"{"Verb":"delete-tree","Key":"k"}"#),
        (KvOp::cas("k", "x", 3), r#"{"Verb":"cas","Key":"k","Value":"eA==","Index":3}"#),
        (KvOp::cas("k", "x", 0), r#"{"Verb":"cas","Key":"k","Value":"eA=="}"#),
        (KvOp::unlock("k", "", session()), r#"{"Verb":"unlock","Key":"k","Session":"s1"}"#),
        (KvOp::new(KvVerb::GetOrEmpty, "k"), r#"{"Verb":"get-or-empty","Key":"k"}"#),
        (KvOp::new(KvVerb::GetTree, "k"), r#"{"Verb":"get-tree","Key":"k"}"#),
        (
            KvOp::check_session("k", session()),
            r#"{"Verb":"check-session","Key":"k","Session":"s1"}"#,
        ),
        (KvOp::check_index("k", 3), r#"{"Verb":"check-index","Key":"k","Index":3}"#),
        (KvOp::check_not_exists("k"), r#"{"Verb":"check-not-exists","Key":"k"}"#),
    ];
    for (operation, text) in operations {
        assert_eq!(serde_json::to_string(&operation).unwrap(), text);
    }
}

/// Spec: CP44
#[tokio::test]
async fn a_transaction_that_fails_says_which_operations_could_not() {
    let wire = Wire::new(409, captured!("txn-rolled-back")).await;
    let outcome = wire.client.txn(&[KvOp::get("a").into()], &TxnOptions::default()).await.unwrap();
    let TxnOutcome::RolledBack(failures) = outcome else { panic!("committed") };
    assert_eq!(failures.len(), 3);
    assert_eq!((failures[1].op_index, failures[1].what.as_str()), (1, "key \"a/b\" exists"));
}

/// Spec: CP45
#[tokio::test]
async fn a_transaction_that_is_too_long_is_an_error() {
    let wire = Wire::new(413, "Transaction contains too many operations (65 > 64)").await;
    let error = wire.client.txn(&[], &TxnOptions::default()).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::PAYLOAD_TOO_LARGE));
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_transaction_that_reads_may_be_stale() {
    let wire = Wire::new(200, captured!("txn-read")).await;
    let options = TxnOptions {
        consistency: Consistency::Stale,
        write: WriteOptions { datacenter: Some("dc2".into()), ..write() },
    };
    assert!(wire.client.txn(&[], &options).await.unwrap().is_committed());
    assert_eq!(wire.sent().await, "PUT /v1/txn?dc=dc2&stale []");
}

/// Spec: CP49
#[tokio::test]
async fn events() {
    let wire = Wire::new(200, captured!("event-fired")).await;
    let options = EventOptions {
        datacenter: Some("dc2".into()),
        node: Some("n.*".into()),
        service: Some("web".into()),
        tag: Some("v1".into()),
    };
    let event = wire.client.event_fire("deploy", &b"p"[..], &options).await.unwrap();
    assert_eq!((event.name.as_str(), event.tag_filter.as_str()), ("deploy", "v1"));
    assert_eq!(
        wire.sent().await,
        "PUT /v1/event/fire/deploy?dc=dc2&node=n.%2A&service=web&tag=v1 p"
    );
    assert_eq!(wire.header("content-type").await.as_deref(), Some("application/octet-stream"));
    let wire = Wire::new(200, captured!("event-list")).await;
    let options = QueryOptions { index: Some(u64::MAX), ..read() };
    let events = wire.client.event_list(Some("deploy"), &options).await.unwrap().value;
    assert_eq!(events.len(), 2);
    assert_eq!(wire.sent().await, "GET /v1/event/list?name=deploy&index=18446744073709551615");
}

#[tokio::test]
async fn prepared_queries() {
    let wire = Wire::new(200, captured!("query-created")).await;
    let query = PreparedQuery::new("q", "web");
    let id = wire.client.prepared_query_create(&query, &write()).await.unwrap();
    assert_eq!(id.len(), 36);
    let body = r#"{"Name":"q","Service":{"Service":"web"}}"#;
    assert_eq!(wire.sent().await, format!("POST /v1/query {body}"));
    let wire = Wire::new(200, captured!("query")).await;
    let found = wire.client.prepared_query(&id, &read()).await.unwrap().value.unwrap();
    assert_eq!(found.service.failover.datacenters, ["dc2"]);
    assert_eq!(wire.sent().await, format!("GET /v1/query/{id}"));
    assert_eq!(wire.client.prepared_queries(&read()).await.unwrap().value.len(), 1);
    let wire = Wire::new(200, captured!("query-execute")).await;
    let options = ExecuteOptions {
        limit: 3,
        connect: true,
        query: QueryOptions { near: Some("_agent".into()), ..read() },
    };
    let result = wire.client.prepared_query_execute("q 1", &options).await.unwrap().value.unwrap();
    assert_eq!((result.service.as_str(), result.nodes.len()), ("api", 1));
    assert_eq!(wire.sent().await, "GET /v1/query/q%201/execute?limit=3&connect=true&near=_agent");
    let wire = Wire::new(200, captured!("query-explain")).await;
    let query = wire.client.prepared_query_explain("q1", &read()).await.unwrap().value.unwrap();
    assert_eq!(query.name, "q1");
    assert_eq!(wire.sent().await, "GET /v1/query/q1/explain");
    let wire = Wire::new(200, "").await;
    wire.client.prepared_query_update(&query, &write()).await.unwrap();
    assert!(wire.sent().await.starts_with(&format!("PUT /v1/query/{} {{", query.id)));
    wire.client.prepared_query_delete(&id, &write()).await.unwrap();
    assert_eq!(wire.sent().await, format!("DELETE /v1/query/{id}"));
    let wire = Wire::new(404, "Query not found").await;
    assert!(wire.client.prepared_query(&id, &read()).await.unwrap().value.is_none());
    let options = ExecuteOptions::default();
    assert!(wire.client.prepared_query_execute("x", &options).await.unwrap().value.is_none());
}

#[tokio::test]
async fn coordinates() {
    let wire = Wire::new(200, captured!("coordinate-datacenters")).await;
    let datacenters = wire.client.coordinate_datacenters().await.unwrap();
    assert_eq!((datacenters[0].area_id.as_str(), datacenters[0].coordinates.len()), ("wan", 1));
    let wire = Wire::new(200, captured!("coordinate-nodes")).await;
    let nodes = wire.client.coordinate_nodes(&read()).await.unwrap().value;
    assert_eq!(nodes[0].coord.vec.len(), 8);
    assert_eq!(wire.client.coordinate_node("n1", &read()).await.unwrap().value, nodes);
    assert_eq!(wire.sent().await, "GET /v1/coordinate/node/n1");
    let wire = Wire::new(404, "").await;
    assert!(wire.client.coordinate_node("x", &read()).await.unwrap().value.is_empty());
    let wire = Wire::new(200, "").await;
    let coordinate =
        NodeCoordinate::new("n1", Coordinate { vec: vec![0.5], ..Coordinate::default() });
    wire.client.coordinate_update(&coordinate, &write()).await.unwrap();
    assert_eq!(
        wire.sent().await,
        r#"PUT /v1/coordinate/update {"Node":"n1","Coord":{"Vec":[0.5],"Error":0.0,"Adjustment":0.0,"Height":0.0}}"#
    );
}

#[tokio::test]
async fn operators_calls() {
    let wire = Wire::new(200, captured!("raft-configuration")).await;
    let raft = wire.client.operator_raft_configuration(&read()).await.unwrap();
    assert!(raft.servers[0].leader && raft.servers[0].voter);
    assert_eq!(wire.sent().await, "GET /v1/operator/raft/configuration");
    wire.client.operator_raft_remove_peer("id").await.unwrap();
    assert_eq!(wire.sent().await, "DELETE /v1/operator/raft/peer?id=id");
    wire.client.operator_raft_transfer_leader(Some("id")).await.unwrap();
    assert_eq!(wire.sent().await, "POST /v1/operator/raft/transfer-leader?id=id");
    let healthy = captured!("autopilot-health");
    let wire = Wire::new(200, healthy).await;
    assert!(wire.client.operator_autopilot_health(&read()).await.unwrap().healthy);
    let wire = Wire::new(429, healthy.replace("true", "false")).await;
    let health = wire.client.operator_autopilot_health(&read()).await.unwrap();
    assert!(!health.healthy && !health.servers[0].healthy);
    assert_eq!(wire.sent().await, "GET /v1/operator/autopilot/health");
}

/// Spec: CP47
#[tokio::test]
async fn a_state_told_by_the_status_is_an_answer() {
    for status in [429, 503] {
        let wire = Wire::new(status, captured!("agent-health-service")).await;
        let health = wire.client.agent_health_service_by_id("web").await.unwrap().unwrap();
        assert_eq!(health.aggregated_status, HealthStatus::Warning);
        assert_eq!((health.service.service.name.as_str(), health.checks.len()), ("web", 1));
        assert_eq!(wire.sent().await, "GET /v1/agent/health/service/id/web");
    }
    let wire = Wire::new(404, captured!("agent-health-service-unknown")).await;
    assert!(wire.client.agent_health_service_by_id("x").await.unwrap().is_none());
    let wire = Wire::new(429, captured!("agent-health-services")).await;
    assert_eq!(wire.client.agent_health_service_by_name("web").await.unwrap().len(), 1);
    let wire = Wire::new(404, captured!("agent-health-services-unknown")).await;
    assert!(wire.client.agent_health_service_by_name("x").await.unwrap().is_empty());
    assert_eq!(wire.sent().await, "GET /v1/agent/health/service/name/x");
}

#[tokio::test]
async fn control_of_the_agent() {
    let wire = Wire::new(200, "").await;
    wire.client.agent_reload().await.unwrap();
    assert_eq!(wire.sent().await, "PUT /v1/agent/reload");
    wire.client.agent_join("10.0.0.1:8301", true).await.unwrap();
    assert_eq!(wire.sent().await, "PUT /v1/agent/join/10.0.0.1%3A8301?wan=1");
    wire.client.agent_leave().await.unwrap();
    assert_eq!(wire.sent().await, "PUT /v1/agent/leave");
    wire.client.agent_force_leave("n1", true).await.unwrap();
    assert_eq!(wire.sent().await, "PUT /v1/agent/force-leave/n1?prune");
    for kind in [
        AgentTokenKind::Default,
        AgentTokenKind::Agent,
        AgentTokenKind::AgentRecovery,
        AgentTokenKind::Replication,
        AgentTokenKind::ConfigFileServiceRegistration,
        AgentTokenKind::Dns,
    ] {
        wire.client.agent_set_token(kind, &"t".into()).await.unwrap();
        assert_eq!(
            wire.sent().await,
            format!(r#"PUT /v1/agent/token/{} {{"Token":"t"}}"#, kind.as_str())
        );
    }
}

#[tokio::test]
async fn snapshots_are_bytes() {
    let wire = Wire::new(200, &[0x1f_u8, 0x8b, 0, 0xff][..]).await;
    let snapshot = wire.client.snapshot_save(&read()).await.unwrap();
    assert_eq!(snapshot.as_ref(), [0x1f, 0x8b, 0, 0xff]);
    assert_eq!(wire.sent().await, "GET /v1/snapshot");
    wire.client.snapshot_restore(&b"s"[..], &write()).await.unwrap();
    assert_eq!(wire.sent().await, "PUT /v1/snapshot s");
    assert_eq!(wire.header("content-type").await.as_deref(), Some("application/octet-stream"));
}
