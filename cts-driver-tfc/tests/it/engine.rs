//! The driver under the engine; and the driver's contract.

use std::{fs, sync::Arc, time::Duration};

use consul_watch::{
    Watcher,
    client::PutOptions,
    testing::{
        TestConsul,
        parts::{Suite, find},
        real::Consul,
    },
    types::{CatalogRegistration, HealthStatus, Service},
};
use cts_driver_tfc::testing::{PolicyResult, TestTfc};
use cts_tasks::{
    ApplyRequest, Condition, Driver, Engine, EngineOptions, FirstRun, KvSelection, ModuleInput,
    Outcome, RunContext, ServiceSelection, Stop, StopReason, Task, TaskName,
    testing::driver::DriverFixture,
};
use serde_json::json;

use crate::scene::{Scene, inputs, web};

/// The double and a driver that was started on it.
struct OnDouble {
    scene: Scene,
    task: Task,
    module: Option<tempfile::TempDir>,
}

const QUICK: &str = r#"{"run": {"poll_min": "20ms", "poll_max": "100ms"}}"#;

impl OnDouble {
    async fn made_up() -> Self {
        let settings = serde_json::from_str(QUICK).unwrap();
        let scene = Scene::with(TestTfc::new(), settings).await;
        Self { scene, task: web(), module: None }
    }

    /// The double with a real tool, where there is one.
    async fn real() -> Self {
        let suite = Suite("tfc_driver");
        let found = ["tofu", "terraform"].into_iter().find(|name| find(name).is_some());
        let Some(tool) = found.and_then(|name| suite.part(name, "the driver's contract")) else {
            suite.double("tofu");
            return Self::made_up().await;
        };
        let module = tempfile::tempdir().unwrap();
        fs::write(module.path().join("main.tf"), MODULE).unwrap();
        let mut task = web();
        task.module = module.path().to_string_lossy().into_owned();
        task.version = None;
        let tfc = TestTfc::builder().tool(tool.path).build();
        let scene = Scene::with(tfc, serde_json::from_str(QUICK).unwrap()).await;
        Self { scene, task, module: Some(module) }
    }
}

/// One resource for each instance.
const MODULE: &str = r#"
variable "services" {
  type = map(object({ id = string, port = number }))
}
resource "terraform_data" "instance" {
  for_each = var.services
  input    = each.value
}
"#;

impl DriverFixture for OnDouble {
    fn driver(&self) -> Arc<dyn Driver> {
        self.scene.driver(&self.task)
    }
}

mod made_up {
    use super::OnDouble;

    cts_tasks::driver_conformance!(OnDouble::made_up().await);
}

mod real {
    use super::OnDouble;

    cts_tasks::driver_conformance!(OnDouble::real().await);
}

/// A workspace's sensitive variable is in the environment of the tool that runs there.
#[tokio::test]
async fn the_environment_of_a_task_reaches_the_tool_of_its_workspace() {
    let mut on = OnDouble::real().await;
    // Without a tool the made-up platform runs nothing.
    let Some(module) = &on.module else { return };
    let seen = module.path().join("seen");
    let print = format!(
        r#"
resource "terraform_data" "seen" {{
  input = var.word_of
  triggers_replace = [keys(var.services)]
  provisioner "local-exec" {{
    command = "printf %s \"$WORD\" > '{}'"
  }}
}}
variable "word_of" {{
  type    = string
  default = "a task"
}}
"#,
        seen.display()
    );
    fs::write(module.path().join("main.tf"), format!("{MODULE}{print}")).unwrap();
    for (word, ids) in [("pl4nted-one", ["a"].as_slice()), ("pl4nted-two", ["a", "b"].as_slice())] {
        on.task.env.set("WORD", word).unwrap();
        let driver = on.driver();
        driver.prepare(&RunContext::default()).await.unwrap();
        let inputs = inputs(ids);
        let outcome = driver.apply(ApplyRequest::Inputs(&inputs), &RunContext::default()).await;
        assert!(matches!(outcome, Ok(Outcome::Applied(_))), "{outcome:?}");
        assert_eq!(fs::read_to_string(&seen).unwrap(), word);
    }
}

