//! The logs of plan and apply, reported while they grow.

use std::time::Duration;

use cts_driver_tfc::testing::{Fault, Hold, TestTfc};
use cts_tasks::{ApplyRequest, Literal, Outcome, Plan, PlanPurpose, RunContext, Task, TaskInputs};
use http::Method;
use serde_json::json;

use crate::scene::{ProgressLines, Scene, count, inputs, web};

const PLANNING: &str = "module.rules: Refreshing state...";
const COUNTS: &str = "Plan: 1 to add, 0 to change, 0 to destroy.";
const APPLYING: &str = "module.rules: Creating...";

/// Number of requests for pieces of logs.
fn pieces(tfc: &TestTfc) -> usize {
    count(&tfc.requests(), "GET", "/_archivist/log/*")
}

/// Holds runs up in both steps, each of which has written one line.
async fn held(tfc: &TestTfc, step: &str) -> String {
    let run = tfc.wait_for_run("web", step).await.id;
    let line = if step == "planning" { PLANNING } else { APPLYING };
    tfc.write_log(&run, &format!("{line}\n"));
    run
}

#[tokio::test(start_paused = true)]
async fn the_logs_of_plan_and_apply_are_reported_while_they_grow() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.hold(Hold::Planning);
    scene.tfc.hold(Hold::Applying);
    let (reported, context) = ProgressLines::context();
    let inputs = inputs(&["a"]);
    let applying = driver.apply(ApplyRequest::Inputs(&inputs), &context);
    let watching = async {
        // Each time the run is held up, so nothing ends before it is reported.
        let run = held(&scene.tfc, "planning").await;
        scene.tfc.wait_until(|_| reported.count(PLANNING) > 0).await;
        scene.tfc.write_log(&run, "half a li");
        let before = pieces(&scene.tfc);
        scene.tfc.wait_until(|tfc| pieces(tfc) > before + 1).await;
        assert_eq!(reported.count("half"), 0, "a line is reported when it is whole");
        scene.tfc.write_log(&run, "ne\n");
        scene.tfc.wait_until(|_| reported.count("half a line") > 0).await;
        assert_eq!((reported.count(COUNTS), reported.count(APPLYING)), (0, 0));
        scene.tfc.release(Hold::Planning);
        held(&scene.tfc, "applying").await;
        scene.tfc.wait_until(|_| reported.count(APPLYING) > 0).await;
        assert_eq!(reported.count(COUNTS), 1, "the plan's log is whole");
        scene.tfc.release(Hold::Applying);
    };
    let (applied, ()) = tokio::join!(applying, watching);
    assert!(matches!(applied.unwrap(), Outcome::Applied(_)));
    // That of the plan and that of the apply, which the double ends alike.
    assert_eq!(reported.count(COUNTS), 2, "{:#?}", reported.lines());
    assert_eq!((reported.count(PLANNING), reported.count(APPLYING)), (1, 1), "each line once");
    let order = [": planning", PLANNING, COUNTS, ": applying", APPLYING, ": applied"];
    assert!(order.iter().map(|part| reported.place(part)).is_sorted(), "{:#?}", reported.lines());
    assert!(!reported.lines().iter().any(|line| line.contains(['\u{2}', '\u{3}'])));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_log_that_comes_late_is_reported_before_the_next_step() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.hold(Hold::Planning);
    scene.tfc.hold(Hold::LogEnds);
    let (reported, context) = ProgressLines::context();
    let inputs = inputs(&["a"]);
    let applying = driver.apply(ApplyRequest::Inputs(&inputs), &context);
    let watching = async {
        held(&scene.tfc, "planning").await;
        scene.tfc.wait_until(|_| reported.count(PLANNING) > 0).await;
        scene.tfc.release(Hold::Planning);
        let before = pieces(&scene.tfc);
        scene.tfc.wait_for_run("web", "applied").await;
        scene.tfc.wait_until(|tfc| pieces(tfc) > before + 3).await;
        assert_eq!((reported.count(COUNTS), reported.count(": applied")), (0, 0));
        scene.tfc.release(Hold::LogEnds);
    };
    let (applied, ()) = tokio::join!(applying, watching);
    assert!(matches!(applied.unwrap(), Outcome::Applied(_)));
    assert_eq!(reported.count(COUNTS), 2, "{:#?}", reported.lines());
    assert_eq!(reported.count("cannot be read"), 0);
    let order = [PLANNING, COUNTS, ": applied"];
    assert!(order.iter().map(|part| reported.place(part)).is_sorted(), "{:#?}", reported.lines());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_person_has_its_log_read_once() {
    let tfc = TestTfc::new();
    tfc.add_workspace("web", &json!({}), &[]);
    let scene = Scene::with(tfc, json!({})).await;
    let driver = scene.prepared(&web()).await;
    let (reported, context) = ProgressLines::context();
    let outcome = driver.apply(ApplyRequest::Inputs(&inputs(&["a"])), &context).await.unwrap();
    let Outcome::Waiting { ticket, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(reported.count(COUNTS), 1, "{:#?}", reported.lines());
    let before = pieces(&scene.tfc);
    let person = async {
        tokio::time::sleep(Duration::from_hours(5)).await;
        assert_eq!(pieces(&scene.tfc), before, "nothing is read while it waits");
        scene.tfc.hold(Hold::Applying);
        assert!(scene.tfc.confirm(&ticket));
        held(&scene.tfc, "applying").await;
        scene.tfc.wait_until(|_| reported.count(APPLYING) > 0).await;
        scene.tfc.release(Hold::Applying);
    };
    let (followed, ()) = tokio::join!(driver.follow(&ticket, &context), person);
    assert!(matches!(followed.unwrap(), Outcome::Applied(_)));
    // Once from the plan, although two calls followed the run, and once from the apply.
    assert_eq!(
        (reported.count(COUNTS), reported.count(APPLYING)),
        (2, 1),
        "{:#?}",
        reported.lines()
    );
}

#[tokio::test(start_paused = true)]
async fn no_log_is_read_that_nobody_would_hear() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let inputs = inputs(&["a"]);
    driver.apply(ApplyRequest::Inputs(&inputs), &RunContext::default()).await.unwrap();
    assert_eq!(pieces(&scene.tfc), 0);
}

