//! What the steps of a restore do to the state machine.

use std::{collections::BTreeSet, sync::Arc};

use futures::{FutureExt as _, StreamExt as _};
use openraft::{EntryPayload, RaftSnapshotBuilder as _, storage::RaftStateMachine as _};
use proptest::prelude::*;
use prost::Message as _;
use tempfile::TempDir;

use super::storage::{apply, log_id, open, resource, write};
use crate::{
    backend::{
        Error, Query, WatchEvent,
        raft::{
            state_machine::{
                StateMachine,
                snapshot::{Assembly, head, parts},
            },
            types::{Content, Entry, Outcome, Proposal, Refused},
        },
        store::{held::Encoded, state::State},
    },
    pb::{
        Resource, Tenancy,
        generated::resource_store::peer::v1::{
            self as peer, restore_step::Step, snapshot_part::Part,
        },
    },
};

fn begin() -> Step {
    Step::Begin(peer::RestoreBegin {})
}

fn part(number: u64, resources: Vec<Resource>) -> Step {
    Step::Part(peer::RestorePart { number, resources })
}

fn end(parts: u64) -> Step {
    Step::End(peer::RestoreEnd { parts })
}

fn abandon() -> Step {
    Step::Abandon(peer::RestoreAbandon {})
}

fn entry_with(index: u64, restore: u64, step: Option<Step>) -> Entry {
    let step = peer::RestoreStep { restore, step };
    let proposal = Proposal::new(Content::Restore(step.encode_to_vec().into()));
    Entry { log_id: log_id(1, index), payload: EntryPayload::Normal(proposal) }
}

fn entry(index: u64, restore: u64, step: Step) -> Entry {
    entry_with(index, restore, Some(step))
}

async fn take(
    state_machine: &mut StateMachine,
    index: u64,
    restore: u64,
    step: Step,
) -> Result<(), Refused> {
    state_machine.apply([entry(index, restore, step)]).await.unwrap().remove(0).restored().unwrap()
}

fn versioned(name: &str, version: &str) -> Resource {
    Resource { version: version.to_owned(), ..resource(name) }
}

fn resources(state: &State<Encoded>) -> Vec<Arc<Resource>> {
    state.resources().collect::<Result<_, _>>().unwrap()
}

fn restoring(state_machine: &StateMachine) -> Vec<Arc<Resource>> {
    resources(&state_machine.current().restoring)
}

fn names(state_machine: &StateMachine) -> Vec<String> {
    let shown = resources(&state_machine.current().resources);
    shown.iter().map(|resource| resource.name().to_owned()).collect()
}

/// As a node does that gets the snapshot from another one.
async fn send_snapshot(from: &mut StateMachine, to: &mut StateMachine) {
    let snapshot = from.build_snapshot().await.unwrap();
    let mut parts = parts(head(&snapshot.snapshot), &snapshot.snapshot);
    let Some(Part::Head(head)) = parts.next().unwrap().part else { panic!("no head") };
    let mut assembly = Assembly::new(head).unwrap();
    let mut whole = None;
    for part in parts {
        assert!(whole.is_none(), "more after the end");
        whole = assembly.take(part).unwrap();
    }
    let whole = Arc::new(whole.expect("an end"));
    to.install_snapshot(&snapshot.meta, Box::new(whole)).await.unwrap();
}

#[tokio::test]
async fn nothing_is_seen_of_a_restore_before_its_end() {
    let folder = TempDir::new().unwrap();
    let (_log, mut state_machine) = open(folder.path());
    apply(&mut state_machine, 1, &write(&resource("nina"))).await.written().unwrap();
    let kind = resource("").resource_type().unwrap().group_kind();
    let mut watch = state_machine.watch(&Query::new(kind, Tenancy::new("*", "*")));
    for _ in 0..2 {
        watch.next().await.unwrap().unwrap();
    }
    take(&mut state_machine, 2, 7, begin()).await.unwrap();
    take(&mut state_machine, 3, 7, part(0, vec![versioned("korn", "100")])).await.unwrap();
    apply(&mut state_machine, 4, &write(&resource("dropped"))).await.written().unwrap();
    take(&mut state_machine, 5, 7, part(1, vec![versioned("miles", "90")])).await.unwrap();
    assert_eq!(names(&state_machine), ["dropped", "nina"]);
    let told = watch.next().await.unwrap().unwrap();
    assert!(matches!(told, WatchEvent::Upsert(resource) if resource.name() == "dropped"));
    assert!(watch.next().now_or_never().is_none());

    take(&mut state_machine, 6, 7, end(2)).await.unwrap();
    assert_eq!(names(&state_machine), ["korn", "miles"]);
    assert!(matches!(watch.next().await.unwrap(), Err(Error::WatchClosed)));
    assert!(restoring(&state_machine).is_empty());
    assert_eq!(take(&mut state_machine, 7, 7, end(2)).await, Err(Refused::Replaced));
    let stored =
        apply(&mut state_machine, 8, &write(&versioned("korn", "100"))).await.written().unwrap();
    assert_eq!(stored.version, "102", "higher than any that came");
}

