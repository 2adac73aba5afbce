//! `doctor`: checks what `start` would need, and changes nothing. With `-init` it also makes
//! each task ready, in a folder that it deletes.

mod permissions;

use std::{
    io,
    net::TcpListener,
    path::Path,
    time::{Duration, SystemTime},
};

use consul_watch::{Client, Clock as _, SystemClock, error_chain, watch::WatcherBuilder};
use nix::sys::resource::{Resource, getrlimit};

use super::{
    Program, arguments::DoctorFlags, complain, exit::Exit, look::print_json, output::Terminal,
    table::aligned, task::on_terminal, validate,
};
use crate::{Config, Finding, RunContext, Task, Verdict, config::Loaded};

/// Longest time that one question to Consul or one look at the driver's tool may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest time that making one task ready may take: providers may be large.
const INIT_PATIENCE: Duration = Duration::from_mins(5);

/// Difference of clocks that is mentioned. Consul's own leases and lock delays bear more;
/// beyond it, times of events and of Consul's log are hard to lay beside each other.
const CLOCK_SKEW: Duration = Duration::from_secs(5);

/// Descriptors that a daemon needs besides: for its API, its log and its files.
const DESCRIPTORS: u64 = 256;

/// Descriptors that a run of a task takes: pipes of the tool, its lock and files.
const DESCRIPTORS_OF_A_TASK: u64 = 8;

/// Everything that was found, in the order of the checks.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, check: impl Into<String>, result: Verdict, detail: impl AsRef<str>) {
        self.0.push(Finding::new(check, result, detail));
    }
}

/// Runs the command to its end, on the terminal of the process.
pub(crate) fn run_command(program: &Program, flags: &DoctorFlags) -> Exit {
    let loaded = match validate::load(program, &flags.configuration) {
        Ok(loaded) => loaded,
        Err(findings) => {
            validate::refuse(&findings);
            return Exit::Config;
        }
    };
    for warning in &loaded.config.warnings {
        complain(&format!("{}\n", warning.render()));
    }
    on_terminal(async |terminal| doctor(&loaded, flags, terminal).await)
}

async fn doctor(
    loaded: &Loaded,
    flags: &DoctorFlags,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let mut findings = Findings::default();
    let tasks = loaded.config.tasks.len();
    findings.add("configuration", Verdict::Ok, format!("valid, {tasks} tasks"));
    consul(loaded, &mut findings).await;
    driver(loaded, &mut findings).await;
    if flags.init {
        tasks_in_scratch(loaded, &mut findings).await;
    }
    modules(&loaded.config.tasks, &mut findings);
    files(loaded, &mut findings);
    limits(&loaded.config, &mut findings);
    if flags.output.json {
        print_json(&findings.0, terminal)?;
    } else {
        let row = |it: &Finding| vec![it.result.to_string(), it.check.clone(), it.detail.clone()];
        let rows: Vec<_> = findings.0.iter().map(row).collect();
        terminal.raw(&aligned(&["RESULT", "CHECK", "DETAIL"], &rows))?;
    }
    let missing = findings.0.iter().any(|it| it.result == Verdict::Missing);
    Ok(if missing { Exit::Unhealthy } else { Exit::Ok })
}

/// Checks that Consul answers, and that the token may do what is done with it.
async fn consul(loaded: &Loaded, findings: &mut Findings) {
    let (check, address) = ("consul", &loaded.config.consul.address);
    let client = match Client::new(loaded.config.consul.client_config()) {
        Ok(client) => client,
        Err(error) => return findings.add(check, Verdict::Missing, error_chain(&error)),
    };
    match tokio::time::timeout(PATIENCE, client.status_leader()).await {
        Ok(Ok(Some(leader))) => {
            findings.add(check, Verdict::Ok, format!("{address} answers, its leader is {leader}"));
        }
        Ok(Ok(None)) => {
            let detail = format!("{address} answers, and the cluster has no leader");
            return findings.add(check, Verdict::Missing, detail);
        }
        Ok(Err(error)) => {
            let detail = format!("{address}: {}", error_chain(&error));
            return findings.add(check, Verdict::Missing, detail);
        }
        Err(_late) => {
            let detail = format!("{address} does not answer within {} s", PATIENCE.as_secs());
            return findings.add(check, Verdict::Missing, detail);
        }
    }
    clock(&client, findings).await;
    connections(&client, loaded.config.consul.watch_connections, findings).await;
    permissions::check(&client, &loaded.config, findings).await;
}

