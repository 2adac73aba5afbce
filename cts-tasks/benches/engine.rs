//! 500 tasks on 1,000 services of a real Consul, with a driver that records.
//!
//! `cargo bench -p cts-tasks --bench engine [-- TASKS SERVICES CHANGES SEED]`
//!
//! `cargo bench -p cts-tasks --bench engine -- large [SERVICES CHANGES]` measures
//! one task on 10,000 services instead, with a driver that does nothing: the
//! time from the start to the driver's first call, the processor time of one
//! change, and memory.
//!
//! `cargo bench -p cts-tasks --bench engine -- budgets [CHANGES]` compares the delay to the driver
//! with the watcher's default budget of connections and with 64, at 100 and 500 services.
//!
//! Each task wants four services. Printed are the time from the start until
//! every task has run, memory, and the delay from the answer of Consul to a
//! change until the driver is called. That each change runs exactly the tasks
//! that depend on it, once, is asserted. Without a real Consul nothing is
//! measured.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a bench prints, and stops at what it did not expect"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::{
    Client, Watcher,
    testing::{parts, real},
    types::{CatalogRegistration, HealthCheck, HealthStatus, Service},
};
use cts_tasks::{
    ApplyRequest, Condition, Driver, DriverFactory, Engine, EngineOptions, NamedService, Outcome,
    Plan, PlanId, PlanPurpose, RunContext, ServiceSelection, Stop, StopReason, Task, TaskInputs,
    testing::{Call, RecordingDriver, task},
};
use futures::{StreamExt as _, stream};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

const NODES: usize = 50;
const PER_TASK: usize = 4;
const LIMIT: Duration = Duration::from_mins(2);
/// How long a wrong run would have to show itself.
const QUIET: Duration = Duration::from_secs(5);

struct Size {
    tasks: usize,
    services: usize,
    changes: usize,
    seed: u64,
}

fn main() {
    // `cargo test --benches` asks for a run that measures nothing.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    let numbers: Vec<usize> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let size = Size {
        tasks: number(0, 500),
        services: number(1, 1_000),
        changes: number(2, 200),
        seed: u64::try_from(number(3, 1)).unwrap(),
    };
    // Another version by its name, such as `consul-1.19`.
    let part = std::env::args().find(|text| text.starts_with("consul")).unwrap_or("consul".into());
    let Some(part) = parts::find(&part) else {
        println!("no Consul found: nothing measured");
        return;
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        if std::env::args().any(|argument| argument == "budgets") {
            println!("Consul {}", part.version);
            for services in [100, 500] {
                budgets(&part, services, number(0, 300), size.seed).await;
            }
            return;
        }
        let mut consul = real::Consul::start(&part.path).await.unwrap();
        if std::env::args().any(|argument| argument == "large") {
            let (services, changes) = (number(0, 10_000), number(1, 50));
            println!("Consul {}, one task on {services} services", part.version);
            large(&consul, services, changes).await;
        } else {
            println!("Consul {}, {} tasks, {} services", part.version, size.tasks, size.services);
            run(&consul, &size).await;
        }
        consul.stop().await;
    });
}

/// Counts applies and the instances of the last one, and keeps nothing.
#[derive(Debug, Clone, Default)]
struct Counting {
    applied: Arc<watch::Sender<(usize, usize)>>,
}

#[async_trait]
impl DriverFactory for Counting {
    async fn start(&self) -> cts_tasks::Result<()> {
        Ok(())
    }

