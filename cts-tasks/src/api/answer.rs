use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use uuid::Uuid;

/// A request that is refused or could not be served: `{"error":{"message":…},"request_id":…}`.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    message: String,
}

#[derive(Serialize)]
struct Body {
    error: Message,
    request_id: Uuid,
}

#[derive(Serialize)]
struct Message {
    message: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let request_id = Uuid::new_v4();
        tracing::debug!(%request_id, status_code = self.status.as_u16(), error = self.message, "request failed");
        let body = Body { error: Message { message: self.message }, request_id };
        (self.status, Json(body)).into_response()
    }
}
