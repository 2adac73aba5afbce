//! How far the store has come, as this process knows.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::watch;

/// The name of the history, and the highest number of a change in it that this
/// process has heard of.
#[derive(Debug, Default)]
pub(super) struct Progress {
    name: watch::Sender<String>,
    seq: AtomicI64,
}

impl Progress {
    pub(super) fn seq(&self) -> i64 {
        self.seq.load(Ordering::SeqCst)
    }

    /// Returns the name of the history, and waits for another one.
    pub(super) fn names(&self) -> watch::Receiver<String> {
        self.name.subscribe()
    }

    /// Notes what a statement saw.
    pub(super) fn learn(&self, name: &str, seq: i64) {
        // The numbers are set under the lock of the name.
        self.name.send_if_modified(|known| {
            let other = known != name;
            if other {
                name.clone_into(known);
                self.seq.store(seq, Ordering::SeqCst);
            } else {
                self.seq.fetch_max(seq, Ordering::SeqCst);
            }
            other
        });
    }

    /// Notes the number of a change of the history that is known.
    pub(super) fn reached(&self, seq: i64) {
        self.seq.fetch_max(seq, Ordering::SeqCst);
    }
}
