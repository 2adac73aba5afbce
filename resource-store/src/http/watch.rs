//! A watch as lines of JSON.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::answer;
use crate::{
    backend::WatchEvent,
    code::{Code, RpcError},
    json::JsonCodec,
    registry::Registration,
    service::EventStream,
};

/// Writes one line for each event; the last line says why the watch ended. The
/// permit is given back when the answer is.
pub(super) fn lines(
    events: EventStream,
    codec: JsonCodec,
    registration: Arc<Registration>,
    stop: CancellationToken,
    place: OwnedSemaphorePermit,
) -> Response {
    let stopped = RpcError::new(Code::Unavailable, "server is shutting down");
    let last = stream::once(async { Err(stopped) });
    let until_stop = events.take_until(stop.clone().cancelled_owned());
    let after = last.filter(move |_| std::future::ready(stop.is_cancelled()));
    let lines = until_stop.chain(after).map(move |event| {
        let _place = &place;
        let shown = event.and_then(|event| show(&event, &codec, &registration));
        let value = shown.unwrap_or_else(|error| failure(&error));
        Bytes::from(format!("{value}\n"))
    });
    // A long snapshot leaves room for other tasks.
    let lines = lines.then(async |line| {
        answer::let_others_run(line.len()).await;
        Ok::<_, std::convert::Infallible>(line)
    });
    answer::with_body(StatusCode::OK, "application/x-ndjson", Body::from_stream(lines))
}

fn show(
    event: &WatchEvent,
    codec: &JsonCodec,
    registration: &Registration,
) -> Result<Value, RpcError> {
    Ok(match event {
        WatchEvent::Upsert(resource) => {
            json!({"upsert": {"resource": answer::value(codec, resource, registration)?}})
        }
        WatchEvent::Delete(resource) => {
            json!({"delete": {"resource": answer::value(codec, resource, registration)?}})
        }
        WatchEvent::EndOfSnapshot => json!({"endOfSnapshot": {}}),
    })
}

fn failure(error: &RpcError) -> Value {
    json!({"error": {"code": error.code().to_string(), "message": error.message()}})
}
