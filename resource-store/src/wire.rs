//! What gRPC server and client share: metadata, limits, and the forms of
//! failures and events.

use std::sync::Arc;

use tonic::Status;

use crate::{
    backend::WatchEvent,
    code::RpcError,
    pb::{self, watch_event::Event},
};
#[cfg(feature = "client")]
use crate::{
    code::Code,
    error_chain::{causes, error_chain},
};

/// The request metadata that carries the token.
pub(crate) const TOKEN: &str = "x-consul-token";
/// The request metadata that asks for a consistency.
pub(crate) const CONSISTENCY: &str = "x-consul-consistency-mode";
/// The value that asks for strong consistency; any other means eventual.
pub(crate) const CONSISTENT: &str = "consistent";
/// The largest message that is taken.
pub(crate) const MAX_MESSAGE: usize = 50 << 20;

#[cfg(feature = "grpc")]
pub(crate) fn to_status(error: &RpcError) -> Status {
    Status::new(tonic::Code::from_i32(error.code().number()), error.message())
}

#[cfg(feature = "client")]
#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
pub(crate) fn from_status(status: Status) -> RpcError {
    let code = Code::from_number(status.code() as i32);
    // What has a cause comes from the connection, which may explain itself or not.
    if causes(&status).any(<dyn std::error::Error>::is::<tonic::TimeoutExpired>) {
        return RpcError::new(Code::DeadlineExceeded, "no answer in time");
    }
    let local = std::error::Error::source(&status).is_some();
    if local && matches!(code, Code::Unknown | Code::Cancelled) {
        return RpcError::new(Code::Unavailable, error_chain(&status));
    }
    RpcError::new(code, status.message())
}

#[cfg(feature = "grpc")]
pub(crate) fn to_event(event: WatchEvent) -> pb::WatchEvent {
    let event = match event {
        WatchEvent::Upsert(resource) => Event::Upsert(pb::watch_event::Upsert {
            resource: Some(Arc::unwrap_or_clone(resource)),
        }),
        WatchEvent::Delete(resource) => Event::Delete(pb::watch_event::Delete {
            resource: Some(Arc::unwrap_or_clone(resource)),
        }),
        WatchEvent::EndOfSnapshot => Event::EndOfSnapshot(pb::watch_event::EndOfSnapshot {}),
    };
    pb::WatchEvent { event: Some(event) }
}

#[cfg(feature = "client")]
pub(crate) fn from_event(event: pb::WatchEvent) -> Result<WatchEvent, RpcError> {
    let missing = || RpcError::new(Code::Internal, "the server sent an event without content");
    match event.event.ok_or_else(missing)? {
        Event::Upsert(upsert) => {
            Ok(WatchEvent::Upsert(Arc::new(upsert.resource.ok_or_else(missing)?)))
        }
        Event::Delete(delete) => {
            Ok(WatchEvent::Delete(Arc::new(delete.resource.ok_or_else(missing)?)))
        }
        Event::EndOfSnapshot(_) => Ok(WatchEvent::EndOfSnapshot),
    }
}
