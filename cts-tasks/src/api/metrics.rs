use std::{fmt, sync::Arc};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{ApiState, answer::Failure};

/// Gives the metrics of the process as text, for `/metrics`.
///
/// A program installs the recorder of its choice, and hands in what renders it.
///
/// ```
/// use cts_tasks::Exposition;
///
/// let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
/// let handle = recorder.handle();
/// let exposition = Exposition::new(move || handle.render());
/// assert_eq!(exposition.render(), "");
/// ```
#[derive(Clone)]
pub struct Exposition {
    render: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Exposition {
    /// Takes what writes the metrics in Prometheus's text format.
    pub fn new(render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { render: Arc::new(render) }
    }

    /// The metrics as they stand.
    pub fn render(&self) -> String {
        (self.render)()
    }
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition").finish_non_exhaustive()
    }
}

/// `GET /metrics`
pub(crate) async fn metrics(State(state): State<ApiState>) -> Result<Response, Failure> {
    let exposition = state.exposition.as_ref();
    let exposition =
        exposition.ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, "no such endpoint"))?;
    let text = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, text)], exposition.render()).into_response())
}
