//! Bounds of a task's runs: its timeout, its retries, and its time to end after a stop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use consul_watch::testing::{Log, TestClock};
use cts_tasks::{
    ApplyRequest, Driver, EngineOptions, Error, Outcome, Plan, PlanId, PlanPurpose, Result, Retry,
    RunContext, StopReason, Task, TaskInputs, testing::Call,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::scene::{Scene, on};

fn limited(timeout: Duration) -> Task {
    let mut task = on("t", &["web"]);
    task.timeout = Some(timeout);
    task
}

#[tokio::test(start_paused = true)]
async fn a_run_beyond_its_timeout_is_stopped_and_its_event_says_so() {
    let scene = Scene::new();
    scene.put("web", 1);
    let log = Log::start();
    let running = scene.start(vec![limited(Duration::from_mins(10))]).await;
    let gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    let begun = Instant::now();
    let events = scene.wait_for_events("t", 2).await;
    assert!(begun.elapsed() < Duration::from_secs(601), "{:?}", begun.elapsed());
    assert!(begun.elapsed() >= Duration::from_secs(599), "{:?}", begun.elapsed());
    assert!(scene.driver.calls().contains(&Call::Stopped("t".parse().unwrap())));
    assert!(!events[0].success);
    let message = &events[0].error.as_ref().unwrap().message;
    assert_eq!(
        message,
        "task 't' ran longer than its timeout of 10m0s and was stopped; what it was at may be half \
         done. Raise timeout in the task if it needs more time"
    );
    assert!(log.text().contains("runs longer than its timeout"), "{}", log.text());
    // What had changed is not lost: the task is tried again, and now ends.
    drop(gate);
    let events = scene.wait_for_events("t", 3).await;
    assert!(events[0].success);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn the_pauses_between_tries_count_for_the_timeout() {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut task = limited(Duration::from_secs(30));
    task.retry = Some(Retry::TASK.with_limit(Some(100)));
    let running = scene.start(vec![task]).await;
    (0..100).for_each(|_| scene.driver.fail_next("t", "out of order", true));
    let begun = Instant::now();
    scene.put("web", 2);
    let events = scene.wait_for_events("t", 2).await;
    assert!(begun.elapsed() <= Duration::from_millis(30_010), "{:?}", begun.elapsed());
    // The failure is what a reader needs: more time would not help.
    assert_eq!(
        events[0].error.as_ref().unwrap().message,
        "task 't' had no time left within its timeout of 30s to try again after its last failure: \
         retry attempt #4 failed 'with the same error': retry attempt #3 failed 'with the same \
         error': retry attempt #2 failed 'with the same error': retry attempt #1 failed 'with the \
         same error': out of order"
    );
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_try_that_is_cut_by_the_timeout_does_not_hide_why_the_one_before_failed() {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut task = limited(Duration::from_secs(30));
    task.retry = Some(Retry::TASK.with_limit(Some(100)));
    let running = scene.start(vec![task]).await;
    scene.driver.fail_next("t", "out of order", true);
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    let _gate = scene.driver.hold("t");
    let events = scene.wait_for_events("t", 2).await;
    let message = &events[0].error.as_ref().unwrap().message;
    assert!(message.starts_with("task 't' ran longer than its timeout of 30s"), "{message}");
    assert!(message.ends_with("Its last failure: out of order"), "{message}");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_says_at_its_end_by_the_timeout_is_told() {
    let driver = Deaf { complains: true, ..Deaf::default() };
    let (scene, running) = start(limited(Duration::from_secs(30)), &driver).await;
    driver.hangs.store(true, Ordering::SeqCst);
    scene.put("web", 2);
    let events = scene.wait_for_events("t", 2).await;
    let message = &events[0].error.as_ref().unwrap().message;
    assert!(message.starts_with("task 't' ran longer than its timeout of 30s"), "{message}");
    assert!(message.ends_with("lost the connection to the database"), "{message}");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn each_retry_is_logged_with_its_cause_its_number_and_its_pause() {
    let scene = Scene::new();
    scene.put("web", 1);
    let log = Log::start();
    let running = scene.start(vec![on("t", &["web"])]).await;
    (0..2).for_each(|_| scene.driver.fail_next("t", "out of order", true));
    scene.put("web", 2);
    assert!(scene.wait_for_events("t", 2).await[0].success);
    let lines = log.with("retrying");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, number) in lines.iter().zip(1..) {
        for part in ["WARN", "out of order", &format!("attempt={number}"), "delay_ms="] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_within_its_timeout_is_as_without() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![limited(Duration::from_secs(30))]).await;
    let gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    sleep(Duration::from_secs(29)).await;
    drop(gate);
    assert!(scene.wait_for_events("t", 2).await[0].success);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_a_run_with_a_timeout_is_a_stop() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![limited(Duration::from_secs(30))]).await;
    let _gate = scene.driver.hold("t");
    scene.put("web", 2);
    scene.driver.wait_for_applies("t", 2).await;
    sleep(Duration::from_secs(20)).await;
    scene.end(running).await;
    assert_eq!(scene.events("t").len(), 1, "cut off and not failed");
}

/// Tries of one run; each further one has the pauses of the task.
#[tokio::test(start_paused = true)]
async fn a_task_tries_as_often_and_as_soon_as_it_says() {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut task = on("t", &["web"]);
    let mut retry = Retry::TASK.with_limit(Some(4));
    (retry.backoff, retry.max_backoff) = (Duration::from_secs(10), Duration::from_secs(20));
    task.retry = Some(retry);
    let running = scene.start(vec![task]).await;
    (0..4).for_each(|_| scene.driver.fail_next("t", "out of order", true));
    let begun = Instant::now();
    scene.put("web", 2);
    assert!(scene.wait_for_events("t", 2).await[0].success);
    assert_eq!(scene.driver.applies("t").len(), 6);
    // 10 to 15 s, and three times 20 s.
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(70) && took < Duration::from_secs(76), "{took:?}");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_second_try_fails_at_once() {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut task = on("t", &["web"]);
    task.retry = Some(Retry::NEVER);
    let running = scene.start(vec![task, on("u", &["web"])]).await;
    for name in ["t", "u"] {
        scene.driver.fail_next(name, "out of order", true);
    }
    let begun = Instant::now();
    scene.put("web", 2);
    assert!(!scene.wait_for_events("t", 2).await[0].success);
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    assert!(scene.wait_for_events("u", 2).await[0].success, "the other one has three tries");
    scene.end(running).await;
}

/// A driver that ends only when it has to at once.
#[derive(Debug, Clone, Default)]
struct Deaf {
    /// Its applies hang from now on.
    hangs: Arc<AtomicBool>,
    /// They end with words of their own.
    complains: bool,
}

#[async_trait::async_trait]
impl cts_tasks::DriverFactory for Deaf {
    fn driver(&self, _: &Task) -> Result<Arc<dyn Driver>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl Driver for Deaf {
    async fn prepare(&self, _: &RunContext) -> Result<()> {
        Ok(())
    }

    async fn plan(&self, _: &TaskInputs, _: PlanPurpose, context: &RunContext) -> Result<Plan> {
        Err(Error::Stopped { reason: context.stop.stopped().await })
    }

    async fn apply(&self, _: ApplyRequest<'_>, context: &RunContext) -> Result<Outcome> {
        if !self.hangs.load(Ordering::SeqCst) {
            return Ok(Outcome::Unchanged);
        }
        context.stop.urgent().await;
        if self.complains {
            return Err(Error::driver("lost the connection to the database"));
        }
        context.stop.check()?;
        Ok(Outcome::Unchanged)
    }

    async fn discard(&self, _: &PlanId, _: &RunContext) -> Result<()> {
        Ok(())
    }

    async fn destroy(&self, _: &RunContext) -> Result<Outcome> {
        Ok(Outcome::Unchanged)
    }
}

/// Starts an engine with this driver, and waits for the first run.
async fn start(task: Task, driver: &Deaf) -> (Scene, JoinHandle<Result<()>>) {
    let mut scene = Scene::new();
    scene.put("web", 1);
    let mut options = EngineOptions::default();
    options.store = Arc::clone(&scene.store) as _;
    options.clock = Arc::new(TestClock::starting_at(SystemTime::UNIX_EPOCH));
    let watcher = consul_watch::Watcher::new(scene.consul.client());
    scene.engine = cts_tasks::Engine::new(watcher, Arc::new(driver.clone()), options);
    scene.engine.load(vec![task], &scene.stop).await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    let running = tokio::spawn(async move { engine.run(&stop).await });
    scene.wait_for_events("t", 1).await;
    (scene, running)
}

/// Runs a task with a deaf driver, and returns the scene with a run under way.
async fn deaf(task: Task) -> (Scene, JoinHandle<Result<()>>) {
    let driver = Deaf::default();
    let (scene, running) = start(task, &driver).await;
    driver.hangs.store(true, Ordering::SeqCst);
    scene.put("web", 2);
    while !scene.engine.is_running_a_task() {
        sleep(Duration::from_millis(1)).await;
    }
    (scene, running)
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_run_by_force_after_the_shutdown_timeout_of_its_task() {
    let mut task = on("t", &["web"]);
    task.shutdown_timeout = Some(Duration::from_mins(1));
    let (scene, running) = deaf(task).await;
    let begun = Instant::now();
    scene.stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
    assert_eq!(begun.elapsed(), Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn an_urgent_stop_comes_before_the_shutdown_timeout_of_a_task() {
    let mut task = on("t", &["web"]);
    task.shutdown_timeout = Some(Duration::from_mins(1));
    let (scene, running) = deaf(task).await;
    let begun = Instant::now();
    scene.stop.stop(StopReason::Shutdown);
    sleep(Duration::from_secs(20)).await;
    scene.stop.stop_now(StopReason::Shutdown);
    running.await.unwrap().unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_does_not_end_after_its_timeout_is_ended_by_force() {
    for (shutdown, after) in [(None, 30), (Some(Duration::from_secs(7)), 7)] {
        let mut task = limited(Duration::from_mins(2));
        task.shutdown_timeout = shutdown;
        let (scene, running) = deaf(task).await;
        let begun = Instant::now();
        let events = scene.wait_for_events("t", 2).await;
        let message = &events[0].error.as_ref().unwrap().message;
        assert!(message.contains("longer than its timeout of 2m0s"), "{message}");
        let took = begun.elapsed();
        let expected = Duration::from_secs(120 + after);
        assert!(took + Duration::from_secs(1) >= expected, "{took:?}");
        assert!(took <= expected + Duration::from_secs(1), "{took:?}");
        scene.stop.stop_now(StopReason::Shutdown);
        running.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_for_drift_beyond_the_timeout_says_so() {
    let mut task = limited(Duration::from_secs(30));
    task.drift_check = Some("@hourly".to_owned());
    let (scene, running) = start(task, &Deaf::default()).await;
    let name = "t".parse().unwrap();
    let found = loop {
        if let Some(found) = scene.engine.state(|state| state.drift.get(&name).cloned()) {
            break found;
        }
        sleep(Duration::from_secs(1)).await;
    };
    let error = found.error.unwrap();
    assert!(error.contains("longer than its timeout of 30s"), "{error}");
    scene.end(running).await;
}