/// Compares this machine's clock with Consul's.
async fn clock(client: &Client, findings: &mut Findings) {
    let before = SystemClock.now();
    let Ok(Ok(Some(there))) = tokio::time::timeout(PATIENCE, client.server_time()).await else {
        return findings.add("clock", Verdict::Unchecked, "Consul's answer does not tell the time");
    };
    let (result, detail) = compared(before, there, SystemClock.now());
    findings.add("clock", result, detail);
}

/// Compares a time, cut off to the second, with the times between which it was asked for.
fn compared(before: SystemTime, there: SystemTime, after: SystemTime) -> (Verdict, String) {
    let ahead = before.duration_since(there + Duration::from_secs(1)).unwrap_or_default();
    let behind = there.duration_since(after).unwrap_or_default();
    let (apart, direction) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if apart > CLOCK_SKEW {
        let detail = format!(
            "this machine's clock is {} s {direction} Consul's: certificates, leases and times of \
             events are judged by it; set it by NTP",
            apart.as_secs()
        );
        return (Verdict::Warning, detail);
    }
    (Verdict::Ok, format!("within {} s of Consul's", apart.as_secs() + 1))
}

/// Compares the connections that the watches may use with those that the agent allows.
async fn connections(client: &Client, configured: Option<u16>, findings: &mut Findings) {
    let most = u64::from(configured.unwrap_or(WatcherBuilder::DEFAULT_CONNECTIONS));
    let agent = tokio::time::timeout(PATIENCE, client.agent_self()).await;
    let allowed = agent.ok().and_then(|agent| {
        let settings = agent.ok()?.debug_config;
        settings.get("HTTPMaxConnsPerClient")?.as_u64()
    });
    let (result, detail) = match allowed {
        Some(allowed) if most > allowed && allowed > 0 => (
            Verdict::Warning,
            format!(
                "watches may use {most}, and the agent allows {allowed} for each client address: \
                 lower watch_connections, or raise limits.http_max_conns_per_client of Consul"
            ),
        ),
        Some(0) => (Verdict::Ok, format!("watches use {most} at most, the agent has no limit")),
        Some(allowed) => {
            (Verdict::Ok, format!("watches use {most} at most, the agent allows {allowed}"))
        }
        None => (
            Verdict::Unchecked,
            format!(
                "watches use {most} at most; the token may not read (agent:read) how many the \
                 agent allows, 200 unless configured"
            ),
        ),
    };
    findings.add("connections", result, detail);
}

/// Checks the driver, and that it accepts the tasks.
async fn driver(loaded: &Loaded, findings: &mut Findings) {
    let label = &loaded.config.driver.label;
    match tokio::time::timeout(PATIENCE, loaded.driver.check()).await {
        Ok(found) => findings.0.extend(found),
        Err(_late) => {
            let detail = format!("its tool does not answer within {} s", PATIENCE.as_secs());
            findings.add(format!("driver {label}"), Verdict::Missing, detail);
        }
    }
    for task in &loaded.config.tasks {
        if let Err(error) = loaded.driver.driver(task) {
            let check = format!("driver of task {}", task.name);
            findings.add(check, Verdict::Missing, error_chain(&error));
        }
    }
}