    fn driver(&self, _task: &Task) -> cts_tasks::Result<Arc<dyn Driver>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Driver for Counting {
    async fn prepare(&self, _context: &RunContext) -> cts_tasks::Result<()> {
        Ok(())
    }

    async fn plan(
        &self,
        _inputs: &TaskInputs,
        _purpose: PlanPurpose,
        _context: &RunContext,
    ) -> cts_tasks::Result<Plan> {
        Ok(Plan::new(PlanId::new("none"), cts_tasks::Changes::default(), ""))
    }

    async fn apply(
        &self,
        request: ApplyRequest<'_>,
        _context: &RunContext,
    ) -> cts_tasks::Result<Outcome> {
        if let ApplyRequest::Inputs(inputs) = request {
            let instances = inputs.services.as_ref().map_or(0, Vec::len);
            self.applied.send_modify(|(applies, seen)| {
                *applies += 1;
                *seen = instances;
            });
        }
        Ok(Outcome::Unchanged)
    }

    async fn discard(&self, _plan: &PlanId, _context: &RunContext) -> cts_tasks::Result<()> {
        Ok(())
    }

    async fn follow(&self, _ticket: &str, _context: &RunContext) -> cts_tasks::Result<Outcome> {
        Ok(Outcome::Unchanged)
    }

    async fn destroy(&self, _context: &RunContext) -> cts_tasks::Result<Outcome> {
        Ok(Outcome::Unchanged)
    }
}

/// One task on all services.
async fn large(consul: &real::Consul, services: usize, changes: usize) {
    let client = consul.client();
    register(&client, services).await;
    let task = on(0, &(0..services).collect());
    let (driver, stop, before) = (Counting::default(), Stop::new(), resident());
    let mut applied = driver.applied.subscribe();
    let engine = Engine::new(
        Watcher::new(consul.client()),
        Arc::new(driver.clone()),
        EngineOptions::default(),
    );
    let (begun, used) = (Instant::now(), processor_time());
    engine.load(vec![task], &stop).await.unwrap();
    let (clone, ended) = (engine.clone(), stop.clone());
    let running = tokio::spawn(async move { clone.run(&ended).await });
    timeout(LIMIT, applied.wait_for(|(applies, _)| *applies > 0)).await.unwrap().unwrap();
    assert_eq!(applied.borrow().1, services, "the first apply has all instances");
    println!(
        "first call of the driver after {:.2} s, with {:.2} s of processor time",
        begun.elapsed().as_secs_f64(),
        processor_time().saturating_sub(used).as_secs_f64()
    );
    sleep(QUIET).await;
    println!("resident memory grew by {:.1} MiB", mebibytes(resident().saturating_sub(before)));
    let idle = processor_time();
    sleep(QUIET).await;
    let idle = processor_time().saturating_sub(idle) / 5;
    let (begun, used, first) = (Instant::now(), processor_time(), applied.borrow().0);
    let mut delays = Vec::new();
    for change in 0..changes {
        let port = u16::try_from(2 + change).unwrap();
        client.catalog_register(&registration(change * 97 % services, port)).await.unwrap();
        let changed = Instant::now();
        let next = applied.wait_for(|(applies, _)| *applies > first + change);
        timeout(LIMIT, next).await.unwrap().unwrap();
        delays.push(changed.elapsed());
        // Each change is a run of its own, and what it costs is all its own.
        sleep(Duration::from_millis(200)).await;
    }
    let (took, used) = (begun.elapsed(), processor_time().saturating_sub(used));
    let own = used.saturating_sub(idle.mul_f64(took.as_secs_f64()));
    delays.sort();
    println!(
        "{changes} changes: {:.1} ms of processor time each (idle: {:.1} ms a second), \
         from the change to the driver p50 {:.1} ms",
        own.as_secs_f64() * 1e3 / f64::from(u32::try_from(changes).unwrap()),
        idle.as_secs_f64() * 1e3,
        delays[delays.len() / 2].as_secs_f64() * 1e3
    );
    println!(
        "resident memory grew by {:.1} MiB in all",
        mebibytes(resident().saturating_sub(before))
    );
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}

/// Processor time of this process so far, in user and kernel mode together.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_name, rest)| rest);
    // The kernel counts in hundredths of a second for every program.
    let ticks =
        fields.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

fn name(service: usize) -> String {
    format!("service-{service:04}")
}

fn registration(service: usize, port: u16) -> CatalogRegistration {
    let name = name(service);
    let mut registered = Service::new(&name, &name);
    registered.port = port.into();
    let check = HealthCheck::of_service(&name, format!("{name}-check"), HealthStatus::Passing);
    let node = format!("node-{:02}", service % NODES);
    let mut registration =
        CatalogRegistration::new(node, "10.0.0.1").with_service(registered).with_check(check);
    registration.skip_node_update = service >= NODES;
    registration
}

async fn register(client: &Client, services: usize) {
    for range in [0..NODES.min(services), NODES..services.max(NODES)] {
        stream::iter(range)
            .map(|service| async move {
                client.catalog_register(&registration(service, 1)).await.unwrap();
            })
            .buffer_unordered(16)
            .for_each(|()| std::future::ready(()))
            .await;
    }
}

/// A task on these services, which runs at once when one changes.
fn on(number: usize, services: &BTreeSet<usize>) -> Task {
    let mut task = task(&format!("task-{number:04}"));
    let named = services.iter().map(|service| NamedService {
        name: name(*service),
        datacenter: String::new(),
        namespace: String::new(),
        filter: String::new(),
        cts_user_defined_meta: BTreeMap::new(),
    });
    task.condition = Condition::Services {
        services: ServiceSelection::Named(named.collect()),
        use_as_module_input: true,
    };
    task
}

async fn run(consul: &real::Consul, size: &Size) {
    let client = consul.client();
    register(&client, size.services).await;
    let mut random = fastrand::Rng::with_seed(size.seed);
    // The first tasks share out all services, so that every one is wanted.
    let wants: Vec<BTreeSet<usize>> = (0..size.tasks)
        .map(|task| {
            let fixed = (0..PER_TASK / 2).map(|n| (task * (PER_TASK / 2) + n) % size.services);
            let drawn = (0..PER_TASK / 2).map(|_| random.usize(..size.services));
            fixed.chain(drawn.collect::<Vec<_>>()).collect()
        })
        .collect();
    let tasks = wants.iter().enumerate().map(|(number, wants)| on(number, wants)).collect();
    let before = resident();
    let driver = RecordingDriver::default();
    let engine = Engine::new(
        Watcher::new(consul.client()),
        Arc::new(driver.clone()),
        EngineOptions::default(),
    );
    let stop = Stop::new();
    let begun = Instant::now();
    engine.load(tasks, &stop).await.unwrap();
    let (clone, ended) = (engine.clone(), stop.clone());
    let running = tokio::spawn(async move { clone.run(&ended).await });
    while engine.watching().await.is_err() {
        tokio::task::yield_now().await;
    }
    println!("all tasks ran once after {:.2} s", begun.elapsed().as_secs_f64());
    println!("resident memory grew by {:.1} MiB", mebibytes(resident().saturating_sub(before)));
    // What the last first runs set off has ended.
    sleep(QUIET).await;
    changes(&client, &driver, &wants, size, &mut random).await;
    println!(
        "resident memory grew by {:.1} MiB in all",
        mebibytes(resident().saturating_sub(before))
    );
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}

/// Changes one service after the other, and measures until each dependent task is run.
async fn changes(
    client: &Client,
    driver: &RecordingDriver,
    wants: &[BTreeSet<usize>],
    size: &Size,
    random: &mut fastrand::Rng,
) {
    let mut delays = Vec::new();
    let mut seen = driver.calls().len();
    for change in 0..size.changes {
        let (service, port) = (random.usize(..size.services), u16::try_from(2 + change).unwrap());
        delays.extend(one_change(client, driver, wants, service, port, &mut seen).await);
    }
    let runs = delays.len();
    sleep(QUIET).await;
    assert_eq!(driver.calls().len(), seen, "something ran without a change");
    delays.sort();
    let at = |percent: usize| delays[(delays.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    println!(
        "{} changes ran {runs} tasks, exactly the dependent ones; from the change to the driver: \
         p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms (seed {})",
        size.changes,
        at(50),
        at(99),
        at(100),
        size.seed
    );
}

/// Changes one service and waits until exactly the dependent tasks were run. Returns the time from
/// the change to the driver's call for each of them. `seen` counts the calls so far.
async fn one_change(
    client: &Client,
    driver: &RecordingDriver,
    wants: &[BTreeSet<usize>],
    service: usize,
    port: u16,
    seen: &mut usize,
) -> Vec<Duration> {
    let mut delays = Vec::new();
    let dependent: BTreeSet<String> = (0..wants.len())
        .filter(|task| wants[*task].contains(&service))
        .map(|task| format!("task-{task:04}"))
        .collect();
    client.catalog_register(&registration(service, port)).await.unwrap();
    let changed = Instant::now();
    let mut waiting = dependent.clone();
    let before = *seen;
    let of_change = |calls: &[Call]| -> Vec<String> {
        let applies = calls[before..].iter().filter_map(|call| match call {
            Call::Apply(name, _) => Some(name.to_string()),
            _ => None,
        });
        applies.collect()
    };
    while !waiting.is_empty() {
        let some_ran =
            driver.wait_until(|calls| of_change(calls).iter().any(|name| waiting.contains(name)));
        timeout(LIMIT, some_ran).await.unwrap();
        let elapsed = changed.elapsed();
        for name in of_change(&driver.calls()) {
            if waiting.remove(&name) {
                delays.push(elapsed);
            }
        }
    }
    let applied = |calls: &[Call]| {
        let applied = calls[before..].iter().filter(|call| matches!(call, Call::Applied(_)));
        applied.count() >= dependent.len()
    };
    timeout(LIMIT, driver.wait_until(applied)).await.unwrap();
    let ran: Vec<String> = of_change(&driver.calls());
    assert_eq!(ran.len(), dependent.len(), "a change of {} ran {ran:?}", name(service));
    *seen = driver.calls().len();
    delays
}

/// A Consul of its own with an engine on it, whose watches have a budget of connections.
struct Side {
    consul: real::Consul,
    client: Client,
    driver: RecordingDriver,
    stop: Stop,
    running: tokio::task::JoinHandle<cts_tasks::Result<()>>,
    seen: usize,
    delays: Vec<Duration>,
}

impl Side {
    /// `None` is the default budget.
    async fn start(
        part: &parts::Part,
        services: usize,
        wants: &[BTreeSet<usize>],
        budget: Option<usize>,
    ) -> Self {
        let consul = real::Consul::start(&part.path).await.unwrap();
        let client = consul.client();
        register(&client, services).await;
        let watcher = Watcher::builder(consul.client());
        let watcher = match budget {
            Some(connections) => watcher.connections(connections).build(),
            None => watcher.build(),
        };
        let (driver, stop) = (RecordingDriver::default(), Stop::new());
        let engine =
            Engine::new(watcher.clone(), Arc::new(driver.clone()), EngineOptions::default());
        let tasks = wants.iter().enumerate().map(|(number, wants)| on(number, wants)).collect();
        engine.load(tasks, &stop).await.unwrap();
        let (clone, ended) = (engine.clone(), stop.clone());
        let running = tokio::spawn(async move { clone.run(&ended).await });
        while engine.watching().await.is_err() {
            tokio::task::yield_now().await;
        }
        sleep(QUIET).await;
        println!("  {:?}", watcher.load());
        let seen = driver.calls().len();
        Self { consul, client, driver, stop, running, seen, delays: Vec::new() }
    }

    async fn end(&mut self) {
        self.stop.stop(StopReason::Shutdown);
        (&mut self.running).await.unwrap().unwrap();
        self.consul.stop().await;
        self.delays.sort();
    }

    fn percentile(&self, percent: usize) -> f64 {
        self.delays[(self.delays.len() - 1) * percent / 100].as_secs_f64() * 1e3
    }
}

/// Delays with the default budget of connections beside those with 64: the same changes at both,
/// one after the other, each at a Consul of its own.
async fn budgets(part: &parts::Part, services: usize, changes: usize, seed: u64) {
    let wants: Vec<BTreeSet<usize>> = (0..services.div_ceil(PER_TASK))
        .map(|task| (task * PER_TASK..services.min((task + 1) * PER_TASK)).collect())
        .collect();
    let mut whole = Side::start(part, services, &wants, None).await;
    let mut fixed = Side::start(part, services, &wants, Some(64)).await;
    let mut random = fastrand::Rng::with_seed(seed);
    for change in 0..changes {
        let (service, port) = (random.usize(..services), u16::try_from(2 + change).unwrap());
        for side in [&mut whole, &mut fixed] {
            let Side { client, driver, seen, .. } = side;
            let delays = one_change(client, driver, &wants, service, port, seen).await;
            side.delays.extend(delays);
        }
        sleep(Duration::from_millis(random.u64(..50))).await;
    }
    for side in [&mut whole, &mut fixed] {
        side.end().await;
    }
    for percent in [50, 99] {
        let (whole, fixed) = (whole.percentile(percent), fixed.percentile(percent));
        println!(
            "{services} services, {changes} changes, p{percent}: {whole:.2} ms with the default \
             budget, {fixed:.2} ms with 64 connections, ratio {:.2} (seed {seed})",
            whole / fixed
        );
    }
}

/// Bytes of this process in memory; 0 where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
