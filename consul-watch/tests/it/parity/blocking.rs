//! Parity of blocking queries: indexes, waits and wake-ups.

use std::time::Duration;

use consul_watch::{QueryOptions, client::Request};
use tokio::time::Instant;

use super::Env;

super::cases![
    cp41_short_wait_on_idle_data,
    cp42_index_from_the_future,
    cp43_parameters_that_make_no_sense,
    cw1_without_an_index_nothing_blocks,
    leader_and_peers,
];

/// Spec: CP41
async fn cp41_short_wait_on_idle_data(env: &Env) {
    let key = env.name("a");
    let before = env.client.kv_get(&key, &QueryOptions::default()).await.unwrap().meta.index;
    let mut options = QueryOptions::default();
    (options.index, options.wait) = (before, Some(Duration::from_millis(100)));
    let start = Instant::now();
    let after = env.client.kv_get(&key, &options).await.unwrap().meta.index;
    let took = start.elapsed();
    assert_eq!(after, before);
    assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(2), "{took:?}");
}

/// Spec: CP42
async fn cp42_index_from_the_future(env: &Env) {
    let mut options = QueryOptions::default();
    (options.index, options.wait) = (Some(u64::MAX / 2), Some(Duration::from_millis(200)));
    let start = Instant::now();
    let answer = env.client.catalog_nodes(&options).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert!(answer.meta.index < options.index);
}

/// Spec: CP43
async fn cp43_parameters_that_make_no_sense(env: &Env) {
    let nodes = || Request::get("catalog.nodes", "/v1/catalog/nodes");
    for (request, text) in [
        (nodes().flag("stale").flag("consistent"), "Cannot specify ?stale with ?consistent"),
        (nodes().param("index", "x"), "Invalid index"),
        (nodes().param("index", "1").param("wait", "5"), "Invalid wait time"),
    ] {
        let error = env.client.send(request).await.unwrap_err();
        assert_eq!(error.status().map(|status| status.as_u16()), Some(400));
        assert!(error.to_string().contains(text), "{error}");
        assert!(!error.is_retryable());
    }
}

/// Spec: CW1
async fn cw1_without_an_index_nothing_blocks(env: &Env) {
    let mut options = QueryOptions::default();
    options.wait = Some(Duration::from_secs(20));
    let start = Instant::now();
    let answer = env.client.catalog_nodes(&options).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(answer.value.iter().any(|node| node.name == env.node));
    assert_eq!(answer.meta.known_leader, Some(true));
}

async fn leader_and_peers(env: &Env) {
    let leader = env.client.status_leader().await.unwrap().expect("a leader");
    assert_eq!(env.client.status_peers().await.unwrap(), [leader]);
    assert_eq!(
        env.client.catalog_datacenters(&QueryOptions::default()).await.unwrap().value,
        ["dc1"]
    );
}
