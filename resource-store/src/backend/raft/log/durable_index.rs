//! Lets nothing out that is not on enough disks yet.
//!
//! The consensus library waits for the own disk before it does anything else: a
//! leader before it sends entries, a follower before it takes a message without
//! entries. Here all that happens at once: the log acknowledges entries to the
//! library at once, and this index makes up for it. Until an entry is on the
//! disk of a node
//!
//! - a follower does not acknowledge it to the leader, nor a message that comes
//!   after it ([`server`](super::super::network::server));
//! - a leader does not apply it, so that nobody reads or watches it, and no
//!   follower hears that it is committed, so that none applies it, either;
//!   unless a majority of the others has it
//!   (`slow_disk` of [`node`](super::super::node)).
//!
//! So the library may count the leader into a majority a little too early, but
//! that has no effect before it is true. A node that crashes in between loses
//! entries that nobody saw. A new term begins with a vote, which goes to the
//! same disk after all entries before it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::backend::{raft::types::LogId, store::sync::lock};

/// The state of the log, as far as the index needs it.
#[derive(Debug, Clone, Default)]
struct Disk {
    /// Entries before this index, made by this node as a leader, were
    /// acknowledged early.
    early: u64,
    /// Entries before this index are on the disk.
    flushed: u64,
    /// The last entry that got there.
    last: Option<LogId>,
    failed: bool,
}

/// The disk failed; nothing more gets through.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the log cannot be written")]
pub(crate) struct LogFailed;

/// Says when an entry may have effects. A clone is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct DurableIndex {
    disk: watch::Sender<Disk>,
    /// When the write began that is under way.
    writing: Arc<Mutex<Option<Instant>>>,
    /// Another node was told less than what is committed.
    held_back: Arc<AtomicBool>,
    opened: Arc<Notify>,
    /// The last entry of which another node was told that it is committed.
    announced: Arc<Mutex<Option<LogId>>>,
}

impl DurableIndex {
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

    /// All entries up to this one are on the disk.
    pub(crate) fn flushed(&self, last: LogId) {
        let end = last.index + 1;
        self.disk.send_if_modified(|disk| {
            let more = end > disk.flushed && disk.early > disk.flushed;
            disk.flushed = disk.flushed.max(end);
            disk.last = disk.last.max(Some(last));
            more
        });
        if self.held_back.swap(false, Ordering::AcqRel) {
            self.opened.notify_one();
        }
    }

    /// A write begins, or the one under way has ended.
    pub(crate) fn writes(&self, writes: bool) {
        *lock(&self.writing) = writes.then(Instant::now);
    }

    /// Returns `true` if the disk has been at one write for longer than that.
    pub(crate) fn hangs(&self, limit: Duration) -> bool {
        lock(&self.writing).is_some_and(|since| since.elapsed() > limit)
    }

    /// The last one of the committed entries that may have effects, as far as
    /// it is known.
    pub(crate) fn visible(&self, committed: LogId) -> Option<LogId> {
        let disk = self.disk.borrow();
        if open(&disk, committed.index) { Some(committed) } else { disk.last.min(Some(committed)) }
    }

    /// The index after the last one of the committed entries that may have
    /// effects.
    pub(crate) fn visible_end(&self, committed: u64) -> u64 {
        let disk = self.disk.borrow();
        if open(&disk, committed) { committed + 1 } else { disk.flushed }
    }

    /// Notes that everything up to this entry is committed, before another node learns it.
    pub(crate) fn announce(&self, committed: Option<LogId>) {
        let mut announced = lock(&self.announced);
        *announced = committed.max(*announced);
    }

    /// Returns the last entry of which another node may know that it is committed.
    pub(crate) fn announced(&self) -> Option<LogId> {
        *lock(&self.announced)
    }

    /// Notes that another node was told less than what is committed.
    pub(crate) fn hold_back(&self) {
        self.held_back.store(true, Ordering::Release);
    }

