//! `POST /v1/tasks`.

use std::sync::Arc;

use consul_watch::testing::Log;
use cts_tasks::{BufferPeriod, FirstRun, Result, Single, TaskName, config::Registry};
use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    api::Api,
    config::support::{AnyDriver, loader_of, source},
    scene::{Scene, ids, on},
};

/// A running engine without tasks, and its API.
async fn running() -> (Scene, Api, JoinHandle<Result<()>>) {
    let text = "working_dir = \"/tasks\"\nbuffer_period { enabled = false }";
    running_with(text).await
}

/// As [`running`], with other settings.
async fn running_with(text: &str) -> (Scene, Api, JoinHandle<Result<()>>) {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    let driver = AnyDriver::new("terraform", &["limits"]);
    let loaded = loader_of(Registry::new().driver(driver))
        .load_sources(vec![source("test.hcl", text)])
        .unwrap();
    let api = Api::serve_with(&scene, loaded.rules).await;
    (scene, api, running)
}

/// The smallest task, on the service `web`.
fn task() -> Value {
    json!({"name": "t", "module": "./m", "condition": {"services": {"names": ["web"]}}})
}

async fn post(api: &Api, parameters: &str, task: &Value) -> (u16, Value) {
    let body = json!({"task": task}).to_string();
    api.send(Method::POST, &format!("/v1/tasks{parameters}"), body).await
}

fn message(answer: &Value) -> &str {
    assert!(uuid::Uuid::parse_str(answer["request_id"].as_str().unwrap()).is_ok());
    answer["error"]["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_task_is_created_shown_as_sent_and_runs_when_triggered() {
    let settings =
        "buffer_period { enabled = false }\nterraform_provider \"aws\" { alias = \"a\" }";
    let (scene, api, running) = running_with(settings).await;
    let sent = json!({
        "name": "t", "description": "d", "enabled": true, "module": "org/m/cts",
        "version": "1.0.0", "providers": ["aws.a"],
        "variables": {"num": "5", "s": "\"text\""},
        "buffer_period": {"enabled": true, "min": "1ms", "max": "1m0s"},
        "condition": {"services": {
            "names": ["web"], "datacenter": "", "namespace": "", "filter": "",
            "cts_user_defined_meta": {"tier": "front"}, "use_as_module_input": true,
        }},
        "module_input": {"consul_kv": {
            "path": "k", "recurse": true, "datacenter": "", "namespace": "",
        }},
    });
    let (status, answer) = post(&api, "", &sent).await;
    assert_eq!((status, &answer["task"]), (201, &sent), "{answer}");
    assert_eq!(answer.get("run"), None);
    assert_eq!(api.get("/v1/tasks/t").await.1["task"], sent);
    assert_eq!(scene.driver.applies("t").len(), 0);
    scene.put("web", 2);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 1).await[0]), ["web-1", "web-2"]);
    scene.end(running).await;
}

#[tokio::test]
async fn an_alias_that_is_not_configured_is_refused() {
    let settings = "terraform_provider \"aws\" { alias = \"a\" }";
    let (scene, api, running) = running_with(settings).await;
    let mut sent = task();
    sent["providers"] = json!(["aws.b"]);
    let (status, answer) = post(&api, "", &sent).await;
    let expected = "provider \"aws.b\" is not configured: there is no terraform_provider block \
                    \"aws\" with the alias \"b\"";
    assert_eq!(status, 400);
    assert!(message(&answer).contains(expected), "{answer}");
    assert_eq!(api.get("/v1/tasks/t").await.0, 404);
    scene.end(running).await;
}

#[tokio::test]
async fn a_working_directory_of_another_task_is_refused() {
    let (scene, api, running) = running().await;
    let mut other = on("other", &["web"]);
    other.working_dir = "/tasks/x/../t".into();
    scene.engine.create(other, FirstRun::WhenTriggered).await.unwrap();
    for parameters in ["", "?run=now", "?run=inspect"] {
        let (status, answer) = post(&api, parameters, &task()).await;
        let expected = "tasks other and t have the same working_dir /tasks/t";
        assert_eq!(status, 400, "{answer}");
        assert!(message(&answer).contains(expected), "{answer}");
    }
    assert_eq!(api.get("/v1/tasks/t").await.0, 404);
    scene.end(running).await;
}

#[tokio::test]
async fn a_task_takes_the_settings_of_the_deployment_without_showing_them() {
    let (scene, api, running) = running().await;
    let (status, answer) = post(&api, "?run=now", &task()).await;
    assert_eq!((status, &answer["task"]["buffer_period"]), (201, &Value::Null));
    let kept = scene.engine.state(|state| state.tasks[0].clone());
    assert_eq!(kept.buffer_period, BufferPeriod::Disabled);
    assert_eq!(kept.working_dir.to_str(), Some("/tasks/t"));
    assert_eq!(scene.driver.applies("t").len(), 1);
    assert_eq!(scene.events("t").len(), 1);
    scene.end(running).await;
}

