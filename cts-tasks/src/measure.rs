//! What the engine counts, through the facade of the crate `metrics`.
//!
//! A program installs a recorder; without one nothing is counted. Names,
//! labels and units are in the table of the README.

use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::{State, TaskName};

const RUNS: &str = "cts_runs_total";
const RUN_SECONDS: &str = "cts_run_duration_seconds";
const RETRIES: &str = "cts_retries_total";
const TRIGGERS: &str = "cts_triggers_total";
const TASKS: &str = "cts_tasks";
const WAITING_PLANS: &str = "cts_waiting_plans";
const WATCHES: &str = "cts_watches";
#[cfg(feature = "api")]
const REQUESTS: &str = "cts_api_requests_total";
#[cfg(feature = "api")]
const REQUEST_SECONDS: &str = "cts_api_request_duration_seconds";

/// Tells the recorder what the names mean.
pub(crate) fn describe() {
    describe_counter!(RUNS, "Runs that ended, by task and result");
    describe_histogram!(RUN_SECONDS, Unit::Seconds, "Time of a run with all its retries, by task");
    describe_counter!(RETRIES, "Steps that are tried again, by task");
    describe_counter!(TRIGGERS, "Runs that begin, by task and cause");
    describe_gauge!(TASKS, "Tasks, by whether they are enabled");
    describe_gauge!(WAITING_PLANS, "Plans that wait for approval");
    describe_gauge!(
        WATCHES,
        "Reads of Consul that tasks follow, shared ones counted for each task"
    );
    #[cfg(feature = "api")]
    {
        describe_counter!(REQUESTS, "Requests to the HTTP API, by method and status code");
        describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "Time to an answer, by method");
    }
}

/// A run begins: for a change, a schedule, or by hand.
pub(crate) fn triggered(task: &TaskName, cause: &'static str) {
    counter!(TRIGGERS, "task" => task.to_string(), "cause" => cause).increment(1);
}

/// A run ended.
pub(crate) fn ran(task: &TaskName, result: &'static str, took: Duration) {
    counter!(RUNS, "task" => task.to_string(), "result" => result).increment(1);
    histogram!(RUN_SECONDS, "task" => task.to_string()).record(took);
}

/// A step is tried again.
pub(crate) fn retried(task: &TaskName) {
    counter!(RETRIES, "task" => task.to_string()).increment(1);
}

/// The state is another one.
#[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 tasks")]
pub(crate) fn state(state: &State) {
    let enabled = state.tasks.iter().filter(|task| task.enabled).count();
    gauge!(TASKS, "enabled" => "true").set(enabled as f64);
    gauge!(TASKS, "enabled" => "false").set((state.tasks.len() - enabled) as f64);
    gauge!(WAITING_PLANS).set(state.plans.len() as f64);
}

/// A read of Consul that a task follows, counted for as long as this lives.
#[derive(Debug)]
pub(crate) struct Watched(());

impl Watched {
    pub(crate) fn begin() -> Self {
        gauge!(WATCHES).increment(1);
        Self(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        gauge!(WATCHES).decrement(1);
    }
}

/// A request to the API was answered.
#[cfg(feature = "api")]
pub(crate) fn answered(method: &'static str, status: u16, took: Duration) {
    counter!(REQUESTS, "method" => method, "status_code" => status.to_string()).increment(1);
    histogram!(REQUEST_SECONDS, "method" => method).record(took);
}
