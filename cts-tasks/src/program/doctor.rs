//! `doctor`: checks what `start` would need, and changes nothing.

mod permissions;

use std::{fmt, io, net::TcpListener, path::Path, time::Duration};

use consul_watch::{Client, error_chain};
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;

use super::{
    Program, arguments::DoctorFlags, complain, exit::Exit, look::print_json, output::Terminal,
    table::aligned, task::on_terminal, validate,
};
use crate::{Task, config::Loaded};

/// Longest time that one question to Consul or one look at the driver's tool may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Descriptors below which a run may lack some.
const DESCRIPTORS: u64 = 1024;

/// What came of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: String,
    result: Verdict,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// It starts, and something may be missing later.
    Warning,
    /// It does not start, or a task cannot run.
    Missing,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
        })
    }
}

/// Everything that was found, in the order of the checks.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, check: impl Into<String>, result: Verdict, detail: impl Into<String>) {
        self.0.push(Finding { check: check.into(), result, detail: detail.into() });
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
    on_terminal(async |terminal| doctor(&loaded, flags.output.json, terminal).await)
}

async fn doctor(loaded: &Loaded, json: bool, terminal: &mut Terminal<'_>) -> io::Result<Exit> {
    let mut findings = Findings::default();
    let tasks = loaded.config.tasks.len();
    findings.add("configuration", Verdict::Ok, format!("valid, {tasks} tasks"));
    consul(loaded, &mut findings).await;
    driver(loaded, &mut findings).await;
    modules(&loaded.config.tasks, &mut findings);
    files(loaded, &mut findings);
    limits(&mut findings);
    if json {
        print_json(&findings.0, terminal)?;
    } else {
        let row = |it: &Finding| vec![it.result.to_string(), it.check.clone(), it.detail.clone()];
        let rows: Vec<_> = findings.0.iter().map(row).collect();
        terminal.raw(&aligned(&["RESULT", "CHECK", "DETAIL"], &rows))?;
    }
    let missing = findings.0.iter().any(|it| it.result == Verdict::Missing);
    Ok(if missing { Exit::Unhealthy } else { Exit::Ok })
}

/// Whether Consul answers, and whether the token may do what is done with it.
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
    permissions::check(&client, &loaded.config, findings).await;
}

async fn driver(loaded: &Loaded, findings: &mut Findings) {
    let check = format!("driver {}", loaded.config.driver.label);
    match tokio::time::timeout(PATIENCE, loaded.driver.check()).await {
        Ok(Ok(found)) => {
            findings.add(
                check,
                Verdict::Ok,
                found.unwrap_or_else(|| "nothing to check".to_owned()),
            );
        }
        Ok(Err(error)) => findings.add(check, Verdict::Missing, error_chain(&error)),
        Err(_late) => {
            let detail = format!("its tool does not answer within {} s", PATIENCE.as_secs());
            findings.add(check, Verdict::Missing, detail);
        }
    }
    for task in &loaded.config.tasks {
        if let Err(error) = loaded.driver.driver(task) {
            let check = format!("driver of task {}", task.name);
            findings.add(check, Verdict::Missing, error_chain(&error));
        }
    }
}

/// Whether modules that are folders are there.
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

/// Whether the working directory can be made and written, and the port is free.
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

fn limits(findings: &mut Findings) {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard < DESCRIPTORS => {
            let detail = format!("{hard} open files at most; {DESCRIPTORS} or more are advised");
            findings.add("limits", Verdict::Warning, detail);
        }
        Ok((_, hard)) => findings.add("limits", Verdict::Ok, format!("{hard} open files at most")),
        Err(error) => findings.add("limits", Verdict::Warning, error.to_string()),
    }
}
