//! What a run costs beside Terraform's own time, at 10, 100 and 1,000 service
//! instances of one service.
//!
//! `cargo bench -p cts-driver-terraform --bench overhead [-- ROUNDS]`
//!
//! An engine watches an in-process Consul. Each round changes the port of one
//! instance, and takes the time of the run from its event: inputs, files,
//! process, its output, the event. With a stand-in that does nothing but print
//! what OpenTofu would, all of that time is ours, and the start of a shell,
//! which is printed too. Beside it stands the same run with a real OpenTofu or
//! Terraform and a module of one `terraform_data` for each instance.
//!
//! `cargo bench -p cts-driver-terraform --bench overhead -- large [SERVICES ROUNDS]`
//!
//! One task on 10,000 services instead, with a stand-in that prints nothing: the
//! processor time of this process for one apply after one instance changed, which
//! is that of the files, and memory.
//!
//! `cargo bench -p cts-driver-terraform --bench overhead -- whole [SERVICES ROUNDS]`
//!
//! The same task with the engine on a real Consul, all in this process: the time from
//! the start to the first event, the processor time of one change from Consul's answer
//! to the event, and memory.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a bench prints, and stops at what it did not expect"
)]

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use consul_watch::{
    Client, Watcher,
    testing::{TestConsul, parts, real},
    types::{CatalogRegistration, HealthCheck, HealthStatus, Service},
};
use cts_driver_terraform::{CliOptions, RetryOnLock, Settings, TerraformCli, TerraformFactory};
use cts_tasks::{
    ApplyRequest, ConfigValue, ConsulConfig, DriverFactory as _, DriverSettings, Engine,
    EngineOptions, Event, RunContext, ServiceInstance, Stop, StopReason, Task, TaskInputs,
    TaskName,
    config::{Entry, ValueKind},
};
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::time::{Instant, sleep};

const SIZES: [u16; 3] = [10, 100, 1000];
const LIMIT: Duration = Duration::from_mins(2);
/// Nodes of the catalog that `whole` fills.
const NODES: u32 = 50;
/// Time in which nothing is left of the start.
const QUIET: Duration = Duration::from_secs(5);

/// One `terraform_data` for each instance.
const MODULE: &str = r#"
variable "services" {
  type = map(object({ port = number }))
}
resource "terraform_data" "rule" {
  for_each = var.services
  input    = each.value.port
}
"#;

const STAND_IN: &str = r#"#!/bin/sh
case "$1" in
version) echo '{"terraform_version": "1.11.4"}' ;;
validate) echo '{"format_version": "1.0", "valid": true, "diagnostics": []}' ;;
apply) cat 'STREAM' ;;
esac
"#;

fn main() {
    // `cargo test --benches` asks for a run that measures nothing.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    let rounds = std::env::args().find_map(|text| text.parse().ok()).unwrap_or(10);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let numbers: Vec<u32> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let mode = |name: &str| std::env::args().any(|argument| argument == name);
    if mode("large") {
        return runtime.block_on(large(number(0, 10_000), number(1, 50)));
    }
    if mode("whole") {
        return runtime.block_on(whole(number(0, 10_000), number(1, 50)));
    }
    let tool = ["tofu", "terraform"].into_iter().find_map(parts::find);
    let name = tool.as_ref().map_or_else(
        || "no real tool found".to_owned(),
        |tool| format!("{} {}", tool.name, tool.version),
    );
    println!("{rounds} rounds each, medians (the slowest); {name}");
    for size in SIZES {
        let root = tempfile::tempdir().unwrap();
        let stand_in = stand_in(root.path(), size);
        let shell = (0..rounds).map(|_| runtime.block_on(shell(&stand_in))).collect();
        let ours = runtime.block_on(measure(root.path(), &stand_in, size, rounds));
        let theirs = tool.as_ref().map(|tool| {
            let root = tempfile::tempdir().unwrap();
            runtime.block_on(measure(root.path(), &tool.path, size, rounds))
        });
        println!(
            "{size:>5} instances: ours {}, of that the stand-in's shell {}; with a real tool {}",
            shown(ours),
            shown(shell),
            theirs.map_or_else(|| "-".to_owned(), shown)
        );
    }
}

/// A program that prints what a tool prints that changes one of `size` resources.
fn stand_in(root: &Path, size: u16) -> PathBuf {
    let path = root.join("stand-in/terraform");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let stream_file = path.with_file_name("stream");
    let script = STAND_IN.replace("STREAM", stream_file.to_str().unwrap());
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let mut stream = String::from("{\"type\":\"version\",\"ui\":\"1.2\"}\n");
    for number in 0..size {
        let address = format!("module.bench.terraform_data.rule[\"api-{number}.node.dc1\"]");
        let line = json!({"@level": "info", "@message": format!("{address}: Refreshing state..."),
            "type": "refresh_complete", "hook": {"resource": {"addr": address}}});
        writeln!(stream, "{line}").unwrap();
    }
    stream += "{\"type\":\"change_summary\",\"changes\":{\"add\":0,\"change\":1,\"remove\":0,\"operation\":\"apply\"}}\n";
    fs::write(stream_file, stream).unwrap();
    path
}

