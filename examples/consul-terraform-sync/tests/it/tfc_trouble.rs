//! What can happen to a run at the platform.

use std::time::Duration;

use cts_driver_tfc::testing::{Fault, Hold, PolicyResult};
use serde_json::json;

use crate::tfc::Scene;

#[tokio::test]
async fn failed_plans_and_applies_are_told_and_made_good_by_the_next_run() {
    let Some(mut scene) = Scene::new("tfc_failures", "").await else { return };
    scene.sync.start();
    scene.sync.ran("web", 1).await;
    scene.put(7).await;
    let failed = scene.sync.failed("web").await;
    assert!(failed.contains("plan failed: Error: Resource precondition failed"), "{failed}");
    assert!(failed.contains("Number seven is not planned."), "{failed}");
    assert!(
        failed.contains("workspace cts_web: run-") && failed.contains("/runs/run-"),
        "{failed}"
    );
    assert_eq!(scene.applied(), "web-1");

    scene.remove(7).await;
    scene.put(8).await;
    scene.sync.until("the apply failed", || scene.sync.log().contains("apply failed")).await;
    assert!(scene.sync.log().contains("number eight fails"), "{}", scene.sync.log());
    scene.remove(8).await;
    scene.put(2).await;
    scene.sync.until("it is made good", || scene.applied() == "web-1 web-2").await;
    assert_eq!(scene.sync.end("-TERM").await.code(), Some(0), "{}", scene.sync.log());
}

#[tokio::test]
async fn a_run_that_somebody_ends_or_discards_is_told() {
    let Some(mut scene) = Scene::new("tfc_people", "").await else { return };
    scene.tfc().add_workspace("cts_web", &json!({"auto-apply": true}), &[]);
    scene.tfc().hold(Hold::Applying);
    scene.sync.start();
    scene.run("applying").await;
    scene.tfc().release(Hold::Applying);
    scene.sync.ran("web", 1).await;

    scene.tfc().hold(Hold::Planning);
    scene.put(2).await;
    let run = scene.run("planning").await;
    assert!(scene.tfc().cancel(&run.id));
    let failed = scene.sync.failed("web").await;
    assert!(failed.contains(&format!("{} canceled", run.id)), "{failed}");
    scene.tfc().release(Hold::Planning);

    // A person decides in a workspace without automatic apply.
    scene.tfc().set_attribute("cts_web", "auto-apply", json!(false));
    scene.put(3).await;
    let run = scene.run("planned").await;
    assert!(scene.tfc().discard(&run.id));
    let discarded = format!("{} discarded", run.id);
    scene.sync.until("the event tells it", || scene.sync.log().contains(&discarded)).await;
    scene.put(4).await;
    let run = scene.run("planned").await;
    assert!(scene.tfc().confirm(&run.id));
    scene.sync.until("it is applied", || scene.applied() == "web-1 web-2 web-3 web-4").await;
    assert_eq!(scene.sync.end("-TERM").await.code(), Some(0), "{}", scene.sync.log());
}

#[tokio::test]
async fn a_policy_that_failed_softly_waits_for_a_person() {
    let Some(mut scene) = Scene::new("tfc_policy", "").await else { return };
    scene.sync.start();
    scene.sync.ran("web", 1).await;
    scene.tfc().set_policy("cts_web", PolicyResult::SoftFailed);
    scene.put(2).await;
    let run = scene.run("policy_override").await;
    scene
        .sync
        .until("it is told who has to act", || {
            scene.sync.log().contains("the run waits for a person")
        })
        .await;
    assert!(scene.tfc().override_policy(&run.id));
    scene.sync.ran("web", 2).await;
    assert_eq!(scene.applied(), "web-1 web-2");
    assert_eq!(scene.sync.end("-TERM").await.code(), Some(0), "{}", scene.sync.log());
}

#[tokio::test]
async fn storms_of_rate_limits_and_restarts_of_the_platform_are_sat_out() {
    let Some(mut scene) = Scene::new("tfc_storm", "").await else { return };
    let limit = Fault::RateLimit(Duration::from_millis(150));
    scene.tfc().inject(None, "/api/v2/", limit.clone(), 20);
    scene.sync.start();
    scene.sync.ran("web", 1).await;
    scene.tfc().inject(None, "/api/v2/", limit, 25);
    scene.put(2).await;
    scene.sync.ran("web", 2).await;
    assert_eq!(scene.tfc().runs("cts_web").len(), 2, "no run is made twice");

    // The platform goes away during a run.
    scene.tfc().hold(Hold::Planning);
    scene.put(3).await;
    scene.run("planning").await;
    scene.served.pause().await;
    scene
        .sync
        .until("it is missed", || scene.sync.log().contains("a request failed, trying again"))
        .await;
    scene.tfc().release(Hold::Planning);
    scene.served.resume().await.unwrap();
    scene.sync.ran("web", 3).await;
    assert_eq!(scene.applied(), "web-1 web-2 web-3");

    // Answers get lost: of the upload's announcement and of the run's creation.
    scene.tfc().inject(None, "/configuration-versions", Fault::AnswerLost, 1);
    scene.tfc().inject(Some("POST".parse().unwrap()), "/api/v2/runs", Fault::AnswerLost, 1);
    scene.put(4).await;
    scene.sync.ran("web", 4).await;
    assert_eq!(scene.tfc().runs("cts_web").len(), 4, "no run is made twice");
    assert_eq!(scene.sync.end("-TERM").await.code(), Some(0), "{}", scene.sync.log());

    // The announcement is made twice, and every run names its own upload.
    scene.sync.start();
    scene.sync.ran("web", 1).await;
    assert_eq!(scene.tfc().uploads("cts_web").len(), 2, "one that nobody uploaded to is no upload");
    let run = scene.run("planned_and_finished").await;
    assert_ne!(run.configuration_version, scene.tfc().runs("cts_web")[0].configuration_version);
    assert_eq!(scene.sync.end("-TERM").await.code(), Some(0), "{}", scene.sync.log());
}

#[tokio::test]
async fn a_process_that_ends_or_dies_leaves_nothing_that_waits() {
    let Some(mut scene) = Scene::new("tfc_end", "").await else { return };
    scene.sync.start();
    scene.sync.ran("web", 1).await;
    scene.tfc().hold(Hold::Planning);
    scene.put(2).await;
    scene.run("planning").await;
    assert_eq!(scene.sync.end("-TERM").await.code(), Some(0), "{}", scene.sync.log());
    scene.run("canceled").await;

    // Killed, it cannot end anything: the next one discards what waits.
    scene.tfc().release(Hold::Planning);
    scene.tfc().set_attribute("cts_web", "auto-apply", json!(false));
    scene.sync.start();
    let left = scene.run("planned").await;
    scene.sync.end("-KILL").await;
    scene.tfc().set_attribute("cts_web", "auto-apply", json!(true));
    scene.sync.start();
    scene.sync.until("the newest data is applied", || scene.applied() == "web-1 web-2").await;
    scene
        .until("what was left is discarded", |tfc| {
            tfc.runs("cts_web").iter().any(|run| run.id == left.id && run.status == "discarded")
        })
        .await;
    assert_eq!(scene.sync.end("-TERM").await.code(), Some(0), "{}", scene.sync.log());
}