struct Running {
    scene: Scene,
    engine: Engine,
    stop: Stop,
    task: tokio::task::JoinHandle<cts_tasks::Result<()>>,
}

impl Running {
    /// An engine that runs this task.
    async fn on(watcher: Watcher, task: Task) -> Self {
        Self::with(TestTfc::new(), watcher, task).await
    }

    /// The same, on this platform.
    async fn with(tfc: TestTfc, watcher: Watcher, task: Task) -> Self {
        let polls = json!({"run": {"poll_min": "50ms", "poll_max": "100ms"}});
        let scene = Scene::with(tfc, polls).await;
        let factory = Arc::new(scene.factory.clone());
        let engine = Engine::new(watcher, factory, EngineOptions::default());
        let stop = Stop::new();
        engine.load(vec![task], &stop).await.unwrap();
        let (running, stopped) = (engine.clone(), stop.clone());
        let task = tokio::spawn(async move { running.run(&stopped).await });
        tokio::task::yield_now().await;
        Self { scene, engine, stop, task }
    }

    /// Waits until there are so many runs and the newest has this status.
    async fn ran(&self, status: &str, runs: usize) {
        let waiting = self.scene.tfc.wait_until(|tfc| {
            let found = tfc.runs("web");
            found.len() >= runs && found.last().is_some_and(|run| run.status == status)
        });
        let waited = tokio::time::timeout(Duration::from_mins(1), waiting).await;
        assert!(waited.is_ok(), "not {runs} runs: {:?}", self.scene.tfc.runs("web"));
    }

    async fn end(self) {
        self.stop.stop(StopReason::Shutdown);
        self.task.await.unwrap().unwrap();
    }
}

/// Case TFC13: a task that is enabled again is triggered.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_enabled_again_runs() {
    let consul = TestConsul::new();
    let put = |number: u16| {
        let id = format!("web-{number}");
        consul.set_instance("web", &id, "10.0.0.1", 8000 + number, HealthStatus::Passing);
    };
    put(1);
    let running = Running::on(Watcher::new(consul.client()), web()).await;
    running.ran("applied", 1).await;
    let name: TaskName = "web".to_owned().try_into().unwrap();
    // Until the first run's event is stored the task is active.
    while running.engine.state(|state| !state.events.contains_key(&name)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.engine.set_enabled(&name, false, FirstRun::WhenTriggered).await.unwrap();
    put(2);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(running.scene.tfc.runs("web").len(), 1, "a disabled task does not run");
    running.engine.set_enabled(&name, true, FirstRun::Now).await.unwrap();
    running.ran("applied", 2).await;
    put(3);
    running.ran("applied", 3).await;
    running.end().await;
}

/// Case TFC32: in a workspace without automatic apply, newer data discards the run that waits and
/// queues another.
#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_person_does_not_hold_up_its_task() {
    let consul = TestConsul::new();
    let put = |number: u16| {
        let id = format!("web-{number}");
        consul.set_instance("web", &id, "10.0.0.1", 8000 + number, HealthStatus::Passing);
    };
    put(1);
    let tfc = TestTfc::new();
    tfc.add_workspace("web", &json!({"auto-apply": false}), &[]);
    let running = Running::with(tfc.clone(), Watcher::new(consul.client()), web()).await;
    running.ran("planned", 1).await;
    put(2);
    running.ran("planned", 2).await;
    let runs = tfc.runs("web");
    assert_eq!((runs.len(), runs[0].status.as_str()), (2, "discarded"));
    let name: TaskName = "web".to_owned().try_into().unwrap();
    let events = || running.engine.state(|state| state.events.get(&name).cloned());
    while events().is_none() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(events().unwrap()[0].success, "it gave way to newer data");

    // Looking leaves what waits alone; a person confirms it.
    running.engine.inspect_enabled(&name, true).await.unwrap();
    assert!(tfc.confirm(&runs[1].id));
    while events().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let newest = events().unwrap().remove(0);
    assert_eq!((newest.success, newest.changes.unwrap().add), (true, 2));

    // A task that is disabled or deleted leaves nothing to be confirmed.
    put(3);
    running.ran("planned", 3).await;
    let enable = async |enabled, first_run| {
        while running.engine.set_enabled(&name, enabled, first_run).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    enable(false, FirstRun::WhenTriggered).await;
    running.ran("discarded", 3).await;
    enable(true, FirstRun::Now).await;
    running.ran("planned", 4).await;
    running.engine.delete(&name).await.unwrap();
    running.ran("discarded", 4).await;
    running.end().await;
    assert!(tfc.variable("web", "services").is_some(), "the workspace stays as it was");
}

