//! An engine among changing tasks and services, restarts of Consul and
//! failures of its driver, against a model that knows what must have been
//! applied in the end.
//!
//! `SOAK=1` runs ten minutes instead of twenty seconds; `SOAK_SEED` sets the seed.

mod model;
mod site;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::{Watcher, testing::parts::Suite};
use cts_tasks::{
    ApplyRequest, Driver, DriverFactory, Engine, EngineOptions, MemoryStore, Outcome, Plan, PlanId,
    PlanPurpose, Result, RunContext, Stop, StopReason, Task, TaskInputs, TaskStore,
    testing::RecordingDriver,
};
use tokio::time::{Instant, sleep};

use model::Model;
use site::Site;

const SUITE: Suite = Suite("cts-tasks soak");
/// How long the engine may take to get everything in line once it is left alone.
const SETTLE: Duration = Duration::from_mins(1);

fn seed() -> u64 {
    std::env::var("SOAK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn duration() -> Duration {
    if std::env::var("SOAK").is_ok_and(|soak| soak == "1") {
        Duration::from_mins(10)
    } else {
        Duration::from_secs(20)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_applied_in_the_end_is_what_consul_holds() {
    let case = "what_is_applied_in_the_end_is_what_consul_holds";
    for part in SUITE.parts("consul", case) {
        let driver = RecordingDriver::default();
        let site = Site::real(&part.path).await;
        soak(site, driver.clone(), Arc::new(driver), seed(), duration()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_applied_in_the_end_is_what_the_double_holds() {
    SUITE.double("consul");
    for seed in seed()..seed() + 2 {
        let driver = RecordingDriver::default();
        let factory = Arc::new(driver.clone());
        soak(Site::double(), driver, factory, seed, Duration::from_mins(1)).await.unwrap();
    }
}

/// The checker is worth something: it finds a driver that skips all but
/// the first applies and says that all is well.
#[tokio::test(start_paused = true)]
async fn an_apply_that_is_lost_is_found() {
    let mut found = 0;
    for seed in 1..=2 {
        let driver = RecordingDriver::default();
        let factory = Arc::new(Lossy(driver.clone()));
        let ended = soak(Site::double(), driver, factory, seed, Duration::from_secs(10)).await;
        found += usize::from(ended.is_err());
    }
    assert_eq!(found, 2);
}

#[expect(clippy::print_stdout, reason = "says how much was done")]
fn print(summary: &str) {
    println!("{summary}");
}

/// Runs an engine for a while, and says what is wrong in the end.
async fn soak(
    mut site: Site,
    driver: RecordingDriver,
    factory: Arc<dyn DriverFactory>,
    seed: u64,
    duration: Duration,
) -> Result<(), String> {
    let mut options = EngineOptions::default();
    options.store = Arc::new(MemoryStore::default()) as Arc<dyn TaskStore>;
    options.seed = Some(seed);
    let engine = Engine::new(Watcher::new(site.client()), factory, options);
    let stop = Stop::new();
    engine.load(Vec::new(), &stop).await.map_err(|error| error.to_string())?;
    let (clone, ended) = (engine.clone(), stop.clone());
    let running = tokio::spawn(async move { clone.run(&ended).await });
    while engine.watching().await.is_err() {
        tokio::task::yield_now().await;
    }
    let end = Instant::now() + duration;
    let mut model = Model::new(engine.clone(), driver, seed);
    let operate = async {
        while Instant::now() < end {
            model.step().await;
        }
        model
    };
    let churn = async {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
        while Instant::now() < end {
            site.step(&mut random).await;
        }
        site.calm().await;
        site
    };
    let (mut model, site) = tokio::join!(operate, churn);
    let deadline = Instant::now() + SETTLE;
    let verdict = loop {
        model.approve_all().await;
        match model.differences(&site).await {
            None => break Ok(()),
            Some(found) if Instant::now() > deadline => break Err(found),
            Some(_) => sleep(Duration::from_millis(250)).await,
        }
    };
    print(&format!("soak: seed {seed}, {}, {}", model.summary(), site.summary()));
    stop.stop(StopReason::Shutdown);
    running.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    verdict.map_err(|found| format!("seed {seed}: {found}"))
}

/// Skips applies.
#[derive(Debug)]
struct Lossy(RecordingDriver);

#[derive(Debug)]
struct LossyDriver {
    inner: Arc<dyn Driver>,
    applies: AtomicUsize,
}

#[async_trait]
impl DriverFactory for Lossy {
    async fn start(&self) -> Result<()> {
        Ok(())
    }

    fn driver(&self, task: &Task) -> Result<Arc<dyn Driver>> {
        Ok(Arc::new(LossyDriver { inner: self.0.driver(task)?, applies: AtomicUsize::new(0) }))
    }
}

#[async_trait]
impl Driver for LossyDriver {
    async fn prepare(&self, context: &RunContext) -> Result<()> {
        self.inner.prepare(context).await
    }

    async fn plan(
        &self,
        inputs: &TaskInputs,
        purpose: PlanPurpose,
        context: &RunContext,
    ) -> Result<Plan> {
        self.inner.plan(inputs, purpose, context).await
    }

    async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> Result<Outcome> {
        let applies = self.applies.fetch_add(1, Ordering::Relaxed);
        if applies >= 3 {
            return Ok(Outcome::Unchanged);
        }
        self.inner.apply(request, context).await
    }

    async fn holds(&self, plan: &PlanId, context: &RunContext) -> Result<bool> {
        self.inner.holds(plan, context).await
    }

    async fn discard(&self, plan: &PlanId, context: &RunContext) -> Result<()> {
        self.inner.discard(plan, context).await
    }

    async fn follow(&self, ticket: &str, context: &RunContext) -> Result<Outcome> {
        self.inner.follow(ticket, context).await
    }

    async fn destroy(&self, context: &RunContext) -> Result<Outcome> {
        self.inner.destroy(context).await
    }
}
