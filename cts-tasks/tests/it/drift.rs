//! Scheduled checks for drift.

use std::time::Duration;

use cts_tasks::{DriftCheck, Task, TaskName, testing::Call};
use tokio::time::sleep;

use crate::scene::{Scene, on};

fn name() -> TaskName {
    "t".parse().unwrap()
}

/// The task `t`, checked each hour.
fn checked_hourly() -> Task {
    let mut task = on("t", &["web"]);
    task.drift_check = Some("@hourly".to_owned());
    task
}

fn check(scene: &Scene) -> Option<DriftCheck> {
    scene.engine.state(|state| state.drift.get(&name()).cloned())
}

fn checks(scene: &Scene) -> usize {
    scene.driver.calls().into_iter().filter(|call| matches!(call, Call::Drift(_))).count()
}

#[tokio::test(start_paused = true)]
async fn a_check_says_what_is_not_as_it_was_applied_and_repairs_nothing() {
    let scene = Scene::scheduled();
    scene.put("web", 1);
    scene.put("web", 2);
    let running = scene.start(vec![checked_hourly()]).await;
    sleep(Duration::from_mins(61)).await;
    let clean = check(&scene).unwrap();
    assert_eq!((clean.has_drifted(), clean.error.clone()), (false, None));

    assert!(scene.driver.drift("t"));
    sleep(Duration::from_hours(1)).await;
    let drifted = check(&scene).unwrap();
    assert!(drifted.has_drifted() && drifted.at > clean.at);
    assert_eq!(drifted.changes.unwrap().destroy, 1);
    assert_eq!(scene.driver.applies("t").len(), 1, "nothing is repaired by itself");
    assert_eq!(scene.events("t").len(), 1, "a check is no run");
    assert_eq!(checks(&scene), 2);

    scene.engine.run_now(&name()).await.unwrap();
    sleep(Duration::from_hours(1)).await;
    assert!(!check(&scene).unwrap().has_drifted());
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_for_the_run_that_is_under_way() {
    let scene = Scene::scheduled();
    scene.put("web", 1);
    let running = scene.start(vec![checked_hourly()]).await;
    let gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    sleep(Duration::from_mins(90)).await;
    assert_eq!(checks(&scene), 0);
    drop(gate);
    scene.driver.wait_until(|calls| calls.contains(&Call::Drift(name()))).await;
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_without_the_setting_and_a_disabled_one_are_not_checked() {
    let scene = Scene::scheduled();
    scene.put("web", 1);
    let mut disabled = checked_hourly();
    disabled.name = "off".parse().unwrap();
    disabled.enabled = false;
    scene.engine.load(vec![disabled, on("t", &["web"])], &scene.stop).await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    let running = tokio::spawn(async move { engine.run(&stop).await });
    sleep(Duration::from_hours(3)).await;
    assert_eq!(checks(&scene), 0);
    scene.end(running).await;
}
