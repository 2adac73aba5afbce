//! What a running engine is told: create, delete, enable, disable, inspect, run.

use std::time::Duration;

use consul_watch::testing::{Fault, Log};
use cts_tasks::{
    Condition, Engine, EngineOptions, Error, FirstRun, Retry, Status, StopReason, Task, TaskName,
    testing::Call,
};
use tokio::{task::JoinHandle, time::sleep};

use crate::scene::{Scene, ids, on};

fn name(text: &str) -> TaskName {
    text.parse().unwrap()
}

fn disabled(mut task: Task) -> Task {
    task.enabled = false;
    task
}

/// Whether the engine knows the task.
fn has(scene: &Scene, task: &str) -> bool {
    scene.engine.state(|state| state.tasks.iter().any(|known| known.name.as_str() == task))
}

fn enabled(scene: &Scene, task: &str) -> bool {
    scene
        .engine
        .state(|state| state.tasks.iter().any(|known| known.name.as_str() == task && known.enabled))
}

async fn gone(scene: &Scene, task: &str) {
    while has(scene, task) {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Does something to the engine in the background.
fn begin<F: Future<Output = cts_tasks::Result<()>> + Send + 'static>(
    scene: &Scene,
    act: impl FnOnce(Engine) -> F,
) -> JoinHandle<cts_tasks::Result<()>> {
    tokio::spawn(act(scene.engine.clone()))
}

/// Spec: CTS52
#[tokio::test(start_paused = true)]
async fn without_tasks_an_engine_runs_and_tasks_come_and_go() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    sleep(Duration::from_mins(1)).await;
    assert!(!running.is_finished());
    scene.engine.create(on("t", &["web"]), FirstRun::Now).await.unwrap();
    assert_eq!(ids(&scene.driver.applies("t")[0]), ["web-1"]);
    assert_eq!(scene.status("t"), Status::Successful);
    scene.engine.delete(&name("t")).await.unwrap();
    gone(&scene, "t").await;
    assert_eq!(scene.events("t").len(), 0);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.consul.open(), 0, "nothing is watched any more");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_created_without_a_run_is_prepared_and_runs_when_triggered() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    scene.engine.create(on("t", &["web"]), FirstRun::WhenTriggered).await.unwrap();
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.calls(), [Call::Prepare(name("t"))]);
    assert!(has(&scene, "t"));
    assert_eq!(scene.status("t"), Status::Unknown);
    scene.put("web", 2);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 1).await[0]), ["web-1", "web-2"]);
    scene.end(running).await;
}

/// Spec: CTS46
#[tokio::test(start_paused = true)]
async fn a_task_whose_first_run_fails_is_not_added_and_can_be_created_again() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    scene.driver.fail_next("t", "bad module", true);
    let error = scene.engine.create(on("t", &["web"]), FirstRun::Now).await.unwrap_err();
    assert_eq!(error.to_string(), "bad module");
    assert!(!has(&scene, "t"));
    assert_eq!(scene.events("t").len(), 0);
    scene.put("web", 2);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.driver.applies("t").len(), 1, "nothing is left that runs it");
    scene.engine.create(on("t", &["web"]), FirstRun::Now).await.unwrap();
    assert_eq!(scene.events("t").len(), 1);
    scene.put("web", 3);
    scene.driver.wait_for_applies("t", 3).await;
    scene.end(running).await;
}

/// Spec: CTS65
#[tokio::test(start_paused = true)]
async fn a_task_that_consul_refuses_is_not_added_and_nothing_is_unhealthy_after() {
    let scene = Scene::new();
    let running = scene.start(Vec::new()).await;
    scene.consul.inject_always(Some(Fault::status(500, "No path to datacenter")));
    let error = scene.engine.create(on("t", &["web"]), FirstRun::Now).await.unwrap_err();
    assert!(error.to_string().starts_with("unable to retrieve data from Consul: "), "{error}");
    assert!(!has(&scene, "t"));
    assert_eq!(scene.engine.health(), Ok(()));
    scene.end(running).await;
}

