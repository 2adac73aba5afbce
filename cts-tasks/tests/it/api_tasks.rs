//! The HTTP API's routes about tasks, and about the cluster.

use std::sync::Arc;

use cts_tasks::{FirstRun, Result, Single};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    api::{Api, FollowerOf},
    config::support::load,
    scene::{Scene, on},
};

/// A running engine with the enabled task `on` and the disabled task `off`.
async fn running() -> (Scene, Api, JoinHandle<Result<()>>) {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("on", &["web"])]).await;
    let mut off = on("off", &["web"]);
    off.enabled = false;
    scene.engine.create(off, FirstRun::WhenTriggered).await.unwrap();
    let api = Api::serve(&scene, Arc::new(Single)).await;
    (scene, api, running)
}

fn message(answer: &Value) -> &str {
    assert!(uuid::Uuid::parse_str(answer["request_id"].as_str().unwrap()).is_ok());
    answer["error"]["message"].as_str().unwrap()
}

async fn patch(api: &Api, path: &str, body: &str) -> (u16, Value) {
    api.send(Method::PATCH, &format!("/v1/tasks/{path}"), body.to_owned()).await
}

#[tokio::test]
async fn tasks_are_shown_as_configured() {
    let config = load(
        r#"
        buffer_period { min = "7s" }
        terraform_provider "aws" { alias = "b" }
        task {
          name = "a"
          description = "first"
          module = "org/a/cts"
          version = "1.2.0"
          providers = ["aws.b"]
          variables = { num = "5", s = "\"text\"" }
          buffer_period { min = "15s" }
          condition "services" {
            names = ["web", "api"]
            filter = "x == y"
            cts_user_defined_meta { tier = "front" }
          }
          module_input "consul-kv" { path = "k" }
        }
        task {
          name = "b"
          module = "./b"
          working_dir = "elsewhere"
          condition "catalog-services" { regexp = "^w" use_as_module_input = false }
        }
        task {
          name = "c"
          module = "./c"
          condition "schedule" { cron = "0 3 * * *" }
          module_input "services" { regexp = "" }
        }
        "#,
    );
    let scene = Scene::new();
    scene.engine.load(config.tasks, &scene.stop).await.unwrap();
    let api = Api::serve(&scene, Arc::new(Single)).await;
    let (status, all) = api.get("/v1/tasks").await;
    assert_eq!(status, 200);
    assert!(uuid::Uuid::parse_str(all["request_id"].as_str().unwrap()).is_ok());
    let expected = json!({
        "name": "a", "description": "first", "enabled": true, "module": "org/a/cts",
        "version": "1.2.0", "providers": ["aws.b"],
        "variables": {"num": "5", "s": "\"text\""},
        "buffer_period": {"enabled": true, "min": "15s", "max": "1m0s"},
        "condition": {"services": {
            "names": ["web", "api"], "datacenter": "", "namespace": "", "filter": "x == y",
            "cts_user_defined_meta": {"tier": "front"}, "use_as_module_input": true,
        }},
        "module_input": {"consul_kv": {
            "path": "k", "recurse": false, "datacenter": "", "namespace": "",
        }},
    });
    assert_eq!(all["tasks"][0], expected);
    // Neither the directory nor what is inherited.
    let expected = json!({
        "name": "b", "description": "", "enabled": true, "module": "./b", "version": "",
        "providers": [], "variables": {},
        "condition": {"catalog_services": {
            "regexp": "^w", "datacenter": "", "namespace": "", "node_meta": {},
            "use_as_module_input": false,
        }},
        "module_input": {},
    });
    let (status, one) = api.get("/v1/tasks/b").await;
    assert_eq!((status, &one["task"]), (200, &expected));
    let (_, one) = api.get("/v1/tasks/c").await;
    assert_eq!(one["task"]["condition"], json!({"schedule": {"cron": "0 3 * * *"}}));
    assert_eq!(one["task"]["module_input"]["services"]["regexp"], "");
    // A schedule needs no collecting, which upstream shows as zeros.
    let zeros = json!({"enabled": false, "min": "0s", "max": "0s"});
    assert_eq!(one["task"]["buffer_period"], zeros);
}

