//! More watches than connections: whatever changes, each shows what a read
//! of its own would show, and says each thing once.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Backoff, Client, ClientConfig, Transport, Watch, Watcher,
    client::{DeleteOptions, PutOptions},
    query::{
        CatalogNodes, CatalogService, CatalogServices, HealthService, HealthState, KvGet, KvKeys,
        KvList,
    },
    testing::{Behaviour, Fault, Log, TestConsul, parts::Suite, real},
    transport::{ExchangeLimits, SocketTransport, TransportError},
    types::{
        CatalogDeregistration, CatalogRegistration, HealthCheck, HealthStatus, Service,
        ServiceEntry,
    },
};
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use crate::{
    connections::connections,
    follower::{Follower, follow},
};

const SUITE: Suite = Suite("consul-watch with more watches than connections");
const BUDGET: usize = 12;

/// How large a run is.
#[derive(Debug, Clone, Copy)]
struct Size {
    services: u32,
    nodes: u32,
    changes: u32,
}

fn follow_all(watcher: &Watcher, size: Size) -> Vec<Box<dyn Follower>> {
    let mut all: Vec<Box<dyn Follower>> = vec![
        follow(watcher, CatalogServices::new()),
        follow(watcher, CatalogNodes::new()),
        follow(watcher, HealthState::any()),
        follow(watcher, HealthState::of(HealthStatus::Critical)),
        follow(watcher, KvList::new("a/")),
        follow(watcher, KvKeys::new("b")),
        follow(watcher, KvList::new("")),
    ];
    all.extend(["a/1", "a/2", "b/1", "c", "d/1"].map(|key| follow(watcher, KvGet::new(key))));
    for number in 0..size.services {
        let name = format!("s{number}");
        all.push(match number % 8 {
            0 => follow(watcher, HealthService::new(name).passing()),
            1 => follow(watcher, CatalogService::new(name)),
            2 | 3 if number < 40 => follow(watcher, HealthService::new(name).connect()),
            _ => follow(watcher, HealthService::new(name)),
        });
    }
    all
}

/// Makes one random change.
async fn change(client: &Client, random: &mut fastrand::Rng, size: Size) {
    let (node, number) = (random.u32(..size.nodes), random.u32(..size.services));
    let (node, name) = (format!("n{node}"), format!("s{number}"));
    let id = format!("{name}-{}", random.u32(..2));
    let status = [HealthStatus::Passing, HealthStatus::Warning, HealthStatus::Critical];
    let status = status[random.usize(..3)].clone();
    let entry = || CatalogRegistration::new(&node, "10.0.0.1");
    let mut service = Service::new(&name, &id);
    let key = ["a/1", "a/2", "a/3", "b/1", "b/2", "c", "d/1", "e"][random.usize(..8)];
    let registration = match random.u32(..12) {
        0 => entry().with_service(service),
        1 => {
            service.tags = vec![format!("t{}", random.u32(..3))];
            entry().with_service(service)
        }
        2 => {
            // What the list of services does not show.
            service.port = random.i64(0..3);
            entry().with_service(service)
        }
        3 | 4 => {
            let check = HealthCheck::of_service(&id, format!("c-{id}"), status);
            entry().with_service(service).with_check(check)
        }
        5 => entry().with_check(HealthCheck::of_node("node", status)),
        6 => CatalogRegistration::new(&node, format!("10.0.0.{}", random.u32(1..5))),
        7 | 8 => {
            let gone = match random.u32(..10) {
                0 => CatalogDeregistration::node(&node),
                1..=3 => CatalogDeregistration::check(&node, format!("c-{id}")),
                _ => CatalogDeregistration::service(&node, &id),
            };
            return client.catalog_deregister(&gone).await.unwrap_or_default();
        }
        9 => {
            drop(client.kv_delete(key, &DeleteOptions::default()).await);
            return;
        }
        _ => {
            let value = random.u32(..4).to_string();
            drop(client.kv_put(key, value, &PutOptions::default()).await);
            return;
        }
    };
    // Faults may hit it; then it was no change.
    drop(client.catalog_register(&registration).await);
}

