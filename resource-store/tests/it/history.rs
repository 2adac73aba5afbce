//! Many concurrent users of a backend, and the checker of what they saw.
//!
//! Short by default; `SOAK=1` makes 100,000 operations for each of ten seeds.

use std::sync::Arc;

use resource_store::{
    backend::{Backend, memory::MemoryBackend},
    testing::history::{self, Action, History, HistoryOptions, Observed, Operation, WatchLog},
};

/// Most operations of a history whose watches begin among its writes: more than 256 changes
/// may be merged.
const SHORT: usize = 500;

async fn check(backend: impl Backend, seed: u64, operations: usize) -> History {
    let mut options = HistoryOptions::default();
    options.seed = seed;
    options.operations = operations;
    options.watched_from_start = operations > SHORT;
    let history = history::run(Arc::new(backend), &options).await.unwrap();
    if let Err(violation) = history.check() {
        panic!("seed {seed}: {violation}");
    }
    history
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_users_see_what_the_contract_allows() {
    let soak = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    let (seeds, operations) = if soak { (10, 100_000) } else { (2, 5_000) };
    let long = (0..seeds).map(|seed| (seed, operations));
    for (seed, operations) in long.chain((seeds..10 * seeds).map(|seed| (seed, SHORT))) {
        let history = check(MemoryBackend::new(), seed, operations).await;
        assert_eq!(history.watches.len(), 16, "nobody fell behind");
        let changes =
            history.operations.iter().filter(|o| matches!(o.action, Action::Change { .. }));
        assert!(changes.count() > operations / 20, "writes are refused now and then only");
    }
}

/// The same over a file, with each way to sync.
#[cfg(feature = "durable")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_users_of_a_file_see_what_the_contract_allows() {
    use std::time::Duration;

    use resource_store::backend::durable::{DurableBackend, DurableOptions, SyncPolicy};

    let soak = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    let operations = if soak { 100_000 } else { 2_000 };
    let policies =
        [SyncPolicy::EveryCommit, SyncPolicy::Within(Duration::from_millis(3)), SyncPolicy::Never];
    for (seed, sync) in (0..).zip(policies) {
        let folder = tempfile::tempdir().unwrap();
        let mut options = DurableOptions::default();
        options.sync = sync;
        // Restarts of slow watchers, too.
        options.watch_buffer = if seed == 2 { 8 } else { 8192 };
        let file = folder.path().join("resources.redb");
        let backend = DurableBackend::open(&file, options).await.unwrap();
        check(backend.clone(), seed, operations).await;
        backend.close().await.unwrap();
    }
}

/// Watchers that fall behind start again, and what they see between is whole.
///
/// In each run there are fewer changes than a watch that takes its snapshot keeps one by one: of
/// 257 and more it merges those of one resource, which is no gap that the contract excludes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_watchers_see_gapless_stretches() {
    for seed in 7..22 {
        check(MemoryBackend::with_watch_buffer(8), seed, 200).await;
    }
}

fn change(expected: Option<&str>, left: Option<&str>, began: u64, ended: u64) -> Operation {
    let own = |seen: Option<&str>| seen.map(str::to_owned);
    let action = Action::Change { expected: own(expected), left: own(left) };
    Operation { name: "x".to_owned(), began, ended, action }
}

fn read(seen: Option<&str>, began: u64, ended: u64) -> Operation {
    Operation { name: "x".to_owned(), began, ended, action: Action::Read(seen.map(str::to_owned)) }
}

fn saw(version: &str, deleted: bool) -> Observed {
    Observed { name: "x".to_owned(), version: version.to_owned(), deleted, read_after: None }
}

/// Created as 1, changed to 2, deleted, created as 3; one watch saw it all.
fn good() -> History {
    let operations = vec![
        change(None, Some("1"), 10, 11),
        read(Some("1"), 12, 13),
        change(Some("1"), Some("2"), 20, 24),
        read(Some("1"), 21, 22),
        read(Some("2"), 23, 25),
        change(Some("2"), None, 30, 31),
        read(None, 32, 33),
        change(None, Some("3"), 40, 41),
    ];
    let events = vec![saw("1", false), saw("2", false), saw("2", true), saw("3", false)];
    History { operations, watches: vec![WatchLog { snapshot: Vec::new(), events, complete: true }] }
}

#[test]
fn a_lawful_history_passes() {
    assert_eq!(good().check(), Ok(()));
}

fn assert_found(plant: impl FnOnce(&mut History), text: &str) {
    let mut history = good();
    plant(&mut history);
    let violation = history.check().unwrap_err();
    assert!(violation.0.contains(text), "{text:?} is not in {violation}");
}

#[test]
fn planted_lost_updates_are_found() {
    assert_found(
        |h| h.operations.push(change(Some("1"), Some("9"), 21, 22)),
        "two changes of version 1 succeeded",
    );
    assert_found(|h| h.operations.push(change(None, Some("9"), 21, 22)), "created while version");
    assert_found(|h| h.operations.push(change(Some("7"), Some("8"), 21, 22)), "which nobody wrote");
    let refused = Operation {
        action: Action::Refused { expected: Some("1".to_owned()) },
        ..read(None, 14, 15)
    };
    assert_found(|h| h.operations.push(refused), "refused although");
}

#[test]
fn planted_stale_reads_are_found() {
    assert_found(|h| h.operations.push(read(Some("1"), 26, 27)), "outside of its time");
    assert_found(|h| h.operations.push(read(Some("2"), 14, 15)), "outside of its time");
    assert_found(|h| h.operations.push(read(None, 14, 15)), "outside of its time");
    assert_found(|h| h.operations.push(read(Some("9"), 14, 15)), "which nobody wrote");
    let back = |h: &mut History| {
        h.operations[2].ended = 29;
        h.operations[4] = read(Some("2"), 21, 22);
        h.operations[3] = read(Some("1"), 23, 24);
    };
    assert_found(back, "a read went back");
}

#[test]
fn planted_faults_of_watches_are_found() {
    assert_found(|h| drop(h.watches[0].events.remove(1)), "missed an event");
    assert_found(|h| drop(h.watches[0].events.pop()), "missed the last event");
    assert_found(|h| h.watches[0].events.insert(1, saw("1", false)), "repeated an event");
    assert_found(|h| h.watches[0].events.swap(0, 1), "missed an event");
    assert_found(
        |h| h.watches[0].events[1].read_after = Some(Some("1".to_owned())),
        "read after an event was older",
    );
    let orders = |h: &mut History| {
        let other = |began, version| Operation {
            name: "y".to_owned(),
            ..change(None, Some(version), began, began + 1)
        };
        h.operations.push(other(50, "5"));
        let y = Observed { name: "y".to_owned(), ..saw("5", false) };
        let mut second = h.watches[0].clone();
        h.watches[0].events.push(y.clone());
        second.events.insert(0, y);
        h.watches.push(second);
    };
    assert_found(orders, "different orders");
}
