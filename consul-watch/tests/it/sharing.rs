//! What upstream's notifiers, stores and mark-and-sweep are about, on this
//! crate's equivalent: subscriptions to shared views.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    QueryOptions, Watch, Watcher,
    client::PutOptions,
    query::{HealthService, KvGet},
    testing::{Behaviour, Fault, TestClock, TestConsul, parts::Suite, real::Consul},
    types::HealthStatus,
};
use futures::FutureExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

const LONG: Duration = Duration::from_hours(1);

fn watcher(consul: &TestConsul) -> Watcher {
    Watcher::builder(consul.client()).seed(7).clock(Arc::new(TestClock::default())).build()
}

async fn next<T: Send + Sync + 'static>(watch: &mut Watch<T>) -> Arc<T> {
    timeout(LONG, watch.changed()).await.expect("an item in time").expect("a snapshot").data
}

async fn is_quiet<T: Send + Sync + 'static>(watch: &mut Watch<T>) -> bool {
    timeout(LONG, watch.changed()).await.is_err()
}

/// Who asks for less is not woken by what is outside of it; whoever else
/// watches the same service is woken once, in whatever order they came.
///
/// Spec: CW29
#[tokio::test(start_paused = true)]
async fn a_change_wakes_only_whom_it_concerns() {
    for narrow_first in [true, false] {
        let consul = TestConsul::new();
        consul.set_instance("web", "a", "10.0.0.1", 80, HealthStatus::Passing);
        let watcher = watcher(&consul);
        let narrow = || watcher.watch(HealthService::new("web").passing());
        let wide = || watcher.watch(HealthService::new("web"));
        let (mut passing, mut all) = if narrow_first {
            (narrow(), wide())
        } else {
            let all = wide();
            (narrow(), all)
        };
        assert_eq!((next(&mut passing).await.len(), next(&mut all).await.len()), (1, 1));
        consul.set_instance("web", "b", "10.0.0.2", 80, HealthStatus::Critical);
        assert_eq!(next(&mut all).await.len(), 2);
        assert!(is_quiet(&mut passing).await && is_quiet(&mut all).await);
    }
}

/// Spec: CW30
#[tokio::test(start_paused = true)]
async fn there_is_one_view_for_each_distinct_query() {
    let consul = TestConsul::new();
    let watcher = watcher(&consul);
    // Three subscribers to one query, and one subscriber to many.
    let mut same: Vec<_> = (0..3).map(|_| watcher.watch(KvGet::new("same"))).collect();
    let mut many: Vec<_> = (0..3).map(|n| watcher.watch(KvGet::new(format!("k{n}")))).collect();
    let mut shared = watcher.watch(KvGet::new("k1"));
    assert_eq!(watcher.active(), 4);
    assert!(same.iter().chain(&many).all(|watch| watch.latest().is_none()), "nothing is complete");
    for watch in same.iter_mut().chain(&mut many) {
        assert!(watch.ready().await.unwrap().data.is_none());
    }
    assert!(shared.ready().await.unwrap().data.is_none());
    consul.wait_for_blocked(4).await;
    assert_eq!(consul.requests(), 8, "one first read and one blocked read for each view");
}

/// Spec: CW31
#[tokio::test(start_paused = true)]
async fn nothing_is_complete_before_the_first_answer() {
    let consul = TestConsul::new();
    consul.inject(&Fault::Delay(Duration::from_secs(5)), 1);
    let mut key = watcher(&consul).watch(KvGet::new("k"));
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(key.latest().is_none() && key.ready().now_or_never().is_none());
    }
    // What came in between is in the first snapshot.
    consul.kv_put("k", "late");
    let first = key.ready().await.unwrap();
    assert_eq!(first.data.as_ref().as_ref().and_then(|pair| pair.text()), Some("late"));
    assert!(key.latest().is_some());
}