/// Churns until all changes are made, and lets all watches settle now and
/// then. `open` says how many connections there are.
async fn churn(
    [writer, reader]: [&Client; 2],
    seed: u64,
    size: Size,
    budget: usize,
    limit: Duration,
    open: impl Fn() -> usize,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..size.services {
        change(writer, &mut random, size).await;
    }
    let watcher = Watcher::builder(reader.clone()).connections(budget).seed(seed).build();
    let mut all = follow_all(&watcher, size);
    for made in 1..=size.changes {
        change(writer, &mut random, size).await;
        if random.u32(..4) == 0 {
            // Lets some time pass, so that changes meet reads under way.
            sleep(Duration::from_millis(random.u64(..300))).await;
        }
        let open = open();
        assert!(open <= budget, "{open} connections");
        if made % (size.changes / 4) == 0 || made == size.changes {
            for follower in &mut all {
                follower.settle(writer, limit).await;
            }
            let load = watcher.load();
            assert_eq!(load.own + load.covered + load.round_robin, all.len(), "{load:?}");
            assert!(load.covered > 0 && load.broad > 2, "{load:?}");
            assert!(budget != BUDGET || load.round_robin > 0, "{load:?}");
            // A query for each node, the list of them, and those of prefixes.
            assert!(budget == BUDGET || load.broad > 10, "nodes are not followed: {load:?}");
        }
    }
    watcher.shutdown().await;
    for follower in all {
        follower.finish().await;
    }
}

