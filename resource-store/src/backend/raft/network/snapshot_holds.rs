//! The entries that must stay in the log for nodes that are sent a snapshot.
//!
//! A node that is given a snapshot needs all entries after it, or it would need
//! another snapshot by the time it has this one, and under load never catch up:
//! they stay until it has got them, as long as it comes nearer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use crate::backend::{
    raft::types::{LogId, NodeId},
    store::sync::lock,
};

/// Time that entries stay for a node that has got its snapshot and gets no entry.
const GRACE: Duration = Duration::from_mins(2);

/// The entries that a node needs.
#[derive(Debug)]
struct Need {
    /// The last entry it has, or that is in the snapshot it gets.
    index: u64,
    /// Number of snapshots under way to it.
    under_way: usize,
    /// Smallest number of entries that it has lacked so far.
    lack: u64,
    /// When it is given up, unless a snapshot is under way.
    until: Instant,
}

type Needs = Mutex<HashMap<NodeId, Need>>;

/// The entries that are needed after snapshots that were sent. A clone is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct SnapshotHolds {
    needs: Arc<Needs>,
}

impl SnapshotHolds {
    /// Entries after this index stay for a node while this lives, and then as
    /// long as the node comes nearer to the end of the log now and then.
    pub(crate) fn after(&self, node: NodeId, index: u64) -> Hold {
        let mut needs = lock(&self.needs);
        let until = Instant::now();
        let need = needs.entry(node).or_insert(Need { index, under_way: 0, lack: u64::MAX, until });
        (need.index, need.lack) = (index, u64::MAX);
        need.under_way += 1;
        Hold { needs: Arc::clone(&self.needs), node }
    }

    /// Takes note of how far nodes are from the last entry. Who has those up to
    /// `goes`, which go otherwise, needs nothing any more.
    pub(crate) fn heard<'n>(
        &self,
        nodes: impl Iterator<Item = (&'n NodeId, &'n Option<LogId>)>,
        last: u64,
        goes: u64,
    ) {
        let mut needs = lock(&self.needs);
        for (node, at) in nodes {
            let (Some(need), Some(at)) = (needs.get_mut(node), at) else { continue };
            need.index = need.index.max(at.index);
            let lack = last.saturating_sub(need.index);
            // Only progress prolongs the hold: one that keeps its distance for good would fill the disk.
            if lack < need.lack {
                need.lack = lack;
                need.until = Instant::now() + GRACE;
            }
            if need.under_way == 0 && need.index >= goes {
                needs.remove(node);
            }
        }
    }

    /// The index after which entries have to stay.
    pub(crate) fn first(&self) -> Option<u64> {
        let mut needs = lock(&self.needs);
        let now = Instant::now();
        // A snapshot under way may take longer than any grace.
        needs.retain(|_, need| need.under_way > 0 || now < need.until);
        needs.values().map(|need| need.index).min()
    }
}

/// Lets entries stay.
#[derive(Debug)]
pub(crate) struct Hold {
    needs: Arc<Needs>,
    node: NodeId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(need) = lock(&self.needs).get_mut(&self.node) {
            need.under_way -= 1;
            need.until = Instant::now() + GRACE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_stay_until_whoever_needs_them_had_time() {
        let holds = SnapshotHolds::default();
        assert_eq!(holds.first(), None);
        let (later, earlier) = (holds.after(2, 9), holds.after(1, 5));
        assert_eq!(holds.first(), Some(5));
        tokio::time::sleep(GRACE * 2).await;
        drop(earlier);
        tokio::time::sleep(GRACE / 2).await;
        assert_eq!(holds.first(), Some(5));
        tokio::time::sleep(GRACE).await;
        assert_eq!(holds.first(), Some(9));
        drop(later);
        tokio::time::sleep(GRACE * 2).await;
        assert_eq!(holds.first(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn entries_stay_as_long_as_whoever_needs_them_comes_nearer() {
        let holds = SnapshotHolds::default();
        let at = |index| Some(LogId::new(openraft::CommittedLeaderId::new(1, 1), index));
        let heard = |index, last| holds.heard([(&1, &at(index))].into_iter(), last, 950);
        drop(holds.after(1, 5));
        for (index, last) in [(6, 1000), (7, 1000), (800, 1700)] {
            tokio::time::sleep(GRACE * 2 / 3).await;
            heard(index, last);
            assert_eq!(holds.first(), Some(index));
        }
        // As many come as it gets.
        tokio::time::sleep(GRACE * 2 / 3).await;
        heard(900, 1900);
        tokio::time::sleep(GRACE * 2 / 3).await;
        assert_eq!(holds.first(), None);
        // It has all that goes, but another snapshot is on its way.
        let again = holds.after(1, 500);
        heard(950, 2000);
        assert_eq!(holds.first(), Some(950));
        drop(again);
        heard(950, 2000);
        assert_eq!(holds.first(), None);
    }
}
