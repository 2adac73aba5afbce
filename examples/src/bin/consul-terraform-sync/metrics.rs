//! Counts what the process does, for `/metrics`.

use std::{convert::Infallible, time::Duration};

use cts_tasks::Exposition;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// How often samples are summed up that nobody has asked for.
const UPKEEP: Duration = Duration::from_mins(1);

/// The metrics of this process, in Prometheus's form.
#[derive(Clone)]
pub(crate) struct Metrics(PrometheusHandle);

impl Metrics {
    /// Counts from now on.
    ///
    /// # Errors
    ///
    /// When something in this process counts already.
    pub(crate) fn start() -> Result<Self, String> {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder)
            .map_err(|error| format!("metrics cannot be counted: {error}"))?;
        Ok(Self(handle))
    }

    /// What the API serves.
    pub(crate) fn exposition(&self) -> Exposition {
        let handle = self.0.clone();
        Exposition::new(move || handle.render())
    }

    /// Keeps samples from piling up while nobody asks for them.
    pub(crate) async fn keep(self) -> Infallible {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.0.run_upkeep();
        }
    }
}