const FEW_NODES: Size = Size { services: 60, nodes: 4, changes: 200 };
const MANY_NODES: Size = Size { services: 30, nodes: 60, changes: 200 };
const PAUSED_LIMIT: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn past_the_budget_each_watch_shows_what_a_read_shows() {
    for seed in 1..=6 {
        let behaviour = if seed % 2 == 0 { Behaviour::V1_8 } else { Behaviour::default() };
        for size in [FEW_NODES, MANY_NODES] {
            for hides_nodes in [false, true] {
                let consul = TestConsul::builder().seed(seed).behaviour(behaviour).build();
                let (client, way) = (consul.client(), Noting::new(&consul));
                way.hides_nodes.store(hides_nodes, Ordering::SeqCst);
                let ways = [&client, &way.client()];
                churn(ways, seed, size, BUDGET, PAUSED_LIMIT, || consul.open()).await;
                let all = "/v1/internal/ui/nodes";
                assert_eq!(
                    way.has_blocked_on(all),
                    size.nodes > FEW_NODES.nodes && !hides_nodes,
                    "{size:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failures_and_index_resets_past_the_budget_lose_nothing() {
    for seed in 1..=6 {
        let consul = TestConsul::builder().seed(seed).build();
        let disturbed = consul.clone();
        let disturber = tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            loop {
                sleep(Duration::from_millis(random.u64(..4000))).await;
                match random.u32(..5) {
                    0 => disturbed.reset_index(),
                    1 => disturbed.restart(),
                    2 => disturbed.inject(&Fault::Drop, random.usize(..20)),
                    3 => disturbed.inject(&Fault::Delay(Duration::from_secs(1)), random.usize(..9)),
                    _ => disturbed
                        .inject(&Fault::status(500, "No cluster leader"), random.usize(..20)),
                }
            }
        });
        let client = consul.client();
        let mut random = fastrand::Rng::with_seed(seed);
        let watcher = Watcher::builder(client.clone()).connections(BUDGET).seed(seed).build();
        let mut all = follow_all(&watcher, FEW_NODES);
        for _ in 0..FEW_NODES.changes {
            change(&client, &mut random, FEW_NODES).await;
            sleep(Duration::from_millis(random.u64(..200))).await;
        }
        disturber.abort();
        assert!(disturber.await.is_err());
        consul.inject_always(None);
        for follower in &mut all {
            follower.settle(&client, PAUSED_LIMIT).await;
        }
        watcher.shutdown().await;
        for follower in all {
            follower.finish().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_rest_covered_watches_ask_for_next_to_nothing() {
    let consul = TestConsul::new();
    let watcher = Watcher::builder(consul.client()).connections(BUDGET).build();
    let client = consul.client();
    let mut all: Vec<Box<dyn Follower>> =
        (0..200).map(|number| follow(&watcher, HealthService::new(format!("s{number}")))).collect();
    for follower in &mut all {
        follower.settle(&client, PAUSED_LIMIT).await;
    }
    // Those that find room when the nodes have been counted get connections of their own.
    let load = timeout(PAUSED_LIMIT, async {
        while consul.open() != watcher.load().own + watcher.load().broad {
            sleep(Duration::from_millis(10)).await;
        }
        watcher.load()
    });
    let load = load.await.unwrap();
    let before = consul.requests();
    sleep(Duration::from_mins(10)).await;
    let requests = consul.requests() - before;
    // Ten minutes, and each request is held for one of them. In this time each covered watch is
    // read once or twice, in case that a signal was lost.
    let held = u64::try_from(load.own + load.broad).unwrap();
    let periodic = 2 * u64::try_from(load.covered).unwrap();
    assert!(requests <= 11 * held + periodic, "{requests} requests by {load:?}");
}

#[tokio::test(start_paused = true)]
async fn watches_get_their_own_connections_back_when_there_is_room() {
    let consul = TestConsul::new();
    let watcher = Watcher::builder(consul.client()).connections(BUDGET).build();
    let watch = |number: u32| watcher.watch(HealthService::new(format!("s{number}")));
    let mut all: Vec<_> = (0..100).map(watch).collect();
    for watch in &mut all {
        watch.ready().await.unwrap();
    }
    assert!(watcher.load().covered > 90 && watcher.load().broad == 2, "{:?}", watcher.load());
    all.drain(1..);
    let load = timeout(PAUSED_LIMIT, async {
        while watcher.active() > 1 || watcher.load().own == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        watcher.load()
    });
    let load = load.await.unwrap();
    assert_eq!((load.own, load.covered, load.broad), (1, 0, 0));
    consul.set_instance("s0", "a", "10.0.0.1", 80, HealthStatus::Passing);
    let snapshot = timeout(PAUSED_LIMIT, all[0].changed()).await.unwrap().unwrap();
    assert_eq!(snapshot.data.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_consul_shows_at_covered_watches_and_passes() {
    let consul = TestConsul::new();
    let watcher = Watcher::builder(consul.client()).connections(BUDGET).build();
    let watch = |number: u32| watcher.watch(HealthService::new(format!("s{number}")));
    let mut all: Vec<_> = (0..100).map(watch).collect();
    for watch in &mut all {
        watch.ready().await.unwrap();
    }
    consul.inject_always(Some(Fault::status(500, "No cluster leader")));
    consul.restart();
    for watch in &mut all {
        let error = timeout(PAUSED_LIMIT, watch.changed()).await.unwrap().unwrap_err();
        assert!(!error.is_fatal());
    }
    consul.inject_always(None);
    consul.set_instance("s99", "a", "10.0.0.1", 80, HealthStatus::Passing);
    while all[99].latest().is_none_or(|snapshot| snapshot.data.is_empty()) {
        drop(timeout(PAUSED_LIMIT, all[99].changed()).await.unwrap());
    }
}

/// A way to the double that notes which paths were asked for with an index.
#[derive(Debug)]
struct Noting {
    to: Arc<dyn Transport>,
    blocked: Mutex<BTreeSet<String>>,
    /// Answers 404 for nodes with what is on them, as a proxy does that passes documented paths.
    hides_nodes: AtomicBool,
}

impl Noting {
    fn new(consul: &TestConsul) -> Arc<Self> {
        Self::on(consul.transport())
    }

    fn on(to: Arc<dyn Transport>) -> Arc<Self> {
        Arc::new(Self { to, blocked: Mutex::default(), hides_nodes: AtomicBool::new(false) })
    }

    fn client(self: &Arc<Self>) -> Client {
        let transport = Arc::clone(self) as Arc<dyn Transport>;
        Client::with_transport(ClientConfig::default(), transport).unwrap()
    }

    fn has_blocked_on(&self, path: &str) -> bool {
        self.blocked.lock().unwrap().contains(path)
    }

    /// Whether a request for a service has blocked: its watch has, or had, a connection of its own.
    fn has_blocked(&self, service: &str) -> bool {
        self.has_blocked_on(&format!("/v1/health/service/{service}"))
    }
}

#[async_trait]
impl Transport for Noting {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        if request.uri().query().is_some_and(|query| query.contains("index=")) {
            self.blocked.lock().unwrap().insert(request.uri().path().to_owned());
        }
        if self.hides_nodes.load(Ordering::SeqCst)
            && request.uri().path().starts_with("/v1/internal/ui/node")
        {
            let mut answer = http::Response::new(Bytes::new());
            *answer.status_mut() = http::StatusCode::NOT_FOUND;
            return Ok(answer);
        }
        self.to.exchange(request, limits).await
    }
}

/// Watches of so many services with an instance each on two nodes, all of them ready and settled.
async fn settled(
    consul: &TestConsul,
    watcher: &Watcher,
    services: u32,
) -> Vec<Watch<Vec<ServiceEntry>>> {
    let client = consul.client();
    for number in 0..services {
        let (name, node) = (format!("s{number}"), format!("n{}", number % 2));
        let service = Service::new(&name, &name);
        let registration = CatalogRegistration::new(node, "10.0.0.1").with_service(service);
        client.catalog_register(&registration).await.unwrap();
    }
    let watch = |number| watcher.watch(HealthService::new(format!("s{number}")));
    let mut all: Vec<_> = (0..services).map(watch).collect();
    for watch in &mut all {
        timeout(PAUSED_LIMIT, watch.changed()).await.unwrap().unwrap();
    }
    // What is read twice because of the start has been.
    sleep(Duration::from_mins(5)).await;
    all
}

async fn set_port(client: &Client, number: u32, port: i64) {
    let mut service = Service::new(format!("s{number}"), format!("s{number}"));
    service.port = port;
    let node = format!("n{}", number % 2);
    let registration = CatalogRegistration::new(node, "10.0.0.1").with_service(service);
    client.catalog_register(&registration).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_changes_often_gets_a_connection_of_its_own() {
    let consul = TestConsul::new();
    let way = Noting::new(&consul);
    let watcher = Watcher::builder(way.client()).connections(BUDGET).seed(1).build();
    let mut all = settled(&consul, &watcher, 40).await;
    let busy = (0..40).rev().find(|number| !way.has_blocked(&format!("s{number}"))).unwrap();
    let name = format!("s{busy}");
    let before = watcher.load();
    assert!(before.own > 0 && before.covered > 0, "{before:?}");
    let watch = &mut all[usize::try_from(busy).unwrap()];
    let mut port = 0;
    let handed = timeout(Duration::from_mins(3), async {
        while !way.has_blocked(&name) {
            port += 1;
            set_port(&consul.client(), busy, port).await;
            watch.changed().await.unwrap();
            sleep(Duration::from_secs(10)).await;
        }
    });
    handed.await.expect("a connection within the time of some requests");
    assert_eq!(watcher.load(), before, "another one gave its own for it");
    // Nothing was lost where it changed places.
    for port in port + 1..port + 10 {
        set_port(&consul.client(), busy, port).await;
        let snapshot = watch.changed().await.unwrap();
        assert_eq!(snapshot.data[0].service.port, port);
    }
}

/// Half a round trip of a distant Consul.
const WAY: Duration = Duration::from_millis(50);

/// A way to the double on which each request and each answer takes [`WAY`].
#[derive(Debug)]
struct Distant(Arc<dyn Transport>);

#[async_trait]
impl Transport for Distant {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        sleep(WAY).await;
        let answer = self.0.exchange(request, limits).await;
        sleep(WAY).await;
        answer
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_change_reaches_a_covered_watch_within_two_round_trips() {
    // With room for a broad query of each node, and with more nodes than that, with the default
    // budget and a small one.
    for (connections, nodes) in [(64, 2), (160, 300), (64, 60)] {
        let consul = TestConsul::new();
        let noting = Noting::new(&consul);
        let way = Arc::new(Distant(Arc::clone(&noting) as Arc<dyn Transport>));
        let client = Client::with_transport(ClientConfig::default(), way).unwrap();
        let watcher = Watcher::builder(client).connections(connections).seed(1).build();
        for number in 0..nodes {
            let node = CatalogRegistration::new(format!("n{number}"), "10.0.0.1");
            consul.client().catalog_register(&node).await.unwrap();
        }
        let followed = if nodes == 2 { "/v1/internal/ui/node/n1" } else { "/v1/internal/ui/nodes" };
        lone_changes(&consul, &watcher, &noting, followed).await;
    }
}

async fn lone_changes(consul: &TestConsul, watcher: &Watcher, noting: &Noting, followed: &str) {
    let services = 300;
    let mut all = settled(consul, watcher, services).await;
    let load = watcher.load();
    assert!(load.covered > 100, "{load:?}");
    assert!(noting.has_blocked_on(followed), "not on {followed}");
    let mut random = fastrand::Rng::with_seed(1);
    for port in 1..=100 {
        let number = random.u32(..services);
        let at = tokio::time::Instant::now();
        set_port(&consul.client(), number, port).await;
        let watch = &mut all[usize::try_from(number).unwrap()];
        let snapshot = timeout(PAUSED_LIMIT, watch.changed()).await.unwrap().unwrap();
        assert_eq!(snapshot.data[0].service.port, port);
        assert!(at.elapsed() <= 4 * WAY, "s{number} took {:?}", at.elapsed());
        // Alone: the requests that waited for the last change wait for the next one.
        sleep(Duration::from_millis(random.u64(500..10_000))).await;
    }
}

/// The answer about a node that is gone has no index, as that of a proxy that does not know the
/// path. Only the latter says that nodes cannot be followed.
#[tokio::test(start_paused = true)]
async fn nodes_that_come_and_go_leave_each_node_followed() {
    let consul = TestConsul::new();
    let noting = Noting::new(&consul);
    let watcher = Watcher::builder(noting.client()).connections(64).seed(1).build();
    let mut all = settled(&consul, &watcher, 200).await;
    assert!(noting.has_blocked_on("/v1/internal/ui/node/n1"), "each node is followed");
    let client = consul.client();
    for round in 0..20 {
        let name = format!("m{round}");
        let service = Service::new("s199", &name);
        let entry = CatalogRegistration::new(&name, "10.0.0.9").with_service(service);
        client.catalog_register(&entry).await.unwrap();
        let snapshot = timeout(PAUSED_LIMIT, all[199].changed()).await.unwrap().unwrap();
        assert_eq!(snapshot.data.len(), 2);
        sleep(Duration::from_secs(5)).await;
        client.catalog_deregister(&CatalogDeregistration::node(&name)).await.unwrap();
        let snapshot = timeout(PAUSED_LIMIT, all[199].changed()).await.unwrap().unwrap();
        assert_eq!(snapshot.data.len(), 1);
        sleep(Duration::from_secs(5)).await;
        assert!(noting.has_blocked_on(&format!("/v1/internal/ui/node/{name}")), "{name}");
        assert!(!noting.has_blocked_on("/v1/health/state/any"), "everything is listed");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_can_be_followed_no_more_are_listed() {
    let consul = TestConsul::new();
    let noting = Noting::new(&consul);
    let watcher = Watcher::builder(noting.client()).connections(64).seed(1).build();
    let mut all = settled(&consul, &watcher, 200).await;
    assert!(!noting.has_blocked_on("/v1/health/state/any"), "everything is listed");
    noting.hides_nodes.store(true, Ordering::SeqCst);
    for port in 1..=3 {
        set_port(&consul.client(), 199, port).await;
        // Long before the read that is made in case that a signal was lost.
        let snapshot = timeout(Duration::from_secs(30), all[199].changed()).await;
        assert_eq!(snapshot.expect("a signal").unwrap().data[0].service.port, port);
        sleep(Duration::from_secs(1)).await;
    }
    assert!(noting.has_blocked_on("/v1/health/state/any"), "nothing tells of changes");
}

/// Consul before 1.9 ends connections over its limit without a word, as a server does that is
/// killed.
#[tokio::test]
async fn a_consul_that_is_killed_leaves_the_budget_whole() {
    for part in SUITE.parts("consul", "a_consul_that_is_killed_leaves_the_budget_whole") {
        // Of this thread, on which all of it runs.
        let log = Log::start();
        let mut consul = real::Consul::start(&part.path).await.expect("a real Consul");
        let writer = consul.client();
        for number in 0..100 {
            set_port(&writer, number, 1).await;
        }
        let watcher = Watcher::builder(consul.client())
            .connections(48)
            .backoff(Backoff::default().with_cap(Duration::from_secs(1)))
            .seed(1)
            .build();
        let watch = |number| watcher.watch(HealthService::new(format!("s{number}")));
        let mut all: Vec<_> = (0..100).map(watch).collect();
        for port in 2..=6 {
            consul.kill();
            consul.restart().await.expect("it starts again");
            for number in [0, 99] {
                set_port(&writer, number, port).await;
                let watch = &mut all[usize::try_from(number).unwrap()];
                let shown = timeout(Duration::from_mins(1), async {
                    while watch.latest().is_none_or(|now| now.data[0].service.port != port) {
                        drop(watch.changed().await);
                    }
                });
                assert!(shown.await.is_ok(), "s{number} after kill {port}: {:?}", watch.latest());
            }
        }
        assert_eq!(log.with("refuses connections"), Vec::<String>::new(), "{part:?}");
        watcher.shutdown().await;
    }
}

/// Consul 1.8 counts a connection that is closed within a request until the time of the request
/// is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_made_at_once_do_not_wait_for_connections_that_they_gave_back() {
    let name = "many_watches_made_at_once_do_not_wait_for_connections_that_they_gave_back";
    for part in SUITE.parts("consul", name) {
        let consul = real::Consul::start(&part.path).await.expect("a real Consul");
        for node in 0..100 {
            let node = CatalogRegistration::new(format!("n{node}"), "10.0.0.1");
            consul.client().catalog_register(&node).await.unwrap();
        }
        let watcher = Watcher::new(consul.client());
        let watch = |number| watcher.watch(HealthService::new(format!("s{number}")));
        // These have time to block, each on a connection of its own.
        let mut all: Vec<_> = (0..145).map(watch).collect();
        for watch in &mut all {
            timeout(Duration::from_secs(10), watch.ready()).await.expect("in time").unwrap();
        }
        all.extend((145..400).map(watch));
        let ready = async {
            for watch in &mut all {
                watch.ready().await.unwrap();
            }
            while watcher.load().broad <= 100 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let ready = timeout(Duration::from_secs(20), ready).await;
        assert!(ready.is_ok(), "{part:?}: {:?}", watcher.load());
        assert!(watcher.load().own > 0, "the budget is whole: {:?}", watcher.load());
        watcher.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_services_are_watched_over_few_connections_to_real_consuls() {
    let name = "three_hundred_services_are_watched_over_few_connections_to_real_consuls";
    let run = |path: std::path::PathBuf, budget, seed, hides_nodes| async move {
        let consul = real::Consul::start(&path).await.expect("a real Consul");
        let mut config = ClientConfig::default();
        config.address = format!("http://{}", consul.address());
        let sockets = Arc::new(SocketTransport::new(&config).unwrap());
        let way = Noting::on(sockets);
        way.hides_nodes.store(hides_nodes, Ordering::SeqCst);
        let writer = consul.client();
        let reader = Client::with_transport(config, way).unwrap();
        let address = consul.address();
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        // The writer has one itself.
        let open = || connections(port).saturating_sub(1);
        let size = Size { services: 300, nodes: 10, changes: 200 };
        churn([&writer, &reader], seed, size, budget, Duration::from_mins(1), open).await;
    };
    // Most of the time is spent on waiting, for the turn of watches that take turns above all.
    // So all run at once, each with a server of its own.
    let runs = SUITE.parts("consul", name).into_iter().flat_map(|part| {
        // With 12 connections one query follows all nodes, or, where it is not passed on,
        // everything is listed; with 40 each of the nodes is followed.
        let path = || part.path.clone();
        [run(path(), BUDGET, 1, false), run(path(), BUDGET, 3, true), run(path(), 40, 2, false)]
    });
    join_all(runs).await;
}