/// How long the stand-in itself takes.
async fn shell(program: &Path) -> Duration {
    let began = Instant::now();
    let output = tokio::process::Command::new(program).arg("apply").output().await.unwrap();
    assert!(output.status.success());
    began.elapsed()
}

async fn measure(root: &Path, program: &Path, size: u16, rounds: usize) -> Vec<Duration> {
    let consul = TestConsul::new();
    let put = |number: u16, port: u16| {
        let id = format!("api-{number}");
        consul.set_instance("api", &id, "10.0.0.1", port, HealthStatus::Passing);
    };
    (0..size).for_each(|number| put(number, 80));
    let factory = factory(root, program);
    let engine =
        Engine::new(Watcher::new(consul.client()), Arc::new(factory), EngineOptions::default());
    let stop = Stop::new();
    engine.load(vec![task(root)], &stop).await.unwrap();
    let (running, ended) = (engine.clone(), stop.clone());
    let work = tokio::spawn(async move { running.run(&ended).await });
    let mut last = event_after(&engine, None).await;
    let mut times = Vec::new();
    for round in 0..rounds {
        put(0, 1000 + u16::try_from(round).unwrap());
        last = event_after(&engine, Some(&last)).await;
        times.push((last.end_time - last.start_time).to_std().unwrap());
    }
    stop.stop(StopReason::Shutdown);
    work.await.unwrap().unwrap();
    times
}

fn factory(root: &Path, program: &Path) -> TerraformFactory {
    let bin = root.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = program.canonicalize().unwrap();
    std::os::unix::fs::symlink(&program, bin.join(program.file_name().unwrap())).unwrap();
    let consul = ConsulConfig::default();
    let body = ConfigValue {
        kind: ValueKind::Object(vec![entry("backend", vec![entry("local", Vec::new())])]),
        place: None,
    };
    let mut settings = DriverSettings::new(&consul, root);
    settings.body = Some(&body);
    let settings = Settings::read(settings).unwrap();
    let mut options = CliOptions::default();
    options.path = Some(bin);
    options.environment.retain(|(name, _)| name != "TF_CLI_CONFIG_FILE");
    let terraform = RetryOnLock::new(TerraformCli::new(options), settings.lock_timeout());
    TerraformFactory::new(settings, Arc::new(terraform))
}

fn entry(key: &str, entries: Vec<Entry>) -> Entry {
    let value = ConfigValue { kind: ValueKind::Object(entries), place: None };
    Entry { key: key.to_owned(), key_place: None, labels: Vec::new(), block: false, value }
}

fn task(root: &Path) -> Task {
    let module = root.join("module");
    fs::create_dir_all(&module).unwrap();
    fs::write(module.join("main.tf"), MODULE).unwrap();
    serde_json::from_value(json!({
        "name": "bench", "description": "", "enabled": true, "module": module, "version": null,
        "providers": [], "variables": {}, "buffer_period": "Disabled",
        "working_dir": "sync-tasks/bench", "module_inputs": [], "driver_blocks": {},
        "condition": {"Services": {"use_as_module_input": true, "services": {"Named": [{
            "name": "api", "datacenter": "", "namespace": "", "filter": "",
            "cts_user_defined_meta": {},
        }]}}},
    }))
    .unwrap()
}

/// A task on so many services.
fn large_task(root: &Path, services: u32) -> Task {
    let mut task = task(root);
    task.condition = serde_json::from_value(json!({"Services": {
        "use_as_module_input": true,
        "services": {"Named": (0..services).map(|service| json!({
            "name": format!("service-{service:04}"), "datacenter": "", "namespace": "",
            "filter": "", "cts_user_defined_meta": {},
        })).collect::<Vec<_>>()},
    }}))
    .unwrap();
    task
}

