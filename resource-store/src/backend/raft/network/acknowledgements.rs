//! Which nodes followed this one as the leader, and when it asked them.
//!
//! A node that takes a message of its leader promises to elect no other one for
//! a while. What counts is the moment at which the message was sent, whatever
//! the answer had to wait for; that is earlier than the moment at which the
//! other node took it.

use std::collections::BTreeMap;

use tokio::{sync::watch, time::Instant};

use crate::backend::raft::types::{NodeId, Vote};

/// Acknowledgements of messages that this node sent as the leader. A clone is
/// the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledgements {
    noted: watch::Sender<Noted>,
}

/// The acknowledgements of one vote.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// The highest vote that is known here; only messages under it count.
    pub(crate) vote: Vote,
    /// When the newest message was sent that a node has acknowledged.
    pub(crate) sent: BTreeMap<NodeId, Instant>,
}

impl Noted {
    fn learn(&mut self, vote: &Vote) {
        if *vote > self.vote {
            self.vote = *vote;
            // What nodes acknowledged under an older vote promises nothing to the leader of this one.
            self.sent.clear();
        }
    }
}

impl Acknowledgements {
    /// Notes that a node acknowledged a message that was sent then.
    pub(crate) fn note(&self, vote: &Vote, by: NodeId, sent: Instant) {
        self.noted.send_if_modified(|noted| {
            noted.learn(vote);
            // Answers overtake each other; an older one must not take back a promise that was made later.
            let newer =
                *vote == noted.vote && noted.sent.get(&by).is_none_or(|before| *before < sent);
            if newer {
                noted.sent.insert(by, sent);
            }
            newer
        });
    }

    /// Notes a vote, under which nothing is acknowledged yet; `ends` is called
    /// if it is higher than those before, while nobody reads what is noted.
    pub(crate) fn voted(&self, vote: &Vote, ends: impl FnOnce()) {
        self.noted.send_modify(|noted| {
            // Within the lock: nobody may see the new vote and still take the old lease for held.
            if *vote > noted.vote {
                ends();
            }
            noted.learn(vote);
        });
    }

    /// Returns what is noted now. Nothing is noted as long as this is held.
    pub(crate) fn noted(&self) -> watch::Ref<'_, Noted> {
        self.noted.borrow()
    }

    /// Tells of what is noted from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<Noted> {
        self.noted.subscribe()
    }
}
