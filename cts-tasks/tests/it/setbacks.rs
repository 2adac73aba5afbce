//! Tasks that cannot start, drivers that panic, shortages of this machine, and
//! deletions that outlive a process.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::{Watcher, testing::Fault};
use cts_tasks::{
    ApplyRequest, Change, Driver, DriverFactory, Engine, EngineOptions, Error, FirstRun,
    MemoryStore, Outcome, Plan, PlanId, PlanPurpose, Result, RunContext, State, Status, StopReason,
    Task, TaskInputs, TaskName, TaskStore,
    testing::{Call, RecordingDriver},
};
use futures::StreamExt as _;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::scene::{Scene, ids, on};

/// An outcome of a call of a [`Faulty`] driver.
#[derive(Debug, Clone)]
enum Trouble {
    Refuse(&'static str),
    Panic,
    /// Waits for the stop.
    Hang,
}

/// A recording driver whose calls of `prepare` and `apply` fail as the test says.
#[derive(Debug, Clone, Default)]
struct Faulty {
    recording: RecordingDriver,
    prepares: Arc<Mutex<Vec<Trouble>>>,
    applies: Arc<Mutex<Vec<Trouble>>>,
    tries: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct FaultyDriver {
    inner: Arc<dyn Driver>,
    faulty: Faulty,
    of: bool,
}

impl Faulty {
    fn prepare_fails(&self, times: usize, fault: &Trouble) {
        self.prepares.lock().unwrap().extend(std::iter::repeat_n(fault.clone(), times));
    }

    fn apply_fails(&self, times: usize, fault: &Trouble) {
        self.applies.lock().unwrap().extend(std::iter::repeat_n(fault.clone(), times));
    }
}

#[async_trait]
impl DriverFactory for Faulty {
    async fn start(&self) -> Result<()> {
        Ok(())
    }

