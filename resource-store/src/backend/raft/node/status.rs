//! How a node is: for operators, who ask, and as metrics.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use super::Node;
use crate::{backend::store::sync::lock, pb::generated::resource_store::peer::v1 as peer};

/// A node that has applied so many entries less than it knows to be committed is behind.
const FAR_BEHIND: u64 = 10_000;

impl Node {
    pub(super) async fn status(&self) -> peer::StatusResponse {
        let sync = self.log.sync_times();
        let (metrics, contents) = (self.raft.metrics(), self.state_machine.current());
        let mut status = {
            let metrics = metrics.borrow();
            let membership = metrics.membership_config.membership();
            let voters: BTreeSet<_> = membership.voter_ids().collect();
            let lost = lock(&self.network.lost);
            let follower = |(id, matched): (&u64, &Option<_>)| {
                let matched: &Option<openraft::LogId<u64>> = matched;
                let (id, lost) = (*id, lost.contains(id));
                peer::Follower { id, matched: matched.map_or(0, |id| id.index), lost }
            };
            let known = metrics.replication.iter().flatten().filter(|(id, _)| **id != self.id());
            let leader = metrics.current_leader;
            let leads = leader == Some(self.id());
            peer::StatusResponse {
                cluster: self.network.cluster.load(Ordering::Acquire),
                node: Some(peer::Node { id: self.id(), address: self.members.address.clone() }),
                voter: voters.contains(&self.id()),
                leader: leader.unwrap_or(0),
                // One that hears from no majority does not know whether it still leads.
                quorum: if leads { self.leadership.is_held() } else { leader.is_some() },
                term: metrics.current_term,
                last: metrics.last_log_index.unwrap_or(0),
                followers: known.map(follower).collect(),
                ..peer::StatusResponse::default()
            }
        };
        status.committed = self.log.committed().map_or(0, |id| id.index);
        status.applied = contents.applied.map_or(0, |id| id.index);
        status.committed = status.committed.max(status.applied);
        status.snapshot = self.state_machine.persisted().end().unwrap_or(0).saturating_sub(1);
        status.snapshot_bytes = self.state_machine.snapshot_bytes();
        status.syncs = sync.count;
        status.sync_mean_micros = sync.mean_micros;
        status.sync_p99_micros = sync.p99_micros;
        status.sync_max_micros = sync.max_micros;
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
        status.resources = contents.resources.len() as u64;
        status.alarms = self.alarms(&status).await;
        status
    }

    /// The alarms that an operator should look at. Each goes by itself once its cause is gone.
    async fn alarms(&self, status: &peer::StatusResponse) -> Vec<peer::Alarm> {
        let mut found = Vec::new();
        let mut raise = |name: &str, text: String| {
            found.push(peer::Alarm { name: name.to_owned(), text });
        };
        let folder = self.config.data_dir.display();
        if let Some(reason) = &*self.failure.borrow() {
            raise("FAILED", format!("the node cannot go on: {reason}"));
        }
        if *self.log.disk_full().borrow() {
            raise(
                "NOSPACE",
                format!(
                    "there is no room left on the disk of {folder}: the node takes no changes, and \
                     serves reads; make room, and it goes on within a second"
                ),
            );
        }
        if self.network.durable.hangs(self.network.timing.disk) {
            raise("DISKHANGS", format!("the disk of {folder} has been at one write for too long"));
        }
        if let Err(error) = self.state_machine.ready().await {
            raise("SNAPSHOT", error.to_string());
        }
        if !status.quorum {
            let text = "no leader is known that a majority follows: no changes and no strong reads";
            raise("NOQUORUM", text.to_owned());
        }
        let behind = status.committed.saturating_sub(status.applied);
        if behind > FAR_BEHIND {
            raise("BEHIND", format!("{behind} committed entries are not applied yet"));
        }
        found
    }

    /// Tells the recorder of metrics, if there is one, how the node is.
    pub(super) fn measure(&self) {
        let committed = self.log.committed().map_or(0, |id| id.index + 1);
        let applied = *self.state_machine.applied().borrow();
        metrics::gauge!("resource_store_raft_apply_lag_entries")
            .set(float(committed.saturating_sub(applied)));
        metrics::gauge!("resource_store_raft_pending_bytes")
            .set(float(self.pending.bytes() as u64));
        let leads = if self.leadership.is_held() { 1.0 } else { 0.0 };
        metrics::gauge!("resource_store_raft_leads").set(leads);
        let full = if *self.log.disk_full().borrow() { 1.0 } else { 0.0 };
        metrics::gauge!("resource_store_raft_disk_full").set(full);
    }
}

/// A count as the value of a gauge.
#[expect(clippy::cast_precision_loss, reason = "a gauge need not be that exact")]
fn float(count: u64) -> f64 {
    count as f64
}
