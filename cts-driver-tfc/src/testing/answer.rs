//! Answers of the double, in the platform's form.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::query;

pub(super) type Answer = Response<Bytes>;

fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(body.into());
    // A status that is no status would be a mistake in a test, which this makes visible.
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT);
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/vnd.api+json"));
    answer
}

pub(super) fn document(status: u16, body: &Value) -> Answer {
    answer(status, body.to_string())
}

pub(super) fn empty(status: u16) -> Answer {
    answer(status, Bytes::new())
}

/// Returns plain JSON, as Terraform's service discovery wants it.
pub(super) fn plain_json(body: &Value) -> Answer {
    let mut answer = document(200, body);
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    answer
}

pub(super) fn bytes(body: Vec<u8>) -> Answer {
    answer(200, body)
}

pub(super) fn error(status: u16, title: &str, detail: &str) -> Answer {
    let body =
        json!({"errors": [{"status": status.to_string(), "title": title, "detail": detail}]});
    document(status, &body)
}

pub(super) fn not_found() -> Answer {
    document(404, &json!({"errors": [{"status": "404", "title": "not found"}]}))
}

/// Refuses what this double has no route for, which the platform may well have. Not with a
/// status from 500 on, upon which Terraform would ask again and again before it says so.
pub(super) fn unserved(what: &str) -> Answer {
    let detail = format!(
        "this is the Terraform Cloud double of cts-driver-tfc, which does not serve {what}"
    );
    error(404, "not found", &detail)
}

/// Refuses a method that nothing at this path has.
pub(super) fn method_not_allowed(method: &str, path: &str) -> Answer {
    error(405, "method not allowed", &format!("{path} has no {method}"))
}

/// Refuses a filter that this double does not know: a list without it would be another one.
pub(super) fn unknown_filter(name: &str, served: &[&str]) -> Answer {
    let known = if served.is_empty() { "none".to_owned() } else { served.join(", ") };
    let detail = format!(
        "this is the Terraform Cloud double of cts-driver-tfc, which has no {name} here; it has \
         {known}"
    );
    error(400, "unknown filter", &detail)
}

pub(super) fn conflict(detail: &str) -> Answer {
    error(409, "transition not allowed", detail)
}

pub(super) fn rate_limited(seconds: f64) -> Answer {
    let mut answer = document(
        429,
        &json!({"errors": [{
            "detail": "You have exceeded the API's rate limit.", "status": 429,
            "title": "Too many requests",
        }]}),
    );
    // In seconds with a fraction, as the platform writes it.
    if let Ok(value) = header::HeaderValue::from_str(&format!("{seconds:.3}")) {
        answer.headers_mut().insert("x-ratelimit-reset", value);
    }
    answer
}

pub(super) fn redirect(target: &str) -> Answer {
    let mut answer = empty(307);
    if let Ok(value) = header::HeaderValue::from_str(target) {
        answer.headers_mut().insert(header::LOCATION, value);
    }
    answer
}

/// Returns one page of items, as the platform cuts lists.
pub(super) fn page(items: &[Value], query: &str) -> Answer {
    let number = |name: &str, default: usize| {
        let found = query::parameter(query, name).and_then(|value| value.parse().ok());
        found.unwrap_or(default).max(1)
    };
    let (current, size) = (number("page[number]", 1), number("page[size]", 20).min(100));
    let pages = items.len().div_ceil(size).max(1);
    let shown: Vec<&Value> = items.iter().skip((current - 1) * size).take(size).collect();
    document(
        200,
        &json!({"data": shown, "meta": {"pagination": {
            "current-page": current, "page-size": size, "total-pages": pages,
            "prev-page": (current > 1).then(|| current - 1),
            "next-page": (current < pages).then_some(current + 1), "total-count": items.len(),
        }}}),
    )
}
