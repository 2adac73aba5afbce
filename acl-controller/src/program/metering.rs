//! The endpoint from which Prometheus reads the metrics of the process.

use std::net::SocketAddr;

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::task::JoinSet;

use ecs_mesh_init::program::Failure;

/// Serves what the process counts, in Prometheus's form, until the result is dropped.
pub(super) fn serve(address: Option<SocketAddr>) -> Result<JoinSet<()>, Failure> {
    let mut serving = JoinSet::new();
    if let Some(address) = address {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::Logged(format!("CONSUL_ECS_METRICS_ADDRESS {address}: {error}"))
        };
        let built = PrometheusBuilder::new().with_http_listener(address).build();
        let (recorder, exporter) = built.map_err(|error| failed(&error))?;
        metrics::set_global_recorder(recorder).map_err(|error| failed(&error))?;
        serving.spawn(async move {
            if exporter.await.is_err() {
                tracing::error!("metrics are served no more");
            }
        });
    }
    Ok(serving)
}
