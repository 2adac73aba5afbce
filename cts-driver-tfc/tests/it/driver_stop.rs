//! What becomes of a run when the process stops.

use cts_driver_tfc::testing::{Hold, TestTfc};
use cts_tasks::{ApplyRequest, Error, Outcome, Permit, RunContext, Stop, StopReason};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::scene::{Scene, count, inputs, web};

/// Stops an apply when the run has `status`, and returns what that becomes.
async fn stopped_at(status: &str, hold: Hold, reason: StopReason) -> (Error, String) {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.hold(hold);
    let stop = Stop::new();
    let context = RunContext::new(stop.clone());
    let inputs = inputs(&["a"]);
    let stopping = async {
        scene.tfc.wait_for_run("web", status).await;
        stop.stop(reason);
    };
    let applying = driver.apply(ApplyRequest::Inputs(&inputs), &context);
    let (applied, ()) = tokio::join!(applying, stopping);
    scene.tfc.release(hold);
    scene
        .tfc
        .wait_until(|tfc| {
            let run = tfc.runs("web").pop();
            run.is_some_and(|run| {
                ["canceled", "applied", "discarded"].contains(&run.status.as_str())
            })
        })
        .await;
    (applied.unwrap_err(), scene.tfc.runs("web").pop().unwrap().status)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_does_not_apply_yet_ends_with_the_process() {
    for reason in [StopReason::Shutdown, StopReason::TaskDeleted, StopReason::TimeLimit] {
        let (error, status) = stopped_at("planning", Hold::Planning, reason).await;
        assert!(
            matches!(error, Error::Stopped { reason: reported } if reported == reason),
            "{error}"
        );
        assert_eq!(status, "canceled", "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_applies_goes_on() {
    let (error, status) = stopped_at("applying", Hold::Applying, StopReason::Shutdown).await;
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert_eq!(status, "applied");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_left_to_the_next_leader() {
    let (error, status) = stopped_at("planning", Hold::Planning, StopReason::LeadershipLost).await;
    assert!(matches!(error, Error::Stopped { reason: StopReason::LeadershipLost }), "{error}");
    assert_eq!(status, "applied");
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_leaves_the_run_alone_and_queues_its_own_behind_it() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.hold(Hold::Planning);
    let stop = Stop::new();
    let context = RunContext::new(stop.clone());
    let (first, second) = (inputs(&["a"]), inputs(&["a", "b"]));
    let lost = async {
        scene.tfc.wait_for_run("web", "planning").await;
        stop.stop(StopReason::LeadershipLost);
    };
    let (left, ()) = tokio::join!(driver.apply(ApplyRequest::Inputs(&first), &context), lost);
    assert!(matches!(left.unwrap_err(), Error::Stopped { .. }));

    let leader = Scene::with(scene.tfc.clone(), json!({})).await;
    let leader = leader.prepared(&web()).await;
    let context = RunContext::default();
    let released = async {
        scene.tfc.wait_until(|tfc| tfc.runs("web").len() == 2).await;
        scene.tfc.release(Hold::Planning);
    };
    let (applied, ()) =
        tokio::join!(leader.apply(ApplyRequest::Inputs(&second), &context), released);
    assert!(matches!(applied.unwrap(), Outcome::Applied(ref changes) if changes.add == 1));
    let statuses: Vec<String> = scene.tfc.runs("web").into_iter().map(|run| run.status).collect();
    assert_eq!(statuses, ["applied", "applied"], "one run for each leader");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_person_ends_with_the_process() {
    let tfc = TestTfc::new();
    tfc.add_workspace("web", &json!({}), &[]);
    let scene = Scene::with(tfc, json!({})).await;
    let driver = scene.prepared(&web()).await;
    let stop = Stop::new();
    let context = RunContext::new(stop.clone());
    let outcome = driver.apply(ApplyRequest::Inputs(&inputs(&["a"])), &context).await.unwrap();
    let Outcome::Waiting { ticket, .. } = outcome else { panic!("{outcome:?}") };
    let stopping = async {
        tokio::time::sleep(Duration::from_mins(3)).await;
        stop.stop(StopReason::Shutdown);
    };
    let (followed, ()) = tokio::join!(driver.follow(&ticket, &context), stopping);
    assert!(matches!(followed.unwrap_err(), Error::Stopped { .. }));
    assert_eq!(scene.tfc.runs("web")[0].status, "discarded");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_is_ended() {
    let scene = Scene::with(TestTfc::new(), json!({"run": {"timeout": "10m"}})).await;
    let driver = scene.prepared(&web()).await;
    scene.tfc.hold(Hold::Planning);
    let before = tokio::time::Instant::now();
    let inputs = inputs(&["a"]);
    let error =
        driver.apply(ApplyRequest::Inputs(&inputs), &RunContext::default()).await.unwrap_err();
    assert!(error.to_string().contains("did not end within 600 s and was cancelled"), "{error}");
    assert!(before.elapsed() < Duration::from_mins(11));
    scene.tfc.wait_for_run("web", "canceled").await;
}

/// Allows so many steps.
#[derive(Debug)]
struct Steps(AtomicUsize);

impl Permit for Steps {
    fn check(&self) -> cts_tasks::Result<()> {
        let left =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_none| Error::NotPermitted { reason: "a test says so".to_owned() })
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_permit_no_run_is_made() {
    for allowed in 0..3 {
        let scene = Scene::new().await;
        let driver = scene.prepared(&web()).await;
        let before = scene.tfc.requests().len();
        let permit = Arc::new(Steps(AtomicUsize::new(allowed)));
        let context = RunContext::default().with_permit(permit);
        let inputs = inputs(&["a"]);
        let error = driver.apply(ApplyRequest::Inputs(&inputs), &context).await.unwrap_err();
        assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
        let requests = &scene.tfc.requests()[before..];
        assert_eq!(count(requests, "POST", "/runs"), 0, "{allowed} steps");
        if allowed == 0 {
            assert!(requests.is_empty(), "{requests:?}");
        }
    }
    let scene = Scene::new().await;
    let context = RunContext::default().with_permit(Arc::new(Steps(AtomicUsize::new(0))));
    let error = scene.driver(&web()).prepare(&context).await.unwrap_err();
    assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
    assert_eq!(scene.tfc.attribute("web", "name"), None);
}
