//! What a node says through the facade `metrics`.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;

use super::cluster::{Cluster, put, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_tells_its_metrics() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    // Other tests of this process are counted, too.
    metrics::set_global_recorder(recorder).unwrap();
    let few = |_: usize, config: &mut resource_store::backend::raft::RaftConfig| {
        config.snapshot_after_entries = 5;
    };
    let cluster = Cluster::start_with(1, few).await;
    for number in 0..20 {
        put(cluster.node(0), &format!("name-{number}")).await;
    }
    let names = [
        "resource_store_raft_proposals_total{outcome=\"committed\"}",
        "resource_store_raft_leader_changes_total",
        "resource_store_raft_leads",
        "resource_store_raft_apply_lag_entries",
        "resource_store_raft_pending_bytes",
        "resource_store_raft_log_sync_seconds_count",
        "resource_store_raft_snapshot_bytes_count",
        "resource_store_raft_disk_full",
    ];
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.split(' ').next() == Some(name))?;
        line.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    let text = within(async {
        loop {
            let text = handle.render();
            if names.iter().all(|name| value(&text, name).is_some()) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(value(&text, names[0]).unwrap() >= 20.0, "{text}");
    assert!(value(&text, "resource_store_raft_log_sync_seconds_count").unwrap() >= 20.0, "{text}");
}
