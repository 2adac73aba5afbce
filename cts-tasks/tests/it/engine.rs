//! The engine on an in-process Consul, with time under the test's control.

use std::{sync::Arc, time::Duration};

use consul_watch::{testing::Fault, types::HealthStatus};
use cts_tasks::{
    BufferPeriod, EngineOptions, Error, InputsDigest, Permit, Status, StopReason, TaskStore,
    testing::Call,
};
use tokio::time::{Instant, sleep};

use crate::scene::{Scene, ids, on};

/// Spec: CTS64, CTS68
#[tokio::test(start_paused = true)]
async fn each_change_runs_exactly_the_tasks_that_depend_on_it() {
    let scene = Scene::new();
    for service in ["web", "api", "db"] {
        scene.put(service, 1);
    }
    let running =
        scene.start(vec![on("front", &["web", "api"]), on("store", &["db", "api"])]).await;

    scene.put("web", 2);
    let applies = scene.driver.wait_for_applies("front", 2).await;
    assert_eq!(ids(&applies[1]), ["api-1", "web-1", "web-2"]);

    scene.put("api", 2);
    scene.driver.wait_for_applies("front", 3).await;
    let applies = scene.driver.wait_for_applies("store", 2).await;
    assert_eq!(ids(&applies[1]), ["api-1", "api-2", "db-1"]);

    scene.put("other", 1);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.applies("front").len(), 3);
    assert_eq!(scene.driver.applies("store").len(), 2);
    scene.end(running).await;
}

/// Spec: CTS66
#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_passing_is_left_out() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.put("web", 2);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.set("web", 2, HealthStatus::Critical);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 2).await[1]), ["web-1"]);
    scene.consul.remove_instance("web-1");
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 3).await[2]), Vec::<&str>::new());
    scene.end(running).await;
}

/// Spec: CTS53, CTS54
#[tokio::test(start_paused = true)]
async fn changes_during_a_run_lead_to_exactly_one_more_with_the_newest_data() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.put("db", 1);
    let running = scene.start(vec![on("t", &["web"]), on("other", &["db"])]).await;
    let gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    for number in 3..6 {
        scene.put("web", number);
        sleep(Duration::from_secs(2)).await;
    }
    // The other task is not held up.
    scene.put("db", 2);
    scene.driver.wait_for_applies("other", 2).await;
    assert_eq!(scene.driver.applies("t").len(), 2);
    drop(gate);
    let applies = scene.driver.wait_for_applies("t", 3).await;
    assert_eq!(ids(&applies[2]), ["web-1", "web-2", "web-3", "web-4", "web-5"]);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.applies("t").len(), 3);
    assert_eq!(scene.events("t").len(), 3);
    scene.end(running).await;
}

/// Spec: CTS70
#[tokio::test(start_paused = true)]
async fn a_buffer_period_collects_changes_and_ends_at_max() {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut task = on("t", &["web"]);
    task.buffer_period =
        BufferPeriod::Enabled { min: Duration::from_secs(5), max: Duration::from_secs(20) };
    let running = scene.start(vec![task]).await;

    let first_change = Instant::now();
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    let waited = first_change.elapsed();
    assert!((5.0..6.0).contains(&waited.as_secs_f64()), "{waited:?}");

    let first_change = Instant::now();
    let mut number = 3;
    while scene.driver.applies("t").len() < 3 {
        scene.put("web", number);
        number += 1;
        sleep(Duration::from_secs(2)).await;
    }
    let waited = first_change.elapsed();
    assert!((20.0..23.0).contains(&waited.as_secs_f64()), "{waited:?}");
    scene.end(running).await;
}

/// Spec: CTS71
#[tokio::test(start_paused = true)]
async fn a_failed_run_is_tried_three_times_and_is_one_event() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    for message in ["one", "two", "three"] {
        scene.driver.fail_next("t", message, true);
    }
    let begun = Instant::now();
    scene.put("web", 2);
    let events = scene.wait_for_events("t", 2).await;
    // 1 to 1.5 s and 2 to 3 s lie between the tries.
    let took = begun.elapsed().as_secs_f64();
    assert!((3.0..5.0).contains(&took), "{took}");
    assert_eq!(scene.driver.applies("t").len(), 4);
    assert!(!events[0].success);
    assert_eq!(
        events[0].error.as_ref().unwrap().message,
        "retry attempt #2 failed 'three': retry attempt #1 failed 'two': one"
    );
    assert_eq!(scene.status("t"), Status::Errored);
    scene.end(running).await;
}

