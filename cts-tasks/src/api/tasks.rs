//! Tasks as the API lists, shows, runs and deletes them.

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use serde::Serialize;

use super::{
    ApiState,
    answer::{Answer, Failure, unsupported_path},
};
use crate::{
    Error, TaskName,
    wire::{TaskDocument, TaskList, TaskMessage},
};

/// Nothing but the request's id.
#[derive(Serialize)]
pub(crate) struct Empty {}

/// `GET /v1/tasks`
pub(crate) async fn all(State(state): State<ApiState>) -> Answer<TaskList> {
    let tasks = state.engine.state(|state| state.tasks.iter().map(TaskDocument::from).collect());
    Answer::new(TaskList { tasks })
}

/// `GET /v1/tasks/<name>`
pub(crate) async fn one(
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Answer<TaskMessage>, Failure> {
    let name = task_name(name)?;
    let found = state
        .engine
        .state(|state| state.tasks.iter().find(|task| task.name == name).map(TaskDocument::from));
    match found {
        Some(task) => Ok(Answer::new(TaskMessage { task })),
        None => Err(Error::NoSuchTask { task: name.to_string() }.into()),
    }
}

/// `DELETE /v1/tasks/<name>`
pub(crate) async fn delete(
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<(StatusCode, Answer<Empty>), Failure> {
    state.engine.delete(&task_name(name)?).await?;
    Ok((StatusCode::ACCEPTED, Answer::new(Empty {})))
}

/// The name in a path; what cannot be one names no task.
pub(crate) fn task_name(text: String) -> Result<TaskName, Failure> {
    if text.contains('/') {
        return Err(unsupported_path(&format!("/v1/tasks/{text}")));
    }
    TaskName::try_from(text.clone()).map_err(|_no_name| Error::NoSuchTask { task: text }.into())
}
