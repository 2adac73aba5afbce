//! Services with three instances each, watched within the default budget of connections, on a real
//! Consul with default limits.
//!
//! `cargo bench -p consul-watch --bench scale [-- SERVICES CHANGES SEED BUDGET]` prints the figures
//! of one size, 10,000 services by default, beside a few watches with a connection each, which
//! `-- one` leaves out.
//! `-- table [consul-1.19]` prints those of 10 to 30,000 services, each size on a fresh Consul.
//!
//! Changes come at 50 a second, each to another service, so that each must give exactly one
//! snapshot. That is asserted, and that the connections stay within the budget; the other figures
//! are printed. Of the services that change, up to 30 are followed by bare HTTP loops at the same
//! time, so both delays are of the same changes. Without a real Consul nothing is measured.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench prints, and stops at what it did not expect"
)]

use std::{
    collections::{BTreeMap, HashMap, HashSet},
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
    types::{
        CatalogDeregistration, CatalogRegistration, HealthCheck, HealthStatus, Service,
        ServiceEntry,
    },
};
use futures::{StreamExt as _, stream};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};

const NODES: usize = 100;
/// Instances of each service, on different nodes.
const INSTANCES: usize = 3;
/// The watcher's default.
const BUDGET: usize = 160;
const FEW: usize = 30;
/// Bare loops, with a connection each: together with the budget and the writer below Consul's limit.
const BARE: usize = 30;
const SIZES: [usize; 5] = [10, 100, 1_000, 10_000, 30_000];
/// A change that is not seen by then is lost.
const LIMIT: Duration = Duration::from_mins(2);
/// After the last change was seen: what comes in this time was told twice.
const QUIET: Duration = Duration::from_secs(5);
/// Between two changes: sustained churn, but not a flood.
const PAUSE: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_secs(20);
/// Between two counts of the connections.
const LOOK: Duration = Duration::from_millis(250);

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
        if std::env::args().any(|argument| argument == "table") {
            let mut columns = Vec::new();
            for services in SIZES {
                let (mut consul, mut random) = prepare(&part, services, seed).await;
                let figures = run(&consul, services, BUDGET, 500, &mut random).await;
                consul.stop().await;
                columns.push((services.to_string(), figures));
            }
            return print(&columns);
        }
        let (mut consul, mut random) = prepare(&part, services, seed).await;
        if std::env::args().any(|argument| argument == "one") {
            let figures = run(&consul, services, budget, changes, &mut random).await;
            consul.stop().await;
            return print(&[("shared".into(), figures)]);
        }
        let few = run(&consul, FEW.min(services), FEW + 10, changes.min(FEW), &mut random).await;
        forgotten(&consul).await;
        let many = run(&consul, services, budget, changes, &mut random).await;
        print(&[("one each".into(), few), ("shared".into(), many)]);
        consul.stop().await;
    });
}