/// Spec: CTS71
#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_wait_for_the_next_try() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.driver.fail_next("t", "no", true);
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    // The next try is due a second after the first at the earliest.
    sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    scene.end(running).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!((scene.driver.applies("t").len(), scene.events("t").len()), (2, 1));
}

/// A tool's long report stands once, however often it was the same.
#[tokio::test(start_paused = true)]
async fn an_error_that_repeats_is_told_once() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    for (number, (messages, expected)) in [
        (
            ["same", "same", "same"],
            "retry attempt #2 failed 'with the same error': \
             retry attempt #1 failed 'with the same error': same",
        ),
        (
            ["one", "same", "same"],
            "retry attempt #2 failed 'with the same error': retry attempt #1 failed 'same': one",
        ),
        (
            ["same", "other", "same"],
            "retry attempt #2 failed 'same': retry attempt #1 failed 'other': same",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        for message in messages {
            scene.driver.fail_next("t", message, true);
        }
        let number = u16::try_from(number).unwrap();
        scene.put("web", 2 + number);
        let events = scene.wait_for_events("t", 2 + usize::from(number)).await;
        assert_eq!(events[0].error.as_ref().unwrap().message, expected);
    }
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_takes_the_newest_inputs_and_what_it_took_triggers_no_further_run() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.driver.fail_next("t", "first", true);
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    scene.put("web", 3);
    let applies = scene.driver.wait_for_applies("t", 3).await;
    assert_eq!(ids(&applies[2]), ["web-1", "web-2", "web-3"]);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.applies("t").len(), 3);
    scene.end(running).await;
}

/// Spec: CTS71
#[tokio::test(start_paused = true)]
async fn an_error_that_no_retry_cures_is_not_retried_and_other_tasks_go_on() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.put("db", 1);
    let running = scene.start(vec![on("bad", &["web"]), on("good", &["db"])]).await;
    scene.driver.fail_next("bad", "broken", false);
    scene.put("web", 2);
    let events = scene.wait_for_events("bad", 2).await;
    assert_eq!(events[0].error.as_ref().unwrap().message, "broken");
    assert_eq!(scene.driver.applies("bad").len(), 2);
    scene.put("db", 2);
    scene.driver.wait_for_applies("good", 2).await;
    // A later change makes the failed task good.
    scene.put("web", 3);
    scene.wait_for_events("bad", 3).await;
    assert_eq!(scene.status("bad"), Status::Successful);
    scene.end(running).await;
}

/// Spec: CTS50
#[tokio::test(start_paused = true)]
async fn once_ends_with_the_first_task_that_fails() {
    let scene = Scene::new();
    for service in ["a", "b", "c"] {
        scene.put(service, 1);
    }
    scene.driver.fail_next("b", "no", true);
    let tasks = vec![on("a", &["a"]), on("b", &["b"]), on("c", &["c"])];
    scene.engine.load(tasks, &scene.stop).await.unwrap();
    let error = scene.engine.once(&scene.stop).await.unwrap_err();
    assert_eq!(error.to_string(), "no");
    assert_eq!(scene.driver.applies("a").len(), 1);
    assert_eq!(scene.driver.applies("b").len(), 1, "no second try");
    assert_eq!(scene.driver.applies("c").len(), 0);
}

/// Spec: CTS51
#[tokio::test(start_paused = true)]
async fn once_ends_with_the_first_error_of_consul() {
    let scene = Scene::new();
    scene.consul.inject_always(Some(Fault::status(500, "No path to datacenter")));
    scene.engine.load(vec![on("t", &["web"])], &scene.stop).await.unwrap();
    let error = scene.engine.once(&scene.stop).await.unwrap_err();
    let shown = error.to_string();
    assert_eq!(shown, "unable to retrieve data from Consul: health.service(web|passing)");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("Unexpected response code: 500 (No path to datacenter)"), "{cause}");
    assert_eq!(scene.driver.calls(), Vec::new(), "nothing is prepared");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_ends_with_a_task_whose_first_run_fails() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.driver.fail_next("t", "no", true);
    scene.engine.load(vec![on("t", &["web"])], &scene.stop).await.unwrap();
    let error = scene.engine.run(&scene.stop).await.unwrap_err();
    assert_eq!(error.to_string(), "no");
    assert_eq!(scene.status("t"), Status::Errored);
}

