//! Settings of broad queries.

use std::{sync::Arc, time::Duration};

use super::broad_query::{BroadQuery, Kind};
use crate::{
    Backoff, Client,
    watch::{RateLimit, slots::Slots, summary::Summary},
};

/// Settings of broad queries.
#[derive(Debug)]
pub(in crate::watch) struct Settings {
    /// Client whose reads are in order.
    pub(in crate::watch) client: Client,
    pub(in crate::watch) wait: Duration,
    pub(in crate::watch) poll_interval: Duration,
    pub(in crate::watch) rate_limit: RateLimit,
    pub(in crate::watch) backoff: Backoff,
    /// Most prefixes that are followed at the same time.
    pub(in crate::watch) prefixes: usize,
    /// Has room for a broad query of each node, if there are not too many.
    pub(in crate::watch) slots: Arc<Slots>,
    pub(in crate::watch) summary: Arc<Summary>,
    /// Spreads periodic reads.
    pub(in crate::watch) seed: u64,
}

impl Settings {
    /// Creates a broad query that has not been asked yet.
    pub(super) fn broad_query(&self, kind: Kind) -> BroadQuery {
        BroadQuery::new(kind, self.rate_limit, self.backoff.clone(), self.poll_interval)
    }
}
