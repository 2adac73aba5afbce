//! The log and the state machine of a node.

use std::{collections::BTreeSet, path::Path};

use openraft::{
    CommittedLeaderId, EntryPayload, RaftLogReader as _, RaftSnapshotBuilder as _,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _},
    testing::{StoreBuilder, Suite},
};
use prost::Message as _;
use tempfile::TempDir;

use crate::{
    backend::{
        Error, Query,
        raft::{
            Faults, RaftConfig, RetiredTypes,
            log::{Log, LogOptions},
            state_machine::StateMachine,
            types::{
                Content, Entry, LogId, Membership, Outcome, Proposal, StorageError, Types, Vote,
            },
        },
    },
    demo,
    pb::{
        Id, Resource, Tenancy, Type,
        generated::hashicorp::consul::internal::storage::raft::{
            self as wire, LogType, log::Request,
        },
    },
};

struct Builder;

pub(super) fn open(folder: &Path) -> (Log, StateMachine) {
    open_with(folder, RetiredTypes::default())
}

fn open_with(folder: &Path, retired: RetiredTypes) -> (Log, StateMachine) {
    let log = Log::open(&folder.join("log"), &LogOptions::default(), Faults::default()).unwrap();
    let mut config = RaftConfig::new(folder, "127.0.0.1:0");
    config.watch_buffer = 64;
    config.keep_bytes = 4 << 20;
    config.retired = retired;
    let state_machine =
        StateMachine::open(&folder.join("snapshots"), &config, log.durable().clone());
    (log, state_machine.unwrap())
}

impl StoreBuilder<Types, Log, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, Log, StateMachine), StorageError> {
        let folder = TempDir::new().unwrap();
        let (log, state_machine) = open(folder.path());
        Ok((folder, log, state_machine))
    }
}

#[test]
fn the_suite_of_the_library_passes() {
    Suite::test_all(Builder).unwrap();
}

pub(super) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, 1), index)
}

pub(super) fn entry(index: u64, log: &wire::Log) -> Entry {
    let content = Content::Log(log.encode_to_vec().into());
    Entry { log_id: log_id(1, index), payload: EntryPayload::Normal(Proposal::new(content)) }
}

