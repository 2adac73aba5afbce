//! Triggers that rest on Consul's own answers, on the double and on a real agent.

use consul_watch::{
    Client, Watcher,
    client::{DeleteOptions, PutOptions},
    types::AgentServiceRegistration,
};
use cts_tasks::{
    Condition, Engine, EngineOptions, FirstRun, NamedService, Result, ServiceSelection, Stop,
    StopReason, Task, testing::RecordingDriver,
};
use tokio::task::JoinHandle;

use crate::{both::on_both, config::support::task, scene::on};

on_both! {
    /// Spec: CTS60
    nothing_registered, nothing_registered_on_the_double, nothing_registered_on_a_real_consul;
    /// Spec: CTS61
    creation_of_keys, creation_of_keys_on_the_double, creation_of_keys_on_a_real_consul;
    /// Spec: CTS62
    life_of_a_key, life_of_a_key_on_the_double, life_of_a_key_on_a_real_consul;
    /// Spec: CTS65
    refused_queries, refused_queries_on_the_double, refused_queries_on_a_real_consul;
}

/// An engine that runs on a Consul, whichever it is.
pub(crate) struct Site {
    consul: Client,
    pub(crate) driver: RecordingDriver,
    pub(crate) engine: Engine,
    stop: Stop,
    running: JoinHandle<Result<()>>,
}

impl Site {
    /// An engine in which each of `tasks` has run once.
    pub(crate) async fn start(consul: Client, tasks: Vec<Task>) -> Self {
        let driver = RecordingDriver::default();
        let watcher = Watcher::new(consul.clone());
        let engine =
            Engine::new(watcher, std::sync::Arc::new(driver.clone()), EngineOptions::default());
        let stop = Stop::new();
        let names: Vec<String> = tasks.iter().map(|task| task.name.to_string()).collect();
        engine.load(tasks, &stop).await.unwrap();
        let (runs, ended) = (engine.clone(), stop.clone());
        let running = tokio::spawn(async move { runs.run(&ended).await });
        // The engine takes orders as soon as its task was polled once.
        tokio::task::yield_now().await;
        for name in names {
            driver.wait_for_applies(&name, 1).await;
        }
        Self { consul, driver, engine, stop, running }
    }

    async fn put(&self, key: &str, value: &'static str) {
        assert!(self.consul.kv_put(key, value, &PutOptions::default()).await.unwrap());
    }

    /// What the keys of a task were at each of its runs, once there are so many.
    async fn runs(&self, task: &str, count: usize) -> Vec<String> {
        let applies = self.driver.wait_for_applies(task, count).await;
        let text = |inputs: &cts_tasks::TaskInputs| {
            let entries = inputs.consul_kv.iter().flatten();
            let pairs = entries
                .map(|entry| format!("{}={}", entry.path, String::from_utf8_lossy(&entry.value)));
            pairs.collect::<Vec<_>>().join(" ")
        };
        applies.iter().map(text).collect()
    }

    pub(crate) fn has(&self, task: &str) -> bool {
        self.engine.state(|state| state.tasks.iter().any(|known| known.name.as_str() == task))
    }

    /// How many events of a task are stored.
    pub(crate) fn events(&self, task: &str) -> usize {
        self.engine.state(|state| {
            let mut found = state.events.iter().filter(|(name, _)| name.as_str() == task);
            found.next().map_or(0, |(_, events)| events.len())
        })
    }

    pub(crate) async fn end(self) {
        self.stop.stop(StopReason::Shutdown);
        self.running.await.unwrap().unwrap();
    }
}

pub(crate) fn named(name: &str, condition: &str) -> Task {
    let mut task = task(&format!("buffer_period {{ enabled = false }}\ncondition {condition}"));
    task.name = name.parse().unwrap();
    task
}

async fn nothing_registered(consul: Client) {
    let condition = "\"catalog-services\" { regexp = \"^none\" }";
    let site = Site::start(consul, vec![named("old", condition)]).await;
    site.engine.create(named("new", condition), FirstRun::Now).await.unwrap();
    let none = AgentServiceRegistration::new("none-1");
    site.consul.agent_register_service(&none).await.unwrap();
    for task in ["old", "new"] {
        let applies = site.driver.wait_for_applies(task, 2).await;
        let names: Vec<_> = applies[1].catalog_services.iter().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(names[0].0, "none-1");
    }
    site.end().await;
}

async fn creation_of_keys(consul: Client) {
    let site = Site::start(
        consul,
        vec![
            named("one", "\"consul-kv\" { path = \"k\" }"),
            named("all", "\"consul-kv\" { path = \"k\" recurse = true }"),
            named("beside", "\"consul-kv\" { path = \"other\" }"),
        ],
    )
    .await;
    site.put("k", "red").await;
    assert_eq!(site.runs("one", 2).await, ["", "k=red"]);
    assert_eq!(site.runs("all", 2).await, ["", "k=red"]);
    site.put("other", "x").await;
    assert_eq!(site.runs("beside", 2).await, ["", "other=x"]);
    site.put("k/child", "y").await;
    // Had the key beside them run these, they would have run once more by now.
    assert_eq!(site.runs("all", 3).await, ["", "k=red", "k=red k/child=y"]);
    site.put("k", "blue").await;
    assert_eq!(site.runs("one", 3).await, ["", "k=red", "k=blue"]);
    site.end().await;
}

async fn life_of_a_key(consul: Client) {
    assert!(consul.kv_put("k", "red", &PutOptions::default()).await.unwrap());
    let site = Site::start(consul, vec![named("t", "\"consul-kv\" { path = \"k\" }")]).await;
    site.put("k", "blue").await;
    site.runs("t", 2).await;
    assert!(site.consul.kv_delete("k", &DeleteOptions::default()).await.unwrap());
    site.runs("t", 3).await;
    site.put("k", "blue").await;
    assert_eq!(site.runs("t", 4).await, ["k=red", "k=blue", "", "k=blue"]);
    site.end().await;
}

async fn refused_queries(consul: Client) {
    let site = Site::start(consul, Vec::new()).await;
    let with = |change: fn(&mut NamedService)| {
        let mut task = on("t", &["web"]);
        if let Condition::Services { services: ServiceSelection::Named(named), .. } =
            &mut task.condition
        {
            change(&mut named[0]);
        }
        task
    };
    for (task, expected) in [
        (with(|service| service.datacenter = "elsewhere".into()), "No path to datacenter"),
        (with(|service| service.filter = "Service.Nope == 1".into()), "Selector"),
        (with(|service| service.namespace = "ns1".into()), "Invalid query parameter"),
    ] {
        let error = site.engine.create(task, FirstRun::Now).await.unwrap_err();
        let said = consul_watch::error_chain(&error);
        assert!(said.starts_with("unable to retrieve data from Consul: "), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(site.engine.state(|state| state.tasks.is_empty()));
    }
    assert_eq!(site.driver.calls(), Vec::new());
    // The name is free again.
    site.engine.create(on("t", &["web"]), FirstRun::Now).await.unwrap();
    site.end().await;
}
