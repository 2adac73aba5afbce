//! `GET /metrics`: what the process counts, of the tasks that there are.

use std::{collections::BTreeSet, fmt, sync::Arc};

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
    let there: BTreeSet<String> =
        state.engine.state(|state| state.tasks.iter().map(|task| task.name.to_string()).collect());
    let samples = of_tasks(&exposition.render(), |task| there.contains(task));
    Ok(([(header::CONTENT_TYPE, text)], samples).into_response())
}

/// Leaves out the samples of tasks that are not there: recorders forget no counter, and one of
/// a task that was deleted would be scraped for ever.
fn of_tasks(samples: &str, is_there: impl Fn(&str) -> bool) -> String {
    let stays = |line: &&str| line.starts_with('#') || task_of(line).is_none_or(&is_there);
    samples.split_inclusive('\n').filter(stays).collect()
}

/// The label `task` of a sample. Names of tasks need no escapes.
fn task_of(line: &str) -> Option<&str> {
    let (_, labels) = line.split_once('{')?;
    let (before, value) = labels.split_once("task=\"")?;
    if !before.is_empty() && !before.ends_with(',') {
        return None;
    }
    value.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::of_tasks;

    #[test]
    fn samples_of_tasks_that_are_gone_are_left_out() {
        let samples = "# HELP cts_runs_total Runs of gone{task=\"gone\"}\n\
                       cts_runs_total{task=\"gone\",result=\"applied\"} 2\n\
                       cts_runs_total{result=\"applied\",task=\"there\"} 2\n\
                       cts_runs_total{result=\"applied\",task=\"gone\"} 2\n\
                       other{subtask=\"gone\"} 1\nplain 1";
        let left = of_tasks(samples, |task| task == "there");
        assert_eq!(
            left,
            "# HELP cts_runs_total Runs of gone{task=\"gone\"}\n\
             cts_runs_total{result=\"applied\",task=\"there\"} 2\n\
             other{subtask=\"gone\"} 1\nplain 1"
        );
    }
}
