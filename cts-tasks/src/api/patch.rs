use std::time::Duration;

use axum::{
    Json,
    body::{Body, Bytes, to_bytes},
    extract::{Path, Query, State},
    http::StatusCode,
};
use serde::Serialize;
use serde_json::Value;

use super::{ApiState, answer::Failure, tasks::task_name};
use crate::{FirstRun, Inspection};

/// The largest body that is read.
const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// How long a body may take to arrive.
///
/// Source: Consul-Terraform-Sync 0.9, read timeout of the API.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Serialize)]
pub(crate) struct Updated {
    #[serde(skip_serializing_if = "Option::is_none")]
    inspect: Option<Inspected>,
}

#[derive(Serialize)]
struct Inspected {
    changes_present: bool,
    plan: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl From<Inspection> for Inspected {
    fn from(inspection: Inspection) -> Self {
        match inspection.plan {
            None => Self { changes_present: false, plan: String::new(), url: None },
            Some(plan) => {
                Self { changes_present: !plan.changes.is_empty(), plan: plan.text, url: plan.url }
            }
        }
    }
}

/// The `run` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunParameter {
    Absent,
    Now,
    Inspect,
}

/// `PATCH /v1/tasks/<name>`
///
/// Source: Consul-Terraform-Sync 0.9, `api/task_update.go`.
pub(crate) async fn update(
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Query(parameters): Query<Vec<(String, String)>>,
    body: Body,
) -> Result<Json<Updated>, Failure> {
    let name = task_name(name)?;
    let run = run_parameter(&parameters)?;
    let enabled = enabled(&read(body).await?)?;
    let engine = &state.engine;
    let inspect = match run {
        RunParameter::Inspect => Some(engine.inspect_enabled(&name, enabled).await?.into()),
        RunParameter::Now => {
            engine.set_enabled(&name, enabled, FirstRun::Now).await?;
            None
        }
        RunParameter::Absent => {
            engine.set_enabled(&name, enabled, FirstRun::WhenTriggered).await?;
            None
        }
    };
    Ok(Json(Updated { inspect }))
}

fn run_parameter(parameters: &[(String, String)]) -> Result<RunParameter, Failure> {
    let values: Vec<&str> = parameters
        .iter()
        .filter(|(key, _)| key == "run")
        .map(|(_, value)| value.as_str())
        .collect();
    match values.as_slice() {
        [] => Ok(RunParameter::Absent),
        [value] if value.eq_ignore_ascii_case("now") => Ok(RunParameter::Now),
        [value] if value.eq_ignore_ascii_case("inspect") => Ok(RunParameter::Inspect),
        [value] => Err(Failure::bad_request(format!(
            "unsupported run parameter value. only supporting run values now and inspect but got {value}"
        ))),
        several => Err(Failure::bad_request(format!(
            "cannot support more than one run query parameter, got run values: [{}]",
            several.join(" ")
        ))),
    }
}

/// What the body wants `enabled` to be, which is all that it may hold.
fn enabled(body: &[u8]) -> Result<bool, Failure> {
    if body.is_empty() {
        return Err(Failure::bad_request("error decoding the request: EOF"));
    }
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("error decoding the request: {error}")))?;
    let Value::Object(members) = value else {
        return Err(Failure::bad_request("error decoding the request: the body must be an object"));
    };
    let unsupported: Vec<&str> =
        members.keys().map(String::as_str).filter(|key| *key != "enabled").collect();
    if !unsupported.is_empty() {
        return Err(Failure::bad_request(format!(
            "request body's JSON contains unsupported keys: {}",
            unsupported.join(", ")
        )));
    }
    match members.get("enabled") {
        Some(Value::Bool(enabled)) => Ok(*enabled),
        Some(_) => {
            Err(Failure::bad_request("error decoding the request: 'enabled' must be true or false"))
        }
        None => Err(Failure::bad_request(
            "/v1/tasks/:task_name currently only supports the 'enabled' field. \
             Missing 'enabled' from the request body",
        )),
    }
}

/// The body, if it is not too large and arrives in time.
async fn read(body: Body) -> Result<Bytes, Failure> {
    match tokio::time::timeout(READ_TIMEOUT, to_bytes(body, LARGEST_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("cannot read the request's body of at most {LARGEST_BODY} bytes: {error}"),
        )),
        Err(_elapsed) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the request's body did not arrive within {} s", READ_TIMEOUT.as_secs()),
        )),
    }
}
