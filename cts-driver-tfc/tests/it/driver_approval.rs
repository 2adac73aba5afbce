//! Plans and runs that wait for somebody.

use std::time::Duration;

use cts_driver_tfc::testing::{Fault, PolicyResult, TestTfc};
use cts_tasks::{ApplyRequest, Outcome, PlanId, PlanPurpose, RunContext};
use http::Method;
use serde_json::json;

use crate::scene::{Scene, count, inputs, web};

async fn manual() -> Scene {
    let tfc = TestTfc::new();
    tfc.add_workspace("web", &json!({"auto-apply": false}), &[]);
    Scene::with(tfc, json!({})).await
}

fn ticket(outcome: Outcome) -> String {
    match outcome {
        Outcome::Waiting { ticket, url } => {
            assert!(url.unwrap().ends_with(&format!("/workspaces/web/runs/{ticket}")));
            ticket
        }
        other => panic!("does not wait: {other:?}"),
    }
}

/// Case TFC32: in a workspace without automatic apply, newer data discards the run that waits and
/// queues another.
#[tokio::test(start_paused = true)]
async fn newer_data_discards_the_run_that_waits_for_a_person() {
    let scene = manual().await;
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    let (first, second) = (inputs(&["a"]), inputs(&["a", "b"]));
    let waiting = ticket(driver.apply(ApplyRequest::Inputs(&first), &context).await.unwrap());
    let following = driver.follow(&waiting, &context);
    let next = async {
        let next = driver.apply(ApplyRequest::Inputs(&second), &context).await.unwrap();
        ticket(next)
    };
    let (followed, next) = tokio::join!(following, next);
    assert_eq!(followed.unwrap(), Outcome::Superseded);
    let runs = scene.tfc.runs("web");
    assert_eq!((runs[0].status.as_str(), runs[1].status.as_str()), ("discarded", "planned"));
    assert_eq!(runs[1].id, next);

    // A person confirms it, and whoever follows is reported.
    let confirm = async {
        tokio::time::sleep(Duration::from_hours(5)).await;
        assert!(scene.tfc.confirm(&next));
    };
    let before = scene.tfc.requests().len();
    let (followed, ()) = tokio::join!(driver.follow(&next, &context), confirm);
    assert!(matches!(followed.unwrap(), Outcome::Applied(changes) if changes.add == 2));
    let polls = scene.tfc.requests().len() - before;
    assert!(polls <= 5 * 120 + 60, "{polls} looks in five hours");
    assert!(scene.tfc.variable("web", "services").unwrap().contains("\"b\""));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_a_person_discards_is_an_error_that_names_it() {
    let scene = manual().await;
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    let inputs = inputs(&["a"]);
    let waiting = ticket(driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap());
    assert!(scene.tfc.discard(&waiting));
    let error = driver.follow(&waiting, &context).await.unwrap_err().to_string();
    assert!(error.contains(&format!("{waiting} discarded\nhttps://")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_overridden_by_a_person() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.set_policy("web", PolicyResult::SoftFailed);
    let context = RunContext::default();
    let inputs = inputs(&["a"]);
    let waiting = ticket(driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap());
    assert_eq!(scene.tfc.runs("web")[0].status, "policy_override");
    assert!(scene.tfc.override_policy(&waiting));
    let followed = driver.follow(&waiting, &context).await.unwrap();
    assert!(matches!(followed, Outcome::Applied(_)), "{followed:?}");
}

#[tokio::test(start_paused = true)]
async fn approving_a_plan_confirms_that_very_run() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    let (first, second) = (inputs(&["a"]), inputs(&["b"]));
    let plan = driver.plan(&first, PlanPurpose::Apply, &context).await.unwrap();
    assert!(plan.portable && driver.holds(&plan.id, &context).await.unwrap());
    let run = scene.tfc.runs("web").pop().unwrap();
    assert_eq!(
        (run.id.as_str(), run.status.as_str(), run.auto_apply),
        (plan.id.as_str(), "planned", false)
    );
    // Made twice, it is the same.
    let again = driver.plan(&first, PlanPurpose::Apply, &context).await.unwrap();
    assert_eq!(again, plan);
    assert_eq!(scene.tfc.runs("web").len(), 1);

    // Another process can apply it.
    let other = Scene::with(scene.tfc.clone(), json!({})).await;
    let other = other.prepared(&web()).await;
    assert!(other.holds(&plan.id, &context).await.unwrap());
    let applied = other.apply(ApplyRequest::Plan(&plan.id), &context).await.unwrap();
    assert!(matches!(applied, Outcome::Applied(ref changes) if changes.add == 1), "{applied:?}");
    assert_eq!(scene.tfc.runs("web").len(), 1, "no other run was made");
    assert!(!driver.holds(&plan.id, &context).await.unwrap());

    // A plan that was discarded cannot be applied.
    let plan = driver.plan(&second, PlanPurpose::Apply, &context).await.unwrap();
    driver.discard(&plan.id, &context).await.unwrap();
    driver.discard(&plan.id, &context).await.unwrap();
    assert_eq!(scene.tfc.runs("web").pop().unwrap().status, "discarded");
    let applied = driver.apply(ApplyRequest::Plan(&plan.id), &context).await.unwrap();
    assert_eq!(applied, Outcome::Superseded);
    for unknown in ["run-0000", "not an id/"] {
        let unknown = PlanId::new(unknown);
        assert!(!driver.holds(&unknown, &context).await.unwrap());
        driver.discard(&unknown, &context).await.unwrap();
        let applied = driver.apply(ApplyRequest::Plan(&unknown), &context).await.unwrap();
        assert_eq!(applied, Outcome::Superseded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_whose_answer_was_lost_is_not_taken_for_a_failure() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    let plan = driver.plan(&inputs(&["a"]), PlanPurpose::Apply, &context).await.unwrap();
    scene.tfc.inject(Some(Method::POST), "/actions/apply", Fault::AnswerLost, 1);
    let applied = driver.apply(ApplyRequest::Plan(&plan.id), &context).await.unwrap();
    assert!(matches!(applied, Outcome::Applied(_)), "{applied:?}");
    assert_eq!(count(&scene.tfc.requests(), "POST", "/actions/apply"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_a_manual_workspace_is_confirmed_at_the_platform_only() {
    let scene = manual().await;
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    let plan = driver.plan(&inputs(&["a"]), PlanPurpose::Apply, &context).await.unwrap();
    let waiting = ticket(driver.apply(ApplyRequest::Plan(&plan.id), &context).await.unwrap());
    assert_eq!(count(&scene.tfc.requests(), "POST", "/actions/apply"), 0);
    assert!(scene.tfc.confirm(&waiting));
    let followed = driver.follow(&waiting, &context).await.unwrap();
    assert!(matches!(followed, Outcome::Applied(_)), "{followed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_process_discards_what_the_old_one_left_and_nothing_else() {
    let scene = manual().await;
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    let (first, second) = (inputs(&["a"]), inputs(&["b"]));
    let left = ticket(driver.apply(ApplyRequest::Inputs(&first), &context).await.unwrap());
    let workspace = scene.tfc.client().workspace_named("my-org", "web").await.unwrap().id;
    let mut foreign = cts_driver_tfc::types::NewRun::new(workspace);
    foreign.message = "by hand".to_owned();
    let foreign = scene.tfc.client().create_run(&foreign).await.unwrap().id;

    let other = Scene::with(scene.tfc.clone(), json!({})).await;
    let other = other.prepared(&web()).await;
    let applying = async { other.apply(ApplyRequest::Inputs(&second), &context).await.unwrap() };
    let person = async {
        // Ours is gone, so that the other one starts, which ends it.
        scene
            .tfc
            .wait_until(|tfc| {
                tfc.runs("web")
                    .iter()
                    .any(|run| run.id == foreign.as_str() && run.status == "planned")
            })
            .await;
        assert!(scene.tfc.discard(foreign.as_str()));
    };
    let (outcome, ()) = tokio::join!(applying, person);
    let next = ticket(outcome);
    let status =
        |id: &str| scene.tfc.runs("web").into_iter().find(|run| run.id == id).unwrap().status;
    assert_eq!(status(&left), "discarded");
    assert_eq!(status(&next), "planned");
    assert_eq!(count(&scene.tfc.requests(), "GET", "/runs"), 1, "one list, at the start only");
}
