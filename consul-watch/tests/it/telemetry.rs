//! What is measured.

use std::time::Duration;

use consul_watch::{
    Watcher,
    query::{HealthService, KvGet},
    testing::{Fault, TestConsul},
    types::HealthStatus,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::time::timeout;

const LONG: Duration = Duration::from_hours(1);

/// A recorder holds for a thread, so the whole test stays on one.
fn measured(test: impl Future<Output = ()>) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(test));
    handle.render()
}

/// The value of a metric with its labels, as the page shows it.
fn value(page: &str, metric: &str) -> i64 {
    let line = page.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {metric} in:\n{page}")).parse().unwrap()
}

#[test]
fn a_watch_is_counted_from_its_start_to_its_end() {
    let consul = TestConsul::new();
    let page = measured(async {
        let watcher = Watcher::new(consul.client());
        let mut watch = watcher.watch(KvGet::new("a"));
        watch.ready().await.unwrap();
        for value in ["1", "2"] {
            consul.wait_for_blocked(1).await;
            consul.kv_put("a", value);
            timeout(LONG, watch.changed()).await.unwrap().unwrap();
        }
        consul.wait_for_blocked(1).await;
        consul.inject(&Fault::status(500, "No cluster leader"), 1);
        consul.reset_index();
        assert!(timeout(LONG, watch.changed()).await.unwrap().is_err());
        consul.wait_for_blocked(1).await;
        watcher.shutdown().await;
    });
    let kv = |name: &str| value(&page, &format!("{name}{{kind=\"kv.get\"}}"));
    // The other history has the same value with other indexes.
    assert_eq!(kv("consul_watch_updates_total"), 4);
    assert_eq!(kv("consul_watch_errors_total"), 1);
    assert_eq!(kv("consul_watch_resets_total"), 1);
    assert_eq!(kv("consul_watch_views"), 0, "it has ended");
    assert_eq!(value(&page, "consul_watch_places{place=\"own\"}"), 0);
    assert_eq!(value(&page, "consul_requests_open{blocks=\"true\"}"), 0);
    let failed = "consul_requests_total{operation=\"kv.get\",status=\"500\"}";
    assert_eq!(value(&page, failed), 1);
}

#[test]
fn watches_that_share_are_counted_by_their_place_and_delay() {
    let consul = TestConsul::new();
    let mut during = String::new();
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let watcher = Watcher::builder(consul.client()).connections(12).build();
            let watch = |number: u32| watcher.watch(HealthService::new(format!("s{number}")));
            let mut all: Vec<_> = (0..40).map(watch).collect();
            for watch in &mut all {
                watch.ready().await.unwrap();
            }
            consul.set_instance("s39", "a", "10.0.0.1", 80, HealthStatus::Passing);
            while all[39].latest().is_none_or(|now| now.data.is_empty()) {
                timeout(LONG, all[39].changed()).await.unwrap().unwrap();
            }
            during = handle.render();
            let load = watcher.load();
            let covered = i64::try_from(load.covered).unwrap();
            assert_eq!(value(&during, "consul_watch_places{place=\"covered\"}"), covered);
        });
    });
    assert_eq!(value(&during, "consul_watch_views{kind=\"health.service\"}"), 40);
    let delays = "consul_watch_delay_seconds_count{kind=\"health.service\"}";
    assert!(value(&during, delays) >= 35);
}