/// Spec: CW32
#[tokio::test(start_paused = true)]
async fn a_view_that_nobody_uses_ends_and_a_shared_one_stays() {
    let consul = TestConsul::new();
    let watcher = watcher(&consul);
    let mut old = watcher.watch(KvGet::new("old"));
    let mut shared = watcher.watch(KvGet::new("shared"));
    let mut other = watcher.watch(KvGet::new("shared"));
    for watch in [&mut old, &mut shared, &mut other] {
        watch.ready().await.unwrap();
    }
    consul.wait_for_blocked(2).await;
    drop((old, shared));
    consul.wait_for_blocked(1).await;
    assert_eq!(watcher.active(), 1);
    consul.kv_put("shared", "x");
    assert!(next(&mut other).await.is_some() || next(&mut other).await.is_some());
    // The snapshot of the old one is gone with it: who comes now asks anew.
    consul.kv_put("old", "new");
    let again = watcher.watch(KvGet::new("old"));
    assert!(again.latest().is_none());
}

/// Spec: CW36
#[tokio::test(start_paused = true)]
async fn the_latest_snapshot_is_kept_replaced_and_found_even_when_it_is_nothing() {
    let consul = TestConsul::new();
    consul.kv_put("k", "1");
    let watcher = watcher(&consul);
    let mut key = watcher.watch(KvGet::new("k"));
    let text = |watch: &Watch<_>| {
        let latest: consul_watch::watch::Snapshot<Option<consul_watch::types::KvPair>> =
            watch.latest().expect("a snapshot");
        latest.data.as_ref().as_ref().and_then(|pair| pair.text().map(str::to_owned))
    };
    key.ready().await.unwrap();
    assert_eq!(text(&key).as_deref(), Some("1"));
    assert_eq!(text(&key).as_deref(), Some("1"), "looking does not take it");
    consul.kv_put("k", "2");
    // The first item is the snapshot that was ready, the next one the change.
    while text(&key).as_deref() != Some("2") {
        next(&mut key).await;
    }
    consul.kv_delete("k");
    while text(&key).is_some() {
        next(&mut key).await;
    }
    assert!(key.latest().is_some(), "nothing is a value that is found");
    let mut late = watcher.watch(KvGet::new("k"));
    assert!(late.ready().await.unwrap().data.is_none());
    consul.wait_for_blocked(1).await;
    drop((key, late));
    consul.wait_for_blocked(0).await;
    assert!(watcher.watch(KvGet::new("k")).latest().is_none(), "the store is empty again");
}

/// A key whose writes wake the read, but do not lift the index past the one
/// asked for, keeps the read blocked until one does.
///
/// Spec: CW2
async fn wakes_without_growth(client: &consul_watch::Client, key: &str) {
    client.kv_put(key, "0", &PutOptions::default()).await.unwrap();
    let index = |pair: consul_watch::Answer<Option<consul_watch::types::KvPair>>| {
        pair.value.expect("the key").modify_index
    };
    let plain = QueryOptions::default();
    let read = || client.kv_get(key, &plain);
    let target = index(read().await.unwrap()) + 5;
    let mut options = QueryOptions::default();
    (options.index, options.wait) = (Some(target), Some(Duration::from_mins(1)));
    let held = tokio::spawn({
        let (client, key) = (client.clone(), key.to_owned());
        async move { client.kv_get(&key, &options).await.unwrap() }
    });
    let mut writes = 0;
    loop {
        writes += 1;
        client.kv_put(key, writes.to_string(), &PutOptions::default()).await.unwrap();
        if index(read().await.unwrap()) > target {
            break;
        }
        assert!(!held.is_finished(), "woken at an index that did not grow");
    }
    assert!(writes > 1);
    let answer = timeout(Duration::from_secs(30), held).await.expect("woken").unwrap();
    assert!(answer.meta.index.unwrap() > target);
}

#[tokio::test(start_paused = true)]
async fn a_wake_without_growth_does_not_answer_on_the_double() {
    wakes_without_growth(&TestConsul::new().client(), "k").await;
}

