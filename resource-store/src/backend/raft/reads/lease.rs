//! How long this node certainly leads.
//!
//! A majority that followed this node promises to elect no other one for a
//! while after it was asked. The consensus library counts from its last
//! attempt, which may be later, so this node counts by itself, from
//! [`acknowledgements`](super::super::network::acknowledgements).
//!
//! The promise of this node itself holds until it saves the vote of another one,
//! which it does before it answers.

use std::{cmp::Reverse, time::Duration};

use tokio::{sync::watch, time::Instant};

use crate::{
    backend::raft::{
        network::acknowledgements::{Acknowledgements, Noted},
        types::{Membership, NodeId, Vote},
    },
    lease::Leadership,
};

/// Gives and takes the leadership. A clone is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lease {
    acknowledgements: Acknowledgements,
    leadership: Leadership,
}

/// The latest moment at which a majority of `voters` followed this node.
fn majority<'v>(
    noted: &Noted,
    node: NodeId,
    voters: impl Iterator<Item = &'v NodeId>,
    now: Instant,
) -> Option<Instant> {
    let of =
        |voter: &NodeId| if *voter == node { Some(now) } else { noted.sent.get(voter).copied() };
    let mut sent: Vec<_> = voters.map(of).collect();
    sent.sort_by_key(|sent| Reverse(*sent));
    // Of 3 the second, of 4 the third.
    sent.get(sent.len() / 2).copied().flatten()
}

/// The latest moment at which a majority of the members followed this node,
/// under a vote.
fn confirmed(noted: &Noted, node: NodeId, vote: &Vote, members: &Membership) -> Option<Instant> {
    if *vote != noted.vote {
        return None;
    }
    let now = Instant::now();
    let configs = members.get_joint_config();
    let majorities = configs.iter().map(|voters| majority(noted, node, voters.iter(), now));
    // Between two memberships a majority of each is needed.
    majorities.min().flatten()
}

impl Lease {
    pub(crate) fn new(acknowledgements: Acknowledgements, leadership: Leadership) -> Self {
        Self { acknowledgements, leadership }
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
        let noted = self.acknowledgements.noted();
        let end = confirmed(&noted, node, vote, members).map(|at| at + length);
        let end = end.filter(|end| Instant::now() < *end);
        end.map(|end| self.leadership.hold_until(end)).is_some()
    }

    /// Takes note of a vote before it is saved: who led under a lower one leads
    /// no more.
    pub(crate) fn voted(&self, vote: &Vote) {
        self.acknowledgements.voted(vote, || self.leadership.set(false));
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
        let mut changes = self.acknowledgements.changes();
        let ended = changes.wait_for(|noted| {
            noted.vote > *vote
                || confirmed(noted, node, vote, members).is_some_and(|at| at >= since)
        });
        ended.await.is_ok_and(|noted| noted.vote <= *vote)
    }

    /// Tells of acknowledgements and votes.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.acknowledgements.changes())
    }
}

/// Waits for acknowledgements and votes.
#[derive(Debug)]
pub(crate) struct Changes(watch::Receiver<Noted>);

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
        let at =
            |members: &Membership| confirmed(&lease.acknowledgements.noted(), NODE, &vote, members);
        assert_eq!(at(&members(&[&[1]])), None, "nothing is known of that vote");
        lease.voted(&vote);
        assert_eq!(at(&members(&[&[1]])), Some(begin));
        assert_eq!(at(&members(&[&[1, 2]])), None);
        tokio::time::advance(second(9)).await;
        lease.acknowledgements.note(&vote, 2, begin + second(5));
        lease.acknowledgements.note(&vote, 3, begin + second(7));
        lease.acknowledgements.note(&vote, 3, begin + second(6));
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
        lease.acknowledgements.note(&vote, 2, begin);
        assert!(lease.confirmed_since(begin, NODE, &vote, &two).await);
        lease.voted(&Vote::new(4, 2));
        assert_eq!(confirmed(&lease.acknowledgements.noted(), NODE, &vote, &two), None);
        lease.acknowledgements.note(&vote, 2, begin + second(1));
        assert_eq!(confirmed(&lease.acknowledgements.noted(), NODE, &vote, &two), None);
        assert!(!lease.confirmed_since(begin, NODE, &vote, &two).await);
        // Of its own again.
        let vote = Vote::new_committed(5, NODE);
        lease.acknowledgements.note(&vote, 2, begin + second(2));
        assert_eq!(
            confirmed(&lease.acknowledgements.noted(), NODE, &vote, &two),
            Some(begin + second(2))
        );
    }
}
