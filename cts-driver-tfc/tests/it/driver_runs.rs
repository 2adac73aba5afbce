//! What a change comes to.

use std::time::Duration;

use cts_driver_tfc::testing::{Fault, Hold, PolicyResult, TestTfc};
use cts_tasks::{
    Action, ApplyRequest, Changes, Driver, Outcome, PlanPurpose, RunContext, TaskInputs,
};
use http::Method;
use serde_json::json;

use crate::scene::{Scene, count, inputs, request_line, web};

async fn apply(driver: &dyn Driver, inputs: &TaskInputs) -> cts_tasks::Result<Outcome> {
    driver.apply(ApplyRequest::Inputs(inputs), &RunContext::default()).await
}

fn changes(outcome: &Outcome) -> (u64, u64, u64) {
    match outcome {
        Outcome::Applied(Changes { add, change, destroy, .. }) => (*add, *change, *destroy),
        other => panic!("not applied: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_one_request_for_the_value_one_for_the_run_and_polls() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    assert_eq!(changes(&apply(&*driver, &inputs(&["a"])).await.unwrap()), (1, 0, 0));
    let before = scene.tfc.requests().len();
    assert_eq!(changes(&apply(&*driver, &inputs(&["a", "b"])).await.unwrap()), (1, 0, 0));
    let requests = scene.tfc.requests();
    let sent: Vec<String> = requests[before..].iter().map(request_line).collect();
    assert_eq!(sent[..2], ["PATCH workspaces/:id/vars/:id", "POST runs"]);
    assert!(sent[2..].iter().all(|request| request == "GET runs/:id"), "{sent:?}");
    assert!(sent.len() <= 5, "{sent:?}");
    assert!(scene.tfc.variable("web", "services").unwrap().contains("\"b\" = {"));

    // An idle task costs nothing, however long it is idle.
    let before = scene.tfc.requests().len();
    tokio::time::sleep(Duration::from_hours(24)).await;
    assert_eq!(scene.tfc.requests().len(), before);
}

/// Case TFC31: a run that ends as `planned_and_finished` is a success without an apply.
#[tokio::test(start_paused = true)]
async fn a_run_without_changes_is_not_waited_for_any_longer() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    apply(&*driver, &inputs(&["a"])).await.unwrap();
    assert_eq!(apply(&*driver, &inputs(&["a"])).await.unwrap(), Outcome::Unchanged);
    let run = scene.tfc.runs("web").pop().unwrap();
    assert_eq!(run.status, "planned_and_finished");
}

/// Case TFC35: the error of a run that failed names workspace, run id and address.
#[tokio::test(start_paused = true)]
async fn a_failed_plan_is_reported_with_workspace_run_url_and_its_errors() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.fail_plan("web", "Invalid value for variable");
    let error = apply(&*driver, &inputs(&["a"])).await.unwrap_err();
    let run = scene.tfc.runs("web").pop().unwrap().id;
    let url = format!("https://app.terraform.io/app/my-org/workspaces/web/runs/{run}");
    assert_eq!(
        error.to_string(),
        format!(
            "unexpected run status for workspace web: {run} errored\n{url}\nplan failed: Error: Invalid value for variable"
        )
    );
    assert!(!error.is_retryable(), "whether runs are repeated is configured");
    scene.tfc.fail_apply("web", "no quota");
    let error = apply(&*driver, &inputs(&["a"])).await.unwrap_err().to_string();
    assert!(error.ends_with("apply failed: Error: no quota"), "{error}");
    // The next one is a new run, and succeeds.
    apply(&*driver, &inputs(&["a"])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failed_runs_are_repeated_as_configured() {
    let scene = Scene::with(TestTfc::new(), json!({"run": {"retry_errored": 2}})).await;
    let driver = scene.prepared(&web()).await;
    for _ in 0..2 {
        scene.tfc.fail_apply("web", "flaky");
    }
    apply(&*driver, &inputs(&["a"])).await.unwrap();
    assert_eq!(scene.tfc.runs("web").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_somebody_ends_is_an_error_that_says_so() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.hold(Hold::Planning);
    let inputs = inputs(&["a"]);
    let applying = apply(&*driver, &inputs);
    let person = async {
        let run = scene.tfc.wait_for_run("web", "planning").await;
        assert!(scene.tfc.cancel(&run.id));
    };
    let (applied, ()) = tokio::join!(applying, person);
    let error = applied.unwrap_err().to_string();
    assert!(error.contains("canceled") && error.contains("/runs/run-"), "{error}");

    scene.tfc.release(Hold::Planning);
    scene.tfc.set_policy("web", PolicyResult::HardFailed);
    let error = apply(&*driver, &inputs).await.unwrap_err().to_string();
    assert!(
        error.contains("errored")
            && error.contains("(organization): hard_failed: 2 passed, 1 hard"),
        "{error}"
    );
}

/// Case TFC34: an inspection is a plan-only run with an address, and changes no variable.
#[tokio::test(start_paused = true)]
async fn an_inspection_changes_no_variable_and_names_its_run() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    apply(&*driver, &inputs(&["a"])).await.unwrap();
    let (before, value) = (scene.tfc.requests().len(), scene.tfc.variable("web", "services"));
    let context = RunContext::default();
    let plan = driver.plan(&inputs(&["a", "b"]), PlanPurpose::Inspect, &context).await.unwrap();
    let requests = &scene.tfc.requests()[before..];
    assert_eq!(count(requests, "PATCH", "/vars/*") + count(requests, "POST", "/vars"), 0);
    assert_eq!(scene.tfc.variable("web", "services"), value);
    let run = scene.tfc.runs("web").pop().unwrap();
    assert!(run.plan_only && run.status == "planned_and_finished");
    let url = format!("https://app.terraform.io/app/my-org/workspaces/web/runs/{}", run.id);
    assert_eq!(plan.url, Some(url));
    assert_eq!(
        (plan.changes.add, plan.text.as_str()),
        (1, "Plan: 1 to add, 0 to change, 0 to destroy.")
    );
    let planned = plan.resources.unwrap().resources;
    let [planned] = planned.as_slice() else { panic!("{planned:?}") };
    assert_eq!(planned.address, "made_up.instance[\"b\"]");
    assert_eq!(planned.action, Action::Create);
    let same = driver.plan(&inputs(&["a"]), PlanPurpose::Inspect, &context).await.unwrap();
    assert!(same.changes.is_empty());
    // What was only inspected is applied as if it had not been.
    assert_eq!(changes(&apply(&*driver, &inputs(&["a", "b"])).await.unwrap()), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_old_release_gets_the_values_of_an_inspection_with_the_files() {
    let scene = Scene::new().await;
    scene.tfc.ignore_run_variables();
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    let plan = driver.plan(&inputs(&["a"]), PlanPurpose::Inspect, &context).await.unwrap();
    assert!(!plan.changes.is_empty());
    let uploads = scene.tfc.uploads("web");
    assert_eq!(uploads.len(), 2);
    assert!(scene.tfc.runs("web").iter().all(|run| run.plan_only));
    // The workspace's own upload is still the one that is applied.
    apply(&*driver, &inputs(&["a"])).await.unwrap();
    let runs = scene.tfc.runs("web");
    assert_eq!(runs[2].configuration_version, runs[0].configuration_version);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_refuses_values_of_a_run_gets_them_with_the_files() {
    let scene = Scene::new().await;
    scene.tfc.refuse_run_variables();
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    for purpose in [PlanPurpose::Inspect, PlanPurpose::Drift] {
        driver.plan(&inputs(&["a"]), purpose, &context).await.unwrap();
    }
    assert_eq!(scene.tfc.uploads("web").len(), 3, "the task's own, and one for each look");
    let runs = scene.tfc.runs("web");
    assert!(runs.len() == 2 && runs.iter().all(|run| run.plan_only), "{runs:?}");
    assert_eq!(changes(&apply(&*driver, &inputs(&["a"])).await.unwrap()), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_check_for_drift_is_a_run_that_refreshes_only() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    apply(&*driver, &inputs(&["a"])).await.unwrap();
    let plan = driver.plan(&inputs(&["a"]), PlanPurpose::Drift, &RunContext::default()).await;
    assert!(plan.unwrap().changes.is_empty());
    assert!(scene.tfc.runs("web").pop().unwrap().plan_only);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_could_be_overridden_does_not_fail_an_inspection() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.set_policy("web", PolicyResult::SoftFailed);
    let plan = driver.plan(&inputs(&["a"]), PlanPurpose::Inspect, &RunContext::default()).await;
    assert_eq!(plan.unwrap().changes.add, 1);
    assert_eq!(scene.tfc.runs("web").pop().unwrap().status, "policy_soft_failed");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_answer_was_lost_is_adopted_and_not_made_twice() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.inject(Some(Method::POST), "/runs", Fault::AnswerLost, 1);
    apply(&*driver, &inputs(&["a"])).await.unwrap();
    assert_eq!(scene.tfc.runs("web").len(), 1);
    assert_eq!(count(&scene.tfc.requests(), "GET", "/runs"), 1, "it was looked for once");
    // One that was really not made is made.
    scene.tfc.inject(Some(Method::POST), "/runs", Fault::Status(503), 1);
    apply(&*driver, &inputs(&["b"])).await.unwrap();
    assert_eq!(scene.tfc.runs("web").len(), 2);
}

/// Case TFC36: a workspace that was deleted on the way is made again once, and then an error.
#[tokio::test(start_paused = true)]
async fn a_workspace_that_was_deleted_is_made_again_once() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    apply(&*driver, &inputs(&["a"])).await.unwrap();
    scene.tfc.delete_workspace("web");
    assert_eq!(changes(&apply(&*driver, &inputs(&["b"])).await.unwrap()), (1, 0, 0));
    assert_eq!(scene.tfc.uploads("web").len(), 1, "the module is uploaded again");
    // Each time the workspace is looked for once more; if that does not help, it is an error.
    for (path, times) in [("/api/v2/runs", 1), ("/vars/", 1), ("/api/v2/runs", 2)] {
        let method = if path == "/vars/" { Method::PATCH } else { Method::POST };
        scene.tfc.inject(Some(method), path, Fault::Status(404), times);
        let before = scene.tfc.requests().len();
        let applied = apply(&*driver, &inputs(&[&format!("c{times}{path}")])).await;
        let requests = &scene.tfc.requests()[before..];
        assert_eq!(count(requests, "GET", "/workspaces/web"), 1, "{path}, {times} times");
        match applied {
            Ok(outcome) => assert!(times == 1 && changes(&outcome).0 == 1, "{path}: {outcome:?}"),
            Err(error) => {
                assert!(times == 2 && error.to_string().contains("create run"), "{path}: {error}");
            }
        }
    }
}

/// Case TFC15: 429 is waited for until the limit is reset, and other 4xx are not repeated.
#[tokio::test(start_paused = true)]
async fn the_rate_limit_is_waited_for_and_the_run_is_made_once() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let limit = Fault::RateLimit(Duration::from_secs(7));
    scene.tfc.inject(Some(Method::POST), "/runs", limit, 1);
    let before = tokio::time::Instant::now();
    apply(&*driver, &inputs(&["a"])).await.unwrap();
    assert!(before.elapsed() >= Duration::from_secs(7));
    assert_eq!(scene.tfc.runs("web").len(), 1);
    // What was not turned away by the limit is not sent again.
    scene.tfc.inject(Some(Method::PATCH), "/vars/", Fault::Status(403), 1);
    let before = scene.tfc.requests().len();
    apply(&*driver, &inputs(&["b"])).await.unwrap_err();
    let requests = scene.tfc.requests();
    assert_eq!(count(&requests[before..], "PATCH", "/vars/*"), 1);
    assert_eq!(count(&requests[before..], "POST", "/runs"), 0, "no run with half of the values");
    apply(&*driver, &inputs(&["b"])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_is_away_for_minutes_does_not_fail_the_run() {
    let scene = Scene::with(TestTfc::new(), json!({"max_retry": 0})).await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.inject(Some(Method::GET), "/api/v2/runs/", Fault::Status(502), 25);
    apply(&*driver, &inputs(&["a"])).await.unwrap();
    scene.tfc.inject(Some(Method::GET), "/api/v2/runs/", Fault::Status(502), 100_000);
    let before = tokio::time::Instant::now();
    let error = apply(&*driver, &inputs(&["b"])).await.unwrap_err();
    assert!(before.elapsed() >= Duration::from_mins(10) && error.is_retryable(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_too_large_is_reported_before_it_is_sent() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let many: Vec<String> = (0..1000).map(|number| format!("instance-{number:04}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let before = scene.tfc.requests().len();
    let error = apply(&*driver, &inputs(&many)).await.unwrap_err().to_string();
    assert!(
        error.contains("variable \"services\" has") && error.contains("at most 262144"),
        "{error}"
    );
    assert_eq!(scene.tfc.requests().len(), before);
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_failed_plan_is_asked_for_again() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let lines: Vec<String> = (0..9000).map(|line| format!("line {line}\n")).collect();
    let long = lines.concat();
    scene.tfc.fail_plan("web", &format!("{long}the end"));
    scene.tfc.inject(Some(Method::GET), "/_archivist/log", Fault::Status(502), 2);
    let error = apply(&*driver, &inputs(&["a"])).await.unwrap_err().to_string();
    assert!(error.contains("plan failed: Error: line 0\nline 1\n"), "{error}");
    let pieces = count(&scene.tfc.requests(), "GET", "/_archivist/log/plan/*");
    assert_eq!(pieces, 4, "two pieces, and two that failed");
}

#[tokio::test(start_paused = true)]
async fn destroying_leaves_nothing_and_the_workspace_goes_only_where_that_is_configured() {
    for (settings, stays) in [(json!({}), true), (json!({"delete_workspace": "safe"}), false)] {
        let scene = Scene::with(TestTfc::new(), settings).await;
        let driver = scene.prepared(&web()).await;
        let context = RunContext::default();
        apply(&*driver, &inputs(&["a"])).await.unwrap();
        assert_eq!(changes(&driver.destroy(&context).await.unwrap()), (0, 0, 1));
        assert_eq!(scene.tfc.attribute("web", "auto-apply").is_some(), stays);
        if stays {
            assert_eq!(driver.destroy(&context).await.unwrap(), Outcome::Unchanged);
        }
        // Afterwards the task can be applied again.
        assert_eq!(changes(&apply(&*driver, &inputs(&["a"])).await.unwrap()), (1, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_lists_addresses() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let plan = driver.plan(&inputs(&["a"]), PlanPurpose::Apply, &RunContext::default()).await;
    let changes = plan.unwrap().changes;
    assert_eq!(changes.addresses["made_up.instance[\"a\"]"], Action::Create);
}
