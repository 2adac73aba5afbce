//! What upstream gets wrong and the engine does as one expects; each test is
//! named after the defect. Others stand where their subject is tested.

use std::{collections::BTreeMap, time::Duration};

use consul_watch::types::HealthStatus;
use cts_tasks::{CatalogServicesSelection, Condition, MatchingServices, ServiceSelection, Task};
use tokio::time::{Instant, sleep};

use crate::scene::{Scene, ids, on};

/// The task `t`, on all services whose names match.
fn matching(regexp: &str, filter: &str) -> Task {
    let mut task = on("t", &[]);
    let services = ServiceSelection::Matching(MatchingServices {
        regexp: regexp.to_owned(),
        datacenter: String::new(),
        namespace: String::new(),
        filter: filter.to_owned(),
        cts_user_defined_meta: BTreeMap::new(),
    });
    task.condition = Condition::Services { services, use_as_module_input: true };
    task
}

#[tokio::test(start_paused = true)]
async fn regexp_tasks_sleep_ten_seconds_before_each_look() {
    let scene = Scene::new();
    scene.put("web", 1);
    let begun = Instant::now();
    let running = scene.start(vec![matching("^web", "")]).await;
    scene.put("web-admin", 1);
    scene.driver.wait_for_applies("t", 2).await;
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 3).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn regexp_tasks_miss_changes_of_health_alone() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.put("web", 2);
    let running = scene.start(vec![matching("^web", "")]).await;
    scene.set("web", 2, HealthStatus::Critical);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 2).await[1]), ["web-1"]);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_catalog_regexp_with_an_equals_sign_fails() {
    let scene = Scene::new();
    scene.put("web=1", 1);
    scene.put("other", 1);
    let mut task = on("t", &[]);
    let services = CatalogServicesSelection {
        regexp: "^web=".to_owned(),
        datacenter: String::new(),
        namespace: String::new(),
        node_meta: BTreeMap::new(),
    };
    task.condition = Condition::CatalogServices { services, use_as_module_input: true };
    let running = scene.start(vec![task]).await;
    let applied = scene.driver.applies("t").remove(0);
    assert_eq!(applied.catalog_services.unwrap().keys().collect::<Vec<_>>(), ["web=1"]);
    scene.end(running).await;
}

/// Upstream's buffer of a task that was disabled and enabled again swallowed
/// the next change.
#[tokio::test(start_paused = true)]
async fn a_trigger_is_lost_after_a_task_was_disabled_and_enabled() {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut task = on("t", &["web"]);
    let (min, max) = (Duration::from_secs(5), Duration::from_secs(20));
    task.buffer_period = cts_tasks::BufferPeriod::Enabled { min, max };
    let running = scene.start(vec![task]).await;
    let name = "t".parse().unwrap();
    for round in 0..3 {
        scene.put("web", 10 + round);
        sleep(Duration::from_secs(1)).await;
        let engine = &scene.engine;
        engine.set_enabled(&name, false, cts_tasks::FirstRun::WhenTriggered).await.unwrap();
        sleep(Duration::from_secs(30)).await;
        engine.set_enabled(&name, true, cts_tasks::FirstRun::WhenTriggered).await.unwrap();
        scene.put("web", 20 + round);
        let count = usize::from(round) + 2;
        let applies = scene.driver.wait_for_applies("t", count).await;
        let newest = ids(&applies[count - 1]);
        assert!(newest.contains(&format!("web-{}", 20 + round).as_str()), "{newest:?}");
        assert!(newest.contains(&format!("web-{}", 10 + round).as_str()), "{newest:?}");
    }
    scene.end(running).await;
}