#[tokio::test]
async fn steps_that_do_not_fit_change_nothing() {
    let folder = TempDir::new().unwrap();
    let (_log, mut state_machine) = open(folder.path());
    apply(&mut state_machine, 1, &write(&resource("nina"))).await.written().unwrap();
    let korn = || vec![resource("korn")];
    let nameless = Resource { id: None, ..resource("x") };
    let last = vec![resource("miles"), versioned("korn", &u64::MAX.to_string())];
    assert_eq!(take(&mut state_machine, 2, 7, part(0, korn())).await, Err(Refused::Replaced));
    take(&mut state_machine, 3, 7, begin()).await.unwrap();
    for (index, restore, step, refused) in [
        (4, 8, part(0, korn()), Refused::Replaced),
        (5, 0, part(0, korn()), Refused::Replaced),
        (6, 8, end(0), Refused::Replaced),
        (7, 8, abandon(), Refused::Replaced),
        (8, 7, part(1, korn()), Refused::Part { found: 1, expected: 0 }),
        (9, 7, part(0, vec![resource("miles"), nameless]), Refused::NoId),
        (10, 7, end(1), Refused::End { found: 1, expected: 0 }),
        (10, 7, part(0, last), Refused::Version(u64::MAX)),
    ] {
        assert_eq!(take(&mut state_machine, index, restore, step).await, Err(refused));
        assert!(restoring(&state_machine).is_empty());
    }
    take(&mut state_machine, 11, 7, part(0, korn())).await.unwrap();
    let again = take(&mut state_machine, 12, 7, part(0, korn())).await;
    assert_eq!(again, Err(Refused::Part { found: 0, expected: 1 }));
    assert_eq!(names(&state_machine), ["nina"]);

    // Another one takes its place, with what it brought.
    take(&mut state_machine, 13, 9, begin()).await.unwrap();
    assert!(restoring(&state_machine).is_empty());
    assert_eq!(take(&mut state_machine, 14, 7, end(1)).await, Err(Refused::Replaced));
    take(&mut state_machine, 15, 9, part(0, vec![resource("miles")])).await.unwrap();
    take(&mut state_machine, 16, 9, abandon()).await.unwrap();
    assert!(restoring(&state_machine).is_empty());
    assert_eq!(take(&mut state_machine, 17, 9, end(1)).await, Err(Refused::Replaced));
    assert_eq!(names(&state_machine), ["nina"]);

    let outcome = state_machine.apply([entry_with(18, 9, None)]).await.unwrap();
    assert!(matches!(outcome[..], [Outcome::Restored(Err(Refused::Empty))]));
}

/// One node gets there by its log, one by a snapshot in the middle, though it has a part of another
/// restore, and one is opened again in the middle.
///
/// Spec: RS68
#[tokio::test]
async fn a_restore_goes_on_where_a_snapshot_was_installed() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap()];
    let (_log, mut first) = open(folders[0].path());
    apply(&mut first, 1, &write(&resource("nina"))).await.written().unwrap();
    take(&mut first, 2, 7, begin()).await.unwrap();
    let (one, two) = (versioned("korn", "100"), versioned("miles", "5"));
    take(&mut first, 3, 7, part(0, vec![one])).await.unwrap();

    let (_log, mut second) = open(folders[1].path());
    take(&mut second, 1, 6, begin()).await.unwrap();
    take(&mut second, 2, 6, part(0, vec![resource("other")])).await.unwrap();
    send_snapshot(&mut first, &mut second).await;
    let (log, mut third) = open(folders[2].path());
    let snapshot = first.build_snapshot().await.unwrap();
    third.install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
    third.close();
    log.close().await;
    drop((log, third));
    let (_log, mut third) = open(folders[2].path());

    for state_machine in [&mut first, &mut second, &mut third] {
        assert_eq!(names(state_machine), ["nina"]);
        assert_eq!(restoring(state_machine).len(), 1);
        take(state_machine, 4, 7, part(1, vec![two.clone()])).await.unwrap();
        take(state_machine, 5, 7, end(2)).await.unwrap();
        assert_eq!(names(state_machine), ["korn", "miles"]);
        let korn = versioned("korn", "100");
        let stored = apply(state_machine, 6, &write(&korn)).await.written().unwrap();
        assert_eq!(stored.version, "101");
    }
}

