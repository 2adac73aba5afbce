use axum::{
    extract::{Path, State},
    http::{Method, StatusCode},
    response::IntoResponse,
};
use serde::Serialize;

use super::{
    ApiState,
    answer::{Answer, Failure, unsupported_method, unsupported_path},
    form::TaskForm,
};
use crate::{Error, TaskName};

#[derive(Serialize)]
pub(crate) struct Tasks {
    tasks: Vec<TaskForm>,
}

#[derive(Serialize)]
pub(crate) struct OneTask {
    task: TaskForm,
}

#[derive(Serialize)]
pub(crate) struct Marked {}

/// `GET /v1/tasks`
pub(crate) async fn all(State(state): State<ApiState>) -> Answer<Tasks> {
    let tasks = state.engine.state(|state| state.tasks.iter().map(TaskForm::of).collect());
    Answer::new(Tasks { tasks })
}

/// `GET /v1/tasks/<name>`
pub(crate) async fn one(
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Answer<OneTask>, Failure> {
    let name = task_name(name)?;
    let found = state
        .engine
        .state(|state| state.tasks.iter().find(|task| task.name == name).map(TaskForm::of));
    match found {
        Some(task) => Ok(Answer::new(OneTask { task })),
        None => Err(Error::NoSuchTask { task: name.to_string() }.into()),
    }
}

/// `DELETE /v1/tasks/<name>`
pub(crate) async fn delete(
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<(StatusCode, Answer<Marked>), Failure> {
    state.engine.delete(&task_name(name)?).await?;
    Ok((StatusCode::ACCEPTED, Answer::new(Marked {})))
}

/// Other methods on `/v1/tasks`.
pub(crate) async fn all_method(method: Method) -> impl IntoResponse {
    unsupported_method(&method, "The task API", "'GET', 'POST'")
}

/// Other methods on `/v1/tasks/<name>`.
pub(crate) async fn one_method(method: Method) -> impl IntoResponse {
    unsupported_method(&method, "The task API", "'DELETE', 'GET', 'PATCH'")
}

/// What needs a task's name and has none.
pub(crate) async fn unnamed(method: Method) -> Failure {
    if method != Method::PATCH {
        return unsupported_method(&method, "The task API", "'GET'");
    }
    Failure::bad_request(
        "no task name was included in the api request. Updating a task requires the task name: \
         '/v1/tasks/:task_name'",
    )
}

/// The name in a path; what cannot be one names no task.
pub(crate) fn task_name(text: String) -> Result<TaskName, Failure> {
    if text.contains('/') {
        return Err(unsupported_path(&format!("/v1/tasks/{text}")));
    }
    TaskName::try_from(text.clone()).map_err(|_no_name| Error::NoSuchTask { task: text }.into())
}
