//! The watcher over the double in memory. Time is paused: whatever waits for a
//! timer, waits for nothing else.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    Client, ClientConfig, QueryOptions, Watch, Watcher,
    client::PutOptions,
    query::{AgentService, CatalogServices, Datacenters, HealthService, KvGet, KvList},
    testing::{Behaviour, Fault, TestClock, TestConsul, script::Script},
    types::{AgentServiceRegistration, HealthStatus, ServiceEntry},
    watch::Liveness,
};
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_hours(1);

fn watcher(consul: &TestConsul) -> Watcher {
    Watcher::builder(consul.client()).seed(7).clock(Arc::new(TestClock::default())).build()
}

fn ids(entries: &[ServiceEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.service.id.as_str()).collect()
}

async fn next<T: Send + Sync + 'static>(watch: &mut Watch<T>) -> Arc<T> {
    timeout(LONG, watch.changed()).await.expect("an item in time").expect("a snapshot").data
}

/// Whether the watch has nothing to say for an hour.
async fn is_quiet<T: Send + Sync + 'static>(watch: &mut Watch<T>) -> bool {
    timeout(LONG, watch.changed()).await.is_err()
}

/// Spec: CW10
#[tokio::test(start_paused = true)]
async fn only_what_matches_the_query_is_an_item() {
    let consul = TestConsul::new();
    consul.set_instance("web", "b", "10.0.0.2", 80, HealthStatus::Passing);
    let mut web = watcher(&consul).watch(HealthService::new("web").passing());
    assert_eq!(ids(&next(&mut web).await), ["b"]);
    // Another service, and an instance that is not passing, change nothing here.
    consul.set_instance("db", "d", "10.0.0.9", 5432, HealthStatus::Passing);
    consul.set_instance("web", "c", "10.0.0.3", 80, HealthStatus::Critical);
    assert!(is_quiet(&mut web).await);
    consul.set_instance("web", "a", "10.0.0.1", 80, HealthStatus::Passing);
    assert_eq!(ids(&next(&mut web).await), ["a", "b"]);
    consul.set_instance("web", "b", "10.0.0.2", 80, HealthStatus::Warning);
    assert_eq!(ids(&next(&mut web).await), ["a"]);
    consul.remove_instance("a");
    assert!(next(&mut web).await.is_empty());
}

/// Spec: CW8
#[tokio::test(start_paused = true)]
async fn a_key_is_seen_absent_then_with_its_value_and_nothing_else() {
    for behaviour in [Behaviour::Current, Behaviour::V1_8] {
        let consul = TestConsul::builder().behaviour(behaviour).build();
        let mut key = watcher(&consul).watch(KvGet::new("foo/bar"));
        assert_eq!(*next(&mut key).await, None);
        consul.kv_put("other", "x");
        consul.kv_delete("other");
        assert!(is_quiet(&mut key).await);
        consul.kv_put("foo/bar", "test");
        let data = next(&mut key).await;
        assert_eq!(data.as_ref().as_ref().and_then(|pair| pair.text()), Some("test"));
        assert!(is_quiet(&mut key).await);
        consul.kv_delete("foo/bar");
        assert_eq!(*next(&mut key).await, None);
    }
}

/// Spec: CW9
#[tokio::test(start_paused = true)]
async fn a_prefix_is_seen_empty_then_with_its_pairs() {
    let consul = TestConsul::new();
    let mut list = watcher(&consul).watch(KvList::new("foo/"));
    assert!(next(&mut list).await.is_empty());
    consul.kv_put("foo/b", "2");
    consul.kv_put("foobar", "no");
    assert_eq!(next(&mut list).await.len(), 1);
    consul.kv_put("foo/a", "1");
    let pairs = next(&mut list).await;
    assert_eq!(pairs.iter().map(|pair| pair.key.as_str()).collect::<Vec<_>>(), ["foo/a", "foo/b"]);
}

