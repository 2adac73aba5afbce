//! Between the messages of `peer.proto` and the types of the consensus library.
//!
//! What comes from another node is checked here, because the library takes it
//! for granted: a term or index that nobody can have, entries that do not
//! follow each other, or an entry newer than its leader would make it panic.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Content, Entry, LogId, Membership, NodeId, Peer, Proposal, StoredMembership, Types, Vote,
};
use crate::pb::generated::resource_store::peer::v1 as peer;

/// No cluster lives to see as many terms or entries.
const MOST: u64 = 1 << 60;

/// A message of another node, or of the own log, makes no sense.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("malformed message: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

pub(crate) fn log_id(id: peer::LogId) -> Result<LogId, Malformed> {
    if id.term > MOST || id.index > MOST {
        return Err(Malformed("a term or index out of range"));
    }
    Ok(LogId::new(openraft::CommittedLeaderId::new(id.term, id.leader), id.index))
}

pub(crate) fn optional_log_id(id: Option<peer::LogId>) -> Result<Option<LogId>, Malformed> {
    id.map(log_id).transpose()
}

pub(crate) fn from_log_id(id: &LogId) -> peer::LogId {
    peer::LogId { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}

pub(crate) fn vote(vote: Option<peer::Vote>) -> Result<Vote, Malformed> {
    let peer::Vote { term, node, committed } = vote.ok_or(Malformed("no vote"))?;
    if term > MOST {
        return Err(Malformed("a term out of range"));
    }
    Ok(if committed { Vote::new_committed(term, node) } else { Vote::new(term, node) })
}

pub(crate) fn from_vote(vote: &Vote) -> peer::Vote {
    peer::Vote {
        term: vote.leader_id.term,
        node: vote.leader_id.node_id,
        committed: vote.committed,
    }
}

pub(crate) fn from_node(id: NodeId, peer: &Peer) -> peer::Node {
    peer::Node { id, address: peer.address.clone() }
}

pub(crate) fn membership(membership: peer::Membership) -> Result<Membership, Malformed> {
    let nodes: BTreeMap<NodeId, Peer> =
        membership.nodes.into_iter().map(|n| (n.id, Peer { address: n.address })).collect();
    let configs: Vec<BTreeSet<NodeId>> =
        membership.configs.into_iter().map(|voters| voters.ids.into_iter().collect()).collect();
    if configs.len() > 2 || configs.iter().any(BTreeSet::is_empty) {
        return Err(Malformed("a membership without voters"));
    }
    if configs.iter().flatten().any(|id| !nodes.contains_key(id)) {
        return Err(Malformed("a voter without an address"));
    }
    Ok(Membership::new(configs, nodes))
}

pub(crate) fn from_membership(membership: &Membership) -> peer::Membership {
    let voters = |ids: &BTreeSet<NodeId>| peer::Voters { ids: ids.iter().copied().collect() };
    peer::Membership {
        configs: membership.get_joint_config().iter().map(voters).collect(),
        nodes: membership.nodes().map(|(id, node)| from_node(*id, node)).collect(),
    }
}

pub(crate) fn stored_membership(
    stored: Option<peer::StoredMembership>,
) -> Result<StoredMembership, Malformed> {
    let stored = stored.unwrap_or_default();
    let found = membership(stored.membership.unwrap_or_default())?;
    Ok(StoredMembership::new(optional_log_id(stored.log_id)?, found))
}

pub(crate) fn from_stored_membership(stored: &StoredMembership) -> peer::StoredMembership {
    peer::StoredMembership {
        log_id: stored.log_id().as_ref().map(from_log_id),
        membership: Some(from_membership(stored.membership())),
    }
}

pub(crate) fn entry(entry: peer::Entry) -> Result<Entry, Malformed> {
    let log_id = log_id(entry.log_id.ok_or(Malformed("an entry without position"))?)?;
    let payload = match entry.payload {
        None => openraft::EntryPayload::Blank,
        Some(peer::entry::Payload::Log(log)) => {
            openraft::EntryPayload::Normal(Proposal::new(Content::Log(log)))
        }
        Some(peer::entry::Payload::Restore(restore)) => {
            openraft::EntryPayload::Normal(Proposal::new(Content::Restore(restore)))
        }
        Some(peer::entry::Payload::Membership(members)) => {
            openraft::EntryPayload::Membership(membership(members)?)
        }
    };
    Ok(Entry { log_id, payload })
}

pub(crate) fn from_entry(entry: &Entry) -> peer::Entry {
    let payload = match &entry.payload {
        openraft::EntryPayload::Blank => None,
        openraft::EntryPayload::Normal(proposal) => Some(match &proposal.content {
            Content::Log(log) => peer::entry::Payload::Log(log.clone()),
            Content::Restore(restore) => peer::entry::Payload::Restore(restore.clone()),
        }),
        openraft::EntryPayload::Membership(members) => {
            Some(peer::entry::Payload::Membership(from_membership(members)))
        }
    };
    peer::Entry { log_id: Some(from_log_id(&entry.log_id)), payload }
}

pub(crate) fn append(
    request: peer::AppendRequest,
) -> Result<openraft::raft::AppendEntriesRequest<Types>, Malformed> {
    let vote = vote(request.vote)?;
    if !vote.committed {
        return Err(Malformed("entries from a node that was not elected"));
    }
    let prev_log_id = optional_log_id(request.previous)?;
    let leader_commit = optional_log_id(request.committed)?;
    let entries = request.entries.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    let mut last = prev_log_id;
    for entry in &entries {
        if entry.log_id.index != last.map_or(0, |last| last.index + 1) {
            return Err(Malformed("entries with gaps"));
        }
        if last.is_some_and(|last| last.leader_id > entry.log_id.leader_id) {
            return Err(Malformed("entries whose terms go back"));
        }
        last = Some(entry.log_id);
    }
    let newest = last.map(|last| last.leader_id).max(leader_commit.map(|id| id.leader_id));
    if newest.is_some_and(|newest| newest > vote.leader_id) {
        return Err(Malformed("entries newer than their leader"));
    }
    Ok(openraft::raft::AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(term: u64, index: u64) -> peer::LogId {
        peer::LogId { term, leader: 1, index }
    }

    fn entry_at(term: u64, index: u64) -> peer::Entry {
        let payload = Some(peer::entry::Payload::Log(vec![1, 2].into()));
        peer::Entry { log_id: Some(id(term, index)), payload }
    }

    fn good() -> peer::AppendRequest {
        peer::AppendRequest {
            route: None,
            vote: Some(peer::Vote { term: 3, node: 1, committed: true }),
            previous: Some(id(2, 4)),
            entries: vec![entry_at(2, 5), entry_at(3, 6)],
            committed: Some(id(2, 5)),
            number: 0,
        }
    }

    #[test]
    fn what_another_node_sends_is_checked() {
        let request = append(good()).unwrap();
        assert_eq!(request.entries.len(), 2);
        let refused = |spoil: &dyn Fn(&mut peer::AppendRequest)| {
            let mut request = good();
            spoil(&mut request);
            append(request).unwrap_err().0
        };
        assert_eq!(refused(&|r| r.vote = None), "no vote");
        assert!(refused(&|r| r.vote = Some(peer::Vote::default())).contains("not elected"));
        assert!(refused(&|r| r.entries[1] = entry_at(3, 7)).contains("gaps"));
        assert!(refused(&|r| r.entries[1] = entry_at(1, 6)).contains("go back"));
        assert!(refused(&|r| r.entries[1] = entry_at(4, 6)).contains("newer"));
        assert!(refused(&|r| r.committed = Some(id(9, 1))).contains("newer"));
        assert!(refused(&|r| r.previous = Some(id(1, u64::MAX))).contains("range"));
        assert!(refused(&|r| r.entries[0].log_id = None).contains("without position"));
        let members =
            peer::Membership { configs: vec![peer::Voters { ids: vec![7] }], nodes: Vec::new() };
        let payload = Some(peer::entry::Payload::Membership(members));
        assert!(refused(&|r| r.entries[0].payload.clone_from(&payload)).contains("address"));
    }

    #[test]
    fn entries_and_memberships_survive_the_way() {
        let nodes = BTreeMap::from([
            (1, Peer { address: "a:1".to_owned() }),
            (2, Peer { address: "b:2".to_owned() }),
        ]);
        let members = Membership::new(vec![BTreeSet::from([1])], nodes);
        let before = Entry {
            log_id: log_id(id(3, 9)).unwrap(),
            payload: openraft::EntryPayload::Membership(members.clone()),
        };
        let after = entry(from_entry(&before)).unwrap();
        assert_eq!(after.log_id, before.log_id);
        assert!(matches!(after.payload, openraft::EntryPayload::Membership(m) if m == members));
        let stored = StoredMembership::new(Some(before.log_id), members);
        assert_eq!(stored_membership(Some(from_stored_membership(&stored))).unwrap(), stored);
    }
}
