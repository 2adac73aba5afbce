//! The conformance suite of [`Backend`].
//!
//! One function for each sentence of the contract; each wants a backend of its
//! own that is empty. [`storage_conformance!`](crate::storage_conformance)
//! makes a test of each.
//!
//! Source: `internal/storage/conformance`, Consul 1.21.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "these are the bodies of tests: they panic to fail"
)]

mod cases;
mod listing;
mod seed;
mod watching;

use std::{future::Future, sync::Arc, time::Duration};

pub use cases::*;
pub use listing::*;
pub use watching::*;

use crate::{
    backend::{Backend, Consistency, Error, Result},
    pb::{Id, Resource},
};

/// The abilities that a backend may lack.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Capabilities {
    /// `true` if lists can be strongly consistent.
    pub strong_list: bool,
    /// `true` if the end-of-snapshot mark comes after what was written before the
    /// watch began. Not so where the watched replica lags behind.
    pub complete_snapshots: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self { strong_list: true, complete_snapshots: true }
    }
}

/// Time that the suite waits for what has to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes a test of every case of the suite.
///
/// Takes an expression that gives a future of an `Arc<dyn Backend>` and of a
/// guard that keeps it alive, and optionally the [`Capabilities`].
#[macro_export]
macro_rules! storage_conformance {
    ($fixture:expr) => {
        $crate::storage_conformance!($fixture, $crate::testing::storage::Capabilities::default());
    };
    ($fixture:expr, $capabilities:expr) => {
        $crate::storage_conformance!(@cases $fixture, $capabilities;
            read_gives_what_was_written
            read_without_uid_gives_any_incarnation
            read_of_another_name_finds_nothing
            read_of_another_uid_finds_nothing
            read_of_another_group_version_is_a_mismatch
            writes_are_conditional_on_the_version
            writes_keep_the_uid
            a_deleted_name_takes_another_uid
            deletes_are_conditional_on_the_version
            a_delete_of_another_uid_does_nothing
            owned_resources_are_listed_by_their_owner
            lists_give_what_the_query_covers
            watches_begin_with_a_snapshot
            watches_follow_with_every_change
            a_change_of_group_version_is_a_delete_and_an_upsert
            snapshots_do_not_show_later_writes
            a_restore_replaces_everything_and_closes_watches
            a_failed_restore_changes_nothing
            versions_after_a_restore_are_new
        );
    };
    (@cases $fixture:expr, $capabilities:expr; $($case:ident)*) => {$(
        #[tokio::test]
        async fn $case() {
            let (backend, guard) = $fixture.await;
            $crate::testing::storage::$case(backend, $capabilities).await;
            drop(guard);
        }
    )*};
}

/// The modes of reading, and whether the first answer counts.
const MODES: [Consistency; 2] = [Consistency::Eventual, Consistency::Strong];

/// Repeats an eventual read until `fine`; a strong one has one attempt.
async fn read_until<T, F>(
    mode: Consistency,
    read: impl Fn() -> F,
    fine: impl Fn(&Result<T>) -> bool,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let result = read().await;
        let last = mode == Consistency::Strong || tokio::time::Instant::now() > deadline;
        if fine(&result) || last {
            return result;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Writes that have to work, over a short loss of leadership.
async fn write(backend: &Arc<dyn Backend>, resource: Resource) -> Arc<Resource> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match backend.write_cas(resource.clone()).await {
            Ok(stored) => return stored,
            Err(error) if error.is_retryable() && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("write of {:?}: {error}", resource.name()),
        }
    }
}

/// Returns `true` if a result is the given failure.
fn is<T>(result: &Result<T>, wanted: &Error) -> bool {
    matches!(result, Err(error) if std::mem::discriminant(error) == std::mem::discriminant(wanted))
}

fn id_of(resource: &Resource) -> Id {
    resource.id.clone().unwrap()
}
