//! What the platform finds of a run besides its plan.

use cts_driver_tfc::testing::PolicyResult;
use cts_tasks::{ApplyRequest, Outcome, PlanPurpose, RunContext};

use crate::scene::{ProgressLines, Scene, inputs, web};

#[tokio::test(start_paused = true)]
async fn costs_policies_and_run_tasks_are_noted_for_the_event() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.set_costs("web", "25.488", "12.1");
    scene.tfc.set_opa("web", PolicyResult::Passed);
    scene.tfc.set_run_task("web", "scan", "passed", "No issues found.\nAll good");
    let (reported, context) = ProgressLines::context();
    let inputs = inputs(&["a"]);
    driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap();
    let expected = [
        "cost estimate: 25.488 USD a month, a change of 12.1; 3 of 4 resources have a price",
        "policy evaluation (opa, post_plan): passed: 1 passed, 0 mandatory and 0 advisory failed, \
         0 errored",
        "run task \"scan\" (post_plan, mandatory): passed: No issues found. All good: \
         https://tasks.example.com/1",
    ];
    assert_eq!(context.notes.lines(), expected);
    assert!(expected.iter().all(|line| reported.count(line) == 1), "{:?}", reported.lines());
}

#[tokio::test(start_paused = true)]
async fn a_run_without_any_asks_for_none() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    let inputs = inputs(&["a"]);
    driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap();
    assert_eq!(context.notes.lines(), Vec::<String>::new());
    let asked = scene.tfc.requests().into_iter().filter(|request| {
        ["cost-", "policy-", "task-"].iter().any(|part| request.path.contains(part))
    });
    assert_eq!(asked.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn policies_that_a_person_may_override_wait_and_are_noted() {
    for opa in [false, true] {
        let scene = Scene::new().await;
        let driver = scene.prepared(&web()).await;
        let (status, held, overridden) = if opa {
            scene.tfc.set_opa("web", PolicyResult::SoftFailed);
            ("post_plan_awaiting_decision", "awaiting_override", "(opa, post_plan): overridden")
        } else {
            scene.tfc.set_policy("web", PolicyResult::SoftFailed);
            ("policy_override", "a person may override it", "(organization): overridden")
        };
        let context = RunContext::default();
        let inputs = inputs(&["a"]);
        let outcome = driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap();
        let Outcome::Waiting { ticket, url: Some(url) } = outcome else {
            panic!("it waits for nobody: {outcome:?}");
        };
        assert!(url.contains(&ticket), "{url}");
        assert_eq!(scene.tfc.runs("web")[0].status, status);
        let notes = context.notes.lines().join("\n");
        assert!(notes.contains("failed") && notes.contains(held), "{notes}");

        assert!(scene.tfc.override_policy(&ticket));
        let context = RunContext::default();
        let followed = driver.follow(&ticket, &context).await.unwrap();
        assert!(matches!(followed, Outcome::Applied(_)), "{followed:?}");
        let notes = context.notes.lines().join("\n");
        assert!(notes.contains(overridden), "{notes}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_ended_a_run_is_in_its_error() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.set_run_task("web", "scan", "failed", "2 open ports");
    let context = RunContext::default();
    let inputs = inputs(&["a"]);
    let error = driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap_err();
    let text = error.to_string();
    let cause = "run task \"scan\" (post_plan, mandatory): failed: 2 open ports";
    assert!(text.contains(cause) && text.contains("errored"), "{text}");
    // Also of a plan that is only shown.
    let error = driver.plan(&inputs, PlanPurpose::Inspect, &context).await.unwrap_err();
    assert!(error.to_string().contains(cause), "{error}");
    scene.tfc.set_run_task("web", "scan", "passed", "");
    scene.tfc.set_opa("web", PolicyResult::HardFailed);
    let error = driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap_err();
    assert!(error.to_string().contains("(opa, post_plan): failed: 1 passed, 1 mandatory"));
}