#[tokio::test]
async fn a_task_that_is_not_there_is_not_found_and_further_segments_are_refused() {
    let (scene, api, running) = running().await;
    for (method, path) in
        [(Method::GET, "gone"), (Method::DELETE, "gone"), (Method::DELETE, "no%20name")]
    {
        let (status, error) = api.request(method, &format!("/v1/tasks/{path}")).await;
        assert_eq!(status, 404, "{path}");
        assert!(message(&error).ends_with("does not exist or has not been initialized yet"));
    }
    let (status, error) = api.get("/v1/tasks/on/more").await;
    assert_eq!(status, 400);
    assert!(message(&error).starts_with("unsupported path '/v1/tasks/on/more'."));
    scene.end(running).await;
}

/// Spec: CTS55
#[tokio::test]
async fn a_task_is_deleted_with_202_also_a_second_time_while_it_runs() {
    let (scene, api, running) = running().await;
    let gate = scene.driver.hold("on");
    scene.put("web", 2);
    scene.driver.wait_for_applies("on", 2).await;
    for _ in 0..2 {
        let (status, answer) = api.request(Method::DELETE, "/v1/tasks/on").await;
        assert_eq!(status, 202);
        assert_eq!(answer.as_object().unwrap().keys().collect::<Vec<_>>(), ["request_id"]);
    }
    assert_eq!(api.get("/v1/tasks/on").await.0, 200);
    drop(gate);
    while api.get("/v1/tasks/on").await.0 != 404 {
        tokio::task::yield_now().await;
    }
    assert_eq!(api.get("/v1/status/tasks/on").await.0, 404);
    scene.end(running).await;
}

