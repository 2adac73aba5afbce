//! Many watches on few connections against a model, while everything fails that can: none misses
//! a change, and none shows what never was.
//!
//! The short form runs over the double in paused time and, small, over real Consuls. The long
//! form (`scripts/soak watches`, half an hour) has 2,000 watches on 64 connections of a real
//! Consul that is killed, restarted, paused and restored from a backup, and whose answers get lost,
//! late, or are those to a request that was sent twice. At its end a signal is lost on purpose, which
//! the model must notice. `SOAK_SECONDS` sets another length, `SOAK_SEED` another seed than 1.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Backoff, Client, ClientConfig, QueryOptions, Transport, Watch, Watcher, WriteOptions,
    query::HealthService,
    testing::{TestConsul, parts::Suite, real},
    transport::{ExchangeLimits, SocketTransport, TransportError},
    types::{
        CatalogDeregistration, CatalogRegistration, HealthCheck, HealthStatus, Service,
        ServiceEntry,
    },
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

const SUITE: Suite = Suite("consul-watch soak of watches");

/// A way to Consul on which answers get lost, late, or are asked for twice.
#[derive(Debug)]
struct Unreliable {
    to: Arc<dyn Transport>,
    random: Mutex<fastrand::Rng>,
    /// Of a thousand answers so many run into something.
    rate: AtomicU32,
    /// What is asked about this service's node and checks has no news: a planted lost signal.
    deaf_to: Mutex<bool>,
}

impl Unreliable {
    fn new(to: Arc<dyn Transport>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            to,
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            rate: AtomicU32::new(0),
            deaf_to: Mutex::new(false),
        })
    }

    fn client(self: &Arc<Self>) -> Client {
        let mut config = ClientConfig::default();
        config.request_timeout = Duration::from_secs(5);
        Client::with_transport(config, Arc::clone(self) as Arc<dyn Transport>).unwrap()
    }
}

#[async_trait]
impl Transport for Unreliable {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let kind = {
            let mut random = self.random.lock().unwrap();
            let hit = random.u32(..1000) < self.rate.load(Ordering::SeqCst);
            if hit { random.u32(1..5) } else { 0 }
        };
        let path = request.uri().path();
        let broad = path.starts_with("/v1/catalog/")
            || path.starts_with("/v1/internal/ui/node")
            || path == "/v1/health/state/any";
        let blocks = request.uri().query().is_some_and(|query| query.contains("index="));
        if broad && blocks && *self.deaf_to.lock().unwrap() {
            // Held for ever, as by a proxy that has lost the answer and keeps the connection.
            std::future::pending::<()>().await;
        }
        match kind {
            1 => {
                drop(self.to.exchange(request, limits).await?);
                Err(TransportError::Failed { source: "the answer was lost".into() })
            }
            2 => {
                let answer = self.to.exchange(request, limits).await;
                sleep(Duration::from_secs(1)).await;
                answer
            }
            3 => {
                drop(self.to.exchange(request.clone(), limits).await?);
                self.to.exchange(request, limits).await
            }
            4 => Err(TransportError::Failed { source: "the request was lost".into() }),
            _ => self.to.exchange(request, limits).await,
        }
    }
}

/// The instances of a service: port and state by id.
type Instances = BTreeMap<String, (String, String)>;

fn shown(entries: &[ServiceEntry]) -> Instances {
    let instance = |entry: &ServiceEntry| {
        let status = entry.aggregated_status().to_string();
        (entry.service.id.clone(), (entry.service.port.to_string(), status))
    };
    entries.iter().map(instance).collect()
}

/// What every service is, and every state that it has ever had.
#[derive(Debug, Default)]
struct Model {
    now: Vec<Instances>,
    ever: Vec<HashSet<Instances>>,
}

impl Model {
    fn new(services: usize) -> Self {
        let nothing = HashSet::from([Instances::new()]);
        Self { now: vec![Instances::new(); services], ever: vec![nothing; services] }
    }

    fn set(&mut self, service: usize, change: impl FnOnce(&mut Instances)) {
        change(&mut self.now[service]);
        self.ever[service].insert(self.now[service].clone());
    }
}

/// How large a run is.
#[derive(Debug, Clone, Copy)]
struct Size {
    services: usize,
    nodes: usize,
    connections: usize,
    /// Changes between two moments of quiet, when everything is compared.
    changes: usize,
    /// Time for all watches to be right again.
    limit: Duration,
}

/// A Consul that can fail.
#[async_trait]
trait Ground: Send {
    fn writer(&self) -> Client;
    /// Lets something happen that loses no acknowledged write.
    async fn disturb(&mut self, random: &mut fastrand::Rng);
}