#[tokio::test]
async fn a_task_whose_first_run_fails_is_not_added() {
    let (scene, api, running) = running().await;
    scene.driver.fail_next("t", "the tool failed", true);
    let (status, error) = post(&api, "?run=now", &task()).await;
    assert_eq!((status, message(&error)), (500, "the tool failed"));
    assert_eq!(api.get("/v1/tasks/t").await.0, 404);
    scene.end(running).await;
}

/// Spec: CTS78
#[tokio::test]
async fn an_inspected_task_shows_its_plan_and_is_not_kept() {
    let (scene, api, running) = running().await;
    let (status, mut answer) = post(&api, "?run=inspect", &task()).await;
    // Not upstream's.
    let planned = answer["run"].as_object_mut().unwrap().remove("resources").unwrap();
    assert_eq!(planned["resources"][0]["action"], "create", "{planned}");
    let plan = json!({"plan": "recorded, not planned", "changes_present": true});
    assert_eq!((status, &answer["run"]), (200, &plan));
    assert_eq!(api.get("/v1/tasks/t").await.0, 404);
    let mut disabled = task();
    disabled["enabled"] = false.into();
    let (_, answer) = post(&api, "?run=inspect", &disabled).await;
    assert_eq!(answer["run"]["plan"], "Task is disabled, inspection was skipped.");
    assert_eq!(scene.driver.applies("t").len(), 0);
    scene.end(running).await;
}

/// Spec: CTS77
#[tokio::test]
async fn a_name_that_is_taken_and_an_empty_body_are_refused() {
    let (scene, api, running) = running().await;
    assert_eq!(post(&api, "", &task()).await.0, 201);
    for parameters in ["", "?run=now", "?run=inspect"] {
        let (status, error) = post(&api, parameters, &task()).await;
        assert_eq!((status, message(&error)), (400, "task with name t already exists"));
    }
    let (status, error) = api.send(Method::POST, "/v1/tasks", String::new()).await;
    assert_eq!((status, message(&error)), (400, "error decoding the request: EOF"));
    let (status, error) = post(&api, "?run=later", &task()).await;
    assert_eq!(status, 400);
    assert!(message(&error).starts_with("unsupported run parameter value."));
    scene.end(running).await;
}

/// Commands send to the log with the request's id.
#[tokio::test]
async fn a_refused_change_is_in_the_log_with_its_request_and_a_question_is_not() {
    let log = Log::start();
    let (scene, api, running) = running().await;
    scene.driver.fail_next("t", "bad module", true);
    let (status, answer) = post(&api, "?run=now", &task()).await;
    assert_eq!(status, 500);
    let told = log.with("request failed");
    assert_eq!(told.len(), 1, "{told:?}");
    let id = answer["request_id"].as_str().unwrap();
    for part in ["ERROR", id, "POST", "/v1/tasks", "500", "bad module"] {
        assert!(told[0].contains(part), "{part} in {told:?}");
    }
    assert_eq!(api.get("/v1/tasks/none").await.0, 404);
    assert_eq!(log.with("request failed").len(), 1);
    assert_eq!(api.request(Method::DELETE, "/v1/tasks/none").await.0, 404);
    let told = log.with("request failed");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[1].contains("INFO") && told[1].contains("404"),
        "a mistake of whoever asked: {told:?}"
    );
    scene.end(running).await;
}

