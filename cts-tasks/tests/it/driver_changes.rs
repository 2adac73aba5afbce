//! Runs that a driver calls for, because what it uses has changed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use consul_watch::{Watcher, testing::TestClock};
use cts_tasks::{
    ApplyRequest, Driver, DriverFactory, Engine, EngineOptions, Outcome, Plan, PlanId, PlanPurpose,
    Result, RunContext, StopReason, Task, TaskInputs,
};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Duration, sleep},
};

use crate::scene::{Scene, on};

/// Counts its applies, and tells of a change when it is told to.
#[derive(Debug, Clone, Default)]
struct Told {
    change: Arc<Notify>,
    applies: Arc<AtomicUsize>,
    hangs: Arc<AtomicBool>,
    panics: bool,
}

impl Told {
    fn applies(&self) -> usize {
        self.applies.load(Ordering::SeqCst)
    }

    /// Waits for so many applies; the paused clock goes on meanwhile.
    async fn wait_for(&self, count: usize) {
        while self.applies() < count {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl DriverFactory for Told {
    fn driver(&self, _: &Task) -> Result<Arc<dyn Driver>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Driver for Told {
    async fn prepare(&self, _: &RunContext) -> Result<()> {
        Ok(())
    }

    async fn plan(&self, _: &TaskInputs, _: PlanPurpose, _: &RunContext) -> Result<Plan> {
        Ok(Plan::new(PlanId::new("p"), cts_tasks::Changes::default(), ""))
    }

    async fn apply(&self, _: ApplyRequest<'_>, _: &RunContext) -> Result<Outcome> {
        self.applies.fetch_add(1, Ordering::SeqCst);
        while self.hangs.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(Outcome::Unchanged)
    }

    async fn changed(&self) {
        self.change.notified().await;
        assert!(!self.panics, "planted");
    }

    async fn discard(&self, _: &PlanId, _: &RunContext) -> Result<()> {
        Ok(())
    }

    async fn destroy(&self, _: &RunContext) -> Result<Outcome> {
        Ok(Outcome::Unchanged)
    }
}

async fn start(driver: &Told, task: Task) -> (Scene, JoinHandle<Result<()>>) {
    let mut scene = Scene::new();
    scene.put("web", 1);
    let mut options = EngineOptions::default();
    options.store = Arc::clone(&scene.store) as _;
    options.clock = Arc::new(TestClock::starting_at(std::time::SystemTime::UNIX_EPOCH));
    let watcher = Watcher::new(scene.consul.client());
    scene.engine = Engine::new(watcher, Arc::new(driver.clone()), options);
    scene.engine.load(vec![task], &scene.stop).await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    let running = tokio::spawn(async move { engine.run(&stop).await });
    scene.wait_for_events("t", 1).await;
    (scene, running)
}

#[tokio::test(start_paused = true)]
async fn a_change_that_a_driver_tells_of_runs_its_task_each_time() {
    let driver = Told::default();
    let (scene, running) = start(&driver, on("t", &["web"])).await;
    for count in [2, 3] {
        driver.change.notify_one();
        scene.wait_for_events("t", count).await;
        assert_eq!(driver.applies(), count);
    }
    sleep(Duration::from_mins(5)).await;
    assert_eq!(driver.applies(), 3, "one run for each");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_run_leads_to_one_more() {
    let driver = Told::default();
    let (scene, running) = start(&driver, on("t", &["web"])).await;
    driver.hangs.store(true, Ordering::SeqCst);
    driver.change.notify_one();
    driver.wait_for(2).await;
    driver.change.notify_one();
    sleep(Duration::from_secs(1)).await;
    driver.hangs.store(false, Ordering::SeqCst);
    scene.wait_for_events("t", 3).await;
    assert_eq!(driver.applies(), 3);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_with_a_schedule_takes_a_change_at_its_time_and_a_disabled_one_not_at_all() {
    let driver = Told::default();
    let mut scheduled = on("t", &["web"]);
    scheduled.module_inputs =
        vec![cts_tasks::ModuleInput::Services(scheduled.service_selection().unwrap().0.clone())];
    scheduled.condition = cts_tasks::Condition::schedule("@hourly").unwrap();
    let (scene, running) = start(&driver, scheduled).await;
    driver.change.notify_one();
    sleep(Duration::from_mins(30)).await;
    assert_eq!(driver.applies(), 1);
    driver.wait_for(2).await;
    scene.end(running).await;

    let driver = Told::default();
    let (scene, running) = start(&driver, on("t", &["web"])).await;
    let name = "t".parse().unwrap();
    let off = cts_tasks::FirstRun::WhenTriggered;
    scene.engine.set_enabled(&name, false, off).await.unwrap();
    driver.change.notify_one();
    sleep(Duration::from_mins(30)).await;
    assert_eq!(driver.applies(), 1);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_over_a_change_harms_nothing() {
    let driver = Told { panics: true, ..Told::default() };
    let (scene, running) = start(&driver, on("t", &["web"])).await;
    driver.change.notify_one();
    sleep(Duration::from_secs(1)).await;
    scene.put("web", 2);
    scene.wait_for_events("t", 2).await;
    scene.stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}
