//! What happens to tasks, as server-sent events.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::stream::{self, Stream};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::{ApiState, answer::Failure};
use crate::{Follower, StreamEvent};

/// Longest silence: a comment keeps the connection, and whoever watches it.
const SILENCE: Duration = Duration::from_secs(10);

/// The query parameters.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    task: Option<String>,
    /// The id of something earlier.
    after: Option<u64>,
    /// Ends the stream once at least one event was sent.
    batch: bool,
    /// Ends the stream with what has happened already.
    at_once: bool,
}

/// `GET /v1/events`
pub(crate) async fn events(
    State(state): State<ApiState>,
    Query(parameters): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let wanted = Wanted::read(&parameters, &headers)?;
    let Ok(permit) = Arc::clone(&state.streams).try_acquire_owned() else {
        let text = "too many clients follow events; try again later";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let follower = state.engine.follow(wanted.after);
    let stream = body(follower, wanted, state, permit);
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(stream)).into_response())
}

impl Wanted {
    fn read(parameters: &[(String, String)], headers: &HeaderMap) -> Result<Self, Failure> {
        let mut wanted = Self::default();
        // A browser that reconnects says what it had last.
        let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
        wanted.after = last.and_then(|id| id.parse().ok());
        let mut seen = BTreeSet::new();
        for (name, value) in parameters {
            if matches!(name.as_str(), "task" | "after" | "batch" | "wait") && !seen.insert(name) {
                let text = format!("cannot support more than one {name} parameter");
                return Err(Failure::bad_request(text));
            }
            match name.as_str() {
                "task" => wanted.task = Some(value.clone()),
                "after" => {
                    let bad = |_| {
                        Failure::bad_request(format!(
                            "unsupported after parameter value: the id of an event is expected, \
                             got {value}"
                        ))
                    };
                    wanted.after = Some(value.parse().map_err(bad)?);
                }
                "batch" => wanted.batch = boolean(name, value)?,
                "wait" => wanted.at_once = !boolean(name, value)?,
                _ => {}
            }
        }
        Ok(wanted)
    }
}

fn boolean(name: &str, value: &str) -> Result<bool, Failure> {
    value.parse().map_err(|_no_boolean| {
        Failure::bad_request(format!(
            "unsupported {name} parameter value. only supporting true and false but got {value}"
        ))
    })
}

/// The text of the stream: where it begins, then what happens, until the server stops.
fn body(
    follower: Follower,
    wanted: Wanted,
    state: ApiState,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    // Who comes back with it misses nothing, also when nothing happened meanwhile.
    let begin = format!(": follows\nid: {}\n\n", follower.position());
    let first = Some(begin);
    stream::unfold(Some((follower, first, wanted, state, permit)), async |step| {
        let (mut follower, first, wanted, state, permit) = step?;
        if let Some(begin) = first {
            let next = Some((follower, None, wanted, state, permit));
            return Some((Ok(Bytes::from(begin)), next));
        }
        let silence = if wanted.at_once { Duration::ZERO } else { SILENCE };
        loop {
            let events = tokio::select! {
                () = state.stopping.cancelled() => return None,
                events = timeout(silence, follower.next()) => events,
            };
            let Ok(events) = events else {
                if wanted.at_once {
                    return None;
                }
                let comment = Bytes::from_static(b": nothing happened\n\n");
                return Some((Ok(comment), Some((follower, None, wanted, state, permit))));
            };
            let text: String = events
                .iter()
                .filter(|event| {
                    wanted.task.as_ref().is_none_or(|task| event.task_name.as_str() == task)
                })
                .map(message)
                .collect();
            if !text.is_empty() {
                let next = (!wanted.batch).then_some((follower, None, wanted, state, permit));
                return Some((Ok(Bytes::from(text)), next));
            }
        }
    })
}

fn message(event: &StreamEvent) -> String {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("id: {}\ndata: {data}\n\n", event.id)
}