/// Spec: CW13
#[tokio::test(start_paused = true)]
async fn an_agents_service_is_followed_by_its_hash() {
    let consul = TestConsul::new();
    let client = consul.client();
    let mut watch = watcher(&consul).watch(AgentService::new("web"));
    assert_eq!(*next(&mut watch).await, None);
    let mut service = AgentServiceRegistration::new("web");
    service.port = 80;
    client.agent_register_service(&service).await.unwrap();
    let seen = next(&mut watch).await;
    assert_eq!(seen.as_ref().as_ref().map(|service| service.service.port), Some(80));
    client.agent_register_service(&service).await.unwrap();
    assert!(is_quiet(&mut watch).await);
    service.port = 81;
    client.agent_register_service(&service).await.unwrap();
    let seen = next(&mut watch).await;
    assert_eq!(seen.as_ref().as_ref().map(|service| service.service.port), Some(81));
    client.agent_deregister_service("web", None).await.unwrap();
    assert_eq!(*next(&mut watch).await, None);
}

/// Spec: CW21, CW24, CW27
#[tokio::test(start_paused = true)]
async fn the_last_watch_takes_its_request_and_task_along() {
    let consul = TestConsul::new();
    let watcher = watcher(&consul);
    let mut one = watcher.watch(KvGet::new("a"));
    let two = watcher.watch(KvGet::new("a"));
    next(&mut one).await;
    consul.wait_for_blocked(1).await;
    drop(one);
    tokio::task::yield_now().await;
    assert_eq!((consul.blocked(), watcher.active()), (1, 1));
    drop(two);
    let before = Instant::now();
    consul.wait_for_open(0).await;
    assert_eq!(before.elapsed(), Duration::ZERO, "no timer was needed");
    watcher.shutdown().await;
    watcher.shutdown().await;
    assert_eq!(watcher.active(), 0);
    let mut late = watcher.watch(KvGet::new("a"));
    assert!(late.changed().await.unwrap_err().is_fatal());
}

/// Spec: CW14, CW21
#[tokio::test(start_paused = true)]
async fn a_stop_while_blocked_or_waiting_ends_the_stream_at_once() {
    let consul = TestConsul::new();
    for fault in [None, Some(Fault::status(500, "No cluster leader"))] {
        consul.inject_always(fault.clone());
        let stop = CancellationToken::new();
        let watcher = Watcher::builder(consul.client()).stop(&stop).build();
        let mut watch = watcher.watch(KvGet::new("a"));
        assert_eq!(watch.next().await.unwrap().is_err(), fault.is_some());
        let before = Instant::now();
        stop.cancel();
        stop.cancel();
        assert!(watch.next().await.is_none());
        assert!(watch.next().await.is_none());
        assert_eq!(watch.state().liveness, Liveness::Ended);
        watcher.shutdown().await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_runtime_task_does_not_leave_a_dead_read_behind() {
    let consul = TestConsul::new();
    let watcher = watcher(&consul);
    let other = tokio::task::spawn_blocking({
        let watcher = watcher.clone();
        move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { watcher.watch(KvGet::new("a")).changed().await.map(drop) })
        }
    });
    other.await.unwrap().unwrap();
    let mut watch = watcher.watch(KvGet::new("a"));
    assert_eq!(*next(&mut watch).await, None);
}

/// Spec: CW23
#[tokio::test]
async fn data_that_is_too_stale_is_read_again_from_the_leader() {
    let server = wiremock::MockServer::start().await;
    let answer = |index: &str, contact: &str, value: &str| {
        wiremock::ResponseTemplate::new(200)
            .insert_header("X-Consul-Index", index)
            .insert_header("X-Consul-LastContact", contact)
            .set_body_json(serde_json::json!({ value: [] }))
    };
    // The first read is answered by a leader that has caught up, whatever comes later.
    wiremock::Mock::given(wiremock::matchers::query_param("consistent", ""))
        .and(wiremock::matchers::query_param_is_missing("stale"))
        .respond_with(answer("5", "0", "first"))
        .expect(1)
        .mount(&server)
        .await;
    wiremock::Mock::given(wiremock::matchers::query_param("stale", ""))
        .and(wiremock::matchers::query_param("index", "5"))
        .respond_with(answer("6", "9000", "stale"))
        .expect(1)
        .mount(&server)
        .await;
    // The repeat insists on the leader: an agent may answer from others by itself.
    wiremock::Mock::given(wiremock::matchers::query_param("leader", ""))
        .and(wiremock::matchers::query_param_is_missing("stale"))
        .respond_with(answer("6", "0", "fresh"))
        .expect(1)
        .mount(&server)
        .await;
    wiremock::Mock::given(wiremock::matchers::query_param("index", "6"))
        .respond_with(answer("6", "0", "held").set_delay(LONG))
        .mount(&server)
        .await;
    let mut config = ClientConfig::default();
    config.address = server.uri();
    let watcher =
        Watcher::builder(Client::new(config).unwrap()).max_stale(Duration::from_secs(2)).build();
    let mut services = watcher.watch(CatalogServices::new());
    assert!(services.changed().await.unwrap().data.contains_key("first"));
    assert!(services.changed().await.unwrap().data.contains_key("fresh"));
}

