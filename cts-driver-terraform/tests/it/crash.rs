//! Our process is killed at random moments; the next one converges.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use consul_watch::{
    QueryOptions,
    testing::{parts::Part, real::Consul},
};
use cts_tasks::{ApplyRequest, Outcome};
use fastrand::Rng;
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    commands::processes_in,
    site::{SUITE, Site, context, eventually, services, tools},
};

/// Tells a process that it is the one to be killed, and what it does until then.
const ROLE: &str = "CTS_DRIVER_TERRAFORM_CRASH";

#[derive(Serialize, Deserialize)]
struct Work {
    root: PathBuf,
    consul: Option<String>,
    services: Vec<(String, i64)>,
    /// How long the process that is killed takes for each resource, in seconds.
    pause: f64,
}

impl Work {
    fn site(&self) -> Site {
        let mut site = Site::at(&self.root);
        if let Some(address) = &self.consul {
            site.driver_block = json!({});
            site.consul.address.clone_from(address);
            site.consul.kv_path = kv_path(&site);
        }
        site
    }

    async fn run(&self, pause: f64) -> Outcome {
        let site = self.site();
        let rules = site.path().join("rules");
        let driver = site.driver(&json!({"variables": {"directory": rules, "pause": pause}}));
        driver.prepare(&context()).await.unwrap();
        let ids: Vec<_> = self.services.iter().map(|(id, port)| (id.as_str(), *port)).collect();
        driver.apply(ApplyRequest::Inputs(&services(&ids)), &context()).await.unwrap()
    }

    fn rules(&self) -> Vec<String> {
        self.services.iter().map(|(id, port)| format!("{id}=10.0.0.1:{port}")).collect()
    }

    /// Starts a process that does the work.
    fn start(&self) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::the_process_that_is_killed", "--nocapture"])
            .env(ROLE, serde_json::to_string(self).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }
}

/// A process that is gone when the test is.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already, unless the test panicked.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The other side of this module's tests; does nothing in a run of the suite.
#[tokio::test]
async fn the_process_that_is_killed() {
    if let Ok(work) = std::env::var(ROLE) {
        let work: Work = serde_json::from_str(&work).unwrap();
        work.run(work.pause).await;
    }
}

fn some_services(random: &mut Rng) -> Vec<(String, i64)> {
    let ids = ["a", "b", "c", "d", "e"].into_iter().filter(|_| random.bool()).collect::<Vec<_>>();
    ids.into_iter().map(|id| (id.to_owned(), random.i64(1..1000))).collect()
}

/// Ends the tool too, with everything that it started, as a machine does that loses its power.
pub(crate) fn kill_the_tool(site: &Site) {
    loop {
        let processes = processes_in(&site.task_dir());
        if processes.is_empty() {
            return;
        }
        // All at once: none shall live to see another's end.
        for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
            for id in &processes {
                // It may have ended by itself in between.
                let sent = kill(Pid::from_raw(*id), signal);
                assert!(matches!(sent, Ok(()) | Err(Errno::ESRCH)), "{sent:?}");
            }
        }
        std::thread::yield_now();
    }
}

/// One crash, and the run after it.
async fn crash(site: &Site, consul: Option<&Consul>, tool_too: bool, random: &mut Rng) {
    let mut work = Work {
        root: site.path().to_owned(),
        consul: consul.map(Consul::address),
        services: some_services(random),
        pause: 0.2,
    };
    let mut process = work.start();
    tokio::time::sleep(Duration::from_millis(random.u64(0..2500))).await;
    process.kill();
    if tool_too {
        kill_the_tool(site);
    }
    work.run(0.0).await;
    if tool_too {
        // A tool that dies between creating a resource and running its
        // provisioner takes the resource for complete, and our rules are made
        // by provisioners; so each of them is asked for anew.
        work.services.iter_mut().for_each(|(_, port)| *port += 1000);
        work.run(0.0).await;
    }
    assert_eq!(site.rules(), work.rules());
    assert_eq!(work.run(0.0).await, Outcome::Unchanged, "the state knows all that there is");
    assert!(processes_in(&site.task_dir()).is_empty());
    if let Some(consul) = consul {
        let state = state_key(site);
        assert_eq!(keys(consul, &state).await, [state], "the state is there, and no lock on it");
    }
}

/// A path for the state of this site alone.
pub(crate) fn kv_path(site: &Site) -> String {
    site.path().display().to_string().trim_matches('/').to_owned()
}

