//! Counts what the process does and needs, for `/metrics`.

use std::{convert::Infallible, time::Duration};

use crate::Exposition;
use metrics::{describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;

/// Interval at which samples that nobody has asked for are summed up.
const UPKEEP: Duration = Duration::from_mins(1);

const BUILD_INFO: &str = "cts_build_info";

/// Bounds of the buckets of durations, in seconds: an answer of the API takes
/// milliseconds, a run up to an hour.
const SECONDS: [f64; 12] =
    [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0];

/// The metrics of this process, in Prometheus's form.
#[derive(Clone)]
pub(crate) struct Metrics(PrometheusHandle);

impl Metrics {
    /// Counts from now on.
    ///
    /// # Errors
    ///
    /// When something in this process counts already.
    pub(crate) fn start(version: &'static str) -> Result<Self, String> {
        let durations = Matcher::Suffix("_seconds".to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(durations, &SECONDS)
            .map_err(|error| format!("metrics cannot be counted: {error}"))?
            .build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder)
            .map_err(|error| format!("metrics cannot be counted: {error}"))?;
        describe_gauge!(BUILD_INFO, "Always 1; its labels tell which program this is");
        gauge!(BUILD_INFO, "version" => version).set(1.0);
        Collector::default().describe();
        Ok(Self(handle))
    }

    /// Returns the metrics that the API serves.
    pub(crate) fn exposition(&self) -> Exposition {
        let handle = self.0.clone();
        Exposition::new(move || {
            Collector::default().collect();
            handle.render()
        })
    }

    /// Keeps samples from piling up while nobody asks for them.
    pub(crate) async fn keep(self) -> Infallible {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.0.run_upkeep();
        }
    }
}