/// Spec: CTS43
#[tokio::test(start_paused = true)]
async fn a_disabled_task_is_prepared_and_never_run() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.put("db", 1);
    let mut disabled = on("off", &["web"]);
    disabled.enabled = false;
    scene.engine.load(vec![disabled, on("on", &["db"])], &scene.stop).await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    let running = tokio::spawn(async move { engine.run(&stop).await });
    scene.wait_for_events("on", 1).await;
    scene.put("web", 2);
    sleep(Duration::from_mins(1)).await;
    assert!(scene.driver.calls().contains(&Call::Prepare("off".parse().unwrap())));
    assert_eq!(scene.driver.applies("off").len(), 0);
    assert_eq!(scene.status("off"), Status::Unknown);
    let inspected = scene.engine.inspect(&["off".parse().unwrap()], &scene.stop).await.unwrap();
    assert_eq!(inspected[0].plan, None);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn inspection_plans_each_task_and_applies_nothing() {
    let scene = Scene::new();
    scene.put("web", 1);
    scene.put("web", 2);
    scene.engine.load(vec![on("a", &["web"]), on("b", &["web"])], &scene.stop).await.unwrap();
    let all = scene.engine.inspect(&[], &scene.stop).await.unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].plan.as_ref().unwrap().changes.add, 2);
    let one = scene.engine.inspect(&["b".parse().unwrap()], &scene.stop).await.unwrap();
    assert_eq!(one.len(), 1);
    let unknown = scene.engine.inspect(&["c".parse().unwrap()], &scene.stop).await;
    assert!(matches!(unknown, Err(Error::NoSuchTask { task }) if task == "c"));
    assert!(!scene.driver.calls().iter().any(|call| matches!(call, Call::Apply(..))));
}

/// Spec: CTS69
#[tokio::test(start_paused = true)]
async fn a_restart_of_consul_loses_no_change() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.consul.restart();
    scene.put("web", 2);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 2).await[1]), ["web-1", "web-2"]);
    // A server without its history starts again with lower indexes.
    scene.consul.reset_index();
    scene.put("web", 3);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 3).await[2]), ["web-1", "web-2", "web-3"]);
    scene.end(running).await;
}

/// Upstream stops watching a dependency after nine failures; ours says so and goes on.
#[tokio::test(start_paused = true)]
async fn a_dependency_is_watched_again_however_long_consul_was_away() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.consul.inject_always(Some(Fault::status(500, "No cluster leader")));
    scene.consul.restart();
    sleep(Duration::from_hours(1)).await;
    let said = scene.engine.health().unwrap_err();
    assert!(said.contains("health.service(web|passing)"), "{said}");
    scene.put("web", 2);
    scene.consul.inject_always(None);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 2).await[1]), ["web-1", "web-2"]);
    assert_eq!(scene.engine.health(), Ok(()));
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn health_returns_with_consul_also_when_nothing_has_changed() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.consul.inject_always(Some(Fault::status(500, "No cluster leader")));
    scene.consul.restart();
    sleep(Duration::from_hours(1)).await;
    assert!(scene.engine.health().is_err());
    scene.consul.inject_always(None);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(scene.engine.health(), Ok(()));
    assert_eq!(scene.driver.applies("t").len(), 1);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_denied_for_long_is_not_healthy() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.consul.inject_always(Some(Fault::status(403, "Permission denied")));
    scene.consul.restart();
    sleep(Duration::from_hours(1)).await;
    let said = scene.engine.health().unwrap_err();
    assert!(said.contains("Permission denied"), "{said}");
    scene.end(running).await;
}

/// A refusal may end too: a proxy that is put right, a policy that comes back.
#[tokio::test(start_paused = true)]
async fn a_read_that_consul_refused_is_asked_for_again() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.consul.inject_always(Some(Fault::status(400, "no")));
    scene.consul.restart();
    sleep(Duration::from_secs(30)).await;
    assert!(scene.engine.health().is_err());
    scene.consul.inject_always(None);
    scene.put("web", 2);
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 2).await[1]), ["web-1", "web-2"]);
    assert_eq!(scene.engine.health(), Ok(()));
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn an_inspection_leaves_a_buffered_change_to_run() {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut task = on("t", &["web"]);
    let (min, max) = (Duration::from_secs(5), Duration::from_secs(20));
    task.buffer_period = BufferPeriod::Enabled { min, max };
    let running = scene.start(vec![task]).await;
    scene.put("web", 2);
    sleep(Duration::from_secs(1)).await;
    scene.engine.inspect_enabled(&"t".parse().unwrap(), true).await.unwrap();
    assert_eq!(scene.driver.wait_for_applies("t", 2).await.len(), 2);
    scene.end(running).await;
}