pub(crate) fn state_key(site: &Site) -> String {
    format!("{}/terraform-env:test", kv_path(site))
}

pub(crate) async fn keys(consul: &Consul, prefix: &str) -> Vec<String> {
    let pairs = consul.client().kv_list(prefix, &QueryOptions::default()).await.unwrap().value;
    pairs.into_iter().map(|pair| pair.key).collect()
}

/// Crashes the site often: 50 times when `SOAK=1`, or else as often as given.
/// `SEED` replaces the seed.
#[expect(clippy::print_stdout, reason = "whoever looks at a failure needs the seed")]
async fn crash_often(site: &Site, consul: Option<&Consul>, short: u32, seed: u64) {
    let soak = std::env::var("SOAK").is_ok_and(|soak| soak == "1");
    let seed = std::env::var("SEED").map_or(seed, |seed| seed.parse().unwrap());
    let crashes = if soak { 50 } else { short };
    println!("{crashes} crashes, seed {seed}");
    let mut random = Rng::with_seed(seed);
    for number in 0..crashes {
        crash(site, consul, number % 2 == 1, &mut random).await;
    }
}

fn tofu(case: &str) -> Option<Part> {
    tools(case).into_iter().next()
}

#[tokio::test]
async fn a_run_after_a_crash_converges_with_local_state() {
    let Some(tool) = tofu("a_run_after_a_crash_converges_with_local_state") else { return };
    let site = Site::new(&tool);
    crash_often(&site, None, 8, 5).await;
}

/// A tool that dies with its lock leaves it to the session's time to live.
#[tokio::test]
async fn a_run_after_a_crash_converges_with_state_in_consul() {
    let case = "a_run_after_a_crash_converges_with_state_in_consul";
    let Some(tool) = tofu(case) else { return };
    for part in SUITE.parts("consul", case) {
        let consul = Consul::start(&part.path).await.unwrap();
        let site = Site::new(&tool);
        crash_often(&site, Some(&consul), 2, 6).await;
    }
}

/// Its holder is dead, so it lives until its session ends.
#[tokio::test]
async fn a_stale_lock_in_consul_is_waited_for() {
    let case = "a_stale_lock_in_consul_is_waited_for";
    let Some(tool) = tofu(case) else { return };
    for part in SUITE.parts("consul", case) {
        stale_lock(&tool, Consul::start(&part.path).await.unwrap()).await;
    }
}

async fn stale_lock(tool: &Part, consul: Consul) {
    let site = Site::new(tool);
    let work = Work {
        root: site.path().to_owned(),
        consul: Some(consul.address()),
        services: vec![("a".to_owned(), 1)],
        pause: 600.0,
    };
    let lock = format!("{}/.lock", state_key(&site));
    let mut process = work.start();
    // A run takes the lock several times; only in the apply it keeps it for long.
    eventually("the apply", || site.provisions()).await;
    process.kill();
    kill_the_tool(&site);
    assert!(keys(&consul, &lock).await.contains(&lock), "the lock outlives its holder");
    work.run(0.0).await;
    assert_eq!(site.rules(), work.rules());
    assert_eq!(keys(&consul, &lock).await, [""; 0]);
}

/// The tool is in the middle of an apply when its starter is killed.
#[tokio::test]
async fn an_orphaned_tool_finishes_and_nobody_runs_into_it() {
    let case = "an_orphaned_tool_finishes_and_nobody_runs_into_it";
    let mut consuls = vec![None];
    for part in SUITE.parts("consul", case) {
        consuls.push(Some(Consul::start(&part.path).await.unwrap()));
    }
    for tool in tools(case) {
        for consul in consuls.iter().map(Option::as_ref) {
            let site = Site::new(&tool);
            let mut work = Work {
                root: site.path().to_owned(),
                consul: consul.map(Consul::address),
                services: vec![("a".to_owned(), 1), ("b".to_owned(), 2)],
                pause: 0.2,
            };
            let mut process = work.start();
            let lock = site.task_dir().join("terraform.tfvars");
            eventually("the apply", || lock.is_file()).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            process.kill();
            work.services = vec![("b".to_owned(), 2), ("c".to_owned(), 3)];
            work.run(0.0).await;
            assert_eq!(site.rules(), work.rules(), "the orphan's resources are known");
        }
    }
}