    /// Waits until more may be sent than was held back.
    pub(crate) async fn opened(&self) {
        self.opened.notified().await;
    }

    /// Entries from `since` on are gone.
    pub(crate) fn truncated(&self, since: u64) {
        self.disk.send_modify(|disk| {
            disk.early = disk.early.min(since);
            disk.flushed = disk.flushed.min(since);
            disk.last = disk.last.filter(|last| last.index < since);
        });
    }

    pub(crate) fn fail(&self) {
        self.disk.send_modify(|disk| disk.failed = true);
    }

    /// Returns `true` if an entry may have effects now.
    pub(crate) fn is_open(&self, index: u64) -> bool {
        open(&self.disk.borrow(), index)
    }

    /// Waits until an entry may have effects.
    pub(crate) async fn pass(&self, index: u64) -> Result<(), LogFailed> {
        let mut disk = self.disk.subscribe();
        let state = disk.wait_for(|disk| disk.failed || open(disk, index)).await;
        match state {
            Ok(state) if !state.failed => Ok(()),
            Ok(_) | Err(_) => Err(LogFailed),
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

    fn id(index: u64) -> LogId {
        LogId::new(openraft::CommittedLeaderId::new(1, 1), index)
    }

    #[tokio::test]
    async fn what_is_not_on_the_disk_does_not_pass() {
        let durable = DurableIndex::default();
        // A follower's entries are acknowledged once they are on the disk.
        assert!(durable.is_open(5));
        durable.acknowledged_early(5, 7);
        assert!(
            durable.is_open(4) && !durable.is_open(5) && !durable.is_open(6) && durable.is_open(7)
        );
        let mut waiting = Box::pin(durable.pass(6));
        assert!(waiting.as_mut().now_or_never().is_none());
        durable.flushed(id(5));
        assert!(durable.is_open(5) && waiting.as_mut().now_or_never().is_none());
        durable.acknowledged_early(7, 8);
        assert!(durable.is_open(5) && !durable.is_open(6));
        durable.flushed(id(7));
        waiting.await.unwrap();
        assert!(durable.is_open(7));
    }

    #[tokio::test]
    async fn others_are_told_of_what_is_on_the_disk_and_later_of_the_rest() {
        let durable = DurableIndex::default();
        assert_eq!(durable.visible(id(5)), Some(id(5)));
        durable.acknowledged_early(5, 9);
        assert_eq!(durable.visible(id(4)), Some(id(4)));
        assert_eq!((durable.visible(id(8)), durable.visible_end(8)), (None, 5));
        durable.hold_back();
        durable.flushed(id(6));
        durable.opened().await;
        assert_eq!((durable.visible(id(8)), durable.visible_end(8)), (Some(id(6)), 7));
        durable.flushed(id(7));
        assert!(durable.opened().now_or_never().is_none(), "nothing was held back");
        durable.truncated(7);
        assert_eq!(durable.visible(id(6)), Some(id(6)));
        durable.acknowledged_early(7, 8);
        assert_eq!(durable.visible(id(7)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_takes_long_is_noticed() {
        let (durable, limit) = (DurableIndex::default(), Duration::from_secs(1));
        durable.writes(true);
        tokio::time::advance(limit).await;
        assert!(!durable.hangs(limit));
        tokio::time::advance(limit).await;
        assert!(durable.hangs(limit));
        durable.writes(false);
        assert!(!durable.hangs(limit));
    }

    #[tokio::test]
    async fn entries_in_the_place_of_others_wait_again() {
        let durable = DurableIndex::default();
        durable.acknowledged_early(1, 9);
        durable.flushed(id(8));
        durable.truncated(4);
        assert!(durable.is_open(3) && durable.is_open(4));
        durable.acknowledged_early(4, 5);
        assert!(durable.is_open(3) && !durable.is_open(4));
        durable.fail();
        assert!(durable.pass(4).await.is_err());
    }
}