/// Spec: CTS72
#[tokio::test(start_paused = true)]
async fn a_stop_lets_a_running_apply_end() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    let gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    scene.stop.stop(StopReason::Shutdown);
    sleep(Duration::from_secs(1)).await;
    assert!(!running.is_finished());
    drop(gate);
    running.await.unwrap().unwrap();
    assert_eq!(scene.events("t").len(), 2);
    assert!(scene.events("t")[0].success);
}

/// Spec: CTS72
#[tokio::test(start_paused = true)]
async fn an_apply_that_outlasts_the_grace_is_told_to_stop_and_leaves_no_event() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    let _gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    let begun = Instant::now();
    scene.end(running).await;
    assert_eq!(begun.elapsed(), EngineOptions::default().stop_grace);
    assert!(scene.driver.calls().contains(&Call::Stopped("t".parse().unwrap())));
    assert_eq!(scene.events("t").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lost_leadership_stops_an_apply_at_once() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    let _gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    let begun = Instant::now();
    scene.stop.stop(StopReason::LeadershipLost);
    running.await.unwrap().unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_first_runs_ends_cleanly() {
    let scene = Scene::new();
    scene.put("web", 1);
    let _gate = scene.driver.hold("t");
    scene.engine.load(vec![on("t", &["web"])], &scene.stop).await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    let running = tokio::spawn(async move { engine.run(&stop).await });
    scene.driver.wait_for_applies("t", 1).await;
    scene.end(running).await;
    assert_eq!(scene.events("t").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_tasks_run_at_once() {
    let mut options = EngineOptions::default();
    options.concurrency = Some(2);
    let scene = Scene::with(options);
    scene.put("web", 1);
    let names = ["a", "b", "c", "d"];
    let running = scene.start(names.iter().map(|name| on(name, &["web"])).collect()).await;
    let gates: Vec<_> = names.iter().map(|name| scene.driver.hold(name)).collect();
    scene.put("web", 2);
    sleep(Duration::from_secs(10)).await;
    let begun = || names.iter().filter(|name| scene.driver.applies(name).len() == 2).count();
    assert_eq!(begun(), 2);
    drop(gates);
    for name in names {
        scene.driver.wait_for_applies(name, 2).await;
    }
    scene.end(running).await;
}

/// Spec: CTS73
#[tokio::test(start_paused = true)]
async fn the_newest_five_events_and_the_digest_of_the_last_inputs_are_kept() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    for number in 2..8 {
        scene.put("web", number);
        scene.driver.wait_for_applies("t", number.into()).await;
    }
    let last = scene.driver.applies("t").pop().unwrap();
    scene.end(running).await;
    let state = scene.store.load().await.unwrap();
    let events = &state.events[&"t".parse().unwrap()];
    assert_eq!(events.len(), 5);
    assert!(events.is_sorted_by(|newer, older| newer.start_time >= older.start_time));
    assert_eq!(state.applied[&"t".parse().unwrap()].digest, InputsDigest::of(&last));
}

#[tokio::test(start_paused = true)]
async fn tasks_that_want_the_same_share_one_read() {
    let scene = Scene::new();
    scene.put("web", 1);
    let names: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    let running = scene.start(names.iter().map(|name| on(name, &["web"])).collect()).await;
    // Between an answer and the next question there is a pause.
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.consul.open(), 1);
    scene.end(running).await;
}

#[derive(Debug)]
struct Denied;

impl Permit for Denied {
    fn check(&self) -> cts_tasks::Result<()> {
        Err(Error::NotPermitted { reason: "cts-02 leads".into() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_may_not_act_applies_nothing_and_stores_nothing() {
    let mut options = EngineOptions::default();
    options.permit = Arc::new(Denied);
    let scene = Scene::with(options);
    scene.put("web", 1);
    scene.engine.load(vec![on("t", &["web"])], &scene.stop).await.unwrap();
    let error = scene.engine.run(&scene.stop).await.unwrap_err();
    assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
    assert_eq!(scene.driver.applies("t").len(), 0);
    assert_eq!(scene.events("t").len(), 0);
}
