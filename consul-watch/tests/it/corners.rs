//! Corners in which a watch could show what is not so, stop, or fill the log.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Answer, Client, ClientConfig, Query, QueryMeta, Result, Transport, Watcher,
    query::{HealthService, KvGet, Position, QueryKey},
    testing::{Fault, Log, TestConsul, parts, real},
    transport::{ExchangeLimits, TransportError},
    types::HealthStatus,
    watch::Liveness,
};
use tokio::time::{Instant, sleep, timeout};

const LONG: Duration = Duration::from_hours(1);

fn client(transport: Arc<dyn Transport>) -> Client {
    Client::with_transport(ClientConfig::default(), transport).unwrap()
}

fn parameter<'a>(request: &'a http::Request<Bytes>, name: &str) -> Option<&'a str> {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').find_map(|part| match part.split_once('=') {
        Some((key, value)) => (key == name).then_some(value),
        None => (part == name).then_some(""),
    })
}

/// Keeps signals back: while it is on, a broad query that blocks gets its last answer again.
#[derive(Debug)]
struct Deaf {
    to: Arc<dyn Transport>,
    on: AtomicBool,
    answers: Mutex<HashMap<String, http::Response<Bytes>>>,
}

impl Deaf {
    fn new(to: Arc<dyn Transport>) -> Arc<Self> {
        Arc::new(Self { to, on: AtomicBool::new(false), answers: Mutex::default() })
    }
}

/// Returns `true` for what tells a covered watch that something changed.
fn is_broad(request: &http::Request<Bytes>) -> bool {
    let path = request.uri().path();
    parameter(request, "keys").is_some()
        || path.starts_with("/v1/catalog/")
        || path.starts_with("/v1/internal/ui/node")
        || path == "/v1/health/state/any"
}

#[async_trait]
impl Transport for Deaf {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        if !is_broad(&request) {
            return self.to.exchange(request, limits).await;
        }
        let path = request.uri().path().to_owned();
        let blocks = parameter(&request, "index").is_some();
        let wait = parameter(&request, "wait").and_then(|text| text.strip_suffix("ms"));
        let wait = wait.and_then(|text| text.parse().ok()).map(Duration::from_millis);
        let answer = self.to.exchange(request, limits);
        let started = Instant::now();
        let answer = answer.await?;
        if self.on.load(Ordering::SeqCst) && blocks {
            let last = self.answers.lock().unwrap().get(&path).cloned();
            if let Some(last) = last {
                sleep(wait.unwrap_or_default().saturating_sub(started.elapsed())).await;
                return Ok(last);
            }
        }
        self.answers.lock().unwrap().insert(path, answer.clone());
        Ok(answer)
    }
}