#[tokio::test]
async fn a_wake_without_growth_does_not_answer_on_a_real_server() {
    let suite = Suite("consul-watch sharing");
    let case = "a_wake_without_growth_does_not_answer_on_a_real_server";
    for part in suite.parts("consul", case) {
        let consul = Consul::start(&part.path).await.expect("a real Consul");
        wakes_without_growth(&consul.client(), "k").await;
    }
}

/// 250 blocked reads with a connection each meet the limit of 200.
async fn many_connections(address: &str, silent: bool) {
    let mut bare = Vec::new();
    for n in 0..250 {
        let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else { continue };
        let request =
            format!("GET /v1/kv/k{n}?index=999999999&wait=600s HTTP/1.1\r\nHost: x\r\n\r\n");
        if stream.write_all(request.as_bytes()).await.is_ok() {
            bare.push(stream);
        }
    }
    let refused = async {
        let mut answers = Vec::new();
        // Those that are over the limit end; the others stay blocked.
        while answers.len() < 50 {
            let ends = bare.iter_mut().map(|stream| {
                Box::pin(async move {
                    let mut answer = Vec::new();
                    // The server has not read the request: a reset may follow the answer.
                    let _ended = stream.read_to_end(&mut answer).await;
                    String::from_utf8_lossy(&answer).into_owned()
                })
            });
            let (answer, at, _) = futures::future::select_all(ends).await;
            answers.push(answer);
            drop(bare.remove(at));
        }
        answers
    };
    let answers = timeout(Duration::from_secs(30), refused).await.expect("50 are refused");
    for answer in &answers {
        assert_eq!(answer.starts_with("HTTP/1.1 429 "), !silent, "{answer:?}");
        assert_eq!(answer.contains("Your IP is issuing too many"), !silent);
    }
    let more = timeout(Duration::from_secs(1), bare[0].read_u8()).await;
    assert!(more.is_err(), "the others are held");
}

/// 250 watches of one client stay below the limit and see every change.
async fn many_watches(client: &consul_watch::Client) {
    let watcher = Watcher::new(client.clone());
    let mut watches: Vec<_> =
        (0..250).map(|n| watcher.watch(KvGet::new(format!("many/{n}")))).collect();
    for watch in &mut watches {
        let first = timeout(Duration::from_mins(1), watch.changed()).await.expect("in time");
        assert!(first.expect("no watch meets the limit").data.is_none());
    }
    for n in 0..250 {
        client.kv_put(&format!("many/{n}"), "x", &PutOptions::default()).await.unwrap();
    }
    for watch in &mut watches {
        let item = timeout(Duration::from_mins(1), watch.changed()).await.expect("in time");
        assert!(item.expect("no watch meets the limit").data.is_some());
    }
}

/// Spec: CP60
#[tokio::test]
async fn many_watches_stay_below_the_limit_of_the_double() {
    for behaviour in [Behaviour::Current, Behaviour::V1_8] {
        let consul = || TestConsul::builder().behaviour(behaviour).build();
        let flooded = consul().serve().await.unwrap();
        many_connections(&flooded.address(), behaviour == Behaviour::V1_8).await;
        let calm = consul().serve().await.unwrap();
        many_watches(&calm.client()).await;
    }
}

/// Spec: CP60
#[tokio::test]
async fn many_watches_stay_below_the_limit_of_a_real_server() {
    let suite = Suite("consul-watch sharing");
    let case = "many_watches_stay_below_the_limit_of_a_real_server";
    for part in suite.parts("consul", case) {
        // Servers before 1.9 close without an answer.
        let silent = part.major_minor() < (1, 9);
        let flooded = Consul::start(&part.path).await.expect("a real Consul");
        many_connections(&flooded.address(), silent).await;
        let calm = Consul::start(&part.path).await.expect("a real Consul");
        many_watches(&calm.client()).await;
    }
}
