//! [`Query`]: the seam, one read that can be watched.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use super::{Mode, Position, QueryKey, Scope, Subject};
use crate::{Answer, Client, Result};

/// A read that can be watched.
///
/// Implement it to watch something that this crate has no query for.
///
/// # Contract
///
/// - Two queries with equal keys and the same `Value` give equal results.
/// - `fetch` returns the result as it is now, also when nothing changed while it blocked.
/// - Results are normalised: what has no order of its own is sorted, so that
///   equal contents compare as equal.
/// - Dropping the future of `fetch` ends its request.
pub trait Query: fmt::Debug + Send + Sync + 'static {
    /// Type of the data in a snapshot.
    type Value: PartialEq + fmt::Debug + Send + Sync + 'static;

    /// Returns the key that two queries share when they may share one upstream read: every
    /// parameter that changes the result must be in it.
    fn key(&self) -> QueryKey;

    /// Returns the way in which changes are waited for.
    fn mode(&self) -> Mode {
        Mode::Index
    }

    /// Returns the part of Consul's data that the read depends on, so that a broad query
    /// can stand in for it.
    fn scope(&self) -> Scope {
        Scope::Opaque
    }

    /// Returns the names of what is read, for log lines. The default has none beyond the key.
    fn subject(&self) -> Subject<'_> {
        Subject::default()
    }

    /// Returns `true` if two results are the same to a subscriber. Override it where
    /// they differ in what does not matter, such as an order.
    fn same(&self, old: &Self::Value, new: &Self::Value) -> bool {
        old == new
    }

    /// Reads once. With a `position` past the start, blocks up to `wait` until
    /// there is something newer; see [`QueryOptions::at`](crate::QueryOptions::at).
    ///
    /// # Errors
    ///
    /// Those of the client. A watch retries what [`crate::Error::is_retryable`] allows.
    fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> impl Future<Output = Result<Answer<Self::Value>>> + Send;
}

#[deny(clippy::missing_trait_methods)]
impl<Q: Query> Query for Arc<Q> {
    type Value = Q::Value;

    fn key(&self) -> QueryKey {
        (**self).key()
    }

    fn mode(&self) -> Mode {
        (**self).mode()
    }

    fn scope(&self) -> Scope {
        (**self).scope()
    }

    fn subject(&self) -> Subject<'_> {
        (**self).subject()
    }

    fn same(&self, old: &Self::Value, new: &Self::Value) -> bool {
        (**self).same(old, new)
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        (**self).fetch(client, position, wait).await
    }
}