/// More watches than connections, of keys and of services.
fn crowd(watcher: &Watcher) -> Vec<consul_watch::Watch<Option<consul_watch::types::KvPair>>> {
    (0..60).map(|number| watcher.watch(KvGet::new(format!("crowd/{number}")))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_lost_signal_of_a_key_is_found_within_ten_minutes() {
    let consul = TestConsul::new();
    let deaf = Deaf::new(consul.transport());
    let watcher = Watcher::builder(client(Arc::clone(&deaf) as _)).connections(12).build();
    let mut all = crowd(&watcher);
    for watch in &mut all {
        timeout(LONG, watch.changed()).await.unwrap().unwrap();
    }
    assert!(watcher.load().covered > 40, "{:?}", watcher.load());
    // The broad query must have answered once while it blocks, to have a last answer.
    sleep(Duration::from_mins(2)).await;
    deaf.on.store(true, Ordering::SeqCst);
    let watch = all.last_mut().unwrap();
    consul.kv_put("crowd/59", "new");
    let lost = Instant::now();
    let item = timeout(LONG, watch.changed()).await.unwrap().unwrap();
    assert!(item.data.is_some());
    let took = lost.elapsed();
    assert!(took <= Duration::from_mins(10), "shown after {took:?}");
    // It was no signal that was on its way.
    sleep(Duration::from_mins(2)).await;
    assert_eq!(watch.state().repairs, 1);
    assert!(all[..59].iter().all(|watch| watch.state().repairs == 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_signal_of_a_service_is_found_within_ten_minutes() {
    let log = Log::start();
    let consul = TestConsul::new();
    let deaf = Deaf::new(consul.transport());
    let watcher = Watcher::builder(client(Arc::clone(&deaf) as _)).connections(12).build();
    let watch = |number: u32| watcher.watch(HealthService::new(format!("s{number}")));
    let mut all: Vec<_> = (0..60).map(watch).collect();
    for watch in &mut all {
        timeout(LONG, watch.changed()).await.unwrap().unwrap();
    }
    sleep(Duration::from_mins(2)).await;
    deaf.on.store(true, Ordering::SeqCst);
    consul.set_instance("s59", "a", "10.0.0.1", 80, HealthStatus::Passing);
    let lost = Instant::now();
    let item = timeout(LONG, all[59].changed()).await.unwrap().unwrap();
    assert_eq!(item.data.len(), 1);
    assert!(lost.elapsed() <= Duration::from_mins(10), "shown after {:?}", lost.elapsed());
    sleep(Duration::from_mins(2)).await;
    assert_eq!(all[59].state().repairs, 1);
    let lines = log.with("had missed a change");
    let named = |line: &String| {
        line.contains("service.name=\"s59\"")
            && line.contains("consul.operation=\"health.service\"")
    };
    assert!(lines.len() == 1 && lines.iter().all(named), "{lines:#?}");
}

/// A query of a user's own, that panics when it is told to.
#[derive(Debug, Clone)]
struct Careless {
    fetches: Arc<AtomicU64>,
    panics: Arc<AtomicU64>,
    in_same: bool,
}

impl Careless {
    fn panic_if_told(&self) {
        let left = self.panics.load(Ordering::SeqCst);
        if left > 0 {
            self.panics.store(left - 1, Ordering::SeqCst);
            panic!("no such luck");
        }
    }
}

impl Query for Careless {
    type Value = u64;

    fn key(&self) -> QueryKey {
        QueryKey::new("careless", &())
    }

    fn same(&self, old: &u64, new: &u64) -> bool {
        if self.in_same {
            self.panic_if_told();
        }
        old == new
    }

    async fn fetch(&self, _: &Client, at: &Position, wait: Duration) -> Result<Answer<u64>> {
        if *at != Position::Start {
            sleep(wait).await;
        }
        if !self.in_same {
            self.panic_if_told();
        }
        let number = self.fetches.fetch_add(1, Ordering::SeqCst) + 1;
        let mut meta = QueryMeta::default();
        meta.index = Some(number);
        Ok(Answer::new(number, meta))
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_that_panics_is_reported_and_tried_again() {
    for in_same in [false, true] {
        let query = Careless { fetches: Arc::default(), panics: Arc::default(), in_same };
        let watcher = Watcher::new(TestConsul::new().client());
        let mut watch = watcher.watch(query.clone());
        assert_eq!(*timeout(LONG, watch.changed()).await.unwrap().unwrap().data, 1);
        query.panics.store(2, Ordering::SeqCst);
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let error = timeout(LONG, watch.changed()).await.unwrap().unwrap_err();
            assert!(!error.is_fatal(), "{error:?}");
            assert_eq!(watch.state().liveness, Liveness::Degraded);
            seen.push(consul_watch::error_chain(error.cause()));
        }
        assert!(seen.iter().all(|text| text.contains("no such luck")), "{seen:?}");
        let next = timeout(LONG, watch.changed()).await.unwrap().unwrap();
        assert!(*next.data > 1, "{next:?}");
        assert_eq!(watcher.active(), 1, "the same read goes on");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_consul_is_a_few_lines_however_many_watches_there_are() {
    let log = Log::start();
    let consul = TestConsul::new();
    let watcher = Watcher::builder(consul.client()).connections(200).build();
    let mut all: Vec<_> =
        (0..150).map(|number| watcher.watch(KvGet::new(format!("k{number}")))).collect();
    for watch in &mut all {
        timeout(LONG, watch.ready()).await.unwrap().unwrap();
    }
    consul.wait_for_blocked(150).await;
    consul.inject_always(Some(Fault::status(500, "No cluster leader")));
    consul.restart();
    for watch in &mut all {
        timeout(LONG, watch.changed()).await.unwrap().unwrap_err();
    }
    sleep(Duration::from_secs(2)).await;
    consul.inject_always(None);
    sleep(Duration::from_mins(3)).await;
    assert!(all.iter().all(|watch| watch.state().liveness == Liveness::Live));
    let text = log.text();
    let shown = |level: &str| {
        let lines = text.lines().filter(|line| line.contains(level) && line.contains("watch"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let failed = shown("WARN");
    assert!(!failed.is_empty() && failed.len() <= 3, "{} lines: {failed:#?}", failed.len());
    assert!(failed.iter().any(|line| line.contains("watches=150")), "{failed:#?}");
    // They come back one by one, as their delays end: a line for each second at most.
    let works: Vec<String> =
        shown("INFO").into_iter().filter(|line| line.contains("again")).collect();
    assert!(!works.is_empty() && works.len() <= 62, "{} lines: {works:#?}", works.len());
    assert!(failed.iter().chain(&works).all(|line| line.contains("watch.key=kv.get")));
}

/// A server with two backends, as Consul 1.10 and later have them: what does not block is
/// answered by the one, what blocks by the other, whose index for a service that does not exist
/// is lower.
#[derive(Debug)]
struct Streaming {
    to: Arc<dyn Transport>,
    /// The index at which the streaming backend began to follow the missing service.
    begun: Mutex<Option<u64>>,
    requests: AtomicU64,
}

#[async_trait]
impl Transport for Streaming {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let asked = parameter(&request, "index").map(str::to_owned);
        let blocks = asked.is_some();
        let wait = parameter(&request, "wait").and_then(|text| text.strip_suffix("ms"));
        let wait =
            wait.and_then(|text| text.parse().ok()).map_or(Duration::ZERO, Duration::from_millis);
        let started = Instant::now();
        let mut at = asked.clone().unwrap_or_default();
        let mut answer = loop {
            let mut again = request.clone();
            // Other services do not wake it.
            let uri = request.uri().to_string();
            let from = format!("index={}", asked.as_deref().unwrap_or_default());
            *again.uri_mut() = uri.replace(&from, &format!("index={at}")).parse().unwrap();
            let answer = self.to.exchange(again, limits).await?;
            if !blocks || answer.body().as_ref() != b"[]" || started.elapsed() >= wait {
                break answer;
            }
            let now = answer.headers()["x-consul-index"].to_str().unwrap().to_owned();
            if now.parse::<u64>().unwrap() < at.parse().unwrap() {
                break answer;
            }
            at = now;
        };
        let backend = if blocks { "streaming" } else { "blocking-query" };
        answer.headers_mut().insert("x-consul-query-backend", backend.parse().unwrap());
        if blocks && answer.body().as_ref() == b"[]" {
            let index: u64 = answer.headers()["x-consul-index"].to_str().unwrap().parse().unwrap();
            let begun = *self.begun.lock().unwrap().get_or_insert(index);
            let lower = begun.min(index).saturating_sub(1).max(1);
            answer.headers_mut().insert("x-consul-index", lower.into());
        }
        Ok(answer)
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_exist_is_no_new_history_each_minute() {
    let log = Log::start();
    let consul = TestConsul::new();
    for number in 0..20 {
        consul.set_instance("other", &number.to_string(), "10.0.0.1", 80, HealthStatus::Passing);
    }
    let streaming = Arc::new(Streaming {
        to: consul.transport(),
        begun: Mutex::default(),
        requests: AtomicU64::new(0),
    });
    let watcher = Watcher::new(client(Arc::clone(&streaming) as _));
    let mut watch = watcher.watch(HealthService::new("missing"));
    let first = timeout(LONG, watch.changed()).await.unwrap().unwrap();
    assert!(first.data.is_empty());
    sleep(Duration::from_mins(5)).await;
    let before = streaming.requests.load(Ordering::SeqCst);
    for number in 0..30 {
        consul.set_instance("more", &number.to_string(), "10.0.0.1", 80, HealthStatus::Passing);
        sleep(Duration::from_mins(1)).await;
    }
    let requests = streaming.requests.load(Ordering::SeqCst) - before;
    assert!(requests <= 31, "{requests} requests in half an hour");
    assert_eq!(log.with("history was replaced"), Vec::<String>::new());
    consul.set_instance("missing", "a", "10.0.0.1", 80, HealthStatus::Passing);
    let next = timeout(LONG, watch.changed()).await.unwrap().unwrap();
    assert_eq!((next.data.len(), next.history), (1, 1));
    // A restored backup is seen all the same.
    consul.reset_index();
    consul.remove_instance("a");
    let next = timeout(LONG, watch.changed()).await.unwrap().unwrap();
    assert_eq!((next.data.len(), next.history), (0, 2));
}

/// Spec: the row "Lower index without a new history" of the client rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_does_not_exist_keeps_its_history_on_real_consuls() {
    const SUITE: parts::Suite = parts::Suite("consul-watch with a real Consul");
    let case = "a_service_that_does_not_exist_keeps_its_history_on_real_consuls";
    for part in SUITE.parts("consul", case) {
        let consul = real::Consul::start(&part.path).await.expect("a real Consul");
        let (writer, wait) = (consul.client(), Duration::from_millis(500));
        let register = async |name: &str, id: &str| {
            let service = consul_watch::types::Service::new(name, id);
            let registration = consul_watch::types::CatalogRegistration::new("n", "10.0.0.1")
                .with_service(service);
            writer.catalog_register(&registration).await.unwrap();
        };
        register("other", "o").await;
        // The agent's streaming backend follows the service from here on; whoever comes later
        // gets its index, after a first read at the catalog's.
        let earlier = Watcher::builder(consul.client()).wait(wait).build();
        let mut followed = earlier.watch(HealthService::new("missing"));
        timeout(LONG, followed.changed()).await.unwrap().unwrap();
        sleep(wait * 2).await;
        for number in 0..8 {
            register("other", &format!("e{number}")).await;
        }
        let watcher = Watcher::builder(consul.client()).wait(wait).build();
        let mut watch = watcher.watch(HealthService::new("missing"));
        assert!(timeout(LONG, watch.changed()).await.unwrap().unwrap().data.is_empty());
        // Until it blocks in each backend.
        sleep(wait * 4).await;
        let before = watch.state().requests;
        let begun = Instant::now();
        for number in 0..8 {
            register("other", &format!("o{number}")).await;
            sleep(wait).await;
        }
        let held = begun.elapsed().as_secs_f64() / wait.as_secs_f64();
        let requests = f64::from(u32::try_from(watch.state().requests - before).unwrap());
        // One for each wait, and one for each registration where old servers wake for it.
        assert!(requests <= held + 10.0, "{requests} requests in {held} waits, {part:?}");
        assert!(part.major_minor() < (1, 10) || requests <= held + 2.0, "{requests}, {part:?}");
        register("missing", "m").await;
        let next = timeout(LONG, watch.changed()).await.unwrap().unwrap();
        assert_eq!((next.data.len(), next.history), (1, 1), "{part:?}");
        // A backup that is older is seen, whichever backend answers.
        let read = consul_watch::QueryOptions::default();
        let backup = writer.snapshot_save(&read).await.unwrap();
        for number in 0..8 {
            register("missing", &format!("m{number}")).await;
        }
        while watch.latest().unwrap().data.len() < 9 {
            timeout(LONG, watch.changed()).await.unwrap().unwrap();
        }
        let write = consul_watch::WriteOptions::default();
        writer.snapshot_restore(backup, &write).await.unwrap();
        let restored = async {
            loop {
                if let Ok(snapshot) = watch.changed().await
                    && snapshot.data.len() == 1
                {
                    return snapshot;
                }
            }
        };
        let restored = timeout(Duration::from_mins(1), restored).await.expect("seen in time");
        assert!(restored.history > 1, "{restored:?}, {part:?}");
        earlier.shutdown().await;
        watcher.shutdown().await;
    }
}
