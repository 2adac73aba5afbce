//! Parity of a server's restarts, lost leaders and restored backups.

use std::time::Duration;

use bytes::Bytes;
use consul_watch::{
    Consistency, QueryOptions,
    client::{PutOptions, Request},
    testing::{Behaviour, TestConsul, parts::Suite, real::Consul},
};
use http::StatusCode;
use tokio::time::Instant;

use super::Env;

const SUITE: Suite = Suite("consul-watch parity");

super::cases![cp54_restored_snapshot, cp56_acls_are_off];

/// Spec: CP54, CW4
async fn cp54_restored_snapshot(env: &Env) {
    let key = env.name("a");
    env.client.kv_put(&key, "before", &PutOptions::default()).await.unwrap();
    let saved = match &env.double {
        Some(_) => Bytes::new(),
        None => env
            .client
            .send(Request::get("snapshot.save", "/v1/snapshot"))
            .await
            .unwrap()
            .body()
            .clone(),
    };
    let mut options = QueryOptions::default();
    options.index = env.client.kv_get(&key, &options).await.unwrap().meta.index;
    options.wait = Some(Duration::from_mins(1));
    let (client, asked) = (env.client.clone(), key.clone());
    let start = Instant::now();
    let held = tokio::spawn(async move { client.kv_get(&asked, &options).await.unwrap() });
    match &env.double {
        Some(double) => {
            double.wait_for_blocked(1).await;
            double.reset_index();
        }
        None => {
            // A read that has not blocked yet would wait for its time: restore until it answers.
            while !held.is_finished() {
                let restore = Request::put("snapshot.restore", "/v1/snapshot").bytes(saved.clone());
                env.client.send(restore).await.unwrap();
            }
        }
    }
    let answer = held.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "the blocked read answers");
    assert_eq!(answer.value.unwrap().text(), Some("before"));
}

/// Spec: CP56
async fn cp56_acls_are_off(env: &Env) {
    let error = env.client.send(Request::get("acl.tokens", "/v1/acl/tokens")).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::UNAUTHORIZED));
    assert!(error.to_string().contains("ACL support disabled"), "{error}");
    assert!(error.is_permission_denied() && !error.is_retryable());
}

/// What it has no answer for it does not make up.
#[tokio::test(start_paused = true)]
async fn the_double_says_what_it_does_not_serve() {
    SUITE.double("consul");
    for behaviour in [Behaviour::V1_8, Behaviour::Current] {
        let make = || TestConsul::builder().behaviour(behaviour).build().client();
        let (client, other) = (make(), make());
        let saved = other.send(Request::get("save", "/v1/snapshot")).await.unwrap().body().clone();
        for request in [
            Request::get("x", "/v1/agent/monitor"),
            Request::get("x", "/v1/agent/metrics"),
            Request::get("x", "/v1/agent/host"),
            Request::put("x", "/v1/snapshot").bytes(saved.clone()),
        ] {
            let error = client.send(request).await.unwrap_err();
            assert_eq!(error.status(), Some(StatusCode::NOT_IMPLEMENTED), "{error}");
            assert!(error.to_string().contains("consul-watch's test double"), "{error}");
        }
        other.send(Request::put("restore", "/v1/snapshot").bytes(saved)).await.unwrap();
    }
}

/// Spec: CP55
#[tokio::test(start_paused = true)]
async fn cp55_lost_leader_on_the_double() {
    SUITE.double("consul");
    let consul = TestConsul::new();
    let client = consul.client();
    let mut blocked = QueryOptions::default();
    blocked.index = client.catalog_nodes(&blocked).await.unwrap().meta.index;
    let held = tokio::spawn({
        let client = client.clone();
        async move { client.catalog_nodes(&blocked).await.unwrap_err() }
    });
    consul.wait_for_blocked(1).await;
    let start = Instant::now();
    consul.set_leader(false);
    let error = held.await.unwrap();
    assert!(
        error.to_string().contains("rpc error making call: EOF") && error.is_retryable(),
        "{error}"
    );
    assert_eq!(start.elapsed(), Duration::ZERO, "a blocked read fails at once");

    let error = client.kv_put("a", "x", &PutOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("No cluster leader") && error.is_retryable(), "{error}");
    assert!(start.elapsed() >= Duration::from_secs(7));
    assert_eq!(client.status_leader().await.unwrap(), None);
    let mut stale = QueryOptions::default();
    stale.consistency = Consistency::Stale;
    let first = client.catalog_nodes(&stale).await.unwrap().meta;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let later = client.catalog_nodes(&stale).await.unwrap().meta;
    assert_eq!((first.known_leader, later.known_leader), (Some(false), Some(false)));
    assert!(later.last_contact > first.last_contact);

    let waiting =
        tokio::spawn(async move { client.catalog_nodes(&QueryOptions::default()).await.is_ok() });
    consul.wait_for_open(1).await;
    consul.set_leader(true);
    assert!(waiting.await.unwrap(), "a new leader answers what was held");
}

/// Spec: CP55
#[tokio::test]
async fn cp55_a_real_server_that_never_had_a_leader() {
    let Some(part) = SUITE.part("consul", "cp55_a_real_server_that_never_had_a_leader") else {
        return;
    };
    let mut consul = Consul::start(&part.path).await.expect("a real Consul");
    consul.stop().await;
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(consul.folder().join("config.json")).unwrap())
            .unwrap();
    config["bootstrap"] = false.into();
    config["bootstrap_expect"] = 3.into();
    config["data_dir"] = consul.folder().join("empty").to_str().unwrap().into();
    std::fs::write(consul.folder().join("config.json"), config.to_string()).unwrap();
    consul.launch().unwrap();
    let client = consul.client();
    let leader = loop {
        match client.status_leader().await {
            Ok(leader) => break leader,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(leader, None);
    let start = Instant::now();
    let error = client.catalog_nodes(&QueryOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("No cluster leader") && error.is_retryable(), "{error}");
    assert!(start.elapsed() > Duration::from_secs(5), "the server waits for a leader first");
    let mut stale = QueryOptions::default();
    stale.consistency = Consistency::Stale;
    let error = client.catalog_nodes(&stale).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}
