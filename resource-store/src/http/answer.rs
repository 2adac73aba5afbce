//! Writing answers.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde_json::{Map, Value, json};

use super::Failure;
use crate::{
    code::{Code, RpcError},
    json::JsonCodec,
    pb::Resource,
    registry::Registration,
};

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

pub(super) fn resource(
    codec: &JsonCodec,
    resource: &Resource,
    registration: &Registration,
) -> Result<Response, Failure> {
    pretty(&value(codec, resource, registration)?)
}

pub(super) fn list(
    codec: &JsonCodec,
    resources: &[Arc<Resource>],
    registration: &Registration,
) -> Result<Response, Failure> {
    let values: Result<Vec<_>, _> =
        resources.iter().map(|r| value(codec, r, registration)).collect();
    pretty(&json!({ "resources": values? }))
}

/// A resource in JSON, with its keys sorted.
pub(super) fn value(
    codec: &JsonCodec,
    resource: &Resource,
    registration: &Registration,
) -> Result<Value, RpcError> {
    let value = codec.resource(resource, registration.schema());
    value.map(sorted).map_err(|e| RpcError::internal(format!("failed to encode resource: {e}")))
}

/// Sorts keys, whatever order the map type of this build keeps.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(fields.into_iter().collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

fn pretty(value: &Value) -> Result<Response, Failure> {
    let text = serde_json::to_vec_pretty(value).map_err(|e| RpcError::internal(e.to_string()))?;
    Ok(with_body(StatusCode::OK, "application/json", Body::from(text)))
}

pub(super) fn with_body(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(super) fn failure(failure: &Failure) -> Response {
    let (status, text) = match failure {
        Failure::Rpc(error) => (status_of(error.code()), error.to_string()),
        Failure::Body(text) => (StatusCode::BAD_REQUEST, (*text).to_owned()),
        Failure::TooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "Request body is too large".to_owned())
        }
    };
    with_body(status, "text/plain; charset=utf-8", Body::from(text))
}

fn status_of(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Aborted => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