#[tokio::test(start_paused = true)]
async fn logs_that_cannot_be_read_do_not_fail_the_run() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let (reported, context) = ProgressLines::context();
    scene.tfc.inject(Some(Method::GET), "/_archivist/log/plan", Fault::Status(410), 1);
    scene.tfc.inject(Some(Method::GET), "/_archivist/log/apply", Fault::Status(503), 1000);
    let started = tokio::time::Instant::now();
    let inputs = inputs(&["a"]);
    let outcome = driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap();
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(reported.count("the rest of the log of its plan cannot be read: "), 1);
    assert_eq!(reported.count("the rest of the log of its apply cannot be read: "), 1);
    assert_eq!(reported.count("_archivist"), 0, "{:#?}", reported.lines());
}

/// A task whose module has a secret variable, of several lines.
fn with_secret() -> Task {
    let mut task = web();
    let value = Literal::from("-----BEGIN KEY-----\npl4nted\"5ecret\n-----END KEY-----\n");
    task.variables.insert("key".to_owned(), value);
    task
}

/// What a careless provider could print of it: a line, and the whole value quoted.
const CARELESS: &str = "bad key \"-----BEGIN KEY-----\\npl4nted\\\"5ecret\\n\"\npl4nted\"5ecret\n";

fn is_hidden(text: &str) -> bool {
    text.contains("(sensitive value)") && !text.contains("pl4nted") && !text.contains("KEY")
}

#[tokio::test(start_paused = true)]
async fn values_of_sensitive_variables_are_hidden_in_what_is_reported_of_logs() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&with_secret()).await;
    scene.tfc.hold(Hold::Planning);
    let (reported, context) = ProgressLines::context();
    let instances: TaskInputs = inputs(&["a"]);
    let planning = driver.plan(&instances, PlanPurpose::Inspect, &context);
    let careless = async {
        let run = scene.tfc.wait_for_run("web", "planning").await.id;
        scene.tfc.write_log(&run, CARELESS);
        scene.tfc.release(Hold::Planning);
    };
    let (plan, ()) = tokio::join!(planning, careless);
    let plan: Plan = plan.unwrap();
    let lines = reported.lines().join("\n");
    assert!(is_hidden(&lines), "{lines}");
    assert!(is_hidden(&plan.text), "{}", plan.text);
    assert!(lines.contains("bad key") && plan.text.contains(COUNTS), "{lines}\n{}", plan.text);

    scene.tfc.fail_apply("web", CARELESS);
    let request = ApplyRequest::Inputs(&instances);
    let error = driver.apply(request, &context).await.unwrap_err().to_string();
    assert!(is_hidden(&error) && error.contains("bad key"), "{error}");
    assert!(is_hidden(&reported.lines().join("\n")), "{:#?}", reported.lines());
}
