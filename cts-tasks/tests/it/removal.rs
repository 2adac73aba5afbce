//! What becomes of the infrastructure of a task that is deleted, and of a task
//! whose definition changes.

use std::time::Duration;

use cts_tasks::{EngineOptions, Error, Retry, Task, TaskName, TaskStore as _, testing::Call};
use tokio::time::sleep;

use crate::scene::{Scene, ids, on};

fn name() -> TaskName {
    "t".parse().unwrap()
}

fn destroyed_on_delete() -> Task {
    let mut task = on("t", &["web"]);
    task.destroy_on_delete = true;
    task
}

async fn gone(scene: &Scene) {
    while scene.engine.waiting_plan(&name()).is_ok() {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_task_leaves_its_infrastructure_unless_it_says_otherwise() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.engine.delete(&name()).await.unwrap();
    gone(&scene).await;
    assert!(scene.driver.applied("t").is_some());
    scene.end(running).await;

    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![destroyed_on_delete()]).await;
    scene.engine.delete(&name()).await.unwrap();
    gone(&scene).await;
    assert_eq!(scene.driver.applied("t"), None);
    assert!(scene.driver.calls().contains(&Call::Destroy(name())));
    assert!(scene.store.load().await.unwrap().tasks.is_empty());
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn infrastructure_is_destroyed_after_the_run_that_is_under_way() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![destroyed_on_delete()]).await;
    let gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    scene.engine.delete(&name()).await.unwrap();
    sleep(Duration::from_mins(1)).await;
    assert!(!scene.driver.calls().contains(&Call::Destroy(name())));
    drop(gate);
    gone(&scene).await;
    assert_eq!(scene.driver.applied("t"), None);
    scene.end(running).await;
}

/// What is left must not be forgotten, and nothing may make it anew.
#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_destroyed_stays_disabled_until_it_is_deleted_again() {
    let mut options = EngineOptions::default();
    options.retry = Retry::NEVER;
    let scene = Scene::with(options);
    scene.put("web", 1);
    let running = scene.start(vec![destroyed_on_delete()]).await;
    scene.driver.fail_next("t", "in use", true);
    scene.engine.delete(&name()).await.unwrap();
    let events = scene.wait_for_events("t", 2).await;
    assert_eq!(events[0].error.as_ref().unwrap().message, "error destroying: in use");
    let enabled = scene.engine.state(|state| state.tasks[0].enabled);
    assert!(!enabled);
    scene.put("web", 2);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.applies("t").len(), 1);

    scene.engine.delete(&name()).await.unwrap();
    gone(&scene).await;
    assert_eq!(scene.driver.applied("t"), None);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_destroy_that_fails_is_tried_again_first() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![destroyed_on_delete()]).await;
    scene.driver.fail_next("t", "busy", true);
    scene.engine.delete(&name()).await.unwrap();
    gone(&scene).await;
    let destroys = scene.driver.calls().into_iter().filter(|call| *call == Call::Destroy(name()));
    assert_eq!(destroys.count(), 2);
    scene.end(running).await;
}

/// A task that only left the configuration was not deleted by anybody.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_forgotten_leaves_its_infrastructure_in_any_case() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![destroyed_on_delete()]).await;
    scene.engine.forget(&name()).await.unwrap();
    gone(&scene).await;
    assert!(scene.driver.applied("t").is_some());
    assert!(!scene.driver.calls().contains(&Call::Destroy(name())));
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_with_another_definition_runs_once_and_follows_that() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.put("db", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.engine.replace(on("t", &["db"])).await.unwrap();
    let applies = scene.driver.wait_for_applies("t", 2).await;
    assert_eq!(ids(&applies[1]), ["db-1"]);
    scene.put("web", 2);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.applies("t").len(), 2);
    scene.put("db", 2);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 3).await[2]), ["db-1", "db-2"]);
    assert_eq!(scene.wait_for_events("t", 3).await.len(), 3, "its events stay");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn another_definition_waits_for_the_run_that_is_under_way() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.put("db", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    let gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    let engine = scene.engine.clone();
    let replacing = tokio::spawn(async move { engine.replace(on("t", &["db"])).await });
    sleep(Duration::from_mins(1)).await;
    assert!(!replacing.is_finished());
    drop(gate);
    replacing.await.unwrap().unwrap();
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 3).await[2]), ["db-1"]);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_cannot_be_made_ready_changes_nothing() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.consul.inject_always(Some(consul_watch::testing::Fault::status(
        400,
        "Invalid query parameter: \"ns\"",
    )));
    let error = scene.engine.replace(on("t", &["db"])).await.unwrap_err();
    assert!(matches!(error, Error::Consul { .. }), "{error}");
    scene.consul.inject_always(None);
    sleep(Duration::from_mins(2)).await;
    scene.put("web", 2);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 2).await[1]), ["web-1", "web-2"]);
    let error = scene.engine.replace(on("u", &["web"])).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchTask { .. }), "{error}");
    scene.end(running).await;
}
