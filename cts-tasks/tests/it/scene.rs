//! An engine with a recording driver, on an in-process Consul.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use consul_watch::{
    Watcher,
    testing::{TestClock, TestConsul},
    types::HealthStatus,
};
use cts_tasks::{
    Condition, Engine, EngineOptions, Event, MemoryStore, NamedService, Result, ServiceSelection,
    Status, Stop, StopReason, Task, TaskInputs, TaskName, TaskStore,
    testing::{RecordingDriver, task},
};
use tokio::task::JoinHandle;

pub(crate) struct Scene {
    pub(crate) consul: TestConsul,
    pub(crate) driver: RecordingDriver,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) engine: Engine,
    pub(crate) stop: Stop,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(EngineOptions::default())
    }

    pub(crate) fn with(mut options: EngineOptions) -> Self {
        let consul = TestConsul::new();
        let driver = RecordingDriver::default();
        let store = Arc::new(MemoryStore::default());
        options.store = Arc::clone(&store) as Arc<dyn TaskStore>;
        options.seed = Some(1);
        let watcher = Watcher::new(consul.client());
        let engine = Engine::new(watcher, Arc::new(driver.clone()), options);
        Self { consul, driver, store, engine, stop: Stop::new() }
    }

    /// An engine whose schedules follow the test's time.
    pub(crate) fn scheduled() -> Self {
        let mut options = EngineOptions::default();
        options.clock = Arc::new(TestClock::starting_at(SystemTime::UNIX_EPOCH));
        Self::with(options)
    }

    /// Puts one passing instance of a service; `number` tells instances apart.
    pub(crate) fn put(&self, service: &str, number: u16) {
        self.set(service, number, HealthStatus::Passing);
    }

    pub(crate) fn set(&self, service: &str, number: u16, status: HealthStatus) {
        let id = format!("{service}-{number}");
        self.consul.set_instance(service, &id, "10.0.0.1", 8000 + number, status);
    }

    /// Starts the engine on `tasks`, and waits until each has run once.
    pub(crate) async fn start(&self, tasks: Vec<Task>) -> JoinHandle<Result<()>> {
        let names: Vec<TaskName> = tasks.iter().map(|task| task.name.clone()).collect();
        self.engine.load(tasks, &self.stop).await.unwrap();
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        let running = tokio::spawn(async move { engine.run(&stop).await });
        // The engine takes orders as soon as its task was polled once.
        tokio::task::yield_now().await;
        for name in names {
            self.driver.wait_for_applies(name.as_str(), 1).await;
            self.wait_for_events(name.as_str(), 1).await;
        }
        running
    }

    pub(crate) async fn end(&self, running: JoinHandle<Result<()>>) {
        self.stop.stop(StopReason::Shutdown);
        running.await.unwrap().unwrap();
    }

    /// Waits until so many events of a task are stored, the newest first.
    pub(crate) async fn wait_for_events(&self, task: &str, count: usize) -> Vec<Event> {
        loop {
            let events = self.events(task);
            if events.len() >= count {
                return events;
            }
            // Lets the paused clock go on to whatever is next.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn events(&self, task: &str) -> Vec<Event> {
        let name = TaskName::try_from(task.to_owned()).unwrap();
        self.engine.state(|state| state.events.get(&name).cloned().unwrap_or_default())
    }

    pub(crate) fn status(&self, task: &str) -> Status {
        let name = TaskName::try_from(task.to_owned()).unwrap();
        let plan = self.engine.state(|state| state.plans.get(&name).map(|plan| plan.id.clone()));
        Status::of(&self.events(task), plan.as_ref())
    }
}

/// A task without a buffer period that runs when one of `services` changes.
pub(crate) fn on(name: &str, services: &[&str]) -> Task {
    let mut task = task(name);
    let named = services.iter().map(|service| NamedService {
        name: (*service).to_owned(),
        datacenter: String::new(),
        namespace: String::new(),
        filter: String::new(),
        cts_user_defined_meta: BTreeMap::new(),
    });
    task.condition = Condition::Services {
        services: ServiceSelection::Named(named.collect()),
        use_as_module_input: true,
    };
    task
}

/// The ids of the instances in some inputs.
pub(crate) fn ids(inputs: &TaskInputs) -> Vec<&str> {
    inputs.services.iter().flatten().map(|instance| instance.id.as_str()).collect()
}
