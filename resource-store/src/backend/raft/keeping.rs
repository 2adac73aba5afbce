//! How much of the log stays.
//!
//! Some entries before the last snapshot stay for nodes that are a little
//! behind, so many and no more, and so many bytes. A node that is given a
//! snapshot needs all entries after it, or it would need another snapshot by
//! the time it has this one, and under load never catch up: they stay until it
//! has got them, as long as it comes nearer.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    node::Node,
    types::{LogId, NodeId},
};
use crate::backend::store::sync::lock;

/// In how many stretches the bytes are kept that the log may have.
pub(super) const STRETCHES: usize = 4;
/// How long entries stay for a node that has got its snapshot and gets no entry.
const GRACE: Duration = Duration::from_mins(2);
/// How soon it is noticed that entries need not stay any more.
const TICK: Duration = Duration::from_secs(1);

/// What a node needs.
#[derive(Debug)]
struct Need {
    /// The last entry it has, or that is in the snapshot it gets.
    index: u64,
    /// How often a snapshot is under way to it.
    under_way: usize,
    /// When it is given up, unless a snapshot is under way.
    until: Instant,
}

type Needs = Mutex<HashMap<NodeId, Need>>;

/// Which entries are needed after snapshots that were sent. A clone is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needed {
    needs: Arc<Needs>,
}

impl Needed {
    /// Entries after this index stay for a node while this lives, and then as
    /// long as the node gets some of them now and then.
    pub(crate) fn after(&self, node: NodeId, index: u64) -> Hold {
        let mut needs = lock(&self.needs);
        let until = Instant::now();
        let need = needs.entry(node).or_insert(Need { index, under_way: 0, until });
        need.index = index;
        need.under_way += 1;
        Hold { needs: Arc::clone(&self.needs), node }
    }

    /// Takes note of how far nodes are. Those that are near enough to `last`
    /// need nothing any more that does not stay anyway.
    fn heard<'n>(
        &self,
        nodes: impl Iterator<Item = (&'n NodeId, &'n Option<LogId>)>,
        last: u64,
        near: u64,
    ) {
        let mut needs = lock(&self.needs);
        for (node, at) in nodes {
            let (Some(need), Some(at)) = (needs.get_mut(node), at) else { continue };
            if at.index > need.index {
                need.index = at.index;
                need.until = Instant::now() + GRACE;
            }
            if need.under_way == 0 && need.index.saturating_add(near) >= last {
                needs.remove(node);
            }
        }
    }

    /// The index after which entries have to stay.
    fn first(&self) -> Option<u64> {
        let mut needs = lock(&self.needs);
        let now = Instant::now();
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

/// Takes snapshots after many bytes, and cuts the log off, until the node fails.
pub(super) async fn keep_log_short(node: &Node) {
    let mut stretch_end = node.machine.stretch_end();
    let mut metrics = node.raft.data_metrics();
    let (mut stretches, mut before) = (VecDeque::new(), 0);
    let mut seen = None;
    loop {
        tokio::select! {
            // Each is a view of the table, so it costs little.
            changed = stretch_end.changed() => {
                stretches.push_back(*stretch_end.borrow_and_update());
                if changed.is_err() || node.raft.trigger().snapshot().await.is_err() {
                    return;
                }
            }
            taken = async { metrics.wait_for(|now| now.snapshot != seen).await.map(drop) } => {
                if taken.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(TICK) => {}
        }
        while stretches.len() > STRETCHES {
            before = stretches.pop_front().unwrap_or(before);
        }
        let purged = {
            let now = metrics.borrow();
            seen = now.snapshot;
            let last = now.last_log.map_or(0, |last| last.index);
            if let Some(nodes) = &now.replication {
                node.network.needed.heard(nodes.iter(), last, node.config.keep_entries);
            }
            now.purged.map_or(0, |purged| purged.index)
        };
        let snapshot = seen.map_or(0, |snapshot| snapshot.index);
        let few = snapshot.saturating_sub(node.config.keep_entries);
        let needed = node.network.needed.first().unwrap_or(u64::MAX);
        let upto = few.max(before).min(snapshot).min(needed);
        if upto > purged && node.raft.trigger().purge_log(upto).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_stay_until_whoever_needs_them_had_time() {
        let needed = Needed::default();
        assert_eq!(needed.first(), None);
        let (later, earlier) = (needed.after(2, 9), needed.after(1, 5));
        assert_eq!(needed.first(), Some(5));
        tokio::time::sleep(GRACE * 2).await;
        drop(earlier);
        tokio::time::sleep(GRACE / 2).await;
        assert_eq!(needed.first(), Some(5));
        tokio::time::sleep(GRACE).await;
        assert_eq!(needed.first(), Some(9));
        drop(later);
        tokio::time::sleep(GRACE * 2).await;
        assert_eq!(needed.first(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn entries_stay_as_long_as_whoever_needs_them_gets_some() {
        let needed = Needed::default();
        let at = |index| Some(LogId::new(openraft::CommittedLeaderId::new(1, 1), index));
        let heard = |index| needed.heard([(&1, &at(index))].into_iter(), 1000, 10);
        drop(needed.after(1, 5));
        for index in [6, 7, 900] {
            tokio::time::sleep(GRACE * 2 / 3).await;
            heard(index);
            assert_eq!(needed.first(), Some(index));
        }
        // It stands still.
        tokio::time::sleep(GRACE * 2 / 3).await;
        heard(900);
        tokio::time::sleep(GRACE * 2 / 3).await;
        assert_eq!(needed.first(), None);
        // It is there; nothing has to stay, unless another snapshot is on its way.
        let again = needed.after(1, 500);
        heard(995);
        assert_eq!(needed.first(), Some(995));
        drop(again);
        heard(996);
        assert_eq!(needed.first(), None);
    }
}