/// Spec: CTS77
#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_refused_also_while_its_task_is_being_created() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("old", &["web"])]).await;
    let gate = scene.driver.hold("new");
    let creating =
        begin(
            &scene,
            |engine| async move { engine.create(on("new", &["web"]), FirstRun::Now).await },
        );
    scene.driver.wait_for_applies("new", 1).await;
    for taken in ["old", "new"] {
        let task = on(taken, &["web"]);
        let error = scene.engine.create(task.clone(), FirstRun::Now).await.unwrap_err();
        assert_eq!(error.to_string(), format!("task with name {taken} already exists"));
        let error = scene.engine.inspect_new(task).await.unwrap_err();
        assert!(matches!(error, Error::TaskExists { .. }), "{error}");
    }
    let error = scene.engine.delete(&name("new")).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchTask { .. }), "{error}");
    drop(gate);
    creating.await.unwrap().unwrap();
    assert!(has(&scene, "new"));
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_is_created_to_its_end_also_if_nobody_waits_for_it() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    let gate = scene.driver.hold("t");
    let creating =
        begin(
            &scene,
            |engine| async move { engine.create(on("t", &["web"]), FirstRun::Now).await },
        );
    scene.driver.wait_for_applies("t", 1).await;
    creating.abort();
    drop(gate);
    scene.wait_for_events("t", 1).await;
    assert!(has(&scene, "t"));
    scene.end(running).await;
}

/// Spec: CTS78
#[tokio::test(start_paused = true)]
async fn inspecting_a_new_task_plans_and_keeps_nothing() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    let found = scene.engine.inspect_new(on("t", &["web"])).await.unwrap();
    assert_eq!(found.plan.unwrap().changes.add, 1);
    assert!(!has(&scene, "t"));
    assert_eq!(scene.driver.applies("t").len(), 0);
    let found = scene.engine.inspect_new(disabled(on("t", &["web"]))).await.unwrap();
    assert_eq!(found.plan, None);
    // The name is free at once.
    scene.engine.create(on("t", &["web"]), FirstRun::Now).await.unwrap();
    scene.end(running).await;
}

/// Spec: CTS58
#[tokio::test(start_paused = true)]
async fn a_scheduled_task_that_was_only_inspected_never_runs() {
    let scene = Scene::new();
    let running = scene.start(Vec::new()).await;
    let mut task = on("t", &[]);
    task.condition = Condition::Schedule { cron: "* * * * * * *".into() };
    scene.engine.inspect_new(task).await.unwrap();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(scene.driver.applies("t").len(), 0);
    scene.end(running).await;
}

/// Spec: CTS55
#[tokio::test(start_paused = true)]
async fn a_task_that_is_deleted_while_it_runs_ends_its_run_and_is_gone_then() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    let gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    scene.engine.delete(&name("t")).await.unwrap();
    // What comes in meanwhile runs nothing, and a second time is fine.
    scene.put("web", 3);
    sleep(Duration::from_mins(1)).await;
    scene.engine.delete(&name("t")).await.unwrap();
    assert!(has(&scene, "t"));
    let update = scene.engine.set_enabled(&name("t"), false, FirstRun::WhenTriggered).await;
    assert!(matches!(update, Err(Error::TaskActive { .. })));
    drop(gate);
    gone(&scene, "t").await;
    assert_eq!(scene.driver.applies("t").len(), 2);
    assert!(scene.driver.calls().contains(&Call::Applied(name("t"))), "it was not interrupted");
    assert!(!scene.driver.calls().contains(&Call::Stopped(name("t"))));
    let error = scene.engine.delete(&name("t")).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchTask { .. }), "{error}");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_after_its_task_was_deleted_is_not_tried_again() {
    let mut options = EngineOptions::default();
    options.retry = Retry::TASK;
    let scene = Scene::with(options);
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    let gate = scene.driver.hold("t");
    scene.driver.fail_next("t", "no", true);
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    scene.engine.delete(&name("t")).await.unwrap();
    drop(gate);
    gone(&scene, "t").await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.driver.applies("t").len(), 2);
    scene.end(running).await;
}