#[tokio::test]
async fn a_task_is_enabled_and_disabled() {
    let (scene, api, running) = running().await;
    assert_eq!(patch(&api, "on", r#"{"enabled":false}"#).await, (200, json!({})));
    assert_eq!(api.get("/v1/tasks/on").await.1["task"]["enabled"], false);
    assert_eq!(patch(&api, "off?run=NOW", r#"{"enabled":true}"#).await, (200, json!({})));
    assert_eq!(scene.driver.applies("off").len(), 1);
    assert_eq!(scene.events("off").len(), 1);
    scene.driver.fail_next("off", "the tool failed", false);
    let (status, error) = patch(&api, "off?run=now", r#"{"enabled":true}"#).await;
    assert_eq!((status, message(&error)), (500, "the tool failed"));
    scene.end(running).await;
}

/// Spec: CTS45
#[tokio::test]
async fn an_inspected_update_shows_the_plan_and_changes_nothing() {
    let (scene, api, running) = running().await;
    let (status, mut answer) = patch(&api, "off?run=inspect", r#"{"enabled":true}"#).await;
    // Not upstream's.
    let planned = answer["inspect"].as_object_mut().unwrap().remove("resources").unwrap();
    assert_eq!(planned["resources"][0]["action"], "create", "{planned}");
    let plan = json!({"inspect": {"changes_present": true, "plan": "recorded, not planned"}});
    assert_eq!((status, answer), (200, plan));
    let (status, answer) = patch(&api, "off?run=inspect", r#"{"enabled":false}"#).await;
    let plan = json!({"inspect": {"changes_present": false, "plan": ""}});
    assert_eq!((status, answer), (200, plan));
    assert_eq!(api.get("/v1/tasks/off").await.1["task"]["enabled"], false);
    scene.end(running).await;
}

#[tokio::test]
async fn a_task_that_runs_cannot_be_updated() {
    let (scene, api, running) = running().await;
    let gate = scene.driver.hold("on");
    scene.put("web", 2);
    scene.driver.wait_for_applies("on", 2).await;
    let (status, error) = patch(&api, "on", r#"{"enabled":false}"#).await;
    assert_eq!(status, 500);
    assert_eq!(message(&error), "task 'on' is active and cannot be updated at this time");
    drop(gate);
    scene.end(running).await;
}

/// Spec: CTS79
#[tokio::test]
async fn updates_that_make_no_sense_are_refused_with_their_texts() {
    let (scene, api, running) = running().await;
    let enabled = r#"{"enabled":true}"#;
    for (path, body, text) in [
        (
            "",
            enabled,
            "no task name was included in the api request. Updating a task requires the task name: '/v1/tasks/:task_name'",
        ),
        (
            "on?run=now&run=inspect",
            enabled,
            "cannot support more than one run query parameter, got run values: [now inspect]",
        ),
        (
            "on?run=later",
            enabled,
            "unsupported run parameter value. only supporting run values now and inspect but got later",
        ),
        (
            "on",
            r#"{"enabled":true,"b":1,"a":2}"#,
            "request body's JSON contains unsupported keys: a, b",
        ),
        (
            "on",
            "{}",
            "/v1/tasks/:task_name currently only supports the 'enabled' field. Missing 'enabled' from the request body",
        ),
        (
            "on",
            r#"{"enabled":"invalid"}"#,
            "error decoding the request: 'enabled' must be true or false",
        ),
        ("on", "", "error decoding the request: EOF"),
        ("on", "[]", "error decoding the request: the body must be an object"),
        ("on", "{", "error decoding the request: EOF while parsing an object at line 1 column 1"),
    ] {
        let (status, error) = patch(&api, path, body).await;
        assert_eq!((status, message(&error)), (400, text), "{path} {body}");
    }
    let (status, error) = patch(&api, "gone", enabled).await;
    assert_eq!(status, 404);
    assert!(message(&error).starts_with("a task with name 'gone' does not exist"));
    let (status, _) = patch(&api, "on", &" ".repeat(5 * 1024 * 1024)).await;
    assert_eq!(status, 413);
    scene.end(running).await;
}

/// Spec: CTS80
#[tokio::test]
async fn other_methods_on_tasks_are_refused() {
    let api = Api::serve(&Scene::new(), Arc::new(Single)).await;
    let (status, error) = api.request(Method::PUT, "/v1/tasks/x").await;
    assert_eq!(status, 405);
    let text = "'PUT' in an unsupported method. The task API currently supports the method(s): ";
    assert!(message(&error).starts_with(text), "{error}");
    assert_eq!(api.request(Method::PUT, "/v1/tasks").await.0, 405);
    assert_eq!(api.request(Method::PUT, "/v1/tasks/").await.0, 405);
    assert_eq!(api.request(Method::POST, "/v1/status/cluster").await.0, 405);
}

#[tokio::test]
async fn the_cluster_is_shown_where_there_is_one_also_by_a_follower() {
    let scene = Scene::new();
    let api = Api::serve(&scene, Arc::new(Single)).await;
    let (status, error) = api.get("/v1/status/cluster").await;
    assert_eq!(status, 405);
    let text = "this endpoint is only available with high availability configured";
    assert_eq!(message(&error), text);
    let api = Api::serve(&scene, Arc::new(FollowerOf(Some("cts-01")))).await;
    let (status, cluster) = api.get("/v1/status/cluster").await;
    assert_eq!((status, &cluster["cluster_name"]), (200, &json!("cluster-a")));
    assert_eq!(
        cluster["members"],
        json!([{"id": "cts-01", "service_name": "cts", "healthy": true, "leader": true,
            "address": "cts-01.example.com"}])
    );
    assert_eq!(api.get("/v1/tasks").await.0, 400);
}

/// Before, each of these was refused, and upstream takes them.
#[tokio::test]
async fn a_patch_is_decoded_weakly() {
    let (scene, api, running) = running().await;
    for body in [
        r#"{"enabled":1}"#,
        r#"{"Enabled":true}"#,
        r#"{"ENABLED":"true"}"#,
        r#"{"enabled":[true]}"#,
        r#"{"enabled":["t"]}"#,
    ] {
        assert_eq!(patch(&api, "off", body).await, (200, json!({})), "{body}");
        assert_eq!(patch(&api, "off", r#"{"enabled":"0"}"#).await, (200, json!({})));
    }
    for body in [r#"{"enabled":"perhaps"}"#, r#"{"enabled":{}}"#, r#"{"enabled":null}"#] {
        assert_eq!(patch(&api, "off", body).await.0, 400, "{body}");
    }
    scene.end(running).await;
}

/// Before, such a task was refused with 400.
#[tokio::test]
async fn a_task_without_a_condition_runs_once_and_for_services_of_its_inputs() {
    let (scene, _api, running) = running().await;
    let api = Api::serve_with(&scene, load_rules()).await;
    let mut task = json!({"name": "bare", "module": "m", "condition": {}});
    let post = |task: &Value| {
        let body = json!({ "task": task }).to_string();
        let api = &api;
        async move { api.send(Method::POST, "/v1/tasks?run=now", body).await }
    };
    let (status, created) = post(&task).await;
    assert_eq!(status, 201, "{created}");
    assert_eq!(created["task"]["condition"], json!({}));
    assert_eq!(created["task"]["module_input"], json!({}));
    assert_eq!(scene.driver.applies("bare").len(), 1);

    task["name"] = "inputs".into();
    task["buffer_period"] = json!({"enabled": false});
    task["module_input"] = json!({"services": {"names": ["web"]}, "consul_kv": {"path": "k"}});
    let (status, created) = post(&task).await;
    assert_eq!(status, 201, "{created}");
    assert_eq!(created["task"]["condition"], json!({}));
    assert_eq!(created["task"]["module_input"]["services"]["names"], json!(["web"]));
    scene.put("web", 2);
    let applies = scene.driver.wait_for_applies("inputs", 2).await;
    assert_eq!(crate::scene::ids(&applies[1]), ["web-1", "web-2"]);
    assert_eq!(scene.driver.applies("bare").len(), 1);
    drop(api);
    scene.end(running).await;
}

fn load_rules() -> cts_tasks::config::TaskRules {
    crate::config::support::try_load("port = 0").unwrap().rules
}

/// Before, the path with the slash was 404.
#[tokio::test]
async fn the_overall_status_may_end_in_a_slash() {
    let (scene, api, running) = running().await;
    assert_eq!(api.get("/v1/status/").await, api.get("/v1/status").await);
    scene.end(running).await;
}

/// Before, `services` had the names of the condition, `source` was as written, and
/// `module_input` and the zeros of `buffer_period` were left out.
#[tokio::test]
async fn answers_have_the_shapes_that_upstreams_clients_read() {
    let scene = Scene::new();
    scene.put("web", 1);
    let condition = r#"condition "services" { names = ["web"] }"#;
    let tasks: Vec<cts_tasks::Task> = [
        ("plain", condition),
        ("listed", "services = [\"web\"]"),
        ("scheduled", "condition \"schedule\" { cron = \"0 0 1 1 *\" }"),
    ]
    .into_iter()
    .flat_map(|(name, body)| {
        load(&format!("task {{ name = {name:?}\n module = \"../a/./b\"\n {body}\n }}")).tasks
    })
    .collect();
    scene.engine.load(tasks, &scene.stop).await.unwrap();
    scene.engine.once(&scene.stop).await.unwrap();
    let api = Api::serve(&scene, Arc::new(Single)).await;
    let (_, statuses) = api.get("/v1/status/tasks?include=events").await;
    for (task, services) in
        [("plain", json!([])), ("listed", json!(["web"])), ("scheduled", json!([]))]
    {
        assert_eq!(statuses[task]["services"], services, "{task}");
        let event = &statuses[task]["events"][0];
        assert_eq!(event["config"]["services"], services, "{task}");
        let source = std::env::current_dir().unwrap().parent().unwrap().join("a/b");
        assert_eq!(event["config"]["source"], source.to_str().unwrap());
        for key in ["start_time", "end_time"] {
            let time = event[key].as_str().unwrap();
            assert!(!time.ends_with("+00:00"), "{time}");
        }
    }
    let (_, shown) = api.get("/v1/tasks/scheduled").await;
    let zeros = json!({"enabled": false, "min": "0s", "max": "0s"});
    assert_eq!(shown["task"]["buffer_period"], zeros);
    assert_eq!(shown["task"]["module_input"], json!({}));
    assert!(api.get("/v1/tasks/plain").await.1["task"].get("buffer_period").is_none());
}
