//! What triggers, and what does not.

use std::time::Duration;

use cts_tasks::{FirstRun, Task};
use tokio::time::sleep;

use crate::{
    config::support::task,
    scene::{Scene, on},
};

fn named(name: &str, body: &str) -> Task {
    let mut task = task(&format!("buffer_period {{ enabled = false }}\n{body}"));
    task.name = name.parse().unwrap();
    task
}

/// The values of the keys that each run got.
fn values(scene: &Scene, task: &str) -> Vec<Vec<(String, String)>> {
    let pairs = |inputs: &cts_tasks::TaskInputs| {
        let entries = inputs.consul_kv.iter().flatten();
        entries
            .map(|entry| (entry.path.clone(), String::from_utf8(entry.value.clone()).unwrap()))
            .collect()
    };
    scene.driver.applies(task).iter().map(pairs).collect()
}

async fn settle() {
    sleep(Duration::from_mins(1)).await;
}

/// Spec: CTS61
#[tokio::test(start_paused = true)]
async fn a_key_triggers_from_its_creation_and_children_only_with_recurse() {
    let scene = Scene::new();
    let running = scene
        .start(vec![
            named("one", "condition \"consul-kv\" { path = \"k\" }"),
            named("all", "condition \"consul-kv\" { path = \"k\" recurse = true }"),
        ])
        .await;
    scene.consul.kv_put("k", "red");
    scene.driver.wait_for_applies("one", 2).await;
    scene.driver.wait_for_applies("all", 2).await;
    scene.consul.kv_put("other", "x");
    settle().await;
    assert_eq!(scene.driver.applies("one").len(), 2);
    scene.consul.kv_put("k/child", "x");
    scene.driver.wait_for_applies("all", 3).await;
    settle().await;
    assert_eq!(scene.driver.applies("one").len(), 2);
    assert_eq!(scene.driver.applies("all").len(), 3);
    scene.end(running).await;
}

/// Spec: CTS62
#[tokio::test(start_paused = true)]
async fn an_update_a_deletion_and_the_same_value_again_trigger_three_times() {
    let scene = Scene::new();
    scene.consul.kv_put("k", "red");
    let condition = "condition \"consul-kv\" { path = \"k\" }";
    let running = scene.start(vec![named("t", condition)]).await;
    scene.consul.kv_put("k", "blue");
    scene.driver.wait_for_applies("t", 2).await;
    settle().await;
    scene.consul.kv_delete("k");
    scene.driver.wait_for_applies("t", 3).await;
    settle().await;
    scene.consul.kv_put("k", "blue");
    scene.driver.wait_for_applies("t", 4).await;
    let pair = |value: &str| vec![("k".to_owned(), value.to_owned())];
    assert_eq!(values(&scene, "t"), [pair("red"), pair("blue"), Vec::new(), pair("blue")]);
    scene.end(running).await;
}

/// Spec: CTS60
#[tokio::test(start_paused = true)]
async fn a_task_on_a_catalog_without_matching_services_is_created_at_once() {
    let scene = Scene::new();
    let condition = "condition \"catalog-services\" { regexp = \"^none\" }";
    let running = scene.start(vec![named("old", condition)]).await;
    scene.engine.create(named("new", condition), FirstRun::Now).await.unwrap();
    scene.put("none-1", 1);
    scene.driver.wait_for_applies("old", 2).await;
    scene.driver.wait_for_applies("new", 2).await;
    scene.end(running).await;
}

/// Spec: CTS56
#[tokio::test(start_paused = true)]
async fn a_scheduled_task_without_changes_is_an_event_each_time_and_no_apply() {
    let scene = Scene::scheduled();
    let running =
        scene.start(vec![named("t", "condition \"schedule\" { cron = \"* * * * *\" }")]).await;
    let events = scene.wait_for_events("t", 4).await;
    assert!(events.iter().all(|event| event.success));
    assert_eq!(scene.driver.applies("t").len(), 1);
    scene.end(running).await;
}

/// Spec: CTS57
#[tokio::test(start_paused = true)]
async fn a_scheduled_task_runs_only_on_schedule_though_it_shares_a_dependency() {
    let scene = Scene::scheduled();
    scene.put("web", 1);
    let hourly = "condition \"schedule\" { cron = \"0 * * * *\" }\n\
                  module_input \"services\" { names = [\"web\"] }";
    let running = scene.start(vec![named("hourly", hourly), on("dynamic", &["web"])]).await;
    scene.put("web", 2);
    scene.driver.wait_for_applies("dynamic", 2).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.applies("hourly").len(), 1);
    sleep(Duration::from_hours(1)).await;
    let applies = scene.driver.applies("hourly");
    assert_eq!(applies.len(), 2);
    assert_eq!(crate::scene::ids(&applies[1]), ["web-1", "web-2"]);
    scene.end(running).await;
}
