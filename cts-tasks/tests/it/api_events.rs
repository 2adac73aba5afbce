//! The HTTP API's routes about what happens to tasks, and about what their modules get.

use std::{sync::Arc, time::Duration};

use cts_tasks::{
    FirstRun, Single, Stop, StopReason, StreamEvent, StreamEventKind, TaskName, WorkStep,
    client::{Client, ClientConfig, EventFilter, Following},
    wire::SinceApplied,
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    api::{Api, FollowerOf},
    scene::{Scene, on},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A running engine whose task `free` ran, and whose task `guarded` waits for approval.
async fn running() -> (Scene, Api, Client) {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut guarded = on("guarded", &["web"]);
    guarded.guard.require_approval = true;
    scene.engine.load(vec![on("free", &["web"]), guarded], &scene.stop).await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    tokio::spawn(async move { engine.run(&stop).await });
    scene.wait_for_events("free", 1).await;
    scene.wait_for_events("guarded", 1).await;
    let api = Api::serve(&scene, Arc::new(Single)).await;
    let mut config = ClientConfig::default();
    config.address.clone_from(&api.url);
    let client = Client::new(&config).unwrap();
    (scene, api, client)
}

/// Follows until there is an event that `wanted` takes; returns all until then.
async fn until(
    following: &mut Following,
    wanted: impl Fn(&StreamEvent) -> bool + Send + Sync,
) -> Vec<StreamEvent> {
    let mut all = Vec::new();
    let following = async {
        while !all.iter().any(&wanted) {
            all.extend(following.next().await.unwrap());
        }
    };
    timeout(PATIENCE, following).await.expect("what is waited for does not happen");
    all
}

fn is_run(event: &StreamEvent) -> bool {
    matches!(event.kind, StreamEventKind::Run { .. })
}

#[tokio::test]
async fn what_happens_is_followed_in_order_and_nothing_twice() {
    let (scene, _api, client) = running().await;
    let mut all = client.follow(EventFilter::default());
    let mut free = client.follow(EventFilter::of_task("free"));
    all.begin().await.unwrap();
    free.begin().await.unwrap();
    scene.put("web", 2);
    let of_free = until(&mut free, is_run).await;
    assert!(of_free.iter().all(|event| event.task_name.as_str() == "free"), "{of_free:?}");
    let seen =
        until(&mut all, |event| matches!(event.kind, StreamEventKind::PlanWaits { .. })).await;
    assert!(seen.windows(2).all(|pair| pair[0].id < pair[1].id), "{seen:?}");

    client.set_enabled("free", false, FirstRun::WhenTriggered).await.unwrap();
    let stored = until(&mut free, |event| matches!(event.kind, StreamEventKind::TaskStored)).await;
    assert!(!stored.iter().any(is_run), "{stored:?}");
    client.delete_task("free").await.unwrap();
    until(&mut free, |event| matches!(event.kind, StreamEventKind::TaskDeleted)).await;
}

#[tokio::test]
async fn who_comes_back_misses_nothing() {
    let (scene, api, client) = running().await;
    let mut following = client.follow(EventFilter::of_task("free"));
    following.begin().await.unwrap();
    scene.put("web", 2);
    let first = until(&mut following, is_run).await;
    let last = first.last().unwrap().id;
    client.run_task("free").await.unwrap();
    // As a browser asks that was away.
    let last_text = last.to_string();
    let headers = [("last-event-id", last_text.as_str())];
    let target = "/v1/events?wait=false&task=free";
    let answer = api.exchange(reqwest::Method::GET, target, &headers, Vec::new()).await;
    assert_eq!(answer.content_type, "text/event-stream");
    let datas: Vec<&str> =
        answer.answer.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let events: Vec<StreamEvent> =
        datas.iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(events.iter().filter(|event| is_run(event)).count(), 1, "{}", answer.answer);
    assert!(events.iter().all(|event| event.id > last), "{}", answer.answer);
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let scene = Scene::new();
    scene.engine.load(Vec::new(), &scene.stop).await.unwrap();
    let server = Api::bind(&scene, Arc::new(Single)).await;
    let (url, stop) = (format!("http://{}", server.local_addr().unwrap()), Stop::new());
    let serving = tokio::spawn(server.serve(stop.clone()));
    let answer = reqwest::get(format!("{url}/v1/events")).await.unwrap();
    stop.stop(StopReason::Shutdown);
    let body = timeout(Duration::from_secs(4), answer.text()).await;
    assert!(body.expect("the stream does not end").unwrap().starts_with(": follows\nid: "));
    timeout(Duration::from_secs(4), serving).await.expect("it waits").unwrap().unwrap();
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused() {
    let (scene, api, _client) = running().await;
    for query in ["after=x", "wait=no", "batch=", "wait=false&wait=false", "task=a&task=b"] {
        let (status, answer) = api.get(&format!("/v1/events?{query}")).await;
        assert_eq!(status, 400, "{query}: {answer}");
    }
    let follower = Api::serve(&scene, Arc::new(FollowerOf(Some("other")))).await;
    let (status, answer) = follower.get("/v1/events?wait=false").await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test]
async fn inputs_are_shown_with_what_differs_from_the_last_apply() {
    let (scene, api, client) = running().await;
    let inputs = client.task_inputs("free").await.unwrap();
    assert_eq!(inputs.since_applied, SinceApplied::Same);
    assert_eq!(inputs.services.as_ref().unwrap().len(), 1);
    let inputs = client.task_inputs("guarded").await.unwrap();
    assert_eq!(inputs.since_applied, SinceApplied::Never);

    let plan = client.waiting_plan("guarded").await.unwrap().id;
    client.approve_plan("guarded", &plan).await.unwrap();
    assert_eq!(client.task_inputs("guarded").await.unwrap().since_applied, SinceApplied::Same);
    scene.put("web", 2);
    let differs = timeout(PATIENCE, async {
        loop {
            let inputs = client.task_inputs("guarded").await.unwrap();
            if let SinceApplied::Differs { difference } = inputs.since_applied {
                return difference.unwrap();
            }
            tokio::task::yield_now().await;
        }
    });
    let differs = differs.await.expect("nothing differs");
    let counts = (differs.added.len(), differs.changed.len(), differs.removed.len());
    assert_eq!(counts, (1, 0, 0), "{differs:?}");

    client.set_enabled("free", false, FirstRun::WhenTriggered).await.unwrap();
    let (status, answer) = api.get("/v1/tasks/none/inputs").await;
    assert_eq!(status, 404, "{answer}");
    let (status, statuses) = api.get("/v1/status/tasks/guarded?status=waiting").await;
    assert_eq!(status, 200, "{statuses}");
    let name = TaskName::try_from("none".to_owned()).unwrap();
    assert!(scene.engine.inputs(&name).is_err());
    let (_, summary) = api.get("/v1/status").await;
    assert_eq!(summary["task_summary"]["enabled"], json!({"true": 1, "false": 1}));
}

#[tokio::test]
async fn a_run_under_way_is_told_with_its_step_and_the_time_since_when() {
    let (scene, _api, client) = running().await;
    assert_eq!(client.task_status("free", false).await.unwrap().under_way, None);
    let gate = scene.driver.hold("free");
    scene.put("web", 2);
    let work = timeout(PATIENCE, async {
        loop {
            let status = client.task_status("free", false).await.unwrap();
            if let Some(work) = status.under_way {
                return work;
            }
            tokio::task::yield_now().await;
        }
    });
    let work = work.await.expect("no work is under way");
    assert_eq!(work.step, WorkStep::Apply);
    assert!(work.since <= chrono::Local::now(), "{work:?}");
    let all = client.task_statuses(false, None).await.unwrap();
    assert_eq!(all["free"].under_way.as_ref(), Some(&work));
    assert_eq!(all["guarded"].under_way, None);
    drop(gate);
    scene.wait_for_events("free", 2).await;
    let ended = timeout(PATIENCE, async {
        while client.task_status("free", false).await.unwrap().under_way.is_some() {
            tokio::task::yield_now().await;
        }
    });
    ended.await.expect("the work does not end");
}
