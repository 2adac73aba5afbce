//! How a watch is doing, apart from its data.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use crate::{
    query::{Position, QueryKey},
    watch::{
        WatchError,
        summary::{Occasion, Summary},
        telemetry::{self, Happened},
    },
};

/// Health of a watch, apart from its data.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchState {
    /// Degree to which the data can be trusted to be current.
    pub liveness: Liveness,
    /// Place of the watch in Consul's history.
    pub position: Position,
    /// Time at which Consul last answered, with or without a change.
    pub last_success: Option<SystemTime>,
    /// Failed attempts since then.
    pub consecutive_failures: u32,
    /// Reason why the last attempt failed; stays until one succeeds.
    pub last_error: Option<WatchError>,
    /// Requests made so far.
    pub requests: u64,
    /// Way in which its last request waited for changes.
    pub connection: Connection,
    /// Changes that no broad query reported: the periodic read of a covered watch found them.
    pub repairs: u64,
}

/// Way in which a watch waits for changes; see
/// [Many watches](crate::watch#many-watches).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Connection {
    /// It has not asked yet.
    #[default]
    None,
    /// It blocks on a connection of its own.
    Own,
    /// Broad queries stand in for it, and tell it when to read.
    Covered,
    /// It takes turns with others on a few connections.
    RoundRobin,
    /// It cannot block, and asks at intervals.
    Polled,
}

impl Connection {
    /// Returns the way in a word, such as `own` or `covered`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Own => "own",
            Self::Covered => "covered",
            Self::RoundRobin => "round-robin",
            Self::Polled => "polled",
        }
    }
}

/// Degree to which a watch's data can be trusted to be current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Liveness {
    /// Consul has not answered yet.
    Starting,
    /// The last attempt succeeded.
    Live,
    /// The last attempt failed; another follows. The data is kept.
    Degraded,
    /// The watch has ended.
    Ended,
}

/// Counts what the periodic reads of one watch find that no signal reported.
#[derive(Debug)]
pub(super) struct Repairs {
    count: AtomicU64,
    key: QueryKey,
    /// The watch's, which the task that counts is not in.
    span: tracing::Span,
    summary: Arc<Summary>,
}

impl Repairs {
    pub(super) fn new(key: QueryKey, span: tracing::Span, summary: Arc<Summary>) -> Self {
        Self { count: AtomicU64::new(0), key, span, summary }
    }

    /// Counts one, also in the metrics, and logs it.
    pub(super) fn add(&self) {
        // Only a number: nothing else is published along with it.
        self.count.fetch_add(1, Ordering::Relaxed);
        telemetry::event(&self.key, Happened::Repair);
        self.span.in_scope(|| self.summary.add(Occasion::Repaired, &self.key, None));
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl WatchState {
    pub(super) fn new() -> Self {
        Self {
            liveness: Liveness::Starting,
            position: Position::Start,
            last_success: None,
            consecutive_failures: 0,
            last_error: None,
            requests: 0,
            connection: Connection::None,
            repairs: 0,
        }
    }

    pub(super) fn succeeded(&mut self, now: SystemTime) {
        self.liveness = Liveness::Live;
        self.last_success = Some(now);
        self.consecutive_failures = 0;
        self.last_error = None;
    }

    pub(super) fn failed(&mut self, error: &WatchError) {
        self.liveness = if error.is_fatal() { Liveness::Ended } else { Liveness::Degraded };
        // A watch retries for as long as it takes, which can be for ever.
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        self.last_error = Some(error.clone());
    }
}

impl WatchState {
    /// The state that a subscriber sees after the read's task is gone.
    pub(super) fn ended(mut self) -> Self {
        self.liveness = Liveness::Ended;
        self
    }
}