/// Spec: CTS76
#[tokio::test]
async fn what_does_not_match_the_schema_is_refused_with_its_place() {
    let (scene, api, running) = running().await;
    let with = |path: &str, value: Value| {
        let mut task = task();
        *task.pointer_mut(path.rsplit_once('/').unwrap().0).unwrap() = {
            let mut parent = task.pointer(path.rsplit_once('/').unwrap().0).unwrap().clone();
            parent[path.rsplit_once('/').unwrap().1] = value;
            parent
        };
        task
    };
    for (task, problem) in [
        (with("/module", true.into()), "\"/task/module\": value must be a string"),
        (with("/enabled", "yes".into()), "\"/task/enabled\": value must be a boolean"),
        (with("/providers", "aws".into()), "\"/task/providers\": value must be an array"),
        (with("/providers", json!([1])), "\"/task/providers/0\": value must be a string"),
        (with("/variables", json!({"n": 1})), "\"/task/variables/n\": value must be a string"),
        (with("/condition", json!([])), "\"/task/condition\": value must be an object"),
        (with("/working_dir", "x".into()), "\"/task\": property \"working_dir\" is unsupported"),
        (
            with("/condition/services/tags", json!([])),
            "\"/task/condition/services\": property \"tags\" is unsupported",
        ),
        (
            with("/condition", json!({"schedule": {}})),
            "\"/task/condition/schedule/cron\": property \"cron\" is missing",
        ),
        (
            with("/max_destroy", (-1).into()),
            "\"/task/max_destroy\": value must be an integer of at least 0",
        ),
        (
            with("/require_approval", 1.into()),
            "\"/task/require_approval\": value must be a boolean",
        ),
        (json!({"name": "t"}), "\"/task/module\": property \"module\" is missing"),
        (json!("t"), "\"/task\": value must be an object"),
    ] {
        let (status, error) = post(&api, "", &task).await;
        let text = format!("request body has an error: doesn't match schema: Error at {problem}");
        assert_eq!((status, message(&error)), (400, text.as_str()), "{task}");
    }
    for body in ["{}", "[]", r#"{"task":{},"more":1}"#] {
        let (status, error) = api.send(Method::POST, "/v1/tasks", body.to_owned()).await;
        assert_eq!(status, 400);
        assert!(message(&error).contains("doesn't match schema"), "{body}: {error}");
    }
    assert_eq!(scene.engine.state(|state| state.tasks.len()), 0);
    scene.end(running).await;
}

#[tokio::test]
async fn a_guard_is_taken_and_shown_where_it_is_set() {
    let (scene, api, running) = running().await;
    let mut guarded = task();
    guarded["max_destroy"] = 3.into();
    guarded["require_approval"] = true.into();
    guarded["destroy_on_delete"] = true.into();
    guarded["drift_check"] = "0 3 * * *".into();
    let (status, created) = post(&api, "", &guarded).await;
    assert_eq!(status, 201, "{created}");
    assert_eq!(created["task"]["max_destroy"], 3);
    assert_eq!(created["task"]["require_approval"], true);
    assert_eq!(created["task"]["destroy_on_delete"], true);
    assert_eq!(created["task"]["drift_check"], "0 3 * * *");
    let guard = scene.engine.state(|state| state.tasks[0].guard);
    assert_eq!((guard.max_destroy, guard.require_approval), (Some(3), true));
    let mut plain = task();
    plain["name"] = "plain".into();
    let (_, created) = post(&api, "", &plain).await;
    let shown = created["task"].as_object().unwrap();
    assert!(!shown.contains_key("max_destroy") && !shown.contains_key("require_approval"));
    scene.end(running).await;
}

#[tokio::test]
async fn bounds_and_environment_are_taken_and_shown_without_values() {
    let (scene, api, running) = running().await;
    let log = Log::start();
    let mut sent = task();
    sent["timeout"] = "10m0s".into();
    sent["shutdown_timeout"] = "1m0s".into();
    sent["retry"] = json!({"attempts": 5, "backoff": "2s"});
    sent["env"] = json!({"TOKEN": "Zq7XkVWv3J", "GONE": null});
    let (status, created) = post(&api, "", &sent).await;
    assert_eq!(status, 201, "{created}");
    let shown = &created["task"];
    assert_eq!(shown["timeout"], "10m0s");
    assert_eq!(shown["shutdown_timeout"], "1m0s");
    assert_eq!(shown["retry"], json!({"attempts": 5, "backoff": "2s", "max_backoff": "15m0s"}));
    assert_eq!(shown["env"], json!({"TOKEN": "[redacted]"}));
    let stored = scene.engine.state(|state| state.tasks[0].clone());
    let values: Vec<_> =
        stored.env.iter().map(|(_, value)| value.expose_secret().to_owned()).collect();
    assert_eq!(values, ["Zq7XkVWv3J"]);
    for path in ["/v1/tasks", "/v1/tasks/t", "/v1/status/tasks?include=events"] {
        let (status, answer) = api.send(Method::GET, path, String::new()).await;
        assert_eq!(status, 200);
        assert!(!answer.to_string().contains("Zq7X"), "{answer}");
    }
    // What an answer shows is no value, and mistakes show none.
    let mut copied = shown.clone();
    copied["name"] = "copy".into();
    let (status, error) = post(&api, "", &copied).await;
    assert_eq!(status, 400);
    assert!(message(&error).contains("is how a value is shown"), "{error}");
    let mut own = task();
    own["env"] = json!({"OWN_LOG": "Zq7XkVWv3J"});
    let (status, error) = post(&api, "", &own).await;
    assert_eq!(status, 400);
    assert_eq!(
        message(&error),
        "error with task configuration: env: OWN_LOG cannot be set: the driver sets it (remove it \
         from env)"
    );
    let mut long = task();
    long["shutdown_timeout"] = "1h".into();
    let (status, error) = post(&api, "", &long).await;
    assert_eq!(status, 400);
    assert!(message(&error).contains("longer than the deployment's 5m0s"), "{error}");
    assert!(!log.text().contains("Zq7X"));
    scene.end(running).await;
}

