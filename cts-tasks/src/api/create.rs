//! `POST /v1/tasks`: checks a task as a configuration's is checked, and creates it.

use axum::{
    body::Body,
    extract::{Query, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::{
    ApiState,
    answer::{Answer, Failure, unsupported_method},
    request::{RunParameter, read, run_parameter},
    schema,
};
use crate::{
    ConfigValue, Error, FirstRun, Inspection, Task,
    config::TaskRules,
    wire::{CreatedTask, InspectedTask, TaskDocument},
};

impl From<Inspection> for InspectedTask {
    fn from(inspection: Inspection) -> Self {
        match inspection.plan {
            None => Self {
                plan: "Task is disabled, inspection was skipped.".to_owned(),
                changes_present: false,
                resources: None,
                tfc_run_url: None,
            },
            Some(plan) => Self {
                changes_present: !plan.changes.is_empty(),
                plan: plan.text,
                resources: plan.resources,
                tfc_run_url: plan.url,
            },
        }
    }
}

/// `POST /v1/tasks`
///
/// Source: Consul-Terraform-Sync 0.9, `api/task_lifecycle.go`.
pub(crate) async fn create(
    State(state): State<ApiState>,
    Query(parameters): Query<Vec<(String, String)>>,
    body: Body,
) -> Result<Response, Failure> {
    let Some(rules) = &state.rules else {
        return Err(unsupported_method(&Method::POST, "The task API", "'GET'"));
    };
    let run = run_parameter(&parameters)?;
    let running = state.engine.state(|state| state.tasks.clone());
    let task = checked(&read(body).await?, rules, &running)?;
    let shown = TaskDocument::from(&task);
    let first_run = match run {
        RunParameter::Inspect => {
            let inspection = state.engine.inspect_new(task).await;
            let inspection = inspection.map_err(|error| refused(error, StatusCode::BAD_REQUEST))?;
            let body = CreatedTask { task: shown, run: Some(inspection.into()) };
            return Ok(Answer::new(body).into_response());
        }
        RunParameter::Now => FirstRun::Now,
        RunParameter::Absent => FirstRun::WhenTriggered,
    };
    let created = state.engine.create(task, first_run).await;
    created.map_err(|error| refused(error, StatusCode::INTERNAL_SERVER_ERROR))?;
    let answer = Answer::new(CreatedTask { task: shown, run: None });
    Ok((StatusCode::CREATED, answer).into_response())
}

/// A name that is taken is the request's mistake.
fn refused(error: Error, otherwise: StatusCode) -> Failure {
    let status = match error {
        Error::TaskExists { .. } => StatusCode::BAD_REQUEST,
        _ => otherwise,
    };
    Failure::from(error).with_status(status)
}

fn checked(body: &[u8], rules: &TaskRules, running: &[Task]) -> Result<Task, Failure> {
    if body.is_empty() {
        return Err(Failure::bad_request("error decoding the request: EOF"));
    }
    let request: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("error decoding the request: {error}")))?;
    let task = schema::task(request, &rules.driver_keys(), rules.required_keys())
        .map_err(Failure::bad_request)?;
    rules.check_among(&ConfigValue::from(as_in_a_file(task)), running).map_err(|mistakes| {
        // Without their places, which are those of no file.
        let told = mistakes.into_iter().map(|mistake| match mistake.help {
            Some(help) => format!("{} ({help})", mistake.message),
            None => mistake.message,
        });
        let mistakes: Vec<String> = told.collect();
        Failure::bad_request(format!("error with task configuration: {}", mistakes.join("; ")))
    })
}

/// The types of conditions, in the order in which the first one counts, as
/// the API and as files name them.
const CONDITIONS: [(&str, &str); 4] = [
    ("services", "services"),
    ("consul_kv", "consul-kv"),
    ("catalog_services", "catalog-services"),
    ("schedule", "schedule"),
];

/// Writes a task as a configuration file does.
fn as_in_a_file(mut task: Map<String, Value>) -> Value {
    if let Some(Value::Object(mut condition)) = task.remove("condition") {
        let first = CONDITIONS
            .iter()
            .find_map(|(api, file)| condition.remove(*api).map(|body| (*file, names_win(body))));
        if let Some((label, body)) = first {
            task.insert("condition".to_owned(), json!({ label: body }));
        }
    }
    if let Some(Value::Object(inputs)) = task.remove("module_input") {
        let inputs: Vec<Value> = inputs
            .into_iter()
            .map(|(label, body)| json!({ label.replace('_', "-"): body }))
            .collect();
        task.insert("module_input".to_owned(), inputs.into());
    }
    Value::Object(task)
}

/// Of `names` and `regexp` in a condition, `names` counts if it holds any.
fn names_win(mut body: Value) -> Value {
    if let Value::Object(members) = &mut body
        && members.get("names").and_then(Value::as_array).is_some_and(|names| !names.is_empty())
    {
        members.remove("regexp");
    }
    body
}