    /// Only the task `bad` is.
    fn driver(&self, task: &Task) -> Result<Arc<dyn Driver>> {
        let of = task.name.as_str() == "bad";
        let inner = self.recording.driver(task)?;
        Ok(Arc::new(FaultyDriver { inner, faulty: self.clone(), of }))
    }
}

impl FaultyDriver {
    async fn fail(&self, faults: &Mutex<Vec<Trouble>>, context: &RunContext) -> Result<()> {
        if !self.of {
            return Ok(());
        }
        let fault = faults.lock().unwrap().pop();
        match fault {
            None => Ok(()),
            Some(Trouble::Refuse(message)) => {
                Err(Error::Driver { message: message.into(), retryable: true, source: None })
            }
            Some(Trouble::Panic) => panic!("a defect"),
            Some(Trouble::Hang) => Err(Error::Stopped { reason: context.stop.stopped().await }),
        }
    }
}

#[async_trait]
impl Driver for FaultyDriver {
    async fn prepare(&self, context: &RunContext) -> Result<()> {
        self.faulty.tries.fetch_add(usize::from(self.of), Ordering::Relaxed);
        self.fail(&self.faulty.prepares, context).await?;
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
        context.progress.report("begins");
        self.fail(&self.faulty.applies, context).await?;
        self.inner.apply(request, context).await
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

/// An engine that keeps tasks whose first runs fail, as in a cluster.
struct Trial {
    scene: Scene,
    faulty: Faulty,
}

impl Trial {
    fn new() -> Self {
        Self::on(Arc::new(MemoryStore::default()))
    }

    fn on(store: Arc<dyn TaskStore>) -> Self {
        let mut scene = Scene::new();
        let faulty = Faulty { recording: scene.driver.clone(), ..Faulty::default() };
        let mut options = EngineOptions::default();
        options.allow_failed_first_runs = true;
        options.seed = Some(1);
        options.store = store;
        let watcher = Watcher::new(scene.consul.client());
        scene.engine = Engine::new(watcher, Arc::new(faulty.clone()), options);
        scene.put("web", 1);
        scene.put("db", 1);
        Self { scene, faulty }
    }

    /// Starts on the tasks `bad`, on `web`, and `good`, on `db`.
    async fn start(&self) -> JoinHandle<Result<()>> {
        let tasks = vec![on("bad", &["web"]), on("good", &["db"])];
        self.scene.engine.load(tasks, &self.scene.stop).await.unwrap();
        self.run().await
    }

    async fn run(&self) -> JoinHandle<Result<()>> {
        let (engine, stop) = (self.scene.engine.clone(), self.scene.stop.clone());
        let running = tokio::spawn(async move { engine.run(&stop).await });
        while self.scene.engine.watching().await.is_err() {
            tokio::task::yield_now().await;
        }
        running
    }

    fn has(&self, task: &str) -> bool {
        self.scene.engine.state(|state| state.tasks.iter().any(|known| known.name.as_str() == task))
    }

    async fn gone(&self, task: &str) {
        while self.has(task) {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

fn bad() -> TaskName {
    "bad".parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_task_that_could_not_start_is_tried_again_for_ever() {
    let trial = Trial::new();
    trial.faulty.prepare_fails(12, &Trouble::Refuse("the folder is busy"));
    let begun = Instant::now();
    let running = trial.start().await;
    assert_eq!(trial.scene.status("bad"), Status::Errored);
    let events = trial.scene.events("bad");
    assert_eq!(events[0].error.as_ref().unwrap().message, "the folder is busy");
    assert_eq!(trial.scene.driver.applies("good").len(), 1, "the others go on");
    let applies = trial.scene.driver.wait_for_applies("bad", 1).await;
    assert_eq!(ids(&applies[0]), ["web-1"]);
    // Pauses of 1, 2, 4, … s, with a random part, up to five minutes.
    let took = begun.elapsed();
    assert!(took > Duration::from_mins(15) && took < Duration::from_mins(40), "{took:?}");
    assert_eq!(trial.scene.wait_for_events("bad", 2).await.len(), 2, "told once");
    assert_eq!(trial.scene.status("bad"), Status::Successful);
    trial.scene.put("web", 2);
    trial.scene.driver.wait_for_applies("bad", 2).await;
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_wakes_a_task_that_could_not_start() {
    let trial = Trial::new();
    trial.faulty.prepare_fails(10, &Trouble::Refuse("busy"));
    let running = trial.start().await;
    sleep(Duration::from_mins(5)).await;
    let tries = trial.faulty.tries.load(Ordering::Relaxed);
    assert!(tries < 10, "{tries}");
    trial.faulty.prepares.lock().unwrap().clear();
    trial.scene.put("web", 2);
    let applies =
        timeout(Duration::from_secs(1), trial.scene.driver.wait_for_applies("bad", 1)).await;
    assert_eq!(ids(&applies.unwrap()[0]), ["web-1", "web-2"]);
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_could_not_start_for_want_of_consul_starts_once_it_answers() {
    let trial = Trial::new();
    trial.scene.consul.inject_always(Some(Fault::status(500, "rpc error: No cluster leader")));
    let running = trial.start().await;
    for task in ["bad", "good"] {
        assert_eq!(trial.scene.status(task), Status::Errored, "{task}");
    }
    sleep(Duration::from_mins(30)).await;
    assert_eq!(trial.scene.driver.calls(), []);
    trial.scene.consul.inject_always(None);
    for task in ["bad", "good"] {
        trial.scene.driver.wait_for_applies(task, 1).await;
    }
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_start_takes_orders() {
    let trial = Trial::new();
    trial.faulty.prepare_fails(1, &Trouble::Refuse("busy"));
    let running = trial.start().await;
    let engine = &trial.scene.engine;
    let bad = bad();
    let is_disabled =
        || engine.state(|state| state.tasks.iter().any(|task| task.name == bad && !task.enabled));
    let disable = || engine.set_enabled(&bad, false, FirstRun::WhenTriggered);
    let enable = || engine.set_enabled(&bad, true, FirstRun::Now);
    // While it waits for its next try.
    disable().await.unwrap();
    let tries = trial.faulty.tries.load(Ordering::Relaxed);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(trial.faulty.tries.load(Ordering::Relaxed), tries, "a disabled task rests");
    trial.faulty.prepare_fails(1, &Trouble::Refuse("still busy"));
    assert_eq!(enable().await.unwrap_err().to_string(), "still busy");
    assert!(is_disabled());
    trial.faulty.prepares.lock().unwrap().clear();
    enable().await.unwrap();
    assert!(!is_disabled());
    assert_eq!(trial.scene.driver.applies("bad").len(), 1);
    trial.scene.put("web", 2);
    trial.scene.driver.wait_for_applies("bad", 2).await;
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_is_disabled_while_a_try_hangs() {
    let trial = Trial::new();
    trial.faulty.prepare_fails(1, &Trouble::Hang);
    trial.faulty.prepare_fails(1, &Trouble::Refuse("busy"));
    let running = trial.start().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(trial.faulty.tries.load(Ordering::Relaxed), 2, "the second try hangs");
    let engine = &trial.scene.engine;
    let bad = bad();
    let disabled = engine.set_enabled(&bad, false, FirstRun::WhenTriggered);
    timeout(Duration::from_secs(1), disabled).await.unwrap().unwrap();
    engine.set_enabled(&bad, true, FirstRun::Now).await.unwrap();
    assert_eq!(trial.scene.driver.applies("bad").len(), 1);
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn an_order_that_needs_the_task_ready_is_its_next_try() {
    let trial = Trial::new();
    trial.faulty.prepare_fails(1, &Trouble::Refuse("busy"));
    trial.faulty.prepare_fails(1, &Trouble::Refuse("not yet"));
    let running = trial.start().await;
    trial.faulty.prepares.lock().unwrap().clear();
    trial.faulty.prepare_fails(1, &Trouble::Refuse("not yet"));
    let refused = trial.scene.engine.run_now(&bad()).await.unwrap_err();
    assert_eq!(refused.to_string(), "not yet");
    trial.scene.engine.run_now(&bad()).await.unwrap();
    assert_eq!(trial.scene.driver.applies("bad").len(), 1);
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_is_deleted_while_it_cannot_start() {
    for hangs in [false, true] {
        let trial = Trial::new();
        trial.faulty.prepare_fails(1, &Trouble::Hang);
        trial.faulty.prepare_fails(1, &Trouble::Refuse("busy"));
        let running = trial.start().await;
        if hangs {
            sleep(Duration::from_secs(30)).await;
            assert_eq!(trial.faulty.tries.load(Ordering::Relaxed), 2, "the second try hangs");
        }
        trial.scene.engine.delete(&bad()).await.unwrap();
        timeout(Duration::from_secs(1), trial.gone("bad")).await.unwrap();
        trial.faulty.prepares.lock().unwrap().clear();
        trial.scene.engine.create(on("bad", &["web"]), FirstRun::Now).await.unwrap();
        trial.scene.end(running).await;
    }
}

/// Spec: CTS50
#[tokio::test(start_paused = true)]
async fn the_first_failure_counts_in_a_single_instance_and_for_creations() {
    let trial = Trial::new();
    let running = trial.run().await;
    trial.faulty.prepare_fails(1, &Trouble::Refuse("busy"));
    let error = trial.scene.engine.create(on("bad", &["web"]), FirstRun::Now).await.unwrap_err();
    assert_eq!(error.to_string(), "busy");
    assert!(!trial.has("bad"));
    trial.scene.end(running).await;

    let scene = Scene::new();
    scene.put("web", 1);
    let faulty = Faulty { recording: scene.driver.clone(), ..Faulty::default() };
    faulty.prepare_fails(2, &Trouble::Refuse("busy"));
    let watcher = Watcher::new(scene.consul.client());
    let engine = Engine::new(watcher, Arc::new(faulty), EngineOptions::default());
    engine.load(vec![on("bad", &["web"])], &scene.stop).await.unwrap();
    assert_eq!(engine.once(&scene.stop).await.unwrap_err().to_string(), "busy");
    assert_eq!(engine.run(&scene.stop).await.unwrap_err().to_string(), "busy");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_driver_is_an_error_of_its_task() {
    let trial = Trial::new();
    let running = trial.start().await;
    trial.faulty.apply_fails(1, &Trouble::Panic);
    trial.scene.put("web", 2);
    let events = trial.scene.wait_for_events("bad", 2).await;
    let message = &events[0].error.as_ref().unwrap().message;
    assert!(message.contains("panicked") && message.contains("a defect"), "{message}");
    assert_eq!(trial.scene.status("bad"), Status::Errored);
    trial.scene.put("db", 2);
    trial.scene.driver.wait_for_applies("good", 2).await;
    trial.scene.put("web", 3);
    trial.scene.wait_for_events("bad", 3).await;
    assert_eq!(trial.scene.status("bad"), Status::Successful);
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_shortage_of_this_machine_gives_no_run_up() {
    for text in [
        "cannot write x: Too many open files (os error 24)",
        "Error: write /x: no space left on device",
        "fork/exec: cannot allocate memory",
    ] {
        let trial = Trial::new();
        let running = trial.start().await;
        trial.scene.driver.wait_for_applies("bad", 1).await;
        trial.faulty.apply_fails(20, &Trouble::Refuse(text));
        trial.scene.put("web", 2);
        sleep(Duration::from_hours(2)).await;
        assert_eq!(ids(&trial.scene.driver.applied("bad").unwrap()).len(), 2, "{text}");
        assert_eq!(trial.faulty.applies.lock().unwrap().len(), 0, "{text}");
        trial.scene.end(running).await;
    }
}

/// Three tries as upstream, whose event tells of them; then further ones, in silence, with
/// pauses that go on growing.
#[tokio::test(start_paused = true)]
async fn a_run_that_may_succeed_later_is_never_given_up() {
    let trial = Trial::new();
    let running = trial.start().await;
    trial.scene.driver.wait_for_applies("bad", 1).await;
    trial.faulty.apply_fails(12, &Trouble::Refuse("the firewall does not answer"));
    let changed = Instant::now();
    trial.scene.put("web", 2);
    trial.scene.wait_for_events("bad", 2).await;
    let message = trial.scene.events("bad")[0].error.as_ref().unwrap().message.clone();
    assert!(message.contains("retry attempt #2 failed"), "{message}");
    assert_eq!(trial.faulty.applies.lock().unwrap().len(), 9);

    sleep(Duration::from_secs(10)).await;
    assert!(trial.faulty.applies.lock().unwrap().len() < 9, "the next one follows soon");
    assert_eq!(trial.scene.events("bad").len(), 2, "which is no event of its own");
    assert_eq!(trial.scene.status("bad"), Status::Errored);

    trial.scene.driver.wait_for_applies("bad", 2).await;
    // 4 + 8 + … + 512 s, each up to half as long again, and twice 15 min.
    let took = changed.elapsed();
    assert!(took > Duration::from_mins(30) && took < Duration::from_mins(80), "{took:?}");
    trial.scene.wait_for_events("bad", 3).await;
    assert_eq!(trial.scene.status("bad"), Status::Successful);
    assert!(trial.scene.events("bad")[0].success);
    assert_eq!(ids(&trial.scene.driver.applied("bad").unwrap()), ["web-1", "web-2"]);
    let tries = trial.faulty.tries.load(Ordering::Relaxed);
    sleep(Duration::from_hours(10)).await;
    assert_eq!(trial.scene.driver.applies("bad").len(), 2, "it is done");
    assert_eq!(trial.faulty.tries.load(Ordering::Relaxed), tries);
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_waits_no_longer_when_something_changes_or_somebody_orders() {
    let trial = Trial::new();
    let running = trial.start().await;
    trial.scene.driver.wait_for_applies("bad", 1).await;
    let fail = || {
        trial.faulty.applies.lock().unwrap().clear();
        trial.faulty.apply_fails(1000, &Trouble::Refuse("no"));
    };
    fail();
    trial.scene.put("web", 2);
    sleep(Duration::from_mins(20)).await;
    trial.faulty.applies.lock().unwrap().clear();
    trial.scene.put("web", 3);
    let soon = timeout(Duration::from_secs(1), trial.scene.driver.wait_for_applies("bad", 2)).await;
    assert_eq!(ids(&soon.unwrap()[1]).len(), 3);

    fail();
    trial.scene.put("web", 4);
    sleep(Duration::from_mins(20)).await;
    let engine = &trial.scene.engine;
    engine.set_enabled(&bad(), false, FirstRun::WhenTriggered).await.unwrap();
    trial.faulty.applies.lock().unwrap().clear();
    sleep(Duration::from_hours(2)).await;
    assert_eq!(trial.scene.driver.applies("bad").len(), 2, "a disabled task rests");
    engine.set_enabled(&bad(), true, FirstRun::WhenTriggered).await.unwrap();
    engine.run_now(&bad()).await.unwrap();
    assert_eq!(ids(&trial.scene.driver.applied("bad").unwrap()).len(), 4);
    trial.scene.end(running).await;
}

/// What cannot succeed is left to the operator.
#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_succeed_is_not_tried_again() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.driver.fail_next("t", "invalid", false);
    scene.put("web", 2);
    scene.wait_for_events("t", 2).await;
    sleep(Duration::from_hours(2)).await;
    assert_eq!(ids(&scene.driver.applied("t").unwrap()), ["web-1"]);
    assert_eq!(scene.status("t"), Status::Errored);
    scene.end(running).await;
}

/// Panics at some commits, and can be used again after a crash.
#[derive(Debug, Default)]
struct Panicking {
    inner: MemoryStore,
    /// Commits about the task `bad` that panic.
    panics: AtomicU32,
    /// Number of deletions that it was told of.
    marks: AtomicUsize,
}

#[async_trait]
impl TaskStore for Panicking {
    async fn load(&self) -> Result<State> {
        self.inner.load().await
    }

    async fn commit(&self, batch: &[Change]) -> Result<()> {
        let of_bad = |change: &Change| match change {
            Change::AddEvent(event) => event.task_name == bad(),
            Change::PutDeletion(name, _) => *name == bad(),
            _ => false,
        };
        if batch.iter().any(of_bad)
            && self
                .panics
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
        {
            panic!("a defect of the store");
        }
        let marks = batch.iter().filter(|change| matches!(change, Change::PutDeletion(..)));
        self.marks.fetch_add(marks.count(), Ordering::Relaxed);
        self.inner.commit(batch).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_work_on_one_task_ends_no_other() {
    let store = Arc::new(Panicking::default());
    let trial = Trial::on(Arc::clone(&store) as Arc<dyn TaskStore>);
    let running = trial.start().await;
    store.panics.store(2, Ordering::Relaxed);
    trial.scene.put("web", 2);
    // The commit of its event panics, and then that of the event that says so.
    while store.panics.load(Ordering::Relaxed) > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    trial.scene.put("db", 2);
    trial.scene.driver.wait_for_applies("good", 2).await;
    trial.scene.driver.wait_for_applies("bad", 3).await;
    trial.scene.put("web", 3);
    trial.scene.driver.wait_for_applies("bad", 4).await;
    let panicked = |event: &cts_tasks::Event| {
        event.error.as_ref().is_some_and(|error| error.message.contains("a defect of the store"))
    };
    assert!(trial.scene.events("bad").iter().any(panicked));
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_an_order_about_a_task_starts_no_second_worker() {
    let store = Arc::new(Panicking::default());
    let trial = Trial::on(Arc::clone(&store) as Arc<dyn TaskStore>);
    let running = trial.start().await;
    store.panics.store(1, Ordering::Relaxed);
    // The mark of the deletion is an order of its own, beside the worker.
    trial.scene.engine.delete(&bad()).await.unwrap_err();
    // Long enough for another worker to be there.
    sleep(Duration::from_secs(10)).await;
    let before = trial.scene.driver.applies("bad").len();
    trial.scene.put("web", 2);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(trial.scene.driver.applies("bad").len(), before + 1, "each change runs once");
    trial.scene.engine.delete(&bad()).await.unwrap();
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_promised_outlives_a_crash() {
    let store = Arc::new(Panicking::default());
    let trial = Trial::on(Arc::clone(&store) as Arc<dyn TaskStore>);
    let running = trial.start().await;
    let _gate = trial.scene.driver.hold("bad");
    trial.scene.put("web", 2);
    trial.scene.driver.wait_for_applies("bad", 2).await;
    trial.scene.engine.delete(&bad()).await.unwrap();
    assert_eq!(store.marks.load(Ordering::Relaxed), 1, "stored before the answer");
    // It crashes while the run goes on.
    running.abort();
    assert!(store.load().await.unwrap().tasks.iter().any(|task| task.name == bad()));

    let next = Trial::on(store);
    next.scene.engine.load(Vec::new(), &next.scene.stop).await.unwrap();
    let running = next.run().await;
    next.gone("bad").await;
    assert_eq!(next.scene.driver.applies("bad").len(), 0);
    assert_eq!(next.scene.driver.applies("good").len(), 1);
    next.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_destroys_outlives_a_crash() {
    let store = Arc::new(MemoryStore::default());
    let mut task = on("bad", &["web"]);
    task.destroy_on_delete = true;
    let batch = [
        Change::PutTask(Box::new(task)),
        Change::PutDeletion(bad(), cts_tasks::Deletion { spare: false }),
    ];
    store.commit(&batch).await.unwrap();
    let trial = Trial::on(store);
    trial.scene.engine.load(Vec::new(), &trial.scene.stop).await.unwrap();
    let running = trial.run().await;
    trial.gone("bad").await;
    assert!(trial.scene.driver.calls().contains(&Call::Destroy(bad())));
    trial.scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn progress_of_drivers_reaches_subscribers() {
    let trial = Trial::new();
    let mut all = Box::pin(trial.scene.engine.progress());
    let dropped = trial.scene.engine.progress();
    drop(dropped);
    let running = trial.start().await;
    for task in ["bad", "good"] {
        let line = all.next().await.unwrap();
        assert_eq!((line.task.as_str(), line.line.as_str()), (task, "begins"));
    }
    trial.scene.stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
    let Trial { scene, faulty } = trial;
    drop((scene, faulty));
    assert_eq!(all.next().await, None, "it ends with the engine");
}

/// A task that one instance has stored runs below the working directory of another.
#[tokio::test(start_paused = true)]
async fn a_stored_task_is_resolved_by_each_instance() {
    let store = Arc::new(MemoryStore::default());
    let mut own = on("own", &["web"]);
    own.working_dir = "/srv/own".into();
    let mut inherited = on("inherited", &["web"]);
    inherited.working_dir = "/srv/first/inherited".into();
    inherited.working_dir_inherited = true;
    let batch = [own, inherited].map(|task| Change::PutTask(Box::new(task)));
    store.commit(&batch).await.unwrap();
    let scene = Scene::new();
    let mut options = EngineOptions::default();
    options.store = store;
    options.working_dir = Some("/srv/second".into());
    let watcher = Watcher::new(scene.consul.client());
    let engine = Engine::new(watcher, Arc::new(scene.driver.clone()), options);
    engine.load(Vec::new(), &scene.stop).await.unwrap();
    let folders = engine
        .state(|state| state.tasks.iter().map(|task| task.working_dir.clone()).collect::<Vec<_>>());
    assert_eq!(folders, ["/srv/own", "/srv/second/inherited"].map(std::path::PathBuf::from));
}
