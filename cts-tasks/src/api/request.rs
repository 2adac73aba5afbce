//! What requests have in common.

use std::time::Duration;

use axum::{
    body::{Body, Bytes, to_bytes},
    http::StatusCode,
};

use super::answer::Failure;

/// The largest body that is read.
const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// How long a body may take to arrive.
///
/// Source: Consul-Terraform-Sync 0.9, read timeout of the API.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// The `run` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunParameter {
    Absent,
    Now,
    Inspect,
}

pub(crate) fn run_parameter(parameters: &[(String, String)]) -> Result<RunParameter, Failure> {
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

/// The body, if it is not too large and arrives in time.
pub(crate) async fn read(body: Body) -> Result<Bytes, Failure> {
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
