//! When a majority last confirmed that this node leads.
//!
//! A node that takes a message of its leader promises to elect no other one for
//! a while. The promise counts from the moment at which the message was sent,
//! whatever the answer had to wait for; that is earlier than the moment at which
//! the other node took it. The consensus library counts from its last attempt,
//! which may be later, so this node counts by itself.
//!
//! The promise of this node itself holds until it saves the vote of another one,
//! which it does before it answers.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::types::{Membership, NodeId, Vote};
use crate::controller::Leadership;

/// Acknowledgements of messages that this node sent as the leader. A clone is
/// the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lease {
    acknowledged: watch::Sender<Acknowledged>,
    leadership: Leadership,
}

#[derive(Debug, Default)]
struct Acknowledged {
    /// The highest vote that is known here; only messages under it count.
    vote: Vote,
    /// When the newest message was sent that a node has acknowledged.
    sent: BTreeMap<NodeId, Instant>,
}

impl Acknowledged {
    fn learn(&mut self, vote: &Vote) {
        if *vote > self.vote {
            self.vote = *vote;
            self.sent.clear();
        }
    }

    /// The latest moment at which a majority of `voters` followed this node.
    fn majority<'v>(
        &self,
        node: NodeId,
        voters: impl Iterator<Item = &'v NodeId>,
        now: Instant,
    ) -> Option<Instant> {
        let of =
            |voter: &NodeId| if *voter == node { Some(now) } else { self.sent.get(voter).copied() };
        let mut sent: Vec<_> = voters.map(of).collect();
        sent.sort_by_key(|sent| Reverse(*sent));
        // Of 3 the second, of 4 the third.
        sent.get(sent.len() / 2).copied().flatten()
    }

    fn confirmed(&self, node: NodeId, vote: &Vote, members: &Membership) -> Option<Instant> {
        if *vote != self.vote {
            return None;
        }
        let now = Instant::now();
        let configs = members.get_joint_config();
        let majorities = configs.iter().map(|voters| self.majority(node, voters.iter(), now));
        // Between two memberships a majority of each is needed.
        majorities.min().flatten()
    }
}

impl Lease {
    /// Gives and takes a leadership.
    pub(crate) fn new(leadership: Leadership) -> Self {
        Self { acknowledged: watch::Sender::default(), leadership }
    }

    /// Gives the leadership for so long after a majority of the members last
    /// followed this node. Gives whether that is still to come.
    pub(crate) fn hold(
        &self,
        length: Duration,
        node: NodeId,
        vote: &Vote,
        members: &Membership,
    ) -> bool {
        // Not released before it is given, or a vote could come in between.
        let acknowledged = self.acknowledged.borrow();
        let end = acknowledged.confirmed(node, vote, members).map(|at| at + length);
        let end = end.filter(|end| Instant::now() < *end);
        end.map(|end| self.leadership.hold_until(end)).is_some()
    }

    /// Takes note that a node acknowledged a message that was sent then.
    pub(crate) fn acknowledged(&self, vote: &Vote, by: NodeId, sent: Instant) {
        self.acknowledged.send_if_modified(|acknowledged| {
            acknowledged.learn(vote);
            let newer = *vote == acknowledged.vote
                && acknowledged.sent.get(&by).is_none_or(|before| *before < sent);
            if newer {
                acknowledged.sent.insert(by, sent);
            }
            newer
        });
    }

    /// Takes note of a vote before it is saved: who led under a lower one leads
    /// no more.
    pub(crate) fn voted(&self, vote: &Vote) {
        self.acknowledged.send_modify(|acknowledged| {
            if *vote > acknowledged.vote {
                self.leadership.set(false);
            }
            acknowledged.learn(vote);
        });
    }

    /// Waits until a majority has followed this node since a moment. Gives
    /// false if there is a higher vote.
    pub(crate) async fn confirmed_since(
        &self,
        since: Instant,
        node: NodeId,
        vote: &Vote,
        members: &Membership,
    ) -> bool {
        let mut acknowledged = self.acknowledged.subscribe();
        let ended = acknowledged.wait_for(|acknowledged| {
            acknowledged.vote > *vote
                || acknowledged.confirmed(node, vote, members).is_some_and(|at| at >= since)
        });
        ended.await.is_ok_and(|acknowledged| acknowledged.vote <= *vote)
    }

    /// Tells of acknowledgements and votes.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.acknowledged.subscribe())
    }
}

/// Waits for acknowledgements and votes.
#[derive(Debug)]
pub(crate) struct Changes(watch::Receiver<Acknowledged>);

impl Changes {
    /// Waits until there is something new since this was called last.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NODE: NodeId = 1;

    fn members(configs: &[&[NodeId]]) -> Membership {
        let configs = configs.iter().map(|ids| ids.iter().copied().collect::<BTreeSet<_>>());
        Membership::new(configs.collect(), None)
    }

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_of_the_fastest_majority_counts() {
        let (lease, vote, begin) = (Lease::default(), Vote::new_committed(3, NODE), Instant::now());
        let at = |members: &Membership| lease.acknowledged.borrow().confirmed(NODE, &vote, members);
        assert_eq!(at(&members(&[&[1]])), None, "nothing is known of that vote");
        lease.voted(&vote);
        assert_eq!(at(&members(&[&[1]])), Some(begin));
        assert_eq!(at(&members(&[&[1, 2]])), None);
        tokio::time::advance(second(9)).await;
        lease.acknowledged(&vote, 2, begin + second(5));
        lease.acknowledged(&vote, 3, begin + second(7));
        lease.acknowledged(&vote, 3, begin + second(6));
        assert_eq!(at(&members(&[&[1, 2]])), Some(begin + second(5)));
        assert_eq!(at(&members(&[&[1, 2, 3]])), Some(begin + second(7)));
        assert_eq!(at(&members(&[&[1, 2, 3, 4]])), Some(begin + second(5)));
        assert_eq!(at(&members(&[&[1, 2, 3, 4, 5]])), Some(begin + second(5)));
        assert_eq!(at(&members(&[&[2, 3, 4]])), Some(begin + second(5)), "it votes no more");
        assert_eq!(at(&members(&[&[1, 2, 3], &[1, 2]])), Some(begin + second(5)));
        assert_eq!(at(&members(&[&[1, 2, 3], &[1, 4]])), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_higher_vote_ends_it() {
        let (lease, vote, begin) = (Lease::default(), Vote::new_committed(3, NODE), Instant::now());
        let two = members(&[&[1, 2]]);
        tokio::time::advance(second(9)).await;
        lease.acknowledged(&vote, 2, begin);
        assert!(lease.confirmed_since(begin, NODE, &vote, &two).await);
        lease.voted(&Vote::new(4, 2));
        assert_eq!(lease.acknowledged.borrow().confirmed(NODE, &vote, &two), None);
        lease.acknowledged(&vote, 2, begin + second(1));
        assert_eq!(lease.acknowledged.borrow().confirmed(NODE, &vote, &two), None);
        assert!(!lease.confirmed_since(begin, NODE, &vote, &two).await);
        // Of its own again.
        let vote = Vote::new_committed(5, NODE);
        lease.acknowledged(&vote, 2, begin + second(2));
        assert_eq!(
            lease.acknowledged.borrow().confirmed(NODE, &vote, &two),
            Some(begin + second(2))
        );
    }
}
