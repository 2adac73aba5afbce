//! `consul-ecs mesh-init` beside `consul connect envoy -bootstrap`, for the same proxy of the same
//! agent, in turn: wall time, CPU time and peak memory of each process. On a loaded machine the wall time
//! is mostly that of waiting for a core; its best run and the CPU time say more then.
//!
//! ```text
//! cargo bench -p examples --no-default-features --features ecs --bench mesh_init
//! ```
//!
//! Ours does more in its time: it also registers the service and its sidecar, and copies itself into
//! the volume. `CONSUL_ECS` names another build of it, such as that of the profile `small`:
//!
//! ```text
//! cargo build --profile small -p examples --no-default-features --features ecs --bin consul-ecs
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a bench prints its figures and fails by panicking"
)]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use consul_watch::testing::{parts::Suite, real::Consul};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use serde_json::json;
use tokio::time::Instant;

/// Runs what follows it, and prints microseconds of wall and CPU time, and kilobytes.
const MEASURE: &str = "--measure";
const ROUNDS: usize = 100;
const TASK: &str =
    r#"{"Cluster":"test","TaskARN":"arn:aws:ecs:us-east-1:1:task/test/abcdef","Family":"web"}"#;

/// One run of a process.
#[derive(Debug, Clone, Copy)]
struct Run {
    wall_micros: u64,
    cpu_micros: u64,
    kilobytes: u64,
}

/// Measures one process in a parent of its own, whose only child it is.
fn measured(program: &Path, arguments: &[&str], vars: &[(&str, &str)]) -> Run {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg(MEASURE)
        .arg(program)
        .args(arguments)
        .env_clear()
        .envs(vars.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: Vec<u64> = text.split_whitespace().map(|it| it.parse().unwrap()).collect();
    Run { wall_micros: figures[0], cpu_micros: figures[1], kilobytes: figures[2] }
}

fn measure(command: &[String]) {
    let start = Instant::now();
    let status = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    let wall = start.elapsed().as_micros();
    assert!(status.success(), "{command:?}: {status}");
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let cpu = usage.user_time() + usage.system_time();
    println!("{wall} {} {}", cpu.num_microseconds(), usage.max_rss());
}

/// A server that gives the task's metadata until the process ends.
fn metadata() -> String {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let read = stream.read(&mut request);
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{TASK}",
                TASK.len()
            );
            if read.is_ok() && stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    address
}

fn sorted(runs: &[Run], figure: fn(&Run) -> u64) -> Vec<u64> {
    let mut figures: Vec<u64> = runs.iter().map(figure).collect();
    figures.sort_unstable();
    figures
}

fn median(runs: &[Run], figure: fn(&Run) -> u64) -> u64 {
    sorted(runs, figure)[runs.len() / 2]
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn compare(what: &str, unit: &str, per_unit: f64, ours: u64, theirs: u64) {
    println!(
        "{what:<12} consul-ecs {:>8.2} {unit}   consul {:>8.2} {unit}   {:.1} times",
        ours as f64 / per_unit,
        theirs as f64 / per_unit,
        theirs as f64 / ours as f64
    );
}

async fn bench() {
    let Some(part) = Suite("mesh-init bench").part("consul", "all") else { return };
    let consul = Consul::start(&part.path).await.expect("a real Consul");
    let metadata = metadata();
    let client = consul.client();
    let program =
        std::env::var("CONSUL_ECS").unwrap_or(env!("CARGO_BIN_EXE_consul-ecs").to_owned());
    let program = Path::new(&program);
    let bootstrap = [
        "connect",
        "envoy",
        "-bootstrap",
        "-proxy-id",
        "web-abcdef-sidecar-proxy",
        "-grpc-addr",
        "localhost:8502",
    ];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _round in 0..ROUNDS {
        // Each task starts with an empty volume.
        let volume = tempfile::tempdir().unwrap();
        let config = json!({"bootstrapDir": volume.path(), "service": {"port": 8080}}).to_string();
        let vars = [
            ("CONSUL_ECS_CONFIG_JSON", config.as_str()),
            ("CONSUL_HTTP_ADDR", client.address()),
            ("ECS_CONTAINER_METADATA_URI_V4", &metadata),
        ];
        ours.push(measured(program, &["mesh-init"], &vars));
        theirs.push(measured(&part.path, &bootstrap, &vars));
    }
    println!("{ROUNDS} runs of each in turn, Consul {}", part.version);
    let (wall, cpu, peak) =
        (|run: &Run| run.wall_micros, |run: &Run| run.cpu_micros, |run: &Run| run.kilobytes);
    compare("wall, best", "ms", 1000.0, sorted(&ours, wall)[0], sorted(&theirs, wall)[0]);
    compare("wall, p50", "ms", 1000.0, median(&ours, wall), median(&theirs, wall));
    compare("CPU, p50", "ms", 1000.0, median(&ours, cpu), median(&theirs, cpu));
    let last = ROUNDS - 1;
    compare("peak memory", "MiB", 1024.0, sorted(&ours, peak)[last], sorted(&theirs, peak)[last]);
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    compare("binary", "MiB", 1024.0 * 1024.0, size(program), size(&part.path));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, command)) if first == MEASURE => measure(command),
        _ => tokio::runtime::Runtime::new().unwrap().block_on(bench()),
    }
}
