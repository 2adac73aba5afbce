//! `consul-ecs mesh-init` beside the floor, a bare program that makes the same calls and writes the same
//! files (`floor.rs`), and beside `consul connect envoy -bootstrap` for the same proxy; all of the same
//! agent, in turn: wall time, CPU time and peak memory of each process. On a loaded machine the wall time
//! is mostly that of waiting for a core; its best run and the CPU time say more then.
//!
//! ```text
//! cargo bench -p consul-ecs --no-default-features --bench mesh_init
//! ```
//!
//! Consul's command does less in its time: it neither registers the service and its sidecar nor copies
//! anything into a volume. `CONSUL_ECS` names another build of it, such as that of the profile `small`:
//!
//! ```text
//! cargo build --profile small -p consul-ecs --no-default-features
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a bench prints its figures and fails by panicking"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use consul_watch::testing::{parts::Suite, real::Consul};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use serde_json::json;
use tokio::time::Instant;

/// Runs what follows it, and prints microseconds of wall and CPU time.
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
    let [wall_micros, cpu_micros] = figures[..] else { panic!("not two figures: {text}") };
    Run { wall_micros, cpu_micros, kilobytes: peak(program, arguments, vars) }
}

/// Peak memory of a run of its own, in kilobytes, read from the system again and again until the
/// process has ended. What the system reports at the end is no less than the peak of the parent, whose
/// memory the child shares until it has become another program.
fn peak(program: &Path, arguments: &[&str], vars: &[(&str, &str)]) -> u64 {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(vars.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        // A process that has ended has no such line until it is waited for.
        let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:")) else { break };
        peak = line.trim().trim_end_matches(" kB").parse().unwrap();
    }
    assert!(child.wait().unwrap().success());
    peak
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
    println!("{wall} {}", cpu.num_microseconds());
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

/// What one run used.
type Figure = fn(&Run) -> u64;

fn sorted(runs: &[Run], figure: Figure) -> Vec<u64> {
    let mut figures: Vec<u64> = runs.iter().map(figure).collect();
    figures.sort_unstable();
    figures
}

fn median(runs: &[Run], figure: Figure) -> u64 {
    sorted(runs, figure)[runs.len() / 2]
}

/// Prints one figure of the three, and how many times the floor's ours is, and Consul's ours.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn compare(what: &str, unit: &str, per_unit: f64, [floor, ours, theirs]: [u64; 3]) {
    println!(
        "{what:<12} floor {:>7.2} {unit}   consul-ecs {:>7.2} {unit} ({:.2} times)   consul {:>7.2} {unit} ({:.1} times ours)",
        floor as f64 / per_unit,
        ours as f64 / per_unit,
        ours as f64 / floor as f64,
        theirs as f64 / per_unit,
        theirs as f64 / ours as f64
    );
}

/// Compiles the floor, which is a program of the standard library alone.
fn floor(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/mesh_init/floor.rs");
    let program = folder.join("floor");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args(["--edition", "2024", "-C", "opt-level=3", "-C", "strip=symbols", "-o"]);
    let status = rustc.arg(&program).arg(&source).status().unwrap();
    assert!(status.success(), "rustc {}: {status}", source.display());
    program
}

async fn bench() {
    let Some(part) = Suite("mesh-init bench").part("consul", "all") else { return };
    let consul = Consul::start(&part.path).await.expect("a real Consul");
    let metadata = metadata();
    let client = consul.client();
    let folder = tempfile::tempdir().unwrap();
    let floor = floor(folder.path());
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
    // What mesh-init renders is known to the floor from the start.
    let document = folder.path().join("bootstrap.json");
    let (mut least, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        // Each task starts with an empty volume.
        let volume = tempfile::tempdir().unwrap();
        let config = json!({"bootstrapDir": volume.path(), "service": {"port": 8080}}).to_string();
        let vars = [
            ("CONSUL_ECS_CONFIG_JSON", config.as_str()),
            ("CONSUL_HTTP_ADDR", client.address()),
            ("ECS_CONTAINER_METADATA_URI_V4", &metadata),
        ];
        ours.push(measured(program, &["mesh-init"], &vars));
        fs::copy(volume.path().join("envoy-bootstrap.json"), &document).unwrap();
        let volume = tempfile::tempdir().unwrap();
        let arguments = [
            metadata.trim_start_matches("http://"),
            client.address().trim_start_matches("http://"),
            volume.path().to_str().unwrap(),
            program.to_str().unwrap(),
            document.to_str().unwrap(),
        ];
        least.push(measured(&floor, &arguments, &[]));
        theirs.push(measured(&part.path, &bootstrap, &vars));
        if round == 0 {
            // The first round finds cold caches, and a Consul that does not know the service.
            for runs in [&mut least, &mut ours, &mut theirs] {
                runs.clear();
            }
        }
    }
    println!("{ROUNDS} runs of each in turn, Consul {}", part.version);
    let wall = |run: &Run| run.wall_micros;
    let cpu = |run: &Run| run.cpu_micros;
    let peak = |run: &Run| run.kilobytes;
    let all = |figure: Figure, of: fn(&[Run], Figure) -> u64| {
        [of(&least, figure), of(&ours, figure), of(&theirs, figure)]
    };
    compare("wall, best", "ms", 1000.0, all(wall, |runs, figure| sorted(runs, figure)[0]));
    compare("wall, p50", "ms", 1000.0, all(wall, median));
    compare("CPU, p50", "ms", 1000.0, all(cpu, median));
    let last: fn(&[Run], Figure) -> u64 = |runs, figure| sorted(runs, figure)[runs.len() - 1];
    compare("peak memory", "MiB", 1024.0, all(peak, last));
    compare("memory, p50", "MiB", 1024.0, all(peak, median));
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    let sizes = [size(&floor), size(program), size(&part.path)];
    compare("binary", "MiB", 1024.0 * 1024.0, sizes);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, command)) if first == MEASURE => measure(command),
        _ => tokio::runtime::Runtime::new().unwrap().block_on(bench()),
    }
}
