//! Tests of the log.

mod damage;
mod faults;
mod faulty_disk;
mod model;

use std::collections::BTreeSet;

use openraft::{CommittedLeaderId, storage::RaftLogStorageExt as _};

use super::*;
use crate::backend::raft::config::HeldDisk;
use crate::backend::raft::types::{Content, Membership, Proposal};

const NODE: NodeId = 7;

fn entry(index: u64, payload: EntryPayload<Types>) -> Entry {
    Entry { log_id: LogId::new(CommittedLeaderId::new(1, NODE), index), payload }
}

#[test]
fn changes_of_the_membership_wait_for_the_disk_and_all_after_them() {
    let members = Membership::new(vec![BTreeSet::from([NODE])], None);
    let change = |index| [entry(index, EntryPayload::Membership(members.clone()))];
    let blank = |index| [entry(index, EntryPayload::Blank)];
    let vote = Some(Vote::new_committed(1, NODE));
    let mut state = State { vote, ..State::default() };
    assert!(state.appends_early(&blank(0), 0));
    assert!(!state.appends_early(&change(1), 1));
    assert!(!state.appends_early(&blank(2), 1), "the change is not on the disk");
    assert!(state.appends_early(&blank(3), 2));
    assert_eq!(state.last.map(|last| last.index), Some(3));
}

#[test]
fn who_led_before_a_start_does_not_lead_after_it() {
    let led = elected_no_more(Vote::new_committed(3, NODE), NODE);
    assert_eq!(led, Vote::new(3, NODE));
    let followed = Vote::new_committed(3, 8);
    assert_eq!(elected_no_more(followed, NODE), followed);
}

fn id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, NODE), index)
}

/// An entry with content that says which it is, if it has any.
fn entry_with(log_id: LogId, bytes: usize, random: &mut fastrand::Rng) -> Entry {
    let payload = if bytes == 0 {
        EntryPayload::Blank
    } else {
        let mut content = vec![0; bytes];
        // Long runs of zeros look like sectors that were never written.
        random.fill(&mut content[bytes / 8..]);
        EntryPayload::Normal(Proposal::new(Content::Log(content.into())))
    };
    Entry { log_id, payload }
}

/// The content of an entry, to compare.
fn content_of(entry: &Entry) -> Vec<u8> {
    match &entry.payload {
        EntryPayload::Normal(proposal) => match &proposal.content {
            Content::Log(bytes) | Content::Restore(bytes) => bytes.to_vec(),
        },
        EntryPayload::Blank | EntryPayload::Membership(_) => Vec::new(),
    }
}

/// Appends entries, and waits until they are on the disk.
async fn append(log: &mut Log, entries: impl IntoIterator<Item = Entry>) -> Result<(), String> {
    let entries: Vec<_> = entries.into_iter().collect();
    let Some(last) = entries.last().map(|entry| entry.log_id.index) else { return Ok(()) };
    log.blocking_append(entries).await.map_err(|error| error.to_string())?;
    let passed = log.durable().pass(last).await;
    passed.map_err(|error| log.failure().map_or(error.to_string(), str::to_owned))
}
