use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Error, Result};

/// Failures in a row after which nothing more is tried.
const LIMIT: usize = 10;

/// Notices in the middle of a pass that nothing succeeds any more, so that the rest is put off
/// instead of being tried in vain, with a wait for each.
#[derive(Debug, Default)]
pub(crate) struct Outage(AtomicUsize);

impl Outage {
    /// Whether the last tries, many in a row, failed in a way that says that others would fail too.
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LIMIT
    }

    /// Notes how a try ended.
    pub(crate) fn note<T>(&self, outcome: &Result<T>) {
        if outcome.as_ref().is_err_and(Error::is_outage) {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}