async fn prepare(
    part: &parts::Part,
    services: usize,
    seed: usize,
) -> (real::Consul, fastrand::Rng) {
    let consul = real::Consul::start(&part.path).await.unwrap();
    println!("Consul {}, {services} services on {NODES} nodes, seed {seed}", part.version);
    let started = Instant::now();
    register(&consul.client(), services).await;
    println!("  registered in {:.1} s", started.elapsed().as_secs_f64());
    (consul, fastrand::Rng::with_seed(u64::try_from(seed).unwrap()))
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

/// Changes one service in a random way that its watch must show once, and says how. `gone` holds
/// the services whose first instance is not there.
async fn change(
    client: &Client,
    number: usize,
    random: &mut fastrand::Rng,
    gone: &mut HashSet<usize>,
) -> &'static str {
    let (node, name) = service(number);
    let id = format!("{name}-{}", random.u32(..));
    let mut registration = registration(number);
    let kind = random.u32(..if gone.contains(&number) { 4 } else { 5 });
    if kind > 0 {
        gone.remove(&number);
    }
    let how = match kind {
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
            gone.insert(number);
            let instance = CatalogDeregistration::service(&node, &name);
            client.catalog_deregister(&instance).await.unwrap();
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

/// Counts requests by their path.
#[derive(Debug)]
struct Counting {
    inner: SocketTransport,
    requests: Arc<Requests>,
}

/// Number of requests: all, and those about single nodes and services.
#[derive(Debug, Default)]
struct Requests {
    all: AtomicUsize,
    nodes: AtomicUsize,
    services: AtomicUsize,
}

impl Requests {
    fn get(&self) -> [usize; 3] {
        [&self.all, &self.nodes, &self.services].map(|count| count.load(Ordering::Relaxed))
    }
}

#[async_trait]
impl Transport for Counting {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        self.requests.all.fetch_add(1, Ordering::Relaxed);
        let path = request.uri().path();
        if path.starts_with("/v1/internal/ui/node/") {
            self.requests.nodes.fetch_add(1, Ordering::Relaxed);
        } else if path.starts_with("/v1/health/service/") {
            self.requests.services.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.exchange(request, limits).await
    }
}

/// What one run showed.
struct Figures {
    views: usize,
    ready: Duration,
    delays: Vec<Duration>,
    bare: Vec<Duration>,
    connections: usize,
    at_start: usize,
    /// All, and those about single nodes and services.
    requests: [usize; 3],
    at_rest: usize,
    memory: u64,
    cpu_changes: f64,
    cpu_consul: f64,
    cpu_per_change: Duration,
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
    let requests = Arc::<Requests>::default();
    let inner = SocketTransport::new(&config).unwrap();
    let transport = Arc::new(Counting { inner, requests: Arc::clone(&requests) });
    let client = Client::with_transport(config, transport).unwrap();
    let watcher = Watcher::builder(client).connections(budget).build();
    let count = || requests.get()[0];

    // What the run with a connection each has changed would not change by the same again.
    let untouched = if views > FEW { FEW } else { 0 };
    let mut order: Vec<usize> = (untouched..views).collect();
    random.shuffle(&mut order);
    let mut bare = Bare::start(&address, &order, changes).await;

    let (memory, started) = (resident(), Instant::now());
    let mut news = follow(&watcher, views);
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

    let others = 1 + bare.numbers.len();
    let mut most = Most { port, highest: 0, others, due: Instant::now(), cost: 0.0 };
    let (before, used, began) = (requests.get(), cpu("self"), Instant::now());
    let (server, used_by_server) = (child(), cpu(&child()));
    let mut delays = Vec::new();
    let (mut gone, writer) = (HashSet::new(), consul.client());
    while delays.len() < changes {
        random.shuffle(&mut order);
        bare.first(&mut order);
        order.truncate(order.len().min(changes - delays.len()));
        delays.extend(
            churn(&writer, &order, random, &mut gone, &mut news, &mut bare, &mut most).await,
        );
    }
    delays.sort_unstable();
    let took = began.elapsed().as_secs_f64();
    let cpu_used = cpu("self") - used - most.cost;
    let cpu_changes = cpu_used / took;
    let cpu_consul = (cpu(&server) - used_by_server) / took;
    let now = requests.get();
    let requests = [0, 1, 2].map(|at| now[at] - before[at]);
    // What comes now was told twice.
    assert!(timeout(QUIET, news.recv()).await.is_err(), "a change was told twice");

    let (before, used) = (count(), cpu("self"));
    sleep(REST).await;
    let cpu_rest = (cpu("self") - used) / REST.as_secs_f64();
    let figures = Figures {
        views,
        ready,
        cpu_per_change: Duration::from_secs_f64(cpu_used) / u32::try_from(delays.len()).unwrap(),
        delays,
        bare: bare.stop(),
        connections: most.highest,
        at_start,
        requests,
        at_rest: count() - before,
        memory: resident().saturating_sub(memory),
        cpu_changes,
        cpu_consul,
        cpu_rest,
    };
    watcher.shutdown().await;
    assert!(figures.connections <= budget, "{} connections", figures.connections);
    figures
}

/// Watches so many services, and tells of each snapshot.
fn follow(watcher: &Watcher, views: usize) -> mpsc::Receiver<(usize, Instant)> {
    let (sender, news) = mpsc::channel(1024);
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
    news
}

/// Bare blocking loops, each with a connection of its own: no comparison, no retry, no budget.
struct Bare {
    numbers: HashSet<usize>,
    news: mpsc::Receiver<(usize, Instant)>,
    delays: Vec<Duration>,
    tasks: JoinSet<()>,
}

impl Bare {
    /// Follows some of the services that will change, and waits for the first answers.
    async fn start(address: &str, order: &[usize], changes: usize) -> Self {
        let number = BARE.min(order.len()).min(changes);
        let numbers: HashSet<usize> = order.iter().copied().take(number).collect();
        let (sender, mut news) = mpsc::channel(1024);
        let mut tasks = JoinSet::new();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        for number in &numbers {
            let url = format!("http://{address}/v1/health/service/{}", service(*number).1);
            tasks.spawn(bare_loop(http.clone(), url, *number, sender.clone()));
        }
        for _ in 0..numbers.len() {
            news.recv().await.unwrap();
        }
        Self { numbers, news, delays: Vec::new(), tasks }
    }

    /// Puts these services among the first of `order`, at even distances.
    fn first(&self, order: &mut Vec<usize>) {
        let (bare, others): (Vec<_>, Vec<_>) =
            order.iter().partition(|number| self.numbers.contains(number));
        let mut bare = bare.into_iter();
        *order = others
            .chunks(10)
            .flat_map(|part| bare.next().into_iter().chain(part.to_vec()))
            .collect();
        order.extend(bare);
    }

    fn stop(mut self) -> Vec<Duration> {
        self.tasks.abort_all();
        self.delays.sort_unstable();
        self.delays
    }
}

async fn bare_loop(
    http: reqwest::Client,
    url: String,
    number: usize,
    news: mpsc::Sender<(usize, Instant)>,
) {
    let mut index = String::new();
    loop {
        let target = format!("{url}?index={index}&wait=300s");
        let answer = http.get(if index.is_empty() { &url } else { &target }).send().await.unwrap();
        let now = answer.headers().get("x-consul-index").unwrap().to_str().unwrap().to_owned();
        let body = answer.bytes().await.unwrap();
        serde_json::from_slice::<Vec<ServiceEntry>>(&body).unwrap();
        let moved = now != std::mem::replace(&mut index, now.clone());
        if moved && news.send((number, Instant::now())).await.is_err() {
            return;
        }
    }
}

/// Changes these services one by one, and gives the delays of their news.
async fn churn(
    writer: &Client,
    order: &[usize],
    random: &mut fastrand::Rng,
    gone: &mut HashSet<usize>,
    news: &mut mpsc::Receiver<(usize, Instant)>,
    bare: &mut Bare,
    most: &mut Most,
) -> Vec<Duration> {
    let mut sent: BTreeMap<usize, (Instant, &str)> = BTreeMap::new();
    let mut seen: HashMap<usize, Instant> = HashMap::new();
    let mut record = |number, at| {
        assert!(seen.insert(number, at).is_none(), "{number} was told twice");
    };
    let (mut ticks, mut count) = (interval(PAUSE), 0);
    for number in order.iter().copied() {
        ticks.tick().await;
        let started = Instant::now();
        let how = change(writer, number, random, gone).await;
        sent.insert(number, (started, how));
        most.look();
        while let Ok((number, at)) = news.try_recv() {
            record(number, at);
            count += 1;
        }
    }
    // Late news are waited for, however long the pause before them: a loaded machine is no loss.
    while count < sent.len() {
        let Ok(item) = timeout(LIMIT, news.recv()).await else { break };
        let (number, at) = item.unwrap();
        record(number, at);
        count += 1;
        most.look();
    }
    let lost: Vec<_> = sent.iter().filter(|(number, _)| !seen.contains_key(number)).collect();
    assert!(lost.is_empty(), "not seen: {lost:?}");
    assert!(seen.keys().all(|number| sent.contains_key(number)), "seen without a change");
    let mut followed: HashSet<usize> =
        order.iter().copied().filter(|number| bare.numbers.contains(number)).collect();
    while !followed.is_empty() {
        let (number, at) = timeout(LIMIT, bare.news.recv()).await.unwrap().unwrap();
        // A service that lost its last check and then an instance moves its index twice.
        if followed.remove(&number) {
            bare.delays.push(at.duration_since(sent[&number].0));
        }
    }
    sent.iter().map(|(number, (at, _))| seen[number].duration_since(*at)).collect()
}

/// The most connections of the watcher seen at once.
struct Most {
    port: u16,
    highest: usize,
    /// Connections of the writer and of the bare loops.
    others: usize,
    /// When they are counted next.
    due: Instant,
    /// Seconds of CPU that the counting took, 5 ms each time.
    cost: f64,
}

impl Most {
    fn look(&mut self) {
        if self.due > Instant::now() {
            return;
        }
        let used = thread_cpu();
        self.count();
        self.cost += thread_cpu() - used;
        self.due = Instant::now() + LOOK;
    }

    fn count(&mut self) {
        self.highest = self.highest.max(connections(self.port).saturating_sub(self.others));
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

/// Seconds of CPU that this thread has used.
fn thread_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    to_f64(text.split_whitespace().next().unwrap().parse().unwrap()) / 1e9
}

/// The one child of this process: Consul.
fn child() -> String {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}

/// Seconds of CPU that a process has used.
fn cpu(process: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
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

fn print(columns: &[(String, Figures)]) {
    let line = |name: &str, show: &dyn Fn(&(String, Figures)) -> String| {
        let cells: Vec<String> =
            columns.iter().map(|column| format!("{:>13}", show(column))).collect();
        println!("  {name:<34}{}", cells.concat());
    };
    let row = |name: &str, show: &dyn Fn(&Figures) -> String| {
        line(name, &|(_, figures)| show(figures));
    };
    let millis = |delay: Duration| format!("{:.1} ms", delay.as_secs_f64() * 1e3);
    let ratio =
        |ours: Duration, bare: Duration| format!("{:.2}", ours.as_secs_f64() / bare.as_secs_f64());
    line("", &|(name, _)| name.clone());
    row("watches", &|run| run.views.to_string());
    row("changes, each seen once", &|run| run.delays.len().to_string());
    row("delay p50", &|run| millis(at(&run.delays, 50)));
    row("delay p99", &|run| millis(at(&run.delays, 99)));
    row("delay max", &|run| millis(at(&run.delays, 100)));
    row("bare loops", &|run| run.bare.len().to_string());
    row("bare loop p50", &|run| millis(at(&run.bare, 50)));
    row("bare loop max", &|run| millis(at(&run.bare, 100)));
    row("p50 by the bare loop's", &|run| ratio(at(&run.delays, 50), at(&run.bare, 50)));
    row("connections at most", &|run| run.connections.to_string());
    row("first snapshots after", &|run| millis(run.ready));
    row("requests until then", &|run| run.at_start.to_string());
    row("requests for the changes", &|run| run.requests[0].to_string());
    row("  of nodes", &|run| run.requests[1].to_string());
    row("  of services", &|run| run.requests[2].to_string());
    row("requests in 20 s at rest", &|run| run.at_rest.to_string());
    row("resident memory", &|run| format!("{:.1} MB", to_f64(run.memory) / 1e6));
    row("memory for a watch", &|run| {
        format!("{:.1} kB", to_f64(run.memory) / 1e3 / to_f64(u64::try_from(run.views).unwrap()))
    });
    row("CPU for a change", &|run| millis(run.cpu_per_change));
    row("CPU during the changes", &|run| format!("{:.2} %", run.cpu_changes * 100.0));
    row("CPU of Consul in this time", &|run| format!("{:.2} %", run.cpu_consul * 100.0));
    row("CPU at rest", &|run| format!("{:.2} %", run.cpu_rest * 100.0));
}

/// The delay that so many percent are not above, of sorted ones.
fn at(delays: &[Duration], percent: usize) -> Duration {
    delays[(delays.len() * percent / 100).min(delays.len() - 1)]
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn to_f64(number: u64) -> f64 {
    number as f64
}
