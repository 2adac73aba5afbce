//! How much of the log stays.
//!
//! Some entries before the last snapshot stay for nodes that are a little
//! behind, so many and no more, and so many bytes; and those that
//! [`snapshot_holds`](super::super::network::snapshot_holds) names.

use std::{collections::VecDeque, time::Duration};

use super::Node;
use crate::backend::raft::state_machine::RETAINED_SEGMENTS;

/// Delay after which it is noticed that entries need not stay any more.
const TICK: Duration = Duration::from_secs(1);

/// Takes snapshots when they are due, and cuts the log off, until the node
/// fails.
pub(super) async fn keep_log_short(node: &Node) {
    let mut retained_segment_end = node.state_machine.retained_segment_end();
    let mut metrics = node.raft.data_metrics();
    let persisted = node.state_machine.persisted();
    let (mut retained, mut before) = (VecDeque::new(), 0);
    let mut seen = None;
    loop {
        tokio::select! {
            () = node.state_machine.snapshot_due() => {
                if node.raft.trigger().snapshot().await.is_err() {
                    return;
                }
            }
            changed = retained_segment_end.changed() => {
                if changed.is_err() {
                    return;
                }
                retained.push_back(*retained_segment_end.borrow_and_update());
            }
            taken = async { metrics.wait_for(|now| now.snapshot != seen).await.map(drop) } => {
                if taken.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(TICK) => {}
        }
        // The newest of them hold the bytes that may stay; entries before those may go.
        while retained.len() > RETAINED_SEGMENTS {
            before = retained.pop_front().unwrap_or(before);
        }
        let (purged, goes) = {
            let now = metrics.borrow();
            seen = now.snapshot;
            // The library also takes what is only in memory for a snapshot.
            let on_disk = persisted.end().unwrap_or(0).saturating_sub(1);
            let snapshot = seen.map_or(0, |snapshot| snapshot.index).min(on_disk);
            let few = snapshot.saturating_sub(node.config.keep_entries);
            let goes = few.max(before).min(snapshot);
            let last = now.last_log.map_or(0, |last| last.index);
            if let Some(nodes) = &now.replication {
                node.network.holds.heard(nodes.iter(), last, goes);
            }
            (now.purged.map_or(0, |purged| purged.index), goes)
        };
        let upto = goes.min(node.network.holds.first().unwrap_or(u64::MAX));
        if upto > purged && node.raft.trigger().purge_log(upto).await.is_err() {
            return;
        }
    }
}