/// Spec: CTS47
#[tokio::test(start_paused = true)]
async fn a_task_that_is_deleted_and_created_again_is_triggered() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    for round in 0..3 {
        scene.engine.create(on("t", &["web"]), FirstRun::Now).await.unwrap();
        scene.put("web", 2 + round);
        scene.driver.wait_for_applies("t", usize::from(2 * (round + 1))).await;
        scene.wait_for_events("t", 2).await;
        scene.engine.delete(&name("t")).await.unwrap();
        gone(&scene, "t").await;
    }
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_another_task_shares_outlives_the_task() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.put("db", 1);
    let running = scene.start(vec![on("a", &["web", "db"]), on("b", &["web"])]).await;
    // Between an answer and the next question there is a pause.
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.consul.open(), 2);
    scene.engine.delete(&name("a")).await.unwrap();
    gone(&scene, "a").await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.consul.open(), 1);
    scene.put("web", 2);
    scene.driver.wait_for_applies("b", 2).await;
    scene.end(running).await;
}

/// Spec: CTS44
#[tokio::test(start_paused = true)]
async fn a_task_that_was_disabled_from_the_start_is_triggered_once_it_is_enabled() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("other", &["web"])]).await;
    scene.engine.create(disabled(on("t", &["web"])), FirstRun::Now).await.unwrap();
    assert_eq!(scene.driver.applies("t").len(), 0);
    let t = name("t");
    for round in 1..3 {
        scene.engine.set_enabled(&t, true, FirstRun::WhenTriggered).await.unwrap();
        assert!(enabled(&scene, "t"));
        sleep(Duration::from_mins(1)).await;
        assert_eq!(scene.driver.applies("t").len(), round - 1, "not before a trigger");
        scene.put("web", u16::try_from(10 * round).unwrap());
        scene.driver.wait_for_applies("t", round).await;
        scene.wait_for_events("t", round).await;
        scene.engine.set_enabled(&t, false, FirstRun::WhenTriggered).await.unwrap();
        assert!(!enabled(&scene, "t"));
        scene.put("web", u16::try_from(10 * round + 1).unwrap());
        sleep(Duration::from_mins(1)).await;
        assert_eq!(scene.driver.applies("t").len(), round, "disabled again");
    }
    let prepared =
        scene.driver.calls().into_iter().filter(|call| *call == Call::Prepare(t.clone()));
    assert_eq!(prepared.count(), 3, "at its creation, and when it is enabled");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn enabling_can_run_the_task_at_once_and_a_failure_leaves_it_disabled() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    scene.engine.create(disabled(on("t", &["web"])), FirstRun::Now).await.unwrap();
    scene.driver.fail_next("t", "no", true);
    let error = scene.engine.set_enabled(&name("t"), true, FirstRun::Now).await.unwrap_err();
    assert_eq!(error.to_string(), "no");
    assert!(!enabled(&scene, "t"));
    assert_eq!(scene.status("t"), Status::Errored, "the run is an event");
    scene.engine.set_enabled(&name("t"), true, FirstRun::Now).await.unwrap();
    assert!(enabled(&scene, "t"));
    assert_eq!(scene.status("t"), Status::Successful);
    scene.end(running).await;
}

