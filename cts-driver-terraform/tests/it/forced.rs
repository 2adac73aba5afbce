//! A tool that does not end when it is asked to is killed after its task's `shutdown_timeout`, and
//! the next run has neither a lock nor half a state in its way.

use std::time::Duration;

use consul_watch::{
    Watcher,
    testing::{Log, TestConsul, parts::Part, real::Consul},
    types::HealthStatus,
};
use cts_tasks::{Condition, Engine, EngineOptions, Stop, StopReason, Task};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    commands::{fake, processes_in},
    crash::{keys, kv_path, state_key},
    site::{SUITE, Site, eventually, tools},
};

/// Longest wait for what has to happen. Consul keeps a lock whose holder is dead for about half a
/// minute.
const LIMIT: Duration = Duration::from_mins(3);

const SHUTDOWN: Duration = Duration::from_secs(1);

/// A task that takes so many seconds for each resource.
fn pausing(site: &Site, pause: u32) -> Task {
    let rules = site.path().join("rules");
    let mut task = site.task(&json!({"variables": {"directory": rules, "pause": pause}}));
    task.condition = Condition::services(["api"]);
    task.shutdown_timeout = Some(SHUTDOWN);
    task
}

/// Runs the task with this instance until something has happened, and stops the engine then.
/// Returns how long that took.
async fn run(site: &Site, pause: u32, port: u16, until: impl AsyncFnOnce(&Engine)) -> Duration {
    let consul = TestConsul::new();
    consul.set_instance("api", "a", "10.0.0.1", port, HealthStatus::Passing);
    let watcher = Watcher::new(consul.client());
    let engine = Engine::new(watcher, site.factory(), EngineOptions::default());
    let stop = Stop::new();
    engine.load(vec![pausing(site, pause)], &stop).await.unwrap();
    let mut stopped = None;
    let stopping = async {
        until(&engine).await;
        stopped = Some(Instant::now());
        stop.stop(StopReason::Shutdown);
    };
    let (ended, ()) = timeout(LIMIT, async { tokio::join!(engine.run(&stop), stopping) })
        .await
        .unwrap_or_else(|_| panic!("the engine has to end though its tool does not"));
    ended.unwrap();
    stopped.unwrap().elapsed()
}

/// Waits until the system has done with what was killed.
async fn all_ended(site: &Site) {
    eventually("the end of all processes", || processes_in(&site.task_dir()).is_empty()).await;
}

/// Waits for the end of the first run.
async fn ran(engine: &Engine) {
    let name = "test".parse().unwrap();
    let done = || {
        engine.state(|state| {
            let events = state.events.get(&name);
            let newest = events.and_then(|events| events.first());
            newest.is_some_and(|event| event.success)
        })
    };
    while !done() {
        sleep(Duration::from_millis(25)).await;
    }
}

#[tokio::test]
async fn a_tool_that_ignores_the_interrupt_is_killed_with_all_that_it_started() {
    let site = fake("1.11.4");
    std::fs::create_dir_all(site.task_dir()).unwrap();
    std::fs::write(site.task_dir().join("deaf.apply"), "").unwrap();
    let calls = site.task_dir().join("calls");
    let took = run(&site, 0, 1, async |_| {
        let deaf = || std::fs::read_to_string(&calls).unwrap_or_default().ends_with("deaf\n");
        eventually("the apply", deaf).await;
    })
    .await;
    assert!(took >= SHUTDOWN, "{took:?}");
    all_ended(&site).await;
}

/// A real tool that hangs: it is halted in the middle of its apply, so that only a kill ends it.
async fn hangs(tool: &Part, consul: Option<&Consul>) {
    let mut site = Site::new(tool);
    if let Some(consul) = consul {
        site.driver_block = json!({});
        site.consul.address = consul.address();
        site.consul.kv_path = kv_path(&site);
    }
    run(&site, 0, 1, ran).await;
    assert_eq!(site.rules(), ["a=10.0.0.1:1"]);
    let log = Log::start();
    let took = run(&site, 600, 2, async |_| {
        eventually("the apply", || site.provisions()).await;
        for id in processes_in(&site.task_dir()) {
            kill(Pid::from_raw(id), Signal::SIGSTOP).unwrap();
        }
    })
    .await;
    assert!(took >= SHUTDOWN, "{took:?}");
    all_ended(&site).await;
    for told in ["did not end within its shutdown_timeout", "the command did not end in time"] {
        assert!(log.text().contains(told), "{told}: {}", log.text());
    }
    // The provisioner did not run, and what was begun stands in the state or does not: either way
    // the next run brings about what it should, and leaves no lock.
    run(&site, 0, 3, ran).await;
    assert_eq!(site.rules(), ["a=10.0.0.1:3"], "{}", log.text());
    if let Some(consul) = consul {
        let state = state_key(&site);
        assert_eq!(keys(consul, &state).await, [state], "the state is there, and no lock on it");
    }
}

#[tokio::test]
async fn a_real_tool_that_hangs_is_killed_and_the_next_run_goes_on_with_its_local_state() {
    let case = "a_real_tool_that_hangs_is_killed_and_the_next_run_goes_on_with_its_local_state";
    for tool in tools(case) {
        hangs(&tool, None).await;
    }
}

/// The lock in Consul outlives its holder.
#[tokio::test]
async fn a_real_tool_that_hangs_is_killed_and_the_next_run_goes_on_with_its_state_in_consul() {
    let case = "a_real_tool_that_hangs_is_killed_and_the_next_run_goes_on_with_its_state_in_consul";
    let Some(tool) = tools(case).into_iter().next() else { return };
    let Some(part) = SUITE.part("consul", case) else { return };
    hangs(&tool, Some(&Consul::start(&part.path).await.unwrap())).await;
}
