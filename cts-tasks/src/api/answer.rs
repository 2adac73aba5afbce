//! Answers of the API, and its errors as documents.

use axum::{
    Json,
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use consul_watch::error_chain;
use serde::Serialize;

use super::request_id;
use crate::{
    Error,
    wire::{ErrorDocument, ErrorMessage},
};

/// A request that is refused or could not be served: `{"error":{"message":…},"request_id":…}`.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    message: String,
}

/// The message of a [`Failure`], carried to the log as an extension of the
/// response.
#[derive(Debug, Clone)]
pub(crate) struct FailureText(pub(crate) String);

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl From<Error> for Failure {
    /// Maps a failure of the engine: an unknown task, or anything else.
    fn from(error: Error) -> Self {
        let status = match error {
            Error::NoSuchTask { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error_chain(&error))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let said = FailureText(self.message.clone());
        let body = ErrorDocument {
            error: ErrorMessage { message: self.message },
            request_id: Some(request_id().to_string()),
        };
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(said);
        response
    }
}

/// An answer that names its request: `{"request_id":…, …}`.
#[derive(Debug, Serialize)]
pub(crate) struct Answer<T> {
    request_id: String,
    #[serde(flatten)]
    body: T,
}

impl<T> Answer<T> {
    pub(crate) fn new(body: T) -> Self {
        Self { request_id: request_id().to_string(), body }
    }
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

/// A path below that of a task's name.
pub(crate) fn unsupported_path(path: &str) -> Failure {
    Failure::bad_request(format!(
        "unsupported path '{path}'. request must be format 'path/{{task-name}}'. \
         task name cannot have '/ ' and api does not support further resources"
    ))
}

pub(crate) fn unsupported_method(method: &Method, api: &str, supported: &str) -> Failure {
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!(
            "'{method}' in an unsupported method. {api} currently supports the method(s): {supported}"
        ),
    )
}