#[tokio::test(start_paused = true)]
async fn costs_and_an_overridden_policy_are_in_the_event() {
    let consul = TestConsul::new();
    consul.set_instance("web", "web-1", "10.0.0.1", 8001, HealthStatus::Passing);
    let tfc = TestTfc::new();
    tfc.add_workspace("web", &json!({"auto-apply": true}), &[]);
    tfc.set_costs("web", "25.488", "12.1");
    tfc.set_opa("web", PolicyResult::SoftFailed);
    let running = Running::with(tfc.clone(), Watcher::new(consul.client()), web()).await;
    running.ran("post_plan_awaiting_decision", 1).await;
    let name: TaskName = "web".to_owned().try_into().unwrap();
    let events = || running.engine.state(|state| state.events.get(&name).cloned());
    assert!(events().is_none(), "the task waits for a person");
    assert!(tfc.override_policy(&tfc.runs("web")[0].id));
    while events().is_none() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let event = events().unwrap().remove(0);
    assert!(event.success);
    let notes = event.notes.join("\n");
    assert!(notes.contains("cost estimate: 25.488 USD a month"), "{notes}");
    assert!(notes.contains("(opa, post_plan): overridden"), "{notes}");
    running.end().await;
}

/// Case TFC12: the filter of a service is honoured, and a scheduled task runs if only services
/// changed.
#[tokio::test]
async fn a_filter_is_honoured_and_a_schedule_runs_for_changed_services() {
    for part in Suite("tfc_engine").parts("consul", "a filter is honoured") {
        let consul = Consul::start(&part.path).await.unwrap();
        a_filter_is_honoured_on(&consul).await;
    }
}

async fn a_filter_is_honoured_on(consul: &Consul) {
    let client = consul.client();
    let put = async |number: u16| {
        let mut service = Service::new("web", format!("web-{number}"));
        service.port = i64::from(8000 + number);
        let instance = CatalogRegistration::new("outside", "10.0.0.1").with_service(service);
        client.catalog_register(&instance).await.unwrap();
    };
    put(1).await;
    client.kv_put("zone", "a", &PutOptions::default()).await.unwrap();
    let mut task = web();
    let mut named = match &task.condition {
        Condition::Services { services: ServiceSelection::Named(named), .. } => named.clone(),
        other => panic!("{other:?}"),
    };
    "Service.Port == 8002".clone_into(&mut named[0].filter);
    // Every second; the last field is the year's.
    task.condition = Condition::Schedule { cron: "* * * * * * *".to_owned() };
    let keys = KvSelection {
        path: "zone".to_owned(),
        recurse: false,
        datacenter: String::new(),
        namespace: String::new(),
    };
    task.module_inputs =
        vec![ModuleInput::Services(ServiceSelection::Named(named)), ModuleInput::ConsulKv(keys)];
    let running = Running::on(Watcher::new(client.clone()), task).await;
    running.ran("planned_and_finished", 1).await;
    let value = |key: &str| running.scene.tfc.variable("web", key).unwrap();
    assert_eq!(value("services"), "{\n}", "the filter leaves nothing");
    assert!(value("consul_kv").contains("\"zone\" = \"a\""));
    // Only services change, and the schedule runs the task.
    put(2).await;
    running.ran("applied", 2).await;
    assert!(value("services").contains("web-2") && !value("services").contains("web-1"));
    running.end().await;
}
