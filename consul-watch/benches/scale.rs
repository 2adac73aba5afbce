//! 10,000 services with three instances each, watched within the default budget of connections,
//! beside a few watches with a connection each, on a real Consul with default limits.
//!
//! `cargo bench -p consul-watch --bench scale [-- SERVICES CHANGES SEED BUDGET]`
//!
//! Changes come at 50 a second. Every change hits another service, so that each must give exactly one
//! snapshot. That is asserted, and that the connections stay within the
//! budget; the other figures are printed. Without a real Consul nothing is
//! measured.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench prints, and stops at what it did not expect"
)]

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Transport, Watcher,
    query::HealthService,
    testing::{parts, real},
    transport::{ExchangeLimits, SocketTransport, TransportError},
    types::{CatalogDeregistration, CatalogRegistration, HealthCheck, HealthStatus, Service},
};
use futures::{StreamExt as _, stream};
use tokio::{
    sync::mpsc,
    time::{Instant, interval, sleep, timeout},
};

const NODES: usize = 100;
/// Instances of each service, on different nodes.
const INSTANCES: usize = 3;
/// The watcher's default.
const BUDGET: usize = 160;
const FEW: usize = 30;
/// A change that is not seen by then is lost.
const LIMIT: Duration = Duration::from_mins(2);
/// After the last change was seen: what comes in this time was told twice.
const QUIET: Duration = Duration::from_secs(5);
/// Between two changes: sustained churn, but not a flood.
const PAUSE: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_secs(20);

fn main() {
    // `cargo test --benches` asks for a run that measures nothing.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    let numbers: Vec<usize> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (services, changes, seed) = (number(0, 10_000), number(1, 1_000), number(2, 1));
    let budget = number(3, BUDGET);
    // Another version by its name, such as `consul-1.19`.
    let name = std::env::args().find(|text| text.starts_with("consul")).unwrap_or("consul".into());
    let Some(part) = parts::find(&name) else {
        println!("no Consul found: nothing measured");
        return;
    };
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    threads.unwrap().block_on(async {
        let mut consul = real::Consul::start(&part.path).await.unwrap();
        println!("Consul {}, {services} services on {NODES} nodes, seed {seed}", part.version);
        let started = Instant::now();
        register(&consul.client(), services).await;
        println!("registered in {:.1} s", started.elapsed().as_secs_f64());
        let mut random = fastrand::Rng::with_seed(u64::try_from(seed).unwrap());
        let few = run(&consul, FEW.min(services), FEW + 10, changes.min(FEW), &mut random).await;
        assert!(few.connections <= FEW + 10, "{} connections", few.connections);
        forgotten(&consul).await;
        let many = run(&consul, services, budget, changes, &mut random).await;
        assert!(many.connections <= budget, "{} connections", many.connections);
        print(&few, &many);
        consul.stop().await;
    });
}

fn node(number: usize) -> String {
    format!("n{:03}", number % NODES)
}

fn service(number: usize) -> (String, String) {
    (node(number), format!("service-{number:05}"))
}

fn registration(number: usize) -> CatalogRegistration {
    instance(number, 0)
}

/// One of a service's instances. The first has the service's name as its id.
fn instance(number: usize, at: usize) -> CatalogRegistration {
    let name = service(number).1;
    let node = node(number + at);
    let id = if at == 0 { name.clone() } else { format!("{name}-at-{at}") };
    let mut service = Service::new(&name, &id);
    service.port = 8080;
    service.tags = vec!["v1".into(), "http".into()];
    let mut registration = CatalogRegistration::new(&node, "10.0.0.1").with_service(service);
    registration.skip_node_update = true;
    registration.with_check(HealthCheck::of_service(
        &id,
        format!("{id}-check"),
        HealthStatus::Passing,
    ))
}

async fn register(client: &Client, services: usize) {
    let nodes = (0..NODES).map(|number| CatalogRegistration::new(node(number), "10.0.0.1"));
    let instances = (0..services).flat_map(|number| (0..INSTANCES).map(move |at| (number, at)));
    let instances = instances.map(|(number, at)| instance(number, at));
    for group in [nodes.collect::<Vec<_>>(), instances.collect()] {
        stream::iter(group)
            .map(|registration| async move {
                client.catalog_register(&registration).await.unwrap();
            })
            .buffer_unordered(16)
            .for_each(|()| std::future::ready(()))
            .await;
    }
}

