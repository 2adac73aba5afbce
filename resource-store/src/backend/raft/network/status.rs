//! How results of the backend travel between follower and leader.
//!
//! Source: `internal/storage/raft/forwarding.go`, Consul 1.21.
//! Deviation: errors are distinguished by their kind, so that `Inconsistent` with
//! a reason stays `Inconsistent`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message as _;
use tonic::{Code, Status};

use crate::{
    backend::Error,
    pb::generated::hashicorp::consul::internal::storage::raft::GroupVersionMismatchErrorDetails,
};

/// The message that statuses with details carry.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// When to try again, in milliseconds.
const RETRY_AFTER: &str = "grpc-retry-pushback-ms";
const MISMATCH_URL: &str = "type.googleapis.com/\
                            hashicorp.consul.internal.storage.raft.GroupVersionMismatchErrorDetails";

/// Translates an error into the answer that a follower gets.
pub(crate) fn to_status(error: &Error) -> Status {
    let text = error.to_string();
    match error {
        Error::NotFound => Status::not_found(text),
        Error::CasFailure => Status::aborted(text),
        Error::WrongUid => Status::already_exists(text),
        Error::Inconsistent { .. } => Status::failed_precondition(text),
        Error::GroupVersionMismatch { requested, stored } => {
            let details = GroupVersionMismatchErrorDetails {
                requested_type: Some(requested.as_ref().clone()),
                stored: Some(stored.as_ref().clone()),
            };
            let details = prost_types::Any {
                type_url: MISMATCH_URL.to_owned(),
                value: details.encode_to_vec(),
            };
            let status = RpcStatus {
                code: Code::OutOfRange as i32,
                message: text.clone(),
                details: vec![details],
            };
            // As gRPC frames details everywhere, so that Consul's own clients read it.
            let details = Bytes::from(status.encode_to_vec());
            Status::with_details(Code::OutOfRange, text, details)
        }
        Error::Overloaded { retry_after, .. } => {
            let mut status = Status::resource_exhausted(text);
            let millis = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
            status.metadata_mut().insert(RETRY_AFTER, millis.into());
            status
        }
        // Not translated back: who asked must not take an unknown outcome for a refusal.
        Error::WatchClosed | Error::OutcomeUnknown { .. } | Error::Other { .. } => {
            Status::internal(text)
        }
    }
}

/// Returns the leader's error. Nothing if it is no answer of a leader, but of the
/// connection, or of a leader that does not know the outcome.
pub(crate) fn from_status(status: &Status) -> Option<Error> {
    match status.code() {
        Code::NotFound => Some(Error::NotFound),
        Code::Aborted => Some(Error::CasFailure),
        Code::AlreadyExists => Some(Error::WrongUid),
        Code::FailedPrecondition => {
            let text = Error::Inconsistent { reason: String::new() }.to_string();
            let reason = status.message();
            let reason = reason.strip_prefix(&text).unwrap_or(reason);
            // The other side adds the beginning again when it shows the error.
            let reason = reason.strip_prefix(": ").unwrap_or(reason).to_owned();
            Some(Error::Inconsistent { reason })
        }
        Code::OutOfRange => mismatch(status),
        Code::ResourceExhausted => overloaded(status),
        _ => None,
    }
}

/// Only the leader itself says when to try again.
fn overloaded(status: &Status) -> Option<Error> {
    // The HTTP/2 library uses this code, too, for messages that are too large.
    let millis = status.metadata().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    let reason = "the leader has as much to write as it takes".to_owned();
    Some(Error::Overloaded { reason, retry_after: Duration::from_millis(millis) })
}

fn mismatch(status: &Status) -> Option<Error> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let details = details.into_iter().find(|any| any.type_url == MISMATCH_URL)?;
    let details = GroupVersionMismatchErrorDetails::decode(details.value.as_slice()).ok()?;
    let (requested, stored) = (details.requested_type?, details.stored?);
    Some(Error::GroupVersionMismatch { requested: Box::new(requested), stored: Arc::new(stored) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{demo, pb::Type};

    fn back(error: &Error) -> Option<Error> {
        from_status(&to_status(error))
    }

    #[test]
    fn errors_survive_the_way_to_a_follower() {
        let mismatch = Error::GroupVersionMismatch {
            requested: Box::new(Type::new("demo", "v1", "Artist")),
            stored: Arc::new(demo::artist("korn").encode()),
        };
        let errors = [
            (Error::NotFound, Code::NotFound),
            (Error::CasFailure, Code::Aborted),
            (Error::WrongUid, Code::AlreadyExists),
            (Error::Inconsistent { reason: String::new() }, Code::FailedPrecondition),
            (Error::Inconsistent { reason: "no leader".to_owned() }, Code::FailedPrecondition),
            (mismatch, Code::OutOfRange),
            (
                Error::Overloaded {
                    reason: "the leader has as much to write as it takes".to_owned(),
                    retry_after: Duration::from_millis(70),
                },
                Code::ResourceExhausted,
            ),
        ];
        for (error, code) in errors {
            assert_eq!(to_status(&error).code(), code, "{error}");
            let after = back(&error).unwrap();
            assert_eq!(format!("{after:?}"), format!("{error:?}"));
        }
    }

    #[test]
    fn what_is_no_answer_of_the_leader_is_not_taken_for_one() {
        let other = Error::Other { operation: "write", retryable: true, source: "disk".into() };
        assert_eq!(to_status(&other).code(), Code::Internal);
        assert!(back(&other).is_none());
        assert!(from_status(&Status::unavailable("gone")).is_none());
        assert!(from_status(&Status::resource_exhausted("h2 protocol error")).is_none());
        assert!(from_status(&Status::out_of_range("no details")).is_none());
        let garbage = Status::with_details(Code::OutOfRange, "", Bytes::from_static(&[0xff; 9]));
        assert!(from_status(&garbage).is_none());
    }
}
