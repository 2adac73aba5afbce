//! Applies that wait for a person elsewhere keep nothing from going on.

use std::{sync::Arc, time::Duration};

use consul_watch::Watcher;
use cts_tasks::{
    Engine, EngineOptions, FirstRun, Result, Stop, StopReason, Task, TaskName, TaskStore,
    testing::Call,
};
use tokio::{task::JoinHandle, time::sleep};

use crate::scene::{Scene, ids, on};

fn name() -> TaskName {
    "t".parse().unwrap()
}

/// An engine whose task `t` waits for a person with its first apply.
async fn waiting(task: Task) -> (Scene, JoinHandle<Result<()>>) {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.driver.wait_for_person("t");
    let running = begin(&scene.engine, &scene.stop, vec![task]).await;
    followed(&scene, 1).await;
    (scene, running)
}

async fn begin(engine: &Engine, stop: &Stop, tasks: Vec<Task>) -> JoinHandle<Result<()>> {
    engine.load(tasks, stop).await.unwrap();
    let (engine, stop) = (engine.clone(), stop.clone());
    let running = tokio::spawn(async move { engine.run(&stop).await });
    tokio::task::yield_now().await;
    running
}

/// Waits until the apply of this number is followed.
async fn followed(scene: &Scene, number: u32) {
    let follow = Call::Follow(name(), format!("ticket-{number}"));
    scene.driver.wait_until(|calls| calls.contains(&follow)).await;
}

fn stops(scene: &Scene) -> usize {
    scene.driver.calls().iter().filter(|call| **call == Call::Stopped(name())).count()
}

#[tokio::test(start_paused = true)]
async fn newer_inputs_take_the_place_of_what_waits() {
    let (scene, running) = waiting(on("t", &["web"])).await;
    assert_eq!(scene.events("t"), [], "nothing has ended yet");
    scene.put("web", 2);
    followed(&scene, 2).await;
    let events = scene.wait_for_events("t", 1).await;
    assert!(events[0].success && events[0].changes.is_none(), "{events:?}");
    assert_eq!(scene.driver.applied("t"), None);
    sleep(Duration::from_hours(2)).await;
    assert_eq!(scene.events("t").len(), 1);
    let applied = |scene: &Scene| scene.engine.state(|state| state.applied.contains_key(&name()));
    assert!(!applied(&scene));

    assert!(scene.driver.confirm("t"));
    let events = scene.wait_for_events("t", 2).await;
    assert!(events[0].success, "{events:?}");
    assert_eq!(events[0].changes.as_ref().unwrap().add, 2);
    assert_eq!(ids(&scene.driver.applied("t").unwrap()), ["web-1", "web-2"]);
    assert!(applied(&scene));
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn other_tasks_have_their_first_run() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.driver.wait_for_person("t");
    let tasks = vec![on("t", &["web"]), on("u", &["web"])];
    let running = begin(&scene.engine, &scene.stop, tasks).await;
    scene.wait_for_events("u", 1).await;
    followed(&scene, 1).await;
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_person_refuses_is_a_failure_and_newer_inputs_run() {
    let (scene, running) = waiting(on("t", &["web"])).await;
    assert!(scene.driver.refuse("t"));
    let events = scene.wait_for_events("t", 1).await;
    let error = events[0].error.as_ref().unwrap();
    assert_eq!(error.message, "a person refused: ticket-1");
    scene.put("web", 2);
    followed(&scene, 2).await;
    assert!(scene.driver.confirm("t"));
    assert!(scene.wait_for_events("t", 2).await[0].success);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_is_inspected_and_run() {
    let (scene, running) = waiting(on("t", &["web"])).await;
    let inspection = scene.engine.inspect_enabled(&name(), true).await.unwrap();
    assert_eq!(inspection.plan.unwrap().changes.add, 1);
    assert_eq!(stops(&scene), 0, "looking ends nothing");
    scene.engine.run_now(&name()).await.unwrap();
    followed(&scene, 2).await;
    assert!(scene.wait_for_events("t", 1).await[0].success);
    scene.end(running).await;
}

/// Nobody shall apply what a disabled task left waiting.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_is_disabled_and_enabled() {
    let (scene, running) = waiting(on("t", &["web"])).await;
    scene.engine.set_enabled(&name(), false, FirstRun::WhenTriggered).await.unwrap();
    scene.driver.wait_until(|calls| calls.contains(&Call::Stopped(name()))).await;
    scene.put("web", 2);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.applies("t").len(), 1);
    assert_eq!(scene.events("t"), []);
    scene.engine.set_enabled(&name(), true, FirstRun::Now).await.unwrap();
    followed(&scene, 2).await;
    assert!(scene.driver.confirm("t"));
    scene.wait_for_events("t", 1).await;
    assert_eq!(ids(&scene.driver.applied("t").unwrap()), ["web-1", "web-2"]);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_is_deleted() {
    let (scene, running) = waiting(on("t", &["web"])).await;
    scene.engine.delete(&name()).await.unwrap();
    while scene.engine.state(|state| !state.tasks.is_empty()) {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(stops(&scene), 1);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_gets_another_definition() {
    let (scene, running) = waiting(on("t", &["web"])).await;
    scene.put("db", 1);
    scene.engine.replace(on("t", &["db"])).await.unwrap();
    followed(&scene, 2).await;
    assert_eq!(stops(&scene), 1);
    assert!(scene.driver.confirm("t"));
    assert!(scene.wait_for_events("t", 1).await[0].success);
    assert_eq!(ids(&scene.driver.applied("t").unwrap()), ["db-1"]);
    scene.end(running).await;
}

/// What waited was applied by nobody, so it is not taken for applied.
#[tokio::test(start_paused = true)]
async fn after_a_restart_the_task_waits_again() {
    let (scene, running) = waiting(on("t", &["web"])).await;
    scene.end(running).await;
    assert_eq!(stops(&scene), 1);

    let mut options = EngineOptions::default();
    options.store = Arc::clone(&scene.store) as Arc<dyn TaskStore>;
    options.skip_unchanged_first_runs = true;
    let watcher = Watcher::new(scene.consul.client());
    let engine = Engine::new(watcher, Arc::new(scene.driver.clone()), options);
    let stop = Stop::new();
    let running = begin(&engine, &stop, Vec::new()).await;
    followed(&scene, 2).await;
    assert!(scene.driver.confirm("t"));
    while engine.state(|state| !state.applied.contains_key(&name())) {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(engine.state(|state| state.events[&name()][0].success));
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}
