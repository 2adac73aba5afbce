//! What holds for every request: its id, its log lines, the headers of its
//! answer, and that an error is a document.

use std::any::Any;

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    ApiState, HEALTH,
    answer::{Failure, FailureText},
};
use crate::{REQUEST_ID, Role, measure};

tokio::task_local! {
    static CURRENT: Uuid;
}

/// The id of the request that is being answered.
pub(crate) fn request_id() -> Uuid {
    CURRENT.try_with(|id| *id).unwrap_or_else(|_outside| Uuid::new_v4())
}

/// Gives the request its id, and logs it, unless it asks for the health.
///
/// Source: Consul-Terraform-Sync 0.9, `api/middleware`.
pub(crate) async fn identify(request: Request, next: Next) -> Response {
    let id = Uuid::new_v4();
    let logged = request.uri().path() != HEALTH;
    let (method, started) = (request.method().clone(), Instant::now());
    let path = request.uri().path().to_owned();
    if logged {
        tracing::debug!(request_id = %id, method = method.as_str(), path, "received request");
    }
    let mut response = CURRENT.scope(id, answer(request, next)).await;
    if let Ok(value) = HeaderValue::try_from(id.to_string()) {
        response.headers_mut().insert(HeaderName::from_static(REQUEST_ID), value);
    }
    let method = match method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        // Anything may be sent, and not everything gets a series of its own.
        _ => "other",
    };
    measure::answered(method, response.status().as_u16(), started.elapsed());
    if logged {
        let said = response.extensions().get::<FailureText>().map(|said| said.0.as_str());
        let status_code = response.status().as_u16();
        tracing::debug!(
            request_id = %id, duration = ?started.elapsed(), status_code, error = said,
            "request complete"
        );
        if is_told(response.status(), method) {
            if response.status() == StatusCode::NOT_FOUND {
                // A mistake of whoever asked, in a name or a path: nothing here has failed.
                tracing::info!(request_id = %id, method, path, status_code, error = said, "request failed");
            } else {
                tracing::error!(request_id = %id, method, path, status_code, error = said, "request failed");
            }
        }
    }
    response
}

/// Returns `true` if a response is logged at every log level.
///
/// An operator whom a command's error has sent to the log has to find the answer
/// there: what failed, and changes that were refused. A client without a token is
/// not logged so, because it could fill the log.
fn is_told(status: StatusCode, method: &str) -> bool {
    let changes = !matches!(method, "GET" | "OPTIONS" | "other");
    status.is_server_error()
        || (changes && status.is_client_error() && status != StatusCode::UNAUTHORIZED)
}

/// Makes a document of every error.
async fn answer(request: Request, next: Next) -> Response {
    let mut response = as_document(next.run(request).await).await;
    let headers = response.headers_mut();
    headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    response
}

/// The longest text of an error of the framework's own.
const OWN_TEXT: usize = 4096;

/// Turns an error that the framework made, which is plain text, into a document.
async fn as_document(response: Response) -> Response {
    let status = response.status();
    let media = response.headers().get(header::CONTENT_TYPE);
    // The status page has its own words for an error.
    let page = media.is_some_and(|media| media.as_bytes().starts_with(b"text/html"));
    if page
        || response.extensions().get::<FailureText>().is_some()
        || !(status.is_client_error() || status.is_server_error())
    {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, OWN_TEXT).await.unwrap_or_default();
    let text = match String::from_utf8_lossy(&text).trim() {
        "" => status.canonical_reason().unwrap_or("the request failed").to_owned(),
        text => text.to_owned(),
    };
    let mut document = Failure::new(status, text).into_response();
    for name in [header::ALLOW, header::RETRY_AFTER] {
        if let Some(value) = parts.headers.get(&name) {
            document.headers_mut().insert(name, value.clone());
        }
    }
    document
}

/// Answers for a handler that panicked; the log has been told by the panic hook.
pub(crate) fn panicked(_cause: Box<dyn Any + Send + 'static>) -> http::Response<Body> {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed by a defect of the server")
        .into_response()
}

/// Sends who asks a follower about tasks to the leader: with 400 and its name, or, where
/// the cluster [redirects](crate::Cluster::redirects), with 307 and its address.
pub(crate) async fn only_leader(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_below = |base: &str| {
        path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let about_tasks = is_below("/v1/tasks")
        || path == "/v1/events"
        || is_below("/v1/status") && path != super::CLUSTER;
    match state.cluster.role() {
        Role::Follower { leader, address } if about_tasks => {
            let mut message = "redirect requests to leader".to_owned();
            let target = address.as_deref().filter(|_| leader.is_some());
            let target = target.and_then(|address| location(&state, address, request.uri()));
            if let Some(leader) = leader {
                message = format!("{message} '{leader}'");
                if let Some(address) = address {
                    message = format!("{message} at {address}");
                }
            }
            let failure = Failure::bad_request(message);
            match target {
                // The method and the body stay, unlike with 302.
                Some(target) => {
                    let failure = failure.with_status(StatusCode::TEMPORARY_REDIRECT);
                    ([(header::LOCATION, target)], failure).into_response()
                }
                None => failure.into_response(),
            }
        }
        Role::Follower { .. } | Role::Leader => next.run(request).await,
    }
}

/// The address of the same request at the leader, where followers redirect.
///
/// The leader is taken to serve http or https as this instance does: the instances of a
/// cluster are configured alike. `None` also for an address that is not `host:port`:
/// without its port a client would ask whatever serves the scheme's own.
fn location(state: &ApiState, address: &str, uri: &Uri) -> Option<HeaderValue> {
    if !state.cluster.redirects() {
        return None;
    }
    address.parse::<Authority>().ok()?.port_u16()?;
    let scheme = if state.https { "https" } else { "http" };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    HeaderValue::try_from(format!("{scheme}://{address}{path}")).ok()
}
