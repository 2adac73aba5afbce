//! How much of the log the newest snapshot on the disk has.
//!
//! The library has the log cut off while a snapshot that replaces it is still
//! being installed. Until that is on the disk, the log is all that a node that
//! crashes can go on from, so the log waits for it.

use tokio::sync::watch;

/// Entries before this index are in the snapshot on the disk; none if no snapshot
/// can be written any more.
type End = Option<u64>;

/// No snapshot can be written any more; the log stays as it is.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("no snapshot of the resources can be written")]
pub(crate) struct SnapshotFailed;

/// Says what the snapshot on the disk has. A clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Persisted {
    end: watch::Sender<End>,
}

impl Persisted {
    /// A snapshot that has the entries before `end`.
    pub(crate) fn new(end: u64) -> Self {
        Self { end: watch::Sender::new(Some(end)) }
    }

    /// A snapshot on the disk has all entries before `end`.
    pub(crate) fn reached(&self, end: u64) {
        self.end.send_if_modified(|now| {
            let more = now.is_some_and(|now| now < end);
            if more {
                *now = Some(end);
            }
            more
        });
    }

    /// Entries before this index are on the disk; none if it failed.
    pub(crate) fn end(&self) -> Option<u64> {
        *self.end.borrow()
    }

    pub(crate) fn fail(&self) {
        self.end.send_replace(None);
    }

    /// Waits until a snapshot on the disk has an entry.
    pub(crate) async fn has(&self, index: u64) -> Result<(), SnapshotFailed> {
        let mut end = self.end.subscribe();
        let reached = end.wait_for(|end| end.is_none_or(|end| index < end)).await;
        if reached.is_ok_and(|end| end.is_some()) { Ok(()) } else { Err(SnapshotFailed) }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_waits_hears_of_progress_and_of_failure() {
        let disk = Persisted::new(3);
        disk.has(2).await.unwrap();
        let mut waiting = Box::pin(disk.has(3));
        assert!(waiting.as_mut().now_or_never().is_none());
        disk.reached(2);
        assert!(waiting.as_mut().now_or_never().is_none());
        disk.reached(4);
        waiting.await.unwrap();
        let failing = disk.has(9);
        disk.fail();
        failing.await.unwrap_err();
    }
}