async fn change(client: &Client, model: &Mutex<Model>, size: Size, random: &mut fastrand::Rng) {
    let number = random.usize(..size.services);
    let at = random.usize(..3);
    let (name, id) = (format!("s{number}"), format!("s{number}-{at}"));
    let node = format!("n{}", (number * 3 + at) % size.nodes);
    if random.u32(..4) == 0 {
        // Known before a watch can show it.
        model.lock().unwrap().set(number, |now| drop(now.remove(&id)));
        client.catalog_deregister(&CatalogDeregistration::service(&node, &id)).await.unwrap();
        return;
    }
    let mut service = Service::new(&name, &id);
    service.port = [80, 443, 1, 8080, 9090, 9091][random.usize(..6)];
    let port = service.port.to_string();
    let status = [HealthStatus::Passing, HealthStatus::Warning, HealthStatus::Critical];
    let status = status[random.usize(..3)].clone();
    let text = status.to_string();
    let check = HealthCheck::of_service(&id, format!("c-{id}"), status);
    let registration =
        CatalogRegistration::new(&node, "10.0.0.1").with_service(service).with_check(check);
    model.lock().unwrap().set(number, |now| drop(now.insert(id, (port, text))));
    client.catalog_register(&registration).await.unwrap();
}

/// Follows a watch, and notes what it shows that never was, or shows twice.
fn follow(
    mut watch: Watch<Vec<ServiceEntry>>,
    service: usize,
    model: Arc<Mutex<Model>>,
    wrong: Arc<Mutex<BTreeSet<String>>>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut last = None;
        loop {
            match watch.changed().await {
                Ok(snapshot) => {
                    let now = shown(&snapshot.data);
                    let known = model.lock().unwrap().ever[service].contains(&now);
                    if !known {
                        wrong.lock().unwrap().insert(format!("s{service} never was {now:?}"));
                    }
                    if last.as_ref() == Some(&snapshot.data) {
                        wrong.lock().unwrap().insert(format!("s{service} twice: {now:?}"));
                    }
                    last = Some(snapshot.data);
                }
                Err(error) if error.is_fatal() => return,
                Err(_) => {}
            }
        }
    })
}