#[derive(Debug, Clone)]
enum Action {
    Write(u8),
    Begin(u64),
    Part(u64, u64, Vec<u8>),
    End(u64, u64),
    Abandon(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let restore = || 1_u64..3;
    prop_oneof![
        2 => (0..5_u8).prop_map(Action::Write),
        2 => restore().prop_map(Action::Begin),
        6 => (restore(), 0..3_u64, proptest::collection::vec(0..9_u8, 0..4))
            .prop_map(|(restore, number, names)| Action::Part(restore, number, names)),
        3 => (restore(), 0..3_u64).prop_map(|(restore, parts)| Action::End(restore, parts)),
        1 => restore().prop_map(Action::Abandon),
    ]
}

/// What a restore should do, as simply as it can be said: by name.
#[derive(Debug, Default)]
struct Model {
    shown: BTreeSet<u8>,
    restoring: Option<(u64, u64, BTreeSet<u8>)>,
}

impl Model {
    /// Gives whether the action has an effect.
    fn act(&mut self, action: &Action) -> bool {
        let current = self.restoring.as_ref().map(|(restore, parts, _)| (*restore, *parts));
        match action {
            Action::Write(name) => self.shown.insert(*name),
            Action::Begin(restore) => {
                self.restoring = Some((*restore, 0, BTreeSet::new()));
                true
            }
            Action::Part(restore, number, names) if current == Some((*restore, *number)) => {
                if let Some((_, parts, staged)) = &mut self.restoring {
                    *parts += 1;
                    staged.extend(names);
                }
                true
            }
            Action::End(restore, parts) if current == Some((*restore, *parts)) => {
                self.shown = self.restoring.take().map(|(_, _, staged)| staged).unwrap();
                true
            }
            Action::Abandon(restore) if current.is_some_and(|(id, _)| id == *restore) => {
                self.restoring = None;
                true
            }
            Action::Part(..) | Action::End(..) | Action::Abandon(_) => false,
        }
    }
}

fn numbered(name: u8) -> Resource {
    resource(&format!("n{name}"))
}

fn entry_of(index: u64, action: &Action) -> Entry {
    match action {
        Action::Write(name) => super::storage::entry(index, &write(&numbered(*name))),
        Action::Begin(restore) => entry(index, *restore, begin()),
        Action::Part(restore, number, names) => {
            // Versions that jump, and depend on the entry only.
            let versions = |name: &u8| (index * 10 + u64::from(*name)).to_string();
            let resources = names
                .iter()
                .map(|name| Resource { version: versions(name), ..numbered(*name) })
                .collect();
            entry(index, *restore, part(*number, resources))
        }
        Action::End(restore, parts) => entry(index, *restore, end(*parts)),
        Action::Abandon(restore) => entry(index, *restore, abandon()),
    }
}

fn had_effect(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Written(result) => result.is_ok(),
        Outcome::Restored(result) => result.is_ok(),
        other => panic!("{other:?}"),
    }
}

/// Nodes that go different ways through the same log: entry by entry, in batches, and by a
/// snapshot.
async fn all_ways_lead_to_the_same(actions: Vec<Action>, snapshot_after: usize, batch: usize) {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap()];
    let [(_l1, mut one), (_l2, mut batches), (_l3, mut late)] =
        folders.each_ref().map(|folder| open(folder.path()));
    let mut model = Model::default();
    let snapshot_after = snapshot_after.min(actions.len());
    for (index, action) in (1..).zip(&actions) {
        let outcome = one.apply([entry_of(index, action)]).await.unwrap().remove(0);
        assert_eq!(had_effect(&outcome), model.act(action), "{action:?}");
        let shown: Vec<_> = model.shown.iter().map(|name| format!("n{name}")).collect();
        assert_eq!(names(&one), shown);
        let index = usize::try_from(index).unwrap();
        if index == snapshot_after {
            send_snapshot(&mut one, &mut late).await;
        } else if index > snapshot_after {
            late.apply([entry_of(index as u64, action)]).await.unwrap();
        }
    }
    let entries: Vec<_> = (1..).zip(&actions).map(|(index, a)| entry_of(index, a)).collect();
    for entries in entries.chunks(batch) {
        batches.apply(entries.to_vec()).await.unwrap();
    }
    for other in [&batches, &late] {
        let (mine, theirs) = (one.current(), other.current());
        assert_eq!(resources(&theirs.resources), resources(&mine.resources));
        assert_eq!(resources(&theirs.restoring), resources(&mine.restoring));
        assert_eq!(theirs.restore, mine.restore);
        assert_eq!(other.version_offset(), one.version_offset());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_a_restore_does_depends_on_the_log_only(
        actions in proptest::collection::vec(action(), 1..24),
        snapshot_after in 1..24_usize,
        batch in 1..8_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(all_ways_lead_to_the_same(actions, snapshot_after, batch));
    }
}