pub(super) fn write(resource: &Resource) -> wire::Log {
    let request = wire::WriteRequest { resource: Some(resource.clone()) };
    wire::Log { r#type: LogType::Write.into(), request: Some(Request::Write(request)) }
}

fn delete(id: &Id, version: &str) -> wire::Log {
    let request = wire::DeleteRequest { id: Some(id.clone()), version: version.to_owned() };
    wire::Log { r#type: LogType::Delete.into(), request: Some(Request::Delete(request)) }
}

pub(super) fn resource(name: &str) -> Resource {
    let mut resource = demo::artist(name).encode();
    resource.id.as_mut().unwrap().uid = "u".to_owned();
    resource
}

pub(super) async fn apply(
    state_machine: &mut StateMachine,
    index: u64,
    log: &wire::Log,
) -> Outcome {
    state_machine.apply([entry(index, log)]).await.unwrap().remove(0)
}

#[tokio::test]
async fn versions_are_positions_in_the_log_and_refusals_are_answers() {
    let folder = TempDir::new().unwrap();
    let (_log, mut state_machine) = open(folder.path());
    let korn = resource("korn");
    let stored = apply(&mut state_machine, 7, &write(&korn)).await.written().unwrap();
    assert_eq!(stored.version, "7");
    let refused = apply(&mut state_machine, 8, &write(&korn)).await.written();
    assert!(matches!(refused, Err(Error::CasFailure)));
    let updated = Resource { version: "7".to_owned(), ..korn.clone() };
    assert_eq!(
        apply(&mut state_machine, 9, &write(&updated)).await.written().unwrap().version,
        "9"
    );
    let id = korn.id.clone().unwrap();
    let refused = apply(&mut state_machine, 10, &delete(&id, "7")).await.deleted();
    assert!(matches!(refused, Err(Error::CasFailure)));
    apply(&mut state_machine, 11, &delete(&id, "9")).await.deleted().unwrap();
    assert!(matches!(state_machine.current().resources.read(&id), Err(Error::NotFound)));
}

#[tokio::test]
async fn entries_that_make_no_sense_are_answered() {
    let folder = TempDir::new().unwrap();
    let (_log, mut state_machine) = open(folder.path());
    let content = Content::Log(vec![0xff; 3].into());
    let garbage =
        Entry { log_id: log_id(1, 1), payload: EntryPayload::Normal(Proposal::new(content)) };
    let outcome = state_machine.apply([garbage]).await.unwrap().remove(0).written().unwrap_err();
    assert!(outcome.to_string().contains("failed to decode request: "), "{outcome}");
    let unspecified = wire::Log { r#type: 0, request: None };
    let outcome = apply(&mut state_machine, 2, &unspecified).await.written().unwrap_err();
    assert!(outcome.to_string().ends_with("unexpected request type: 0"), "{outcome}");
    let empty = wire::Log { r#type: LogType::Write.into(), request: None };
    assert!(apply(&mut state_machine, 3, &empty).await.written().is_err());
}

/// Types of those groups that are registered here are stored, unless the log is
/// Consul's.
///
/// Spec: RS67
#[tokio::test]
async fn types_that_consul_retired_are_ignored_if_that_is_wanted() {
    for (retired, stays) in [(RetiredTypes::consul(), false), (RetiredTypes::default(), true)] {
        ignored_if_retired(retired, stays).await;
    }
}

async fn ignored_if_retired(types: RetiredTypes, retired_stay: bool) {
    let folder = TempDir::new().unwrap();
    let (_log, mut state_machine) = open_with(folder.path(), types);
    let groups = ["auth", "catalog", "mesh", "multicluster", "tenancy"];
    let mut retired: Vec<_> = groups.iter().map(|group| Type::new(group, "v2beta1", "K")).collect();
    retired.push(Type::new("hcp", "v2", "K"));
    let kept = [
        Type::new("demo", "v1", "K"),
        Type::new("demo", "v2", "K"),
        Type::new("multicluster", "v2", "K"),
    ];
    let mut index = 0;
    for (types, stays) in [(retired.as_slice(), retired_stay), (kept.as_slice(), true)] {
        for ty in types {
            index += 1;
            let tenancy = Tenancy::new("default", "default");
            let id = Id::new(ty.clone(), tenancy, &format!("n{index}")).with_uid("u");
            let written =
                apply(&mut state_machine, index, &write(&Resource::new(id.clone()))).await;
            written.written().unwrap();
            assert_eq!(state_machine.current().resources.read(&id).is_ok(), stays, "{ty}");
            index += 1;
            let deleted = apply(&mut state_machine, index, &delete(&id, "")).await.deleted();
            assert_eq!(deleted.is_err(), stays, "{ty}");
        }
    }
}

/// Spec: RS68
#[tokio::test]
async fn a_snapshot_installed_elsewhere_holds_the_same() {
    let folder = TempDir::new().unwrap();
    let (_log, mut state_machine) = open(folder.path());
    let korn = resource("korn");
    let id = korn.id.clone().unwrap();
    let stored = apply(&mut state_machine, 7, &write(&korn)).await.written().unwrap();
    let snapshot = state_machine.build_snapshot().await.unwrap();

    let elsewhere = TempDir::new().unwrap();
    let (_log, mut other) = open(elsewhere.path());
    apply(&mut other, 3, &write(&resource("nina"))).await.written().unwrap();
    let query = Query::new(
        demo::artist("").encode().resource_type().unwrap().group_kind(),
        Tenancy::new("*", "*"),
    );
    let mut watch = other.watch(&query);
    for _ in 0..2 {
        futures::StreamExt::next(&mut watch).await.unwrap().unwrap();
    }
    other.install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
    assert_eq!(other.current().resources.read(&id).unwrap(), stored);
    let gone = resource("nina").id.unwrap();
    assert!(matches!(other.current().resources.read(&gone), Err(Error::NotFound)));
    assert_eq!(other.applied_state().await.unwrap(), state_machine.applied_state().await.unwrap());
    let closed = futures::StreamExt::next(&mut watch).await.unwrap();
    assert!(matches!(closed, Err(Error::WatchClosed)), "{closed:?}");
}

/// The log before a snapshot goes, so a crash must not take anything of it away.
#[tokio::test]
async fn what_a_snapshot_holds_is_on_the_disk() {
    let folder = TempDir::new().unwrap();
    let (_log, mut state_machine) = open(folder.path());
    let korn = resource("korn");
    let stored = apply(&mut state_machine, 7, &write(&korn)).await.written().unwrap();
    // What a process leaves that is killed now.
    let killed = |name: &str| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    let before = killed("before");
    copy_snapshots(folder.path(), &before);
    state_machine.build_snapshot().await.unwrap();
    let after = killed("after");
    copy_snapshots(folder.path(), &after);
    // One that was being written.
    std::fs::write(after.join("snapshots/new.snapshot"), b"RSSNAP1").unwrap();

    let (_log, mut lost) = open(&before);
    assert_eq!(lost.applied_state().await.unwrap().0, None, "nothing was written before");
    let (_log, mut kept) = open(&after);
    assert_eq!(kept.applied_state().await.unwrap().0, Some(log_id(1, 7)));
    assert_eq!(kept.current().resources.read(&korn.id.unwrap()).unwrap(), stored);
}

fn copy_snapshots(from: &Path, to: &Path) {
    let (from, to) = (from.join("snapshots"), to.join("snapshots"));
    std::fs::create_dir(&to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Each bit counts, and each place at which it may be cut off.
#[tokio::test]
async fn a_damaged_snapshot_is_refused_with_the_place() {
    let folder = TempDir::new().unwrap();
    let (_log, mut state_machine) = open(folder.path());
    for index in 1..4 {
        let resource = resource(&format!("n{index}"));
        apply(&mut state_machine, index, &write(&resource)).await.written().unwrap();
    }
    state_machine.build_snapshot().await.unwrap();
    let path = folder.path().join("snapshots/newest.snapshot");
    let sound = std::fs::read(&path).unwrap();
    let open = || {
        let config = RaftConfig::new(folder.path(), "127.0.0.1:0");
        let opened = StateMachine::open(&folder.path().join("snapshots"), &config, <_>::default());
        opened.map(|opened| opened.current().end()).map_err(|error| error.to_string())
    };
    assert_eq!(open().unwrap(), 4);
    let refused = |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        let error = open().expect_err(what);
        assert!(error.contains("newest.snapshot is damaged at byte"), "{what}: {error}");
        assert!(error.contains("let it join again"), "{what}: {error}");
    };
    for bit in 0..sound.len() * 8 {
        let mut flipped = sound.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        refused(&flipped, &format!("bit {bit}"));
    }
    for length in 0..sound.len() {
        refused(&sound[..length], &format!("cut off at {length}"));
    }
    refused(&[sound.as_slice(), b"x"].concat(), "more at the end");
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(open().unwrap(), 4);
}

/// The library has the log cut off while the snapshot is still being installed.
#[tokio::test]
async fn the_log_stays_until_the_snapshot_in_its_place_is_on_the_disk() {
    let folder = TempDir::new().unwrap();
    let (_log, mut state_machine) = open(folder.path());
    apply(&mut state_machine, 7, &write(&resource("korn"))).await.written().unwrap();
    let snapshot = state_machine.build_snapshot().await.unwrap();

    let elsewhere = TempDir::new().unwrap();
    let (mut log, mut other) = open(elsewhere.path());
    log.keep_for(other.persisted());
    append(&mut log, vec![entry(0, &write(&resource("nina")))]).await;
    let mut reader = log.clone();
    let mut purging = Box::pin(log.purge(log_id(1, 7)));
    assert!(futures::FutureExt::now_or_never(&mut purging).is_none());
    assert_eq!(reader.try_get_log_entries(..).await.unwrap().len(), 1);
    other.install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
    purging.await.unwrap();
    assert_eq!(reader.try_get_log_entries(..).await.unwrap().len(), 0);
}

async fn append(log: &mut Log, entries: Vec<Entry>) {
    log.blocking_append(entries).await.unwrap();
}

#[tokio::test]
async fn a_log_that_is_opened_again_is_what_it_was() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let mut log = Log::open(&path, &LogOptions::default(), Faults::default()).unwrap();
    let identity = log.identity();
    log.save_vote(&Vote::new(1, 5)).await.unwrap();
    append(&mut log, (0..9).map(|index| entry(index, &write(&resource("korn")))).collect()).await;
    log.save_committed(Some(log_id(1, 6))).await.unwrap();
    log.truncate(log_id(1, 7)).await.unwrap();
    log.purge(log_id(1, 2)).await.unwrap();
    log.set_cluster(77).await.unwrap();
    log.close().await;
    drop(log);

    let mut log = Log::open(&path, &LogOptions::default(), Faults::default()).unwrap();
    assert_eq!((log.identity().node, log.identity().cluster), (identity.node, 77));
    assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(1, 5)));
    assert_eq!(log.read_committed().await.unwrap(), Some(log_id(1, 6)));
    let state = log.get_log_state().await.unwrap();
    assert_eq!(
        (state.last_purged_log_id, state.last_log_id),
        (Some(log_id(1, 2)), Some(log_id(1, 6)))
    );
    let entries = log.try_get_log_entries(..).await.unwrap();
    assert_eq!(entries.iter().map(|e| e.log_id.index).collect::<Vec<_>>(), [3, 4, 5, 6]);
    let few = log.limited_get_log_entries(3, 7).await.unwrap();
    assert_eq!(few.len(), 4);
}

/// A leader's entries are acknowledged early, but held back until
/// they are on the disk.
#[tokio::test]
async fn entries_of_a_leader_are_applied_once_they_are_on_the_disk() {
    let folder = TempDir::new().unwrap();
    let (mut log, mut state_machine) = open(folder.path());
    log.save_vote(&Vote::new_committed(1, log.identity().node)).await.unwrap();
    append(&mut log, vec![entry(0, &write(&resource("korn")))]).await;
    apply(&mut state_machine, 0, &write(&resource("korn"))).await.written().unwrap();
    assert!(log.durable().is_open(0));
}

#[tokio::test]
async fn the_membership_stands_with_the_resources() {
    let folder = TempDir::new().unwrap();
    let (log, mut state_machine) = open(folder.path());
    let membership = Membership::new(vec![BTreeSet::from([1])], ());
    let payload = EntryPayload::Membership(membership.clone());
    state_machine.apply([Entry { log_id: log_id(1, 4), payload }]).await.unwrap();
    state_machine.build_snapshot().await.unwrap();
    log.close().await;
    drop((log, state_machine));
    let (_log, mut state_machine) = open(folder.path());
    let (applied, stored) = state_machine.applied_state().await.unwrap();
    assert_eq!(applied, Some(log_id(1, 4)));
    assert_eq!(*stored.membership(), membership);
}

/// Entries that it sent to others may be lost with a crash. In the same term it would give their
/// places to other entries.
#[tokio::test]
async fn a_leader_that_starts_again_does_not_lead_in_its_term() {
    let folder = TempDir::new().unwrap();
    let (mut log, state_machine) = open(folder.path());
    let node = log.identity().node;
    log.save_vote(&Vote::new_committed(4, node)).await.unwrap();
    assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new_committed(4, node)));
    log.close().await;
    drop((log, state_machine));
    let (mut log, _machine) = open(folder.path());
    assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(4, node)));
}