/// Spec: CTS45
#[tokio::test(start_paused = true)]
async fn inspecting_a_change_leaves_the_task_as_it_is() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("other", &["web"])]).await;
    scene.engine.create(disabled(on("t", &["web"])), FirstRun::Now).await.unwrap();
    let before = scene.engine.state(Clone::clone);
    let found = scene.engine.inspect_enabled(&name("t"), true).await.unwrap();
    assert_eq!(found.plan.unwrap().changes.add, 1);
    let found = scene.engine.inspect_enabled(&name("t"), false).await.unwrap();
    assert_eq!(found.plan, None);
    assert_eq!(scene.engine.state(Clone::clone), before);
    scene.put("web", 2);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.driver.applies("t").len(), 0);
    // What was looked at is still to be applied.
    scene.engine.set_enabled(&name("t"), true, FirstRun::WhenTriggered).await.unwrap();
    scene.put("web", 3);
    scene.driver.wait_for_applies("t", 1).await;
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_runs_cannot_be_updated_inspected_or_run() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    let gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    let t = name("t");
    for error in [
        scene.engine.set_enabled(&t, false, FirstRun::WhenTriggered).await.unwrap_err(),
        scene.engine.inspect_enabled(&t, true).await.unwrap_err(),
        scene.engine.run_now(&t).await.unwrap_err(),
    ] {
        assert_eq!(error.to_string(), "task 't' is active and cannot be updated at this time");
    }
    drop(gate);
    scene.wait_for_events("t", 2).await;
    assert!(enabled(&scene, "t"));
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_runs_by_hand_without_any_change_unless_it_is_disabled() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    let log = Log::start();
    scene.engine.run_now(&name("t")).await.unwrap();
    assert_eq!(log.with("executing task").len(), 1, "as for every other run");
    assert_eq!(scene.driver.applies("t").len(), 2);
    assert_eq!(scene.events("t").len(), 2);
    scene.driver.fail_next("t", "no", true);
    assert_eq!(scene.engine.run_now(&name("t")).await.unwrap_err().to_string(), "no");
    assert_eq!(scene.driver.applies("t").len(), 3, "it is not tried again");
    scene.engine.set_enabled(&name("t"), false, FirstRun::WhenTriggered).await.unwrap();
    let error = scene.engine.run_now(&name("t")).await.unwrap_err();
    assert_eq!(error.to_string(), "task 't' is disabled; enable it first");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_does_not_run_and_a_name_that_it_does_not_know_are_refused() {
    let scene = Scene::new();
    scene.put("web", 1);
    let refused = scene.engine.create(on("t", &["web"]), FirstRun::Now).await;
    assert!(matches!(refused, Err(Error::NotRunning)));
    let running = scene.start(Vec::new()).await;
    let t = name("t");
    for error in [
        scene.engine.delete(&t).await.unwrap_err(),
        scene.engine.set_enabled(&t, true, FirstRun::Now).await.unwrap_err(),
        scene.engine.inspect_enabled(&t, true).await.unwrap_err(),
        scene.engine.run_now(&t).await.unwrap_err(),
    ] {
        assert_eq!(
            error.to_string(),
            "a task with name 't' does not exist or has not been initialized yet"
        );
    }
    scene.end(running).await;
    assert!(matches!(scene.engine.delete(&t).await, Err(Error::NotRunning)));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_what_is_being_created_and_answers() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    let _gate = scene.driver.hold("t");
    let creating =
        begin(
            &scene,
            |engine| async move { engine.create(on("t", &["web"]), FirstRun::Now).await },
        );
    scene.driver.wait_for_applies("t", 1).await;
    scene.stop.stop(StopReason::Shutdown);
    let error = creating.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    running.await.unwrap().unwrap();
    assert!(!has(&scene, "t"));
}

#[tokio::test(start_paused = true)]
async fn what_was_created_and_deleted_is_in_the_store_and_out_of_it() {
    use cts_tasks::TaskStore as _;
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    scene.engine.create(on("t", &["web"]), FirstRun::Now).await.unwrap();
    let state = scene.store.load().await.unwrap();
    assert_eq!((state.tasks.len(), state.events.len(), state.applied.len()), (1, 1, 1));
    scene.engine.delete(&name("t")).await.unwrap();
    gone(&scene, "t").await;
    let state = scene.store.load().await.unwrap();
    assert_eq!((state.tasks.len(), state.events.len(), state.applied.len()), (0, 0, 0));
    scene.end(running).await;
}
