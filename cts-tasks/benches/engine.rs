//! 500 tasks on 1,000 services of a real Consul, with a driver that records.
//!
//! `cargo bench -p cts-tasks --bench engine [-- TASKS SERVICES CHANGES SEED]`
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

use consul_watch::{
    Client, Watcher,
    testing::{parts, real},
    types::{CatalogRegistration, HealthCheck, HealthStatus, Service},
};
use cts_tasks::{
    Condition, Engine, EngineOptions, NamedService, ServiceSelection, Stop, StopReason, Task,
    testing::{Call, RecordingDriver, task},
};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep, timeout};

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
    let Some(part) = parts::find("consul") else {
        println!("no Consul found: nothing measured");
        return;
    };
    println!("Consul {}, {} tasks, {} services", part.version, size.tasks, size.services);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let mut consul = real::Consul::start(&part.path).await.unwrap();
        run(&consul, &size).await;
        consul.stop().await;
    });
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
    let (mut seen, mut runs) = (driver.calls().len(), 0);
    for change in 0..size.changes {
        let service = random.usize(..size.services);
        let dependent: BTreeSet<String> = (0..wants.len())
            .filter(|task| wants[*task].contains(&service))
            .map(|task| format!("task-{task:04}"))
            .collect();
        let port = u16::try_from(2 + change).unwrap();
        client.catalog_register(&registration(service, port)).await.unwrap();
        let changed = Instant::now();
        let mut waiting = dependent.clone();
        let of_change = |calls: &[Call]| -> Vec<String> {
            let applies = calls[seen..].iter().filter_map(|call| match call {
                Call::Apply(name, _) => Some(name.to_string()),
                _ => None,
            });
            applies.collect()
        };
        while !waiting.is_empty() {
            let left = waiting.len();
            let some_ran = driver.wait_until(|calls| {
                of_change(calls).iter().filter(|name| waiting.contains(*name)).count() > 0
                    || left == 0
            });
            timeout(LIMIT, some_ran).await.unwrap();
            let elapsed = changed.elapsed();
            for name in of_change(&driver.calls()) {
                if waiting.remove(&name) {
                    delays.push(elapsed);
                }
            }
        }
        runs += dependent.len();
        let applied = |calls: &[Call]| {
            let applied = calls[seen..].iter().filter(|call| matches!(call, Call::Applied(_)));
            applied.count() >= dependent.len()
        };
        timeout(LIMIT, driver.wait_until(applied)).await.unwrap();
        let ran: Vec<String> = of_change(&driver.calls());
        assert_eq!(ran.len(), dependent.len(), "a change of {} ran {ran:?}", name(service));
        seen = driver.calls().len();
    }
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
