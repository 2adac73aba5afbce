//! Writing answers.

use std::sync::Arc;

use axum::{body::Body, extract::Request, response::Response};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, LOCATION},
};
use serde_json::{Map, Value};
use tokio::task::consume_budget;

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

/// Answers that there is nothing here, and why.
pub(super) fn not_found(detail: &str) -> Response {
    text(StatusCode::NOT_FOUND, format!("404 page not found: {detail}\n"))
}

/// Answers for a path that no route has.
pub(super) async fn no_such_path(request: Request) -> Response {
    let content = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !content.is_some_and(|content| content.starts_with(b"application/grpc")) {
        return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    }
    // As gRPC wants it: a status in the headers, where there is no message.
    let mut response = with_body(StatusCode::OK, "application/grpc", Body::empty());
    let code = HeaderValue::from(Code::Unimplemented.number());
    response.headers_mut().insert("grpc-status", code);
    response
}

pub(super) fn redirect(to: &'static str) -> Response {
    let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}

fn text(status: StatusCode, text: String) -> Response {
    with_body(status, "text/plain; charset=utf-8", Body::from(text))
}

pub(super) fn resource(
    codec: &JsonCodec,
    resource: &Resource,
    registration: &Registration,
) -> Result<Response, Failure> {
    pretty(&value(codec, resource, registration)?)
}

/// A list, which leaves room for other tasks while it is written.
pub(super) async fn list(
    codec: &JsonCodec,
    resources: &[Arc<Resource>],
    registration: impl Fn(&Resource) -> Option<Arc<Registration>>,
) -> Result<Response, Failure> {
    // Written one by one: the values of all would need several times as much memory.
    let mut text = b"{\n  \"resources\": [".to_vec();
    let mut before: &[u8] = b"\n    ";
    for resource in resources {
        text.extend_from_slice(before);
        let begun = text.len();
        let value = match registration(resource) {
            Some(registration) => value(codec, resource, &registration)?,
            // Of a type that was served once: what it holds is not known any more.
            None => without_data(codec, resource)?,
        };
        for line in pretty_text(&value)?.split_inclusive(|b| *b == b'\n') {
            text.extend_from_slice(line);
            if line.ends_with(b"\n") {
                text.extend_from_slice(b"    ");
            }
        }
        before = b",\n    ";
        let_others_run(text.len() - begun).await;
    }
    text.extend_from_slice(if resources.is_empty() { b"]\n}" } else { b"\n  ]\n}" });
    Ok(with_body(StatusCode::OK, "application/json", Body::from(text)))
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

/// A resource without its data.
fn without_data(codec: &JsonCodec, resource: &Resource) -> Result<Value, RpcError> {
    let value = codec.resource_without_data(resource);
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

/// Lets other tasks run once 16 KiB were encoded: a thread that encodes for longer
/// keeps them waiting.
pub(super) async fn let_others_run(encoded: usize) {
    // A task has 128 units before its turn is over.
    for _ in 0..=encoded / 128 {
        consume_budget().await;
    }
}

fn pretty(value: &Value) -> Result<Response, Failure> {
    Ok(with_body(StatusCode::OK, "application/json", Body::from(pretty_text(value)?)))
}

fn pretty_text(value: &Value) -> Result<Vec<u8>, RpcError> {
    serde_json::to_vec_pretty(value).map_err(|error| RpcError::internal(error.to_string()))
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
        Failure::Body(text) => (StatusCode::BAD_REQUEST, text.clone()),
        Failure::TooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "Request body is too large".to_owned())
        }
    };
    self::text(status, text)
}

fn status_of(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