/// One task on so many services of a real Consul, which change one after the other.
async fn whole(services: u32, rounds: u32) {
    let Some(part) = parts::find("consul") else {
        println!("no Consul found: nothing measured");
        return;
    };
    let mut consul = real::Consul::start(&part.path).await.unwrap();
    let client = consul.client();
    for range in [0..NODES.min(services), NODES..services.max(NODES)] {
        stream::iter(range).for_each_concurrent(16, |service| register(&client, service, 1)).await;
    }
    let root = tempfile::tempdir().unwrap();
    let factory = factory(root.path(), &stand_in(root.path(), 0));
    let before = resident();
    let engine =
        Engine::new(Watcher::new(consul.client()), Arc::new(factory), EngineOptions::default());
    let (stop, begun, used) = (Stop::new(), Instant::now(), processor_time());
    engine.load(vec![large_task(root.path(), services)], &stop).await.unwrap();
    let (running, ended) = (engine.clone(), stop.clone());
    let work = tokio::spawn(async move { running.run(&ended).await });
    let mut last = event_after(&engine, None).await;
    println!(
        "Consul {}, {services} services: the first run ended after {:.2} s, with {:.2} s of \
         processor time",
        part.version,
        begun.elapsed().as_secs_f64(),
        processor_time().saturating_sub(used).as_secs_f64()
    );
    sleep(QUIET).await;
    println!("resident memory grew by {} KiB", resident().saturating_sub(before));
    let idle = processor_time();
    sleep(QUIET).await;
    let idle = processor_time().saturating_sub(idle).div_f64(QUIET.as_secs_f64());
    let (begun, used) = (Instant::now(), processor_time());
    for round in 0..rounds {
        register(&client, round * 97 % services, 2 + i64::from(round)).await;
        last = event_after(&engine, Some(&last)).await;
        // Each change is a run of its own, and what it costs is all its own.
        sleep(Duration::from_millis(200)).await;
    }
    let used = processor_time().saturating_sub(used);
    let own = used.saturating_sub(idle.mul_f64(begun.elapsed().as_secs_f64()));
    println!(
        "{rounds} changes: {:.1} ms of processor time each (idle: {:.1} ms a second); resident \
         memory grew by {} KiB in all",
        own.as_secs_f64() * 1e3 / f64::from(rounds.max(1)),
        idle.as_secs_f64() * 1e3,
        resident().saturating_sub(before)
    );
    stop.stop(StopReason::Shutdown);
    work.await.unwrap().unwrap();
    consul.stop().await;
}

async fn register(consul: &Client, service: u32, port: i64) {
    let name = format!("service-{service:04}");
    let mut instance = Service::new(&name, &name);
    instance.port = port;
    let check = HealthCheck::of_service(&name, format!("{name}-check"), HealthStatus::Passing);
    let node = format!("node-{:02}", service % NODES);
    let mut registration =
        CatalogRegistration::new(node, "10.0.0.1").with_service(instance).with_check(check);
    registration.skip_node_update = service >= NODES;
    consul.catalog_register(&registration).await.unwrap();
}

/// One task on so many services, of which one changes before each apply.
async fn large(services: u32, rounds: u32) {
    let root = tempfile::tempdir().unwrap();
    let program = stand_in(root.path(), 0);
    let task = large_task(root.path(), services);
    let mut instances: Vec<_> =
        (0..services).map(|service| Arc::new(instance(service, 1))).collect();
    let context = RunContext::default();
    let before = resident();
    let driver = factory(root.path(), &program).driver(&task).unwrap();
    driver.prepare(&context).await.unwrap();
    let mut used = Duration::ZERO;
    // The first apply writes everything.
    for round in 0..=rounds {
        let changed = round * 97 % services;
        instances[usize::try_from(changed).unwrap()] =
            Arc::new(instance(changed, 2 + i64::from(round)));
        let mut inputs = TaskInputs::default();
        inputs.services = Some(instances.clone());
        let begun = processor_time();
        driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap();
        if round > 0 {
            used += processor_time().saturating_sub(begun);
        }
    }
    let file = fs::metadata(root.path().join("sync-tasks/bench/terraform.tfvars")).unwrap();
    println!(
        "{services} services, {rounds} changes: {:.1} ms of processor time each for {} KiB of \
         values; resident memory grew by {} KiB",
        used.as_secs_f64() * 1e3 / f64::from(rounds.max(1)),
        file.len() / 1024,
        resident().saturating_sub(before)
    );
}

fn instance(service: u32, port: i64) -> ServiceInstance {
    let node = format!("node-{:02}", service % 50);
    let wan = [("lan", "10.0.0.1"), ("wan", "10.0.0.1")];
    ServiceInstance {
        id: format!("service-{service:04}"),
        name: format!("service-{service:04}"),
        address: "10.0.0.1".to_owned(),
        port,
        status: "passing".to_owned(),
        node,
        node_id: "4a1b2c3d-0000-1111-2222-333344445555".to_owned(),
        node_address: "10.0.0.1".to_owned(),
        node_datacenter: "dc1".to_owned(),
        node_tagged_addresses: wan.map(|(kind, to)| (kind.to_owned(), to.to_owned())).into(),
        ..ServiceInstance::default()
    }
}

/// Processor time of this process so far, without the programs that it started.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_name, rest)| rest);
    // The kernel counts in hundredths of a second for every program.
    let ticks =
        fields.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// KiB of this process in memory; 0 where the system does not say.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// The newest event, once it is another than `last`.
async fn event_after(engine: &Engine, last: Option<&Event>) -> Event {
    let name: TaskName = "bench".parse().unwrap();
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        let newest = engine.state(|state| state.events.get(&name)?.first().cloned());
        if let Some(event) = newest.filter(|event| last.is_none_or(|last| last.id != event.id)) {
            assert!(event.success, "{event:?}");
            return event;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("no run within {LIMIT:?}");
}

/// The median, and the slowest.
fn shown(mut times: Vec<Duration>) -> String {
    times.sort();
    let milliseconds = |time: Option<&Duration>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.1} ms", time.as_secs_f64() * 1e3))
    };
    format!("{} ({})", milliseconds(times.get(times.len() / 2)), milliseconds(times.last()))
}