/// Changes one service in a random way that its watch must show once, and says how.
async fn change(client: &Client, number: usize, random: &mut fastrand::Rng) -> &'static str {
    let (node, name) = service(number);
    let id = format!("{name}-{}", random.u32(..));
    let mut registration = registration(number);
    let how = match random.u32(..5) {
        0 => {
            registration.service = Some(Service::new(&name, id));
            "a new instance"
        }
        1 => {
            let status = match registration.checks[0].status {
                _ if random.bool() => HealthStatus::Critical,
                _ => HealthStatus::Warning,
            };
            registration.checks[0].status = status;
            registration.checks[0].output = id;
            "a check that flips"
        }
        kind @ (2 | 3) => {
            let mut service = registration.service.take().unwrap();
            if kind == 2 {
                service.tags.push(id);
            } else {
                service.meta.insert("edited".into(), id);
            }
            registration.service = Some(service);
            if kind == 2 { "a new tag" } else { "new metadata" }
        }
        _ => {
            let gone = CatalogDeregistration::service(&node, &name);
            client.catalog_deregister(&gone).await.unwrap();
            return "an instance gone";
        }
    };
    if registration.service.as_ref().is_some_and(|service| service.id != name) {
        registration.checks.clear();
    }
    registration.skip_node_update = true;
    client.catalog_register(&registration).await.unwrap();
    how
}

/// Counts requests.
#[derive(Debug)]
struct Counting {
    inner: SocketTransport,
    requests: Arc<AtomicUsize>,
}

#[async_trait]
impl Transport for Counting {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.inner.exchange(request, limits).await
    }
}

/// What one run showed.
struct Figures {
    views: usize,
    ready: Duration,
    changes: usize,
    delays: Vec<Duration>,
    connections: usize,
    at_start: usize,
    requests: usize,
    at_rest: usize,
    memory: u64,
    cpu_changes: f64,
    cpu_rest: f64,
}

