//! The codes of failures, by what a caller may do about them.

use resource_store::{
    Code::{self, Internal, Unavailable, Unknown},
    LocalClient, ResourceClient as _, RpcError,
    backend::Error,
    demo::v2,
    pb::DeleteRequest,
};

use crate::support::*;

fn inconsistent() -> Error {
    Error::Inconsistent { reason: "no leader".to_owned() }
}

fn other(retryable: bool) -> Error {
    Error::Other { operation: "write", retryable, source: "the disk is full".into() }
}

fn unknown() -> Error {
    Error::OutcomeUnknown { operation: "write", reason: "the leader changed".to_owned() }
}

/// Every call, over a backend whose calls fail from now on.
async fn failures(error: fn() -> Error) -> Vec<(&'static str, RpcError)> {
    let backend = Faulty::new();
    let service = builder_over(backend.clone()).build();
    let client = LocalClient::new(service.clone());
    let stored = service.put(artist("korn")).await.unwrap();
    let mut found = Vec::new();

    backend.fail(move |method| (method == "write" || method == "delete").then(error));
    found.push(("write", client.write(artist("korn")).await.unwrap_err()));
    let status = service.set_status(&id(&stored), "", "key", status_of(&stored)).await;
    found.push(("write status", status.unwrap_err()));
    let delete = DeleteRequest { id: stored.id.clone(), version: String::new() };
    found.push(("delete with tombstone", client.delete(delete.clone()).await.unwrap_err()));
    backend.fail(move |method| (method == "delete").then(error));
    found.push(("delete", client.delete(delete.clone()).await.unwrap_err()));

    backend.fail(move |_| Some(error()));
    found.push(("read", client.read(id(&stored)).await.unwrap_err()));
    found.push(("list", service.all::<v2::Artist>("").await.unwrap_err()));
    found.push(("list by owner", service.children(&id(&stored)).await.unwrap_err()));
    found.push(("read of a delete", client.delete(delete).await.unwrap_err()));
    found.push(("read of a write", client.write(artist("korn")).await.unwrap_err()));
    let Err(watch) = service.follow::<v2::Artist>(None).await else { panic!("it was refused") };
    found.push(("watch", watch));
    found
}

/// Nothing was done, and the same call may succeed later.
#[tokio::test]
async fn what_may_be_repeated_is_unavailable() {
    for error in [inconsistent, || other(true)] {
        for (call, failure) in failures(error).await {
            assert_eq!(failure.code(), Unavailable, "{call}: {failure}");
            assert!(failure.is_retryable() && !failure.outcome_is_unknown(), "{call}");
        }
    }
}

/// Repeating does not help.
#[tokio::test]
async fn what_stays_broken_is_internal_and_not_repeated() {
    for (call, failure) in failures(|| other(false)).await {
        assert_eq!(failure.code(), Internal, "{call}: {failure}");
        assert!(!failure.is_retryable() && !failure.outcome_is_unknown(), "{call}");
    }
}

/// A caller has to look before it asks again.
#[tokio::test]
async fn an_unknown_outcome_says_so() {
    for (call, failure) in failures(unknown).await {
        assert_eq!(failure.code(), Unknown, "{call}: {failure}");
        assert!(failure.message().contains("the outcome is unknown"), "{call}: {failure}");
        assert!(!failure.is_retryable() && failure.outcome_is_unknown(), "{call}");
    }
}

#[test]
fn only_what_did_nothing_is_repeated_blindly() {
    let repeated: Vec<_> = (1..=16)
        .map(Code::from_number)
        .filter(|code| RpcError::new(*code, "").is_retryable())
        .collect();
    assert_eq!(repeated, [Code::ResourceExhausted, Unavailable]);
    let unknown: Vec<_> = (1..=16)
        .map(Code::from_number)
        .filter(|code| RpcError::new(*code, "").outcome_is_unknown())
        .collect();
    assert_eq!(unknown, [Code::Cancelled, Unknown, Code::DeadlineExceeded]);
}
