//! What every [`Query`] must do, as one function for each sentence of its contract.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
//! use consul_watch::{query::KvGet, testing::conformance::{self, Fixture}};
//!
//! conformance::all(|| Fixture::new(KvGet::new("app/color"), |consul, step| {
//!     consul.kv_put("app/color", format!("color {step}"));
//! }))
//! .await;
//! # });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Run it with tokio's clock paused: errors are retried after real delays.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{Fault, TestConsul};
use crate::{Query, Snapshot, Watch, Watcher, query::Position, watch::Liveness};

/// Longer than any delay of a watch.
const LIMIT: Duration = Duration::from_hours(1);

type Change = Box<dyn Fn(&TestConsul, usize) + Send + Sync>;

/// A query over a fresh [`TestConsul`], and how to change what it sees.
pub struct Fixture<Q> {
    consul: TestConsul,
    query: Arc<Q>,
    change: Change,
}

impl<Q> std::fmt::Debug for Fixture<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fixture").field("consul", &self.consul).finish_non_exhaustive()
    }
}

impl<Q: Query> Fixture<Q> {
    /// A fixture. `change` is called with 0, 1, 2 …; each call must give the query another result.
    pub fn new(query: Q, change: impl Fn(&TestConsul, usize) + Send + Sync + 'static) -> Self {
        Self { consul: TestConsul::new(), query: Arc::new(query), change: Box::new(change) }
    }

    fn watcher(&self) -> Watcher {
        Watcher::builder(self.consul.client()).seed(1).build()
    }

    fn change(&self, step: usize) {
        (self.change)(&self.consul, step);
    }

    /// Reads the present value afresh.
    #[expect(clippy::expect_used, reason = "this is how a case fails")]
    async fn now(&self) -> Q::Value {
        let read = self.query.fetch(&self.consul.client(), &Position::Start, LIMIT).await;
        read.expect("a read without faults succeeds").value
    }
}

/// Runs every case on a fresh fixture.
///
/// # Panics
///
/// When a case fails.
pub async fn all<Q: Query>(fixture: impl Fn() -> Fixture<Q> + Sync) {
    the_first_snapshot_is_the_present(fixture()).await;
    every_change_is_followed_by_a_snapshot_of_it(fixture()).await;
    a_burst_of_changes_ends_in_the_newest(fixture()).await;
    equal_keys_share_one_read(fixture()).await;
    an_index_that_goes_backwards_repeats_nothing_and_loses_nothing(fixture()).await;
    errors_keep_the_data_and_are_recovered_from(fixture()).await;
    a_restart_loses_nothing(fixture()).await;
    a_dropped_watch_leaves_no_request(fixture()).await;
}

/// A watch begins with the present.
///
/// # Panics
///
/// When it does not.
pub async fn the_first_snapshot_is_the_present<Q: Query>(fixture: Fixture<Q>) {
    fixture.change(0);
    let mut watch = fixture.watcher().watch(Arc::clone(&fixture.query));
    let first = item(&mut watch).await;
    assert_eq!(*first.data, fixture.now().await);
    assert_eq!(first.seq, 1);
}

/// Changes one after the other each give a snapshot, in order.
///
/// # Panics
///
/// When one is missing.
pub async fn every_change_is_followed_by_a_snapshot_of_it<Q: Query>(fixture: Fixture<Q>) {
    fixture.change(0);
    let mut watch = fixture.watcher().watch(Arc::clone(&fixture.query));
    let mut last = item(&mut watch).await.seq;
    for step in 1..6 {
        fixture.change(step);
        let snapshot = item(&mut watch).await;
        assert_eq!(*snapshot.data, fixture.now().await, "change {step}");
        assert!(snapshot.seq > last, "snapshots are numbered upwards");
        last = snapshot.seq;
    }
}

/// A subscriber who did not look sees the newest, and then nothing old.
///
/// # Panics
///
/// When the newest is missing.
pub async fn a_burst_of_changes_ends_in_the_newest<Q: Query>(fixture: Fixture<Q>) {
    fixture.change(0);
    let mut watch = fixture.watcher().watch(Arc::clone(&fixture.query));
    item(&mut watch).await;
    for step in 1..20 {
        fixture.change(step);
        tokio::task::yield_now().await;
    }
    settle(&fixture, &mut watch).await;
}

/// Two watches of equal queries cost one request.
///
/// # Panics
///
/// When they cost more.
pub async fn equal_keys_share_one_read<Q: Query>(fixture: Fixture<Q>) {
    fixture.change(0);
    let watcher = fixture.watcher();
    let mut one = watcher.watch(Arc::clone(&fixture.query));
    item(&mut one).await;
    let mut two = watcher.watch(Arc::clone(&fixture.query));
    let late = item(&mut two).await;
    assert!(
        one.latest().is_some_and(|snapshot| Arc::ptr_eq(&snapshot.data, &late.data)),
        "data is shared"
    );
    assert_eq!(watcher.active(), 1);
    fixture.change(1);
    let (first, second) = (item(&mut one).await, item(&mut two).await);
    assert!(Arc::ptr_eq(&first.data, &second.data));
}