async fn run(
    consul: &real::Consul,
    views: usize,
    budget: usize,
    changes: usize,
    random: &mut fastrand::Rng,
) -> Figures {
    let address = consul.address();
    let port = port(consul);
    let mut config = ClientConfig::default();
    config.address = format!("http://{address}");
    let requests = Arc::new(AtomicUsize::new(0));
    let inner = SocketTransport::new(&config).unwrap();
    let transport = Arc::new(Counting { inner, requests: Arc::clone(&requests) });
    let client = Client::with_transport(config, transport).unwrap();
    let watcher = Watcher::builder(client).connections(budget).build();
    let count = || requests.load(Ordering::Relaxed);

    let (memory, started) = (resident(), Instant::now());
    let (sender, mut news) = mpsc::channel(1024);
    for number in 0..views {
        let (mut watch, sender) =
            (watcher.watch(HealthService::new(service(number).1)), sender.clone());
        tokio::spawn(async move {
            loop {
                match watch.changed().await {
                    Ok(_) => sender.send((number, Instant::now())).await.unwrap(),
                    Err(error) if error.is_fatal() => return,
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
    }
    let mut first = vec![false; views];
    while first.iter().any(|seen| !seen) {
        let (number, _at) = timeout(LIMIT, news.recv()).await.unwrap().unwrap();
        assert!(!std::mem::replace(&mut first[number], true), "{number} twice");
    }
    let (ready, at_start) = (started.elapsed(), count());
    println!(
        "  {views} watches: first snapshots after {:.1} s, {:?}",
        ready.as_secs_f64(),
        watcher.load()
    );

    let mut most = Most { port, most: connections(port) };
    let (before, used, began) = (count(), cpu(), Instant::now());
    let delays = churn(&consul.client(), views, changes, random, &mut news, &mut most).await;
    let cpu_changes = (cpu() - used) / began.elapsed().as_secs_f64();
    let requests = count() - before;

    let (before, used) = (count(), cpu());
    sleep(REST).await;
    let cpu_rest = (cpu() - used) / REST.as_secs_f64();
    most.look();
    let figures = Figures {
        views,
        ready,
        changes: delays.len(),
        delays,
        connections: most.most,
        at_start,
        requests,
        at_rest: count() - before,
        memory: resident().saturating_sub(memory),
        cpu_changes,
        cpu_rest,
    };
    watcher.shutdown().await;
    figures
}

/// Changes services one by one, and gives the delays of their news, sorted.
async fn churn(
    writer: &Client,
    views: usize,
    changes: usize,
    random: &mut fastrand::Rng,
    news: &mut mpsc::Receiver<(usize, Instant)>,
    most: &mut Most,
) -> Vec<Duration> {
    // What the run with a connection each has changed would not change by the same again.
    let untouched = if views > FEW { FEW } else { 0 };
    let mut order: Vec<usize> = (untouched..views).collect();
    random.shuffle(&mut order);
    let (mut sent, mut seen) = (BTreeMap::new(), BTreeMap::new());
    let mut record = |number, at| {
        let before = seen.insert(number, at);
        assert!(before.is_none(), "{number} was told twice");
    };
    let (mut ticks, mut count) = (interval(PAUSE), 0);
    for number in order.into_iter().take(changes) {
        ticks.tick().await;
        let started = Instant::now();
        let how = change(writer, number, random).await;
        sent.insert(number, (started, how));
        most.look();
        while let Ok((number, at)) = news.try_recv() {
            record(number, at);
            count += 1;
        }
    }
    // Late news are waited for, however long the pause before them: a loaded machine is no
    // loss. What comes after the last one is told twice.
    let mut left = sent.len() - count;
    while let Ok(item) = timeout(if left > 0 { LIMIT } else { QUIET }, news.recv()).await {
        let (number, at) = item.unwrap();
        record(number, at);
        left = left.saturating_sub(1);
        most.look();
    }
    let lost: Vec<_> = sent.iter().filter(|(number, _)| !seen.contains_key(number)).collect();
    assert!(lost.is_empty(), "not seen: {lost:?}");
    assert!(seen.keys().all(|number| sent.contains_key(number)), "seen without a change");
    let mut delays: Vec<Duration> =
        sent.iter().map(|(number, (at, _))| seen[number].duration_since(*at)).collect();
    delays.sort_unstable();
    delays
}

/// The most connections seen at once. One is the writer's.
struct Most {
    port: u16,
    most: usize,
}

impl Most {
    fn look(&mut self) {
        self.most = self.most.max(connections(self.port).saturating_sub(1));
    }
}

/// Established connections of this network namespace to a port of 127.0.0.1.
fn connections(port: u16) -> usize {
    sockets(|line| line.nth(1) == Some(&local(port)) && line.next() == Some("01"))
}

/// Waits until Consul has dropped the connections of watches that were dropped. It
/// keeps, and counts, each until the request on it would have been answered.
async fn forgotten(consul: &real::Consul) {
    let port = port(consul);
    let closing = || sockets(|line| line.next() == Some(&local(port)) && line.nth(1) == Some("08"));
    timeout(LIMIT, async {
        while closing() > 0 {
            sleep(PAUSE).await;
        }
    })
    .await
    .unwrap();
}

fn port(consul: &real::Consul) -> u16 {
    consul.address().rsplit(':').next().unwrap().parse().unwrap()
}

fn local(port: u16) -> String {
    format!("0100007F:{port:04X}")
}

/// How many sockets are such: local address, remote address, state and more.
fn sockets(such: impl Fn(&mut dyn Iterator<Item = &str>) -> bool) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let found = table.lines().filter(|line| such(&mut line.split_whitespace().skip(1)));
    // A row that moves while the table is read stands in it more than once.
    found.map(|line| line.split_whitespace().nth(9)).collect::<HashSet<_>>().len()
}

/// Resident memory in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Seconds of CPU that this process has used.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: Vec<u32> = text
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|text| text.parse().unwrap())
        .collect();
    f64::from(ticks[0] + ticks[1]) / 100.0
}

fn print(few: &Figures, many: &Figures) {
    let row = |name: &str, show: &dyn Fn(&Figures) -> String| {
        println!("  {name:<34}{:>14}{:>14}", show(few), show(many));
    };
    let millis = |delay: Duration| format!("{:.1} ms", delay.as_secs_f64() * 1e3);
    let at = |figures: &Figures, part: usize| {
        millis(figures.delays[(figures.delays.len() * part / 100).min(figures.delays.len() - 1)])
    };
    println!("  {:<34}{:>14}{:>14}", "", "one each", "shared");
    row("watches", &|run| run.views.to_string());
    row("changes, each seen once", &|run| run.changes.to_string());
    row("delay p50", &|run| at(run, 50));
    row("delay p99", &|run| at(run, 99));
    row("delay max", &|run| at(run, 100));
    row("connections at most", &|run| run.connections.to_string());
    row("first snapshots after", &|run| millis(run.ready));
    row("requests until then", &|run| run.at_start.to_string());
    row("requests for the changes", &|run| run.requests.to_string());
    row("requests in 20 s at rest", &|run| run.at_rest.to_string());
    row("resident memory", &|run| format!("{} MB", run.memory / 1_000_000));
    row("CPU during the changes", &|run| format!("{:.2} %", run.cpu_changes * 100.0));
    row("CPU at rest", &|run| format!("{:.2} %", run.cpu_rest * 100.0));
}
