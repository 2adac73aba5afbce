//! How much of the log stays.
//!
//! Some entries before the last snapshot stay for nodes that are a little
//! behind, so many and no more, and so many bytes. A node that is given a
//! snapshot needs all entries after it, or it would need another snapshot by
//! the time it has this one, and under load never catch up: they stay until it
//! has had time to get them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::node::Node;
use crate::backend::store::sync::lock;

/// In how many stretches the bytes are kept that the log may have.
pub(super) const STRETCHES: usize = 4;
/// How long entries stay for a node that has got its snapshot. One that needs
/// longer to get what was written meanwhile needs another snapshot.
const GRACE: Duration = Duration::from_mins(2);
/// How soon it is noticed that entries need not stay any more.
const TICK: Duration = Duration::from_secs(1);

/// Who needs entries, by a number of its own: after which index, and until
/// when, once that is known.
type Holds = Mutex<HashMap<u64, (u64, Option<Instant>)>>;

/// Which entries are needed after snapshots that were sent. A clone is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needed {
    holds: Arc<Holds>,
}

impl Needed {
    /// Entries after this index stay until some time after this is dropped.
    pub(crate) fn after(&self, index: u64) -> Hold {
        let key = fastrand::u64(..);
        lock(&self.holds).insert(key, (index, None));
        Hold { holds: Arc::clone(&self.holds), key }
    }

    /// The index after which entries have to stay.
    fn first(&self) -> Option<u64> {
        let mut holds = lock(&self.holds);
        let now = Instant::now();
        holds.retain(|_, (_, until)| until.is_none_or(|until| now < until));
        holds.values().map(|(index, _)| *index).min()
    }
}

/// Lets entries stay.
#[derive(Debug)]
pub(crate) struct Hold {
    holds: Arc<Holds>,
    key: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((_, until)) = lock(&self.holds).get_mut(&self.key) {
            *until = Some(Instant::now() + GRACE);
        }
    }
}

/// Takes snapshots after many bytes, and cuts the log off, until the node fails.
pub(super) async fn keep_log_short(node: &Node) {
    let mut synced = node.machine.synced();
    let mut metrics = node.raft.data_metrics();
    let (mut stretches, mut before) = (VecDeque::new(), 0);
    let mut seen = None;
    loop {
        tokio::select! {
            // Each is a view of the table, so it costs little.
            changed = synced.changed() => {
                stretches.push_back(*synced.borrow_and_update());
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
        let (later, earlier) = (needed.after(9), needed.after(5));
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
}
