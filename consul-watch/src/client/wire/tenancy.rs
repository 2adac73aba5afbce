//! Requests about namespaces and partitions, as they go over the wire.

use super::*;
use crate::{
    QueryOptions, TenancyApi, WriteOptions,
    types::{AclLink, Namespace, Partition},
};

fn read() -> QueryOptions {
    QueryOptions { partition: Some("p1".into()), ..QueryOptions::default() }
}

fn write() -> WriteOptions {
    WriteOptions { partition: Some("p1".into()), ..WriteOptions::default() }
}

/// As an Enterprise server answers, by the source of its client; none was at hand.
const NAMESPACE: &str = r#"{"Name":"team","Description":"d","ACLs":{"PolicyDefaults":[{"ID":"1","Name":"p"}],"RoleDefaults":null},"Meta":{"a":"b"},"Partition":"p1","CreateIndex":7,"ModifyIndex":9}"#;

#[tokio::test]
async fn namespaces_are_read_and_written() {
    let wire = Wire::new(200, NAMESPACE).await;
    let client: &dyn TenancyApi = &wire.client;
    let mut found = client.namespace("team", &read()).await.unwrap().value.unwrap();
    assert_eq!((found.modify_index, found.acls.policy_defaults.len()), (9, 1));
    assert_eq!(wire.sent().await, "GET /v1/namespace/team?partition=p1");
    found.acls.policy_defaults.push(AclLink::name("q"));
    client.namespace_update(&found, &write()).await.unwrap();
    // What this crate does not know goes back as it came.
    let body = r#"{"Name":"team","Description":"d","ACLs":{"PolicyDefaults":[{"ID":"1","Name":"p"},{"Name":"q"}]},"Meta":{"a":"b"},"Partition":"p1"}"#;
    assert_eq!(wire.sent().await, format!("PUT /v1/namespace/team?partition=p1 {body}"));
    client.namespace_create(&Namespace::new("new"), &write()).await.unwrap();
    assert_eq!(wire.sent().await, r#"PUT /v1/namespace?partition=p1 {"Name":"new"}"#);
    let wire = Wire::new(200, format!("[{NAMESPACE}]")).await;
    assert_eq!(wire.client.namespaces(&read()).await.unwrap().value.len(), 1);
    assert_eq!(wire.sent().await, "GET /v1/namespaces?partition=p1");
}

#[tokio::test]
async fn partitions_are_listed_and_made() {
    let wire = Wire::new(200, r#"[{"Name":"default","Description":null}]"#).await;
    let client: &dyn TenancyApi = &wire.client;
    let found = client.partitions(&QueryOptions::default()).await.unwrap().value;
    assert_eq!(found, [Partition::new("default")]);
    assert_eq!(wire.sent().await, "GET /v1/partitions");
    let wire = Wire::new(200, r#"{"Name":"p1","CreateIndex":3}"#).await;
    let client: &dyn TenancyApi = &wire.client;
    let options = WriteOptions::default();
    let made = client.partition_create(&Partition::new("p1"), &options).await.unwrap();
    assert_eq!(made.create_index, 3);
    assert_eq!(wire.sent().await, r#"PUT /v1/partition {"Name":"p1"}"#);
}

#[tokio::test]
async fn servers_without_them_say_404() {
    let wire = Wire::new(404, "").await;
    assert!(wire.client.namespace("x", &read()).await.unwrap().value.is_none());
    assert!(wire.client.namespaces(&read()).await.unwrap_err().is_not_found());
    assert!(wire.client.partitions(&read()).await.unwrap_err().is_not_found());
    let made = wire.client.namespace_create(&Namespace::new("x"), &write()).await;
    assert!(made.unwrap_err().is_not_found());
}