/// Spec: CW22
#[tokio::test(start_paused = true)]
async fn failures_are_counted_until_consul_answers_even_without_a_change() {
    let consul = TestConsul::new();
    let mut watch = watcher(&consul).watch(KvGet::new("a"));
    next(&mut watch).await;
    consul.wait_for_blocked(1).await;
    consul.inject(&Fault::status(500, "No cluster leader"), 4);
    consul.restart();
    for failures in 1..=5 {
        let error = timeout(LONG, watch.changed()).await.unwrap().unwrap_err();
        assert!(!error.is_fatal());
        let state = watch.state();
        assert_eq!((state.consecutive_failures, state.liveness), (failures, Liveness::Degraded));
        assert!(state.last_error.is_some() && watch.latest().is_some());
    }
    consul.wait_for_blocked(1).await;
    let state = watch.state();
    assert_eq!((state.consecutive_failures, state.liveness), (0, Liveness::Live));
    assert!(state.last_error.is_none());
    assert!(is_quiet(&mut watch).await, "equal data is not delivered again");
}

/// Spec: CW37
#[tokio::test(start_paused = true)]
async fn a_request_fault_ends_the_stream_and_a_new_watch_tries_again() {
    let consul = TestConsul::new();
    consul.inject(&Fault::status(400, "Invalid index"), 1);
    let watcher = watcher(&consul);
    let mut watch = watcher.watch(KvGet::new("a"));
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(error.is_fatal());
    assert!(error.cause().to_string().contains("Unexpected response code: 400 (Invalid index)"));
    assert!(watch.next().await.is_none());
    assert!(watch.changed().await.unwrap_err().is_fatal());
    assert!(consul.requests() <= 2, "the first read and the blocked one");
    assert_eq!(*next(&mut watcher.watch(KvGet::new("a"))).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_denied_token_is_told_once_and_retried_until_it_is_accepted() {
    let consul = TestConsul::new();
    consul.inject(&Fault::status(403, "Permission denied"), 4);
    let mut watch = watcher(&consul).watch(KvGet::new("a"));
    let start = Instant::now();
    let error = watch.changed().await.unwrap_err();
    assert!(error.cause().is_permission_denied() && !error.is_fatal());
    assert_eq!(*next(&mut watch).await, None);
    // 5, 10, 20 and 40 s, each with up to half of it on top.
    assert!(
        start.elapsed() >= Duration::from_secs(75) && start.elapsed() <= Duration::from_secs(113)
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_answer_is_an_item_and_recovered_from() {
    let consul = TestConsul::new();
    consul.inject(&Fault::Body { text: "<html>".to_owned() }, 1);
    let mut watch = watcher(&consul).watch(CatalogServices::new());
    let error = watch.changed().await.unwrap_err();
    assert!(matches!(error.cause(), consul_watch::Error::Decode { .. }) && !error.is_fatal());
    assert!(next(&mut watch).await.contains_key("consul"));
}

/// A minute of errors makes a bounded number of requests and loses nothing.
#[tokio::test(start_paused = true)]
async fn an_outage_is_survived_without_a_busy_loop() {
    let consul = TestConsul::new();
    let mut watch = watcher(&consul).watch(KvGet::new("a"));
    next(&mut watch).await;
    let before = consul.requests();
    consul.inject_always(Some(Fault::status(500, "No cluster leader")));
    consul.restart();
    consul.kv_put("a", "changed meanwhile");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(consul.requests() - before < 25, "{} requests", consul.requests() - before);
    consul.inject_always(None);
    let ready = loop {
        if let Ok(snapshot) = timeout(LONG, watch.changed()).await.unwrap() {
            break snapshot;
        }
    };
    assert_eq!(
        ready.data.as_ref().as_ref().and_then(|pair| pair.text()),
        Some("changed meanwhile")
    );
}

/// A request that is lost without a word ends by the client's own limit.
#[tokio::test(start_paused = true)]
async fn a_half_open_connection_is_given_up_after_the_wait_and_its_slack() {
    let consul = TestConsul::new();
    consul.inject(&Fault::Hang, 1);
    let start = Instant::now();
    let mut watch = watcher(&consul).watch(KvGet::new("a"));
    let error = watch.changed().await.unwrap_err();
    assert!(matches!(error.cause(), consul_watch::Error::Timeout { .. }), "{error:?}");
    assert_eq!(start.elapsed(), Duration::from_secs(10), "the first request does not block");
    next(&mut watch).await;
    consul.wait_for_blocked(1).await;
    consul.inject_always(Some(Fault::Hang));
    consul.kv_put("a", "1");
    next(&mut watch).await;
    let start = Instant::now();
    let error = watch.changed().await.unwrap_err();
    assert!(matches!(error.cause(), consul_watch::Error::Timeout { .. }), "{error:?}");
    // 60 s, a sixteenth more, and 10 s; the rate limit may come before.
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(73_750) && took <= Duration::from_secs(74), "{took:?}");
}

/// Spec: CW25
#[tokio::test(start_paused = true)]
async fn churn_is_held_to_ten_requests_a_second_and_ends_in_the_newest() {
    let consul = TestConsul::new();
    let mut watch = watcher(&consul).watch(KvGet::new("a"));
    next(&mut watch).await;
    let before = consul.requests();
    let mut seen = 0;
    for value in 0..200 {
        consul.kv_put("a", value.to_string());
        tokio::time::sleep(Duration::from_millis(10)).await;
        while let Some(item) = watch.changed().now_or_never() {
            item.unwrap();
            seen += 1;
        }
    }
    let requests = consul.requests() - before;
    assert!(requests <= 24 && seen >= 15, "{requests} requests, {seen} items in 2 s");
    let last = loop {
        let data = next(&mut watch).await;
        let text = data.as_ref().as_ref().and_then(|pair| pair.text()).map(str::to_owned);
        if text.as_deref() == Some("199") {
            break text;
        }
    };
    assert_eq!(last.as_deref(), Some("199"));
}

/// Spec: CW28
#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_sees_only_the_newest_and_holds_nobody_up() {
    let consul = TestConsul::new();
    let watcher = watcher(&consul);
    let (mut fast, mut slow) = (watcher.watch(KvGet::new("a")), watcher.watch(KvGet::new("a")));
    next(&mut fast).await;
    for value in 0..50 {
        consul.kv_put("a", value.to_string());
        next(&mut fast).await;
    }
    let newest = slow.changed().await.unwrap();
    assert_eq!(newest.data.as_ref().as_ref().and_then(|pair| pair.text()), Some("49"));
    assert_eq!(newest.seq, 51, "the gap shows what was missed");
    assert!(slow.changed().now_or_never().is_none(), "nothing old is left");
}

#[tokio::test(start_paused = true)]
async fn a_late_subscriber_gets_the_current_snapshot_at_once_and_a_linger_keeps_the_read() {
    let consul = TestConsul::new();
    let watcher = Watcher::builder(consul.client()).linger(Duration::from_secs(30)).build();
    let mut early = watcher.watch(KvGet::new("a"));
    next(&mut early).await;
    let mut late = watcher.watch(KvGet::new("a"));
    assert!(late.changed().now_or_never().unwrap().is_ok());
    assert!(consul.requests() <= 2, "the first read and the blocked one");
    drop((early, late));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(watcher.active(), 1);
    let mut back = watcher.watch(KvGet::new("a"));
    assert!(back.changed().now_or_never().unwrap().is_ok(), "the read went on");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(watcher.active(), 1);
    drop(back);
    consul.wait_for_open(0).await;
    assert_eq!(watcher.active(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_linger_is_whole_also_for_one_who_came_back() {
    let consul = TestConsul::new();
    let watcher = Watcher::builder(consul.client()).linger(Duration::from_secs(30)).build();
    next(&mut watcher.watch(KvGet::new("a"))).await;
    // Dropped at 0 s, back at 10 s, dropped at 25 s.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let back = watcher.watch(KvGet::new("a"));
    tokio::time::sleep(Duration::from_secs(15)).await;
    drop(back);
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(watcher.active(), 1, "29 s of 30 have passed");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(watcher.active(), 0);
}

#[tokio::test(start_paused = true)]
async fn reads_of_other_types_or_keys_are_not_shared() {
    let consul = TestConsul::new();
    let watcher = watcher(&consul);
    let _one = watcher.watch(KvGet::new("a"));
    let _two = watcher.watch(KvGet::new("b"));
    let _three = watcher.watch(KvList::new("a"));
    assert_eq!(watcher.active(), 3);
}

/// Spec: CW12, CW26
#[tokio::test(start_paused = true)]
async fn waiting_for_a_change_can_be_given_up_without_losing_it() {
    let consul = TestConsul::new();
    let mut watch = watcher(&consul).watch(KvGet::new("a"));
    assert!(watch.ready().await.is_ok());
    assert!(watch.ready().await.is_ok(), "ready answers at once with what is there");
    for round in 0..3 {
        assert!(timeout(Duration::from_secs(1), watch.changed()).await.is_err());
        consul.kv_put("a", round.to_string());
        next(&mut watch).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_block_is_polled() {
    let consul = TestConsul::new();
    let mut watch = watcher(&consul).watch(Datacenters::new().every(Duration::from_secs(10)));
    assert_eq!(*next(&mut watch).await, ["dc1"]);
    let before = consul.requests();
    assert!(timeout(Duration::from_secs(100), watch.changed()).await.is_err());
    let polls = consul.requests() - before;
    assert!((9..=12).contains(&polls), "{polls}");
}

/// Spec: CP12
#[tokio::test(start_paused = true)]
async fn reaped_tombstones_lower_the_index_of_a_list_and_nothing_is_repeated() {
    let consul = TestConsul::new();
    consul.kv_put("foo/a", "1");
    consul.kv_put("foo/b", "2");
    consul.kv_delete("foo/b");
    let mut list = watcher(&consul).watch(KvList::new("foo/"));
    assert_eq!(next(&mut list).await.len(), 1);
    let before =
        consul.client().kv_list("foo/", &QueryOptions::default()).await.unwrap().meta.index;
    consul.reap_tombstones();
    let after = consul.client().kv_list("foo/", &QueryOptions::default()).await.unwrap().meta.index;
    assert!(after < before);
    assert!(is_quiet(&mut list).await);
    consul.kv_put("foo/c", "3");
    assert_eq!(next(&mut list).await.len(), 2);
}

/// Spec: CW38
#[tokio::test(start_paused = true)]
async fn a_catalog_watch_that_starts_with_nothing_new_waits_for_data() {
    let consul = TestConsul::new();
    let mut services = watcher(&consul).watch(CatalogServices::new());
    assert_eq!(next(&mut services).await.len(), 1);
    assert!(is_quiet(&mut services).await);
    // Two writes, as an agent makes them: the service, then its check.
    consul.set_instance("web", "a", "10.0.0.1", 80, HealthStatus::Critical);
    consul.set_instance("web", "a", "10.0.0.1", 80, HealthStatus::Passing);
    assert!(next(&mut services).await.contains_key("web"));
    assert!(is_quiet(&mut services).await);
}

#[tokio::test]
async fn scripted_answers_are_followed_with_the_right_indexes() {
    let server = wiremock::MockServer::start().await;
    let body = |name: &str| serde_json::json!({ name: [] });
    Script::new("/v1/catalog/services")
        .answer(5, body("a"))
        .answer(9, body("b"))
        .status(500, "No cluster leader")
        .answer(3, body("c"))
        .mount(&server)
        .await;
    let mut config = ClientConfig::default();
    config.address = server.uri();
    let mut watch = Watcher::new(Client::new(config).unwrap()).watch(CatalogServices::new());
    let mut seen = Vec::new();
    while seen.len() < 3 {
        if let Ok(snapshot) = watch.changed().await {
            seen.extend(snapshot.data.keys().cloned());
        }
    }
    assert_eq!(seen, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_seen_by_its_own_watcher() {
    let consul = TestConsul::new();
    let watcher = watcher(&consul);
    let mut watch = watcher.watch(KvGet::new("a"));
    next(&mut watch).await;
    watcher.client().kv_put("a", "1", &PutOptions::default()).await.unwrap();
    assert!(next(&mut watch).await.is_some());
}