/// Spec: CTS20
#[tokio::test]
async fn a_provider_that_commits_is_refused_to_a_second_task() {
    let (scene, api, running) =
        running_with("terraform_provider \"panos\" { auto_commit = true }").await;
    let mut with_provider = task();
    with_provider["providers"] = json!(["panos"]);
    assert_eq!(post(&api, "", &with_provider).await.0, 201);
    with_provider["name"] = "u".into();
    let (status, error) = post(&api, "", &with_provider).await;
    assert_eq!(status, 400);
    assert_eq!(
        message(&error),
        "error with task configuration: \
         provider with autocommit (panos) cannot be used by more than one task \
         (it is used by t, u; give each a block with an alias)"
    );
    scene.end(running).await;
}

#[tokio::test]
async fn what_configuration_files_may_not_say_a_request_may_not_either() {
    let (scene, api, running) = running().await;
    let mut bad_name = task();
    bad_name["name"] = "1t".into();
    let mut bad_length = task();
    bad_length["buffer_period"] = json!({"min": "soon"});
    let mut bad_input = task();
    bad_input["module_input"] = json!({"services": {"names": ["a"]}});
    let mut bad_block = task();
    bad_block["terraform_version"] = "1.0.0".into();
    for (task, text) in [
        (bad_name, "a task name must start with a letter"),
        (bad_length, "buffer_period.min: expected a duration"),
        (bad_input, "both monitor \"services\" variable type"),
        (bad_block, "unsupported configuration 'terraform_version' for task \"t\""),
    ] {
        let (status, error) = post(&api, "", &task).await;
        assert_eq!(status, 400);
        let said = message(&error);
        assert!(
            said.starts_with("error with task configuration: ") && said.contains(text),
            "{said}"
        );
    }
    scene.end(running).await;
}

#[tokio::test]
async fn of_several_conditions_the_first_counts_and_names_before_a_regexp() {
    let (scene, api, running) = running().await;
    let mut several = task();
    several["condition"] = json!({
        "schedule": {"cron": "0 3 * * *"},
        "services": {"names": ["web"], "regexp": "^a", "cts_user_defined_meta": {"a": null}},
    });
    several["limits"] = json!({"cpu": 1});
    let (status, answer) = post(&api, "", &several).await;
    assert_eq!(status, 201, "{answer}");
    let condition = &answer["task"]["condition"]["services"];
    assert_eq!(condition["names"], json!(["web"]));
    assert_eq!(condition.get("regexp"), None);
    assert_eq!(condition["cts_user_defined_meta"], json!({}));
    assert_eq!(answer["task"]["condition"].get("schedule"), None);
    assert_eq!(answer["task"]["limits"], json!({"cpu": 1}), "the driver's own");
    scene.end(running).await;
}

/// Upstream reads an omitted bound of an API buffer period as 0; ours leaves it unset.
#[tokio::test]
async fn an_omitted_bound_of_a_buffer_period_is_unset_and_not_zero() {
    let (scene, api, running) = running().await;
    let mut task = task();
    task["buffer_period"] = json!({"min": "10s"});
    let (_, answer) = post(&api, "", &task).await;
    let expected = json!({"enabled": true, "min": "10s", "max": "40s"});
    assert_eq!(answer["task"]["buffer_period"], expected);
    scene.end(running).await;
}

/// Spec: CTS85
#[tokio::test]
async fn large_variables_are_taken_and_shown_as_texts() {
    let (scene, api, running) = running().await;
    let list: Vec<String> = (0..5000).map(|number| format!("\"item {number}\"")).collect();
    let mut task = task();
    task["variables"] = json!({"list": format!("[{}]", list.join(", "))});
    let (status, answer) = post(&api, "", &task).await;
    assert_eq!(status, 201);
    let name: TaskName = "t".parse().unwrap();
    let kept = scene.engine.state(|state| {
        state.tasks.iter().find(|task| task.name == name).map(|task| task.variables["list"].clone())
    });
    assert_eq!(answer["task"]["variables"]["list"], kept.unwrap().to_expression());
    scene.end(running).await;
}

#[tokio::test]
async fn without_the_rules_of_a_configuration_no_task_is_created() {
    let api = Api::serve(&Scene::new(), Arc::new(Single)).await;
    assert_eq!(post(&api, "", &task()).await.0, 405);
}
