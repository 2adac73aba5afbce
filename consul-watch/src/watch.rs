//! Watches: reads that give a new snapshot whenever Consul's data changes.
//!
//! A [`Watcher`] turns a [`Query`](crate::Query) into a [`Watch`], a stream
//! of [`Snapshot`]s. Watches of the same query share one upstream read.
//!
//! # Many watches
//!
//! A watcher keeps within a budget of connections,
//! [`WatcherBuilder::connections`], because Consul serves 200 for each client
//! address. Up to that many watches, less a sixteenth for short reads, have a
//! connection each, on which Consul holds their request until something changes. With one more,
//! about two thirds of the budget stay with watches, until no more watches than that remain. For
//! the others broad queries (of each node where there are not too many, else of all nodes, or of
//! all checks, nodes and services; of the keys of a prefix) tell *that* something changed, and short reads tell
//! *what*. Broad queries of nodes take the connections of watches, but for an eighth. A watch that
//! no broad query can stand in for ([`Scope::Opaque`](crate::query::Scope::Opaque)) is preferred
//! when connections are dealt out, and past that asked in turn. Watches that change often, about
//! twice a minute or more, get the connections of quiet ones, between two requests of these.
//!
//! What a watch shows is the same either way: nothing is missed, and the
//! order of snapshots is Consul's. Three things differ. A change shows after
//! two requests instead of one (with more nodes than broad queries, and more than 4,000 checks or
//! services, nodes are listed between the two), and under churn up to a few seconds later, because broad answers are paced.
//! Watches in turn may be up to 10 s late, or a second for each eighth of the budget's worth of
//! them. And a covered watch reads from the leader, also where its query would take a stale or
//! cached answer, because only those have an order.
//!
//! With TLS Consul speaks HTTP/2, and one connection carries all requests, 250
//! at a time. Then 200 watches have a request of their own, and the strategy is
//! the same past that.
//!
//! [`Watcher::load`] says how many watches wait in which way.

mod all;
mod broad_queries;
mod buffer;
mod diff;
mod inner;
mod limiter;
mod part;
mod plan;
mod scheduler;
mod shared;
mod slots;
mod state;
mod store;
mod subscription;
mod summary;
mod telemetry;
mod view;
mod watcher;

use std::sync::Arc;

use crate::{Error, QueryMeta, query::QueryKey};

pub use all::{AllEvent, WatchAll};
pub use buffer::{Buffer, BufferTimer, Buffered};
pub use diff::{Diff, Event, InstanceKey, Items, Keyed, changes};
pub use limiter::RateLimit;
pub use part::{ChangedBy, Mapped};
pub use state::{Connection, Liveness, WatchState};
pub use store::Store;
pub use subscription::Watch;
pub use watcher::{Load, WatchReport, Watcher, WatcherBuilder};

/// Answer of a query at one moment.
///
/// Cheap to clone: subscribers share the data.
#[derive(Debug)]
#[non_exhaustive]
pub struct Snapshot<T> {
    /// The decoded, normalised answer.
    pub data: Arc<T>,
    /// Metadata from the answer's headers.
    pub meta: QueryMeta,
    /// Counts the snapshots of the shared read, from 1. A gap between two that
    /// a subscriber sees means that it was slow and newer data took the place
    /// of what it missed.
    pub seq: u64,
    /// Counts Consul's histories as the shared read has seen them, from 1. It
    /// grows when the index went backwards, as it does when a backup is
    /// restored or another server lags behind: what happened between this
    /// snapshot and the one before may then be more than their difference.
    pub history: u64,
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self {
            data: Arc::clone(&self.data),
            meta: self.meta.clone(),
            seq: self.seq,
            history: self.history,
        }
    }
}

/// The reason why a watch has no newer data at the moment, or will have none any
/// more.
///
/// All subscribers of a read get the same error, so it is shared and cheap to clone.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", self.describe())]
pub struct WatchError {
    /// Names the watch; `None` when the whole watcher has ended.
    key: Option<QueryKey>,
    #[source]
    cause: Arc<Error>,
    last: bool,
}

impl WatchError {
    fn new(key: QueryKey, cause: Arc<Error>, last: bool) -> Self {
        Self { key: Some(key), cause, last }
    }

    fn closed() -> Self {
        let source = "the watcher was shut down".into();
        let cause = Error::Other { operation: "watch", retryable: false, source };
        Self { key: None, cause: Arc::new(cause), last: true }
    }

    fn describe(&self) -> String {
        let outcome = if self.last { "has ended" } else { "has failed and will try again" };
        match &self.key {
            Some(key) => format!("the watch of {key} {outcome}"),
            None => format!("the watch {outcome}"),
        }
    }

    /// The key of the query that was watched; `None` when the whole watcher was shut down.
    pub fn key(&self) -> Option<&QueryKey> {
        self.key.as_ref()
    }

    fn shared(&self) -> &Arc<Error> {
        &self.cause
    }

    /// Returns the error behind this one.
    pub fn cause(&self) -> &Error {
        &self.cause
    }

    /// Returns `true` if this is the watch's last item: no retry can cure it. A fresh
    /// [`Watcher::watch`] of the query tries again.
    pub fn is_fatal(&self) -> bool {
        self.last
    }
}
