//! What requests have in common.

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    ApiState, HEALTH,
    answer::Failure,
    limits::{BODY, LARGEST_BODY},
    pages::is_page,
};

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

/// Reads the body.
///
/// # Errors
///
/// 413 if it is too large, 408 if it does not arrive in time.
pub(crate) async fn read(body: Body) -> Result<Bytes, Failure> {
    match tokio::time::timeout(BODY, to_bytes(body, LARGEST_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("cannot read the request's body of at most {LARGEST_BODY} bytes: {error}"),
        )),
        Err(_elapsed) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the request's body did not arrive within {} s", BODY.as_secs()),
        )),
    }
}

/// Refuses a body that does not say that it is JSON.
///
/// A page can make a browser send text or a form to another origin with `POST` and
/// without asking, but not JSON. `PATCH` is always asked for first, so there the
/// header may be left out, or be curl's own, as upstream's command line and its
/// documentation have it.
///
/// Source: Consul-Terraform-Sync 0.9, check of requests against `api/openapi.yaml`.
pub(crate) async fn only_json(request: Request, next: Next) -> Response {
    // Forms of the status page have a token, which another page's have not.
    if is_page(request.uri().path()) {
        return next.run(request).await;
    }
    match content_type(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

fn content_type(method: &Method, headers: &HeaderMap) -> Result<(), Failure> {
    let sent = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let media = sent.map(|text| text.split(';').next().unwrap_or_default().trim());
    let is = |expected| media.is_some_and(|media: &str| media.eq_ignore_ascii_case(expected));
    let fine = match *method {
        Method::PATCH => media.is_none() || is(JSON) || is("application/x-www-form-urlencoded"),
        Method::POST => is(JSON) || media.is_none() && !has_body(headers),
        _ => true,
    };
    if fine {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "header 'Content-Type' has unexpected value {:?}: the body of a request has to be declared \
         as {JSON}",
        sent.unwrap_or_default().chars().take(200).collect::<String>()
    )))
}

const JSON: &str = "application/json";

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    length.is_some_and(|length| length != "0") || headers.contains_key(header::TRANSFER_ENCODING)
}

/// Answers only so many requests at once; one for the health always.
///
/// A request beyond the bound is refused rather than kept waiting, so that its client
/// learns at once that it has to come back.
pub(crate) async fn only_so_many(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    if request.uri().path() == HEALTH {
        return next.run(request).await;
    }
    let writes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let write = writes.then(|| state.writes.try_acquire());
    let (Ok(_request), Ok(_write)) = (state.requests.try_acquire(), write.transpose()) else {
        let text = "too many requests are being answered; try again in a second";
        let mut refused = Failure::new(StatusCode::SERVICE_UNAVAILABLE, text).into_response();
        refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        return refused;
    };
    next.run(request).await
}
