//! Lets nothing out that the disk of the leader does not have yet.
//!
//! The consensus library waits for the leader's disk before it sends entries to
//! the followers. Here both happen at once: the log acknowledges entries of the
//! leader's own at once, and this gate makes up for it. Until an entry is on
//! the leader's disk
//!
//! - the leader does not apply it, so that nobody reads or is told of it;
//! - no follower hears that it is committed, so that none applies it, either.
//!
//! So the library may count the leader into a majority a little too early, but
//! that has no effect before it is true. A leader that crashes in between loses
//! entries that nobody saw. A new term begins with a vote, which goes to the
//! same disk after all entries before it; what a follower acknowledges is on
//! its disk, always.

use tokio::sync::watch;

/// Where the log is, as far as the gate cares.
#[derive(Debug, Clone, Default)]
struct Disk {
    /// Entries before this index, made by this node as a leader, were
    /// acknowledged early.
    early: u64,
    /// Entries before this index are on the disk.
    flushed: u64,
    failed: bool,
}

/// The disk failed; nothing more gets through.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the log cannot be written")]
pub(crate) struct GateClosed;

/// Says when an entry may have effects. A clone is the same gate.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate {
    disk: watch::Sender<Disk>,
}

impl Gate {
    /// Entries from `first` to before `end` were acknowledged early.
    pub(crate) fn acknowledged_early(&self, first: u64, end: u64) {
        self.disk.send_modify(|disk| {
            // If nothing waits, all before these entries is on the disk. What
            // was at their places before does not count.
            let nothing_waits = disk.flushed >= disk.early;
            disk.flushed = if nothing_waits { first } else { disk.flushed.min(first) };
            disk.early = end;
        });
    }

    /// All entries before `end` are on the disk.
    pub(crate) fn flushed(&self, end: u64) {
        self.disk.send_if_modified(|disk| {
            let more = end > disk.flushed && disk.early > disk.flushed;
            disk.flushed = disk.flushed.max(end);
            more
        });
    }

    /// Entries from `since` on are gone.
    pub(crate) fn truncated(&self, since: u64) {
        self.disk.send_modify(|disk| {
            disk.early = disk.early.min(since);
            disk.flushed = disk.flushed.min(since);
        });
    }

    pub(crate) fn fail(&self) {
        self.disk.send_modify(|disk| disk.failed = true);
    }

    /// Whether an entry may have effects now.
    pub(crate) fn is_open(&self, index: u64) -> bool {
        open(&self.disk.borrow(), index)
    }

    /// Waits until an entry may have effects.
    pub(crate) async fn pass(&self, index: u64) -> Result<(), GateClosed> {
        let mut disk = self.disk.subscribe();
        let state = disk.wait_for(|disk| disk.failed || open(disk, index)).await;
        match state {
            Ok(state) if !state.failed => Ok(()),
            Ok(_) | Err(_) => Err(GateClosed),
        }
    }
}

fn open(disk: &Disk, index: u64) -> bool {
    index < disk.flushed || index >= disk.early
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_not_on_the_disk_does_not_pass() {
        let gate = Gate::default();
        // A follower's entries are acknowledged once they are on the disk.
        assert!(gate.is_open(5));
        gate.acknowledged_early(5, 7);
        assert!(gate.is_open(4) && !gate.is_open(5) && !gate.is_open(6) && gate.is_open(7));
        let mut waiting = Box::pin(gate.pass(6));
        assert!(waiting.as_mut().now_or_never().is_none());
        gate.flushed(6);
        assert!(gate.is_open(5) && waiting.as_mut().now_or_never().is_none());
        gate.acknowledged_early(7, 8);
        assert!(gate.is_open(5) && !gate.is_open(6));
        gate.flushed(8);
        waiting.await.unwrap();
        assert!(gate.is_open(7));
    }

    #[tokio::test]
    async fn entries_in_the_place_of_others_wait_again() {
        let gate = Gate::default();
        gate.acknowledged_early(1, 9);
        gate.flushed(9);
        gate.truncated(4);
        assert!(gate.is_open(3) && gate.is_open(4));
        gate.acknowledged_early(4, 5);
        assert!(gate.is_open(3) && !gate.is_open(4));
        gate.fail();
        assert!(gate.pass(4).await.is_err());
    }
}
