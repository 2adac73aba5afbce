//! Detects within a pass that nothing succeeds any more.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Error, Result};

/// Number of consecutive failures after which nothing more is tried.
const LIMIT: usize = 10;

/// Counter of consecutive failures, so that the rest of a pass is postponed instead of being tried
/// in vain, with a time limit for each.
#[derive(Debug, Default)]
pub(crate) struct Outage(AtomicUsize);

impl Outage {
    /// Returns `true` if many attempts in a row failed in a way that others would fail, too.
    pub(crate) fn is_on(&self) -> bool {
        // Relaxed: an attempt more or less does not matter.
        self.0.load(Ordering::Relaxed) >= LIMIT
    }

    /// Counts the outcome of an attempt.
    pub(crate) fn note<T>(&self, outcome: &Result<T>) {
        // A refusal for one resource alone says that the other side is well.
        if outcome.as_ref().is_err_and(Error::is_outage) {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}
