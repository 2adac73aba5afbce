//! How far the store has come, as this process knows.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI64, Ordering},
};

/// The name of the history, and the highest number of a change in it that this
/// process has heard of.
#[derive(Debug, Default)]
pub(super) struct Progress {
    name: Mutex<String>,
    seq: AtomicI64,
}

impl Progress {
    pub(super) fn seq(&self) -> i64 {
        self.seq.load(Ordering::SeqCst)
    }

    /// Notes what a statement saw.
    pub(super) fn learn(&self, name: &str, seq: i64) {
        let mut known = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == name {
            self.seq.fetch_max(seq, Ordering::SeqCst);
        } else {
            name.clone_into(&mut known);
            self.seq.store(seq, Ordering::SeqCst);
        }
    }

    /// Notes the number of a change of the history that is known.
    pub(super) fn reached(&self, seq: i64) {
        self.seq.fetch_max(seq, Ordering::SeqCst);
    }
}
