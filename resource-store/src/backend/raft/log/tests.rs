//! Tests of the log.

use std::collections::BTreeSet;

use openraft::CommittedLeaderId;

use super::*;
use crate::backend::raft::types::Membership;

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
    assert!(state.appends_early(NODE, &blank(0), 0));
    assert!(!state.appends_early(NODE, &change(1), 1));
    assert!(!state.appends_early(NODE, &blank(2), 1), "the change is not on the disk");
    assert!(state.appends_early(NODE, &blank(3), 2));
    assert_eq!(state.last.map(|last| last.index), Some(3));
    assert!(!state.appends_early(8, &blank(4), 4), "of another leader");
}

#[test]
fn who_led_before_a_start_does_not_lead_after_it() {
    let led = elected_no_more(Vote::new_committed(3, NODE), NODE);
    assert_eq!(led, Vote::new(3, NODE));
    let followed = Vote::new_committed(3, 8);
    assert_eq!(elected_no_more(followed, NODE), followed);
}
