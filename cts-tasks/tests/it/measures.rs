//! What is counted.

use std::sync::Arc;

use cts_tasks::{EngineOptions, Exposition, Single};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::{
    api::Api,
    scene::{Scene, on},
};

/// A driver fails once, runs are triggered in each way, and a plan waits: all
/// of it is in the text that the API serves.
#[tokio::test]
async fn what_happens_is_counted_and_served() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _counting = metrics::set_default_local_recorder(&recorder);

    let scene = Scene::with(EngineOptions::default());
    scene.put("web", 1);
    let mut idle = on("idle", &["web"]);
    idle.enabled = false;
    let mut guarded = on("guarded", &["web"]);
    guarded.guard.require_approval = true;
    let running = scene.engine.load(vec![on("t", &["web"]), idle, guarded], &scene.stop);
    running.await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    let running = tokio::spawn(async move { engine.run(&stop).await });
    scene.wait_for_events("guarded", 1).await;
    scene.driver.fail_next("t", "no", true);
    scene.put("web", 2);
    scene.wait_for_events("t", 2).await;
    scene.engine.run_now(&"t".parse().unwrap()).await.unwrap();

    let server = Api::bind(&scene, Arc::new(Single)).await;
    let api = Api::start(server.with_metrics(Exposition::new(move || handle.render())));
    assert_eq!(api.get("/v1/tasks/gone").await.0, 404);
    let text = api.http.get(format!("{}/metrics", api.url)).send().await.unwrap();
    let text = text.text().await.unwrap();
    for line in [
        "cts_runs_total{task=\"t\",result=\"applied\"} 2",
        "cts_runs_total{task=\"t\",result=\"unchanged\"} 1",
        "cts_runs_total{task=\"guarded\",result=\"waiting\"}",
        "cts_run_duration_seconds_count{task=\"t\"} 3",
        "cts_retries_total{task=\"t\"} 1",
        "cts_triggers_total{task=\"t\",cause=\"change\"} 1",
        "cts_triggers_total{task=\"t\",cause=\"hand\"} 1",
        "cts_tasks{enabled=\"true\"} 2",
        "cts_tasks{enabled=\"false\"} 1",
        "cts_waiting_plans 1",
        "cts_watches 3",
        "cts_api_requests_total{method=\"GET\",status_code=\"404\"} 1",
        "# HELP cts_runs_total ",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }

    // A task's metrics end with it.
    scene.engine.delete(&"t".parse().unwrap()).await.unwrap();
    while api.get("/v1/tasks/t").await.0 != 404 {
        tokio::task::yield_now().await;
    }
    let text = api.http.get(format!("{}/metrics", api.url)).send().await.unwrap();
    let text = text.text().await.unwrap();
    assert!(!text.contains("task=\"t\""), "{text}");
    assert!(text.contains("cts_runs_total{task=\"guarded\",result=\"waiting\"}"), "{text}");
    scene.end(running).await;
}
