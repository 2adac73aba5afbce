//! The HTTP API's routes about runs by hand and plans that wait for approval.

use std::sync::Arc;

use cts_tasks::{
    DriverFactory, PlanId, RunContext, Single,
    client::{Client, ClientConfig},
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    api::Api,
    scene::{Scene, on},
};

/// A running engine whose task `guarded` requires approval of its first plan.
async fn waiting() -> (Scene, Api, String) {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut guarded = on("guarded", &["web"]);
    guarded.guard.require_approval = true;
    scene.engine.load(vec![guarded], &scene.stop).await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    tokio::spawn(async move { engine.run(&stop).await });
    scene.wait_for_events("guarded", 1).await;
    let api = Api::serve(&scene, Arc::new(Single)).await;
    let (status, answer) = api.get("/v1/tasks/guarded/plan").await;
    assert_eq!(status, 200, "{answer}");
    let id = answer["plan"]["id"].as_str().unwrap().to_owned();
    (scene, api, id)
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_plan_that_waits_is_shown_and_approved_by_its_id() {
    let (scene, api, id) = waiting().await;
    let (_, answer) = api.get("/v1/tasks/guarded/plan").await;
    assert_eq!(answer["plan"]["objection"], "the task requires approval");
    assert_eq!(answer["plan"]["changes"]["add"], 1);
    let resources = &answer["plan"]["resources"]["resources"];
    assert_eq!(
        (&resources[0]["action"], &resources[0]["before"]),
        (&json!("create"), &Value::Null)
    );
    assert!(resources[0]["after"]["content"].is_string(), "{resources}");
    let (_, statuses) = api.get("/v1/status/tasks/guarded?include=events").await;
    assert_eq!(statuses["guarded"]["waiting_plan"], json!(id));
    assert_eq!(statuses["guarded"]["events"][0]["waiting_plan"], json!(id));

    let (status, answer) =
        api.request(Method::POST, "/v1/tasks/guarded/plan/another/approve").await;
    assert_eq!(status, 404);
    assert!(message(&answer).ends_with(&format!("the one that waits is {id}")), "{answer}");
    assert_eq!(scene.driver.applies("guarded").len(), 0);

    let approve = format!("/v1/tasks/guarded/plan/{id}/approve");
    let (status, answer) = api.request(Method::POST, &approve).await;
    assert_eq!((status, answer.as_object().unwrap().len()), (200, 1), "{answer}");
    assert!(scene.driver.applied("guarded").is_some());
    let (status, answer) = api.get("/v1/tasks/guarded/plan").await;
    assert_eq!(
        (status, message(&answer)),
        (404, "task 'guarded' has no plan that waits for approval")
    );
    assert_eq!(api.request(Method::POST, &approve).await.0, 404, "approved twice");
}

#[tokio::test]
async fn a_plan_is_discarded_and_made_anew_by_a_run_by_hand() {
    let (_scene, api, id) = waiting().await;
    let plan = format!("/v1/tasks/guarded/plan/{id}");
    assert_eq!(api.request(Method::DELETE, &plan).await.0, 200);
    assert_eq!(api.request(Method::DELETE, &plan).await.0, 404);
    assert_eq!(api.get("/v1/tasks/guarded/plan").await.0, 404);
    let (status, answer) = api.request(Method::POST, "/v1/tasks/guarded/run").await;
    assert_eq!((status, &answer["waiting_plan"]), (200, &json!(id)));
}

#[tokio::test]
async fn an_approval_that_comes_too_late_is_a_conflict() {
    let (scene, api, id) = waiting().await;
    scene.put("web", 2);
    while scene.engine.waiting_plan(&"guarded".parse().unwrap()).unwrap().unwrap().id.as_str() == id
    {
        tokio::task::yield_now().await;
    }
    let approve = format!("/v1/tasks/guarded/plan/{id}/approve");
    let (status, answer) = api.request(Method::POST, &approve).await;
    assert_eq!(status, 404, "the plan that waits is another one: {answer}");

    // The infrastructure was changed since, so the driver no longer takes the plan.
    let (_, answer) = api.get("/v1/tasks/guarded/plan").await;
    let id = answer["plan"]["id"].as_str().unwrap();
    let driver = scene.driver.driver(&on("guarded", &["web"])).unwrap();
    driver.destroy(&RunContext::default()).await.unwrap();
    let approve = format!("/v1/tasks/guarded/plan/{id}/approve");
    let (status, answer) = api.request(Method::POST, &approve).await;
    assert_eq!(status, 409, "{answer}");
    assert!(message(&answer).contains("is out of date and was not applied"), "{answer}");
}

#[tokio::test]
async fn a_run_by_hand_is_refused_while_the_task_is_active_or_disabled() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    let api = Api::serve(&scene, Arc::new(Single)).await;
    assert_eq!(api.request(Method::POST, "/v1/tasks/t/run").await.0, 200);
    assert_eq!(scene.driver.applies("t").len(), 2);
    assert_eq!(scene.events("t").len(), 2);

    scene.driver.fail_next("t", "the tool failed", true);
    let (status, answer) = api.request(Method::POST, "/v1/tasks/t/run").await;
    assert_eq!((status, message(&answer)), (500, "the tool failed"));

    let gate = scene.driver.hold("t");
    let (held, ()) = tokio::join!(api.request(Method::POST, "/v1/tasks/t/run"), async {
        scene.driver.wait_for_applies("t", 4).await;
        let (status, answer) = api.request(Method::POST, "/v1/tasks/t/run").await;
        assert_eq!(status, 409);
        assert_eq!(message(&answer), "task 't' is active and cannot be updated at this time");
        drop(gate);
    });
    assert_eq!(held.0, 200);

    let disable = r#"{"enabled":false}"#.to_owned();
    assert_eq!(api.send(Method::PATCH, "/v1/tasks/t", disable).await.0, 200);
    let (status, answer) = api.request(Method::POST, "/v1/tasks/t/run").await;
    assert_eq!((status, message(&answer)), (409, "task 't' is disabled; enable it first"));
    for path in ["gone/run", "gone/plan/x/approve"] {
        assert_eq!(api.request(Method::POST, &format!("/v1/tasks/{path}")).await.0, 404);
    }
    assert_eq!(api.get("/v1/tasks/gone/plan").await.0, 404);
    assert_eq!(api.get("/v1/tasks/t/run").await.0, 405);
    scene.end(running).await;
}

#[tokio::test]
async fn the_client_approves_and_discards() {
    let (scene, api, id) = waiting().await;
    let mut config = ClientConfig::default();
    config.address.clone_from(&api.url);
    let client = Client::new(&config).unwrap();
    let plan = client.waiting_plan("guarded").await.unwrap();
    assert_eq!((plan.id.as_str(), plan.changes.add), (id.as_str(), 1));
    let unknown = client.approve_plan("guarded", &PlanId::new("a/b")).await.unwrap_err();
    assert_eq!(unknown.status().unwrap(), 404, "{unknown}");
    client.discard_plan("guarded", &plan.id).await.unwrap();
    let again = client.run_task("guarded").await.unwrap().value.waiting_plan.unwrap();
    client.approve_plan("guarded", &again).await.unwrap();
    assert_eq!(client.waiting_plan("guarded").await.unwrap_err().status().unwrap(), 404);
    assert!(scene.driver.applied("guarded").is_some());
}
