//! `PATCH /v1/tasks/{name}`: enables and disables a task.

use axum::{
    Json,
    body::Body,
    extract::{Path, Query, State},
};
use serde_json::Value;

use super::{
    ApiState,
    answer::Failure,
    request::{RunParameter, read, run_parameter},
    tasks::task_name,
};
use crate::{
    FirstRun, Inspection,
    config::read_flag,
    wire::{InspectedUpdate, UpdatedTask},
};

impl From<Inspection> for InspectedUpdate {
    fn from(inspection: Inspection) -> Self {
        match inspection.plan {
            None => {
                Self { changes_present: false, plan: String::new(), resources: None, url: None }
            }
            Some(plan) => Self {
                changes_present: !plan.changes.is_empty(),
                plan: plan.text,
                resources: plan.resources,
                url: plan.url,
            },
        }
    }
}

/// `PATCH /v1/tasks/<name>`
///
/// Source: Consul-Terraform-Sync 0.9, `api/task_update.go`.
pub(crate) async fn update(
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Query(parameters): Query<Vec<(String, String)>>,
    body: Body,
) -> Result<Json<UpdatedTask>, Failure> {
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
    Ok(Json(UpdatedTask { inspect }))
}

/// Reads `enabled` from the body, which may hold nothing else.
fn enabled(body: &[u8]) -> Result<bool, Failure> {
    if body.is_empty() {
        return Err(Failure::bad_request("error decoding the request: EOF"));
    }
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("error decoding the request: {error}")))?;
    let Value::Object(members) = value else {
        return Err(Failure::bad_request("error decoding the request: the body must be an object"));
    };
    let (known, unsupported): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|(key, _)| key.eq_ignore_ascii_case("enabled"));
    if !unsupported.is_empty() {
        let keys: Vec<&str> = unsupported.iter().map(|(key, _)| key.as_str()).collect();
        return Err(Failure::bad_request(format!(
            "request body's JSON contains unsupported keys: {}",
            keys.join(", ")
        )));
    }
    // Upstream's client and its users send what Go decodes weakly, so that is taken here.
    match known.into_iter().next() {
        Some((_, value)) if !value.is_null() => read_flag(&value.into()).ok_or_else(|| {
            Failure::bad_request("error decoding the request: 'enabled' must be true or false")
        }),
        Some(_) | None => Err(Failure::bad_request(
            "/v1/tasks/:task_name currently only supports the 'enabled' field. \
             Missing 'enabled' from the request body",
        )),
    }
}