/// Makes each task ready, in a folder that is deleted afterwards.
async fn tasks_in_scratch(loaded: &Loaded, findings: &mut Findings) {
    let scratch = match tempfile::Builder::new().prefix("doctor-").tempdir() {
        Ok(scratch) => scratch,
        Err(error) => {
            let detail = format!("no temporary folder can be made: {error}");
            return findings.add("init", Verdict::Missing, detail);
        }
    };
    for task in &loaded.config.tasks {
        let check = format!("init of task {}", task.name);
        let mut elsewhere = task.clone();
        elsewhere.working_dir = scratch.path().join(task.name.as_str());
        // A task that the driver refuses is named already.
        let Ok(driver) = loaded.driver.driver(&elsewhere) else { continue };
        match tokio::time::timeout(INIT_PATIENCE, driver.try_out(&RunContext::default())).await {
            Ok(Ok(Some(done))) => findings.add(check, Verdict::Ok, done),
            Ok(Ok(None)) => {
                findings.add(check, Verdict::Unchecked, "this driver has nothing to try");
            }
            Ok(Err(error)) => findings.add(check, Verdict::Missing, error_chain(&error)),
            Err(_late) => {
                let detail = format!("not done within {} s", INIT_PATIENCE.as_secs());
                findings.add(check, Verdict::Missing, detail);
            }
        }
    }
}

/// Checks that modules which are folders exist.
fn modules(tasks: &[Task], findings: &mut Findings) {
    for task in tasks {
        let local = ["/", "./", "../"].iter().any(|start| task.module.starts_with(start));
        if !local {
            continue;
        }
        let check = format!("module of task {}", task.name);
        if Path::new(&task.module).is_dir() {
            findings.add(check, Verdict::Ok, &task.module);
        } else {
            findings.add(check, Verdict::Missing, format!("{} is no folder", task.module));
        }
    }
}

/// Checks that the working directory can be made and written, and that the port is
/// free.
fn files(loaded: &Loaded, findings: &mut Findings) {
    let config = &loaded.config;
    let folder = config.working_dir.ancestors().find(|folder| folder.exists());
    // A relative path begins at the folder of the process.
    let folder = folder.filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writable = nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK);
    let shown = config.working_dir.display();
    match writable {
        Ok(()) => findings.add("working_dir", Verdict::Ok, format!("{shown} can be written")),
        Err(error) => {
            let detail = format!("{shown}: {} cannot be written: {error}", folder.display());
            findings.add("working_dir", Verdict::Missing, detail);
        }
    }
    match TcpListener::bind(("0.0.0.0", config.port)) {
        Ok(_) => findings.add("port", Verdict::Ok, format!("{} is free", config.port)),
        Err(error) => {
            let detail = format!("{} cannot be taken: {error}", config.port);
            findings.add("port", Verdict::Missing, detail);
        }
    }
}

/// Compares the open files that are needed with those that the system allows.
fn limits(config: &Config, findings: &mut Findings) {
    let watches =
        u64::from(config.consul.watch_connections.unwrap_or(WatcherBuilder::DEFAULT_CONNECTIONS));
    let needed = watches + DESCRIPTORS + DESCRIPTORS_OF_A_TASK * config.tasks.len() as u64;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard < needed => {
            let detail = format!(
                "{hard} open files at most, {needed} may be needed: raise it (ulimit -Hn, or \
                 LimitNOFILE= of systemd), or lower watch_connections"
            );
            findings.add("limits", Verdict::Warning, detail);
        }
        Ok((_, hard)) => {
            let detail = format!("{hard} open files at most, {needed} may be needed");
            findings.add("limits", Verdict::Ok, detail);
        }
        Err(error) => findings.add("limits", Verdict::Unchecked, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_compared_to_the_second() {
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        // The answer says 100 s for everything up to 100.999 s.
        let result = |before, after| compared(at(before), at(100_000), at(after));
        assert_eq!(result(100_900, 101_000), (Verdict::Ok, "within 1 s of Consul's".to_owned()));
        assert_eq!(result(99_990, 100_010).0, Verdict::Ok);
        assert_eq!(result(95_000, 95_001).0, Verdict::Ok);
        assert_eq!(result(106_000, 106_001).0, Verdict::Ok);
        let (verdict, detail) = result(94_000, 94_001);
        assert_eq!(verdict, Verdict::Warning);
        assert!(detail.contains("5 s behind Consul's"), "{detail}");
        let (verdict, detail) = result(111_000, 111_001);
        assert_eq!(verdict, Verdict::Warning);
        assert!(detail.contains("10 s ahead of Consul's"), "{detail}");
        // An answer that took its time proves nothing.
        assert_eq!(result(90_000, 110_000).0, Verdict::Ok);
    }
}