/// When Consul's history is replaced by an equal one there is no item; the
/// next change gives one.
///
/// # Panics
///
/// When data is repeated or lost.
pub async fn an_index_that_goes_backwards_repeats_nothing_and_loses_nothing<Q: Query>(
    fixture: Fixture<Q>,
) {
    for step in 0..4 {
        fixture.change(step);
    }
    let mut watch = fixture.watcher().watch(Arc::clone(&fixture.query));
    item(&mut watch).await;
    let before = watch.state().requests;
    fixture.consul.reset_index();
    fixture.change(4);
    settle(&fixture, &mut watch).await;
    assert!(watch.state().requests > before);
}

/// Errors are items, the data stays, and the watch recovers.
///
/// # Panics
///
/// When it does not recover.
pub async fn errors_keep_the_data_and_are_recovered_from<Q: Query>(fixture: Fixture<Q>) {
    fixture.change(0);
    let mut watch = fixture.watcher().watch(Arc::clone(&fixture.query));
    let first = item(&mut watch).await;
    fixture.consul.inject(&Fault::status(500, "No cluster leader"), 3);
    fixture.consul.restart();
    let error = timeout(LIMIT, watch.changed()).await;
    assert!(matches!(&error, Ok(Err(error)) if !error.is_fatal()), "{error:?}");
    assert_eq!(watch.state().liveness, Liveness::Degraded);
    assert!(watch.latest().is_some_and(|kept| Arc::ptr_eq(&kept.data, &first.data)));
    assert!(
        timeout(LIMIT, fixture.consul.wait_for_blocked(1)).await.is_ok(),
        "the watch asks again"
    );
    fixture.change(1);
    settle(&fixture, &mut watch).await;
    assert_eq!(watch.state().liveness, Liveness::Live);
}

/// Checks that a change while Consul is away is seen when it is back.
///
/// # Panics
///
/// When it is lost.
pub async fn a_restart_loses_nothing<Q: Query>(fixture: Fixture<Q>) {
    fixture.change(0);
    let mut watch = fixture.watcher().watch(Arc::clone(&fixture.query));
    item(&mut watch).await;
    fixture.consul.inject_always(Some(Fault::Drop));
    fixture.consul.restart();
    fixture.change(1);
    fixture.consul.reset_index();
    tokio::time::sleep(Duration::from_mins(10)).await;
    fixture.consul.inject_always(None);
    settle(&fixture, &mut watch).await;
}

/// The last watch that is dropped takes its request along.
///
/// # Panics
///
/// When a request stays.
pub async fn a_dropped_watch_leaves_no_request<Q: Query>(fixture: Fixture<Q>) {
    fixture.change(0);
    let watcher = fixture.watcher();
    let mut one = watcher.watch(Arc::clone(&fixture.query));
    let two = one.clone();
    item(&mut one).await;
    drop(one);
    tokio::task::yield_now().await;
    assert_eq!(watcher.active(), 1, "one subscriber is left");
    drop(two);
    assert!(timeout(LIMIT, fixture.consul.wait_for_open(0)).await.is_ok(), "a request stays");
    watcher.shutdown().await;
    assert_eq!(watcher.active(), 0);
}

/// The next snapshot.
#[expect(clippy::expect_used, reason = "this is how a case fails")]
async fn item<T: Send + Sync + 'static>(watch: &mut Watch<T>) -> Snapshot<T> {
    timeout(LIMIT, watch.changed())
        .await
        .expect("a snapshot in time")
        .expect("a snapshot, not an error")
}

/// Reads items until the present is seen.
#[expect(clippy::expect_used, reason = "this is how a case fails")]
async fn settle<Q: Query>(fixture: &Fixture<Q>, watch: &mut Watch<Q::Value>) {
    let present = fixture.now().await;
    let mut last: Option<Snapshot<Q::Value>> = None;
    while last.as_ref().is_none_or(|last| *last.data != present) {
        match timeout(LIMIT, watch.changed()).await.expect("the present in time") {
            Ok(snapshot) => {
                let repeated = last.as_ref().is_some_and(|last| *last.data == *snapshot.data);
                assert!(!repeated, "equal data was delivered twice");
                last = Some(snapshot);
            }
            Err(error) => assert!(!error.is_fatal(), "the watch ended: {error:?}"),
        }
    }
}