/// The services whose watches do not show what is, when `limit` has passed.
async fn missing(
    watches: &[Watch<Vec<ServiceEntry>>],
    model: &Mutex<Model>,
    limit: Duration,
) -> Vec<usize> {
    let ends = Instant::now() + limit;
    loop {
        let late: Vec<usize> = {
            let model = model.lock().unwrap();
            let is = |(at, watch): &(usize, &Watch<Vec<ServiceEntry>>)| {
                watch.latest().is_some_and(|snapshot| shown(&snapshot.data) == model.now[*at])
            };
            let late = watches.iter().enumerate().filter(|pair| !is(pair));
            late.map(|(at, _watch)| at).collect()
        };
        if late.is_empty() || Instant::now() >= ends {
            return late;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until each node is followed. Nobody else has connections there: what faults made the
/// watcher do without is used again.
async fn follows_nodes(watcher: &Watcher, size: Size) {
    let whole = timeout(size.limit, async {
        while watcher.load().broad <= size.nodes {
            sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(whole.await.is_ok(), "nodes are not followed any more: {:?}", watcher.load());
}

/// Runs until `time` has passed, at least one round. With `plant` a signal is lost at the end:
/// returns the services whose watches are wrong then.
#[expect(clippy::print_stdout, reason = "says what a soak did")]
async fn soak(
    ground: &mut dyn Ground,
    way: &Arc<Unreliable>,
    size: Size,
    seed: u64,
    time: Duration,
    plant: bool,
) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(seed);
    let model = Arc::new(Mutex::new(Model::new(size.services)));
    let wrong = Arc::<Mutex<BTreeSet<String>>>::default();
    let writer = ground.writer();
    for _ in 0..size.services {
        change(&writer, &model, size, &mut random).await;
    }
    let watcher = Watcher::builder(way.client())
        .connections(size.connections)
        .wait(Duration::from_secs(10))
        .backoff(Backoff::default().with_cap(Duration::from_secs(2)))
        .seed(seed)
        .build();
    let watch = |number| watcher.watch(HealthService::new(format!("s{number}")));
    let watches: Vec<_> = (0..size.services).map(watch).collect();
    let followers: Vec<_> = watches
        .iter()
        .enumerate()
        .map(|(at, watch)| follow(watch.clone(), at, Arc::clone(&model), Arc::clone(&wrong)))
        .collect();
    let late = missing(&watches, &model, size.limit).await;
    assert!(late.is_empty(), "not shown at the start: {late:?}");
    let (begun, mut rounds) = (Instant::now(), 0u32);
    loop {
        rounds += 1;
        way.rate.store(5, Ordering::SeqCst);
        for made in 0..size.changes {
            change(&ground.writer(), &model, size, &mut random).await;
            if random.u32(..8) == 0 {
                sleep(Duration::from_millis(random.u64(..200))).await;
            }
            if made == size.changes / 2 {
                ground.disturb(&mut random).await;
            }
        }
        way.rate.store(0, Ordering::SeqCst);
        let late = missing(&watches, &model, size.limit).await;
        assert!(late.is_empty(), "round {rounds}, seed {seed}: missed by the watches of {late:?}");
        let wrong = wrong.lock().unwrap().clone();
        assert!(wrong.is_empty(), "round {rounds}, seed {seed}: {wrong:#?}");
        if begun.elapsed() >= time {
            break;
        }
    }
    let repairs: u64 = watches.iter().map(|watch| watch.state().repairs).sum();
    println!(
        "{rounds} rounds of {} changes in {:.0} s, seed {seed}, {:?}, {repairs} repairs",
        size.changes,
        begun.elapsed().as_secs_f64(),
        watcher.load()
    );
    assert_eq!(repairs, 0, "a signal was lost, and found by a periodic read");
    follows_nodes(&watcher, size).await;
    let mut late = Vec::new();
    if plant {
        *way.deaf_to.lock().unwrap() = true;
        // Requests that are held already tell of one more change each.
        for _ in 0..size.services * 3 {
            change(&ground.writer(), &model, size, &mut random).await;
        }
        sleep(Duration::from_secs(1)).await;
        for _ in 0..size.services {
            change(&ground.writer(), &model, size, &mut random).await;
        }
        late = missing(&watches, &model, Duration::from_secs(5)).await;
    }
    watcher.shutdown().await;
    for follower in followers {
        follower.await.unwrap();
    }
    late
}

struct Doubled(TestConsul);

#[async_trait]
impl Ground for Doubled {
    fn writer(&self) -> Client {
        self.0.client()
    }

    async fn disturb(&mut self, random: &mut fastrand::Rng) {
        match random.u32(..3) {
            0 => self.0.restart(),
            1 => self.0.reset_index(),
            _ => {
                self.0.set_leader(false);
                sleep(Duration::from_secs(9)).await;
                self.0.set_leader(true);
            }
        }
    }
}

const SHORT: Size =
    Size { services: 150, nodes: 8, connections: 24, changes: 150, limit: Duration::from_mins(5) };

#[tokio::test(start_paused = true)]
async fn watches_of_the_double_miss_and_invent_nothing() {
    for seed in 1..=2 {
        let consul = TestConsul::builder().seed(seed).build();
        let way = Unreliable::new(consul.transport(), seed);
        let mut ground = Doubled(consul);
        let time = Duration::from_secs(40);
        soak(&mut ground, &way, SHORT, seed, time, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_planted_lost_signal_is_caught() {
    let consul = TestConsul::builder().seed(1).build();
    let way = Unreliable::new(consul.transport(), 1);
    let mut ground = Doubled(consul);
    let late = soak(&mut ground, &way, SHORT, 1, Duration::ZERO, true).await;
    assert!(!late.is_empty(), "the lost signals went unnoticed");
}

/// A real server.
struct Real {
    consul: real::Consul,
    longest_pause: Duration,
}

#[async_trait]
impl Ground for Real {
    fn writer(&self) -> Client {
        self.consul.client()
    }

    async fn disturb(&mut self, random: &mut fastrand::Rng) {
        match random.u32(..4) {
            0 => {
                self.consul.kill();
                self.consul.restart().await.unwrap();
            }
            1 => self.consul.restart().await.unwrap(),
            2 => {
                // Longer than requests may take, or shorter: connections stay open throughout.
                self.consul.pause();
                sleep(self.longest_pause.mul_f64(random.f64())).await;
                self.consul.resume();
            }
            _ => {
                // A new history with the same data.
                let client = self.consul.client();
                let backup = client.snapshot_save(&QueryOptions::default()).await.unwrap();
                client.snapshot_restore(backup, &WriteOptions::default()).await.unwrap();
            }
        }
        let ready = timeout(Duration::from_mins(1), self.consul.wait_until_ready());
        ready.await.expect("in time").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_real_consuls_miss_and_invent_nothing() {
    let long = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    let seconds = std::env::var("SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let case = "watches_of_real_consuls_miss_and_invent_nothing";
    let parts = SUITE.parts("consul", case);
    let count = u32::try_from(parts.len().max(1)).unwrap();
    let first: u64 =
        std::env::var("SOAK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (size, time, longest_pause) = if long {
        let size = Size { services: 2000, nodes: 30, connections: 64, changes: 600, ..SHORT };
        (size, Duration::from_secs(seconds.unwrap_or(1800)) / count, Duration::from_secs(40))
    } else {
        let size = Size { services: 80, changes: 60, limit: Duration::from_mins(1), ..SHORT };
        (size, Duration::ZERO, Duration::from_secs(3))
    };
    for (seed, part) in (first..).zip(parts) {
        let consul = real::Consul::start(&part.path).await.expect("a real Consul");
        let mut config = ClientConfig::default();
        config.address = consul.address();
        let to = Arc::new(SocketTransport::new(&config).unwrap());
        // The transport goes where the request says, and so the client has to know the address.
        let way = Unreliable::new(Arc::new(Addressed { to, address: consul.address() }), seed);
        let mut ground = Real { consul, longest_pause };
        let late = soak(&mut ground, &way, size, seed, time, long).await;
        assert!(!long || !late.is_empty(), "the lost signals went unnoticed");
    }
}

/// Sends requests to another address than they name.
#[derive(Debug)]
struct Addressed {
    to: Arc<SocketTransport>,
    address: String,
}

#[async_trait]
impl Transport for Addressed {
    async fn exchange(
        &self,
        mut request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = format!("http://{}{path}", self.address).parse().unwrap();
        self.to.exchange(request, limits).await
    }
}
