//! Guarded tasks of a running engine, with a real tool.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use consul_watch::{
    Watcher,
    testing::{TestConsul, parts::Part},
    types::HealthStatus,
};
use cts_tasks::{
    Action, Engine, EngineOptions, Error, Event, MemoryStore, Plan, PlanId, Stop, StopReason, Task,
    TaskName, TaskStore,
};
use serde_json::{Value as Json, json};
use tokio::task::JoinHandle;

use crate::{
    fixtures::{named, services_condition},
    site::{Site, tools},
};

struct Scene {
    site: Site,
    consul: TestConsul,
    store: Arc<MemoryStore>,
}

/// An engine that runs.
struct Running {
    engine: Engine,
    stop: Stop,
    work: JoinHandle<cts_tasks::Result<()>>,
}

fn name() -> TaskName {
    "test".parse().unwrap()
}

/// Waits until there is something to be had.
async fn eventually<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    for _ in 0..4800 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{what} did not happen");
}

impl Scene {
    fn new(tool: &Part) -> Self {
        Self { site: Site::new(tool), consul: TestConsul::new(), store: Arc::default() }
    }

    fn put(&self, numbers: std::ops::RangeInclusive<u16>) {
        for number in numbers {
            let id = format!("api-{number}");
            self.consul.set_instance("api", &id, "10.0.0.1", 8000 + number, HealthStatus::Passing);
        }
    }

    fn remove(&self, numbers: std::ops::RangeInclusive<u16>) {
        for number in numbers {
            self.consul.remove_instance(&format!("api-{number}"));
        }
    }

    fn task(&self, max_destroy: u64) -> Task {
        let api = json!({"Named": [named("api", "", "", "")]});
        let period =
            json!({"Enabled": {"min": {"secs": 1, "nanos": 0}, "max": {"secs": 20, "nanos": 0}}});
        let mut task = self.site.task(&json!({
            "condition": services_condition(&api, true), "buffer_period": period,
        }));
        task.guard.max_destroy = Some(max_destroy);
        task
    }

    async fn run(&self, tasks: Vec<Task>) -> Running {
        let mut options = EngineOptions::default();
        options.store = Arc::clone(&self.store) as Arc<dyn TaskStore>;
        let factory = self.site.factory();
        factory.start().await.unwrap();
        let engine = Engine::new(Watcher::new(self.consul.client()), factory, options);
        let stop = Stop::new();
        engine.load(tasks, &stop).await.unwrap();
        let (running, ended) = (engine.clone(), stop.clone());
        let work = tokio::spawn(async move { running.run(&ended).await });
        Running { engine, stop, work }
    }
}

impl Running {
    fn events(&self) -> Vec<Event> {
        let events: BTreeMap<_, _> = self.engine.state(|state| state.events.clone());
        events.get(&name()).cloned().unwrap_or_default()
    }

    /// The newest event, once there are so many.
    async fn event(&self, count: usize) -> Event {
        eventually("the event", || {
            let events = self.events();
            events.first().filter(|_| events.len() >= count).cloned()
        })
        .await
    }

    /// The plan that waits, once there is one other than `last`.
    async fn waiting(&self, last: Option<&PlanId>) -> Plan {
        let plan = || self.engine.waiting_plan(&name()).ok().flatten();
        eventually("the plan", || plan().filter(|plan| Some(&plan.id) != last)).await
    }

    /// Approves as soon as the engine takes orders for the task.
    async fn approve_after_start(&self, plan: &PlanId) {
        for _ in 0..4800 {
            match self.engine.approve(&name(), plan).await {
                Err(Error::NotRunning | Error::NoSuchTask { .. }) => {
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
                result => return result.unwrap(),
            }
        }
        panic!("the engine takes no orders");
    }

    async fn end(self) {
        self.stop.stop(StopReason::Shutdown);
        self.work.await.unwrap().unwrap();
    }
}

/// Files in the folder of saved plans.
fn saved(site: &Site) -> usize {
    std::fs::read_dir(site.task_dir().join(".cts-plans")).unwrap().count()
}

#[tokio::test]
async fn a_change_that_destroys_a_hundred_of_a_hundred_waits_and_is_applied_when_approved() {
    let case = "a_change_that_destroys_a_hundred_of_a_hundred_waits_and_is_applied_when_approved";
    for tool in tools(case) {
        let scene = Scene::new(&tool);
        scene.put(1..=100);
        let running = scene.run(vec![scene.task(10)]).await;
        let first = running.event(1).await;
        assert!(first.success, "{first:?}");
        assert_eq!(scene.site.rules().len(), 100);
        assert_eq!(saved(&scene.site), 0, "an applied plan is deleted");

        scene.remove(1..=100);
        let plan = running.waiting(None).await;
        assert_eq!((plan.changes.add, plan.changes.destroy), (0, 100));
        assert_eq!((plan.changes.addresses.len(), plan.changes.more), (100, 0));
        let event = running.event(2).await;
        let message = event.error.unwrap().message;
        assert!(
            message.contains("it would destroy 100 resources, and max_destroy is 10"),
            "{message}"
        );
        assert_eq!(scene.site.rules().len(), 100, "nothing was destroyed");

        // The plan is still there after a restart.
        running.end().await;
        let running = scene.run(Vec::new()).await;
        let kept = running.waiting(None).await;
        assert_eq!(kept.id, plan.id);
        let planned = kept.resources.unwrap();
        assert_eq!(planned.resources.len(), 100, "with what it would destroy");
        let first = &planned.resources[0];
        assert_eq!((first.action, &first.after), (Action::Delete, &Json::Null));
        assert!(first.before.is_object(), "{}", first.before);
        assert_eq!(Some(planned), plan.resources);
        running.approve_after_start(&plan.id).await;
        assert_eq!(scene.site.rules(), Vec::<String>::new());
        assert_eq!(saved(&scene.site), 0);
        running.end().await;
    }
}

#[tokio::test]
async fn a_newer_plan_invalidates_the_approval() {
    for tool in tools("a_newer_plan_invalidates_the_approval") {
        let scene = Scene::new(&tool);
        scene.put(1..=4);
        let running = scene.run(vec![scene.task(1)]).await;
        running.event(1).await;
        scene.remove(1..=2);
        let old = running.waiting(None).await;
        scene.remove(3..=3);
        let new = running.waiting(Some(&old.id)).await;
        assert_eq!(new.changes.destroy, 3);
        let error = running.engine.approve(&name(), &old.id).await.unwrap_err();
        assert!(
            matches!(&error, Error::NoSuchPlan { waiting: Some(id), .. } if *id == new.id),
            "{error}"
        );
        assert_eq!(scene.site.rules().len(), 4, "nothing is applied in its place");
        assert_eq!(saved(&scene.site), 1, "only the newer plan is kept");
        running.engine.approve(&name(), &new.id).await.unwrap();
        assert_eq!(scene.site.rules(), ["api-4=10.0.0.1:8004"]);
        running.end().await;
    }
}

/// Somebody else changes the state between plan and approval.
#[tokio::test]
async fn a_plan_that_no_longer_fits_the_state_is_not_applied() {
    for tool in tools("a_plan_that_no_longer_fits_the_state_is_not_applied") {
        let scene = Scene::new(&tool);
        scene.put(1..=3);
        let running = scene.run(vec![scene.task(1)]).await;
        running.event(1).await;
        scene.remove(1..=2);
        let old = running.waiting(None).await;
        let arguments = ["apply", "-auto-approve", "-input=false", "-destroy"];
        let other = tokio::process::Command::new(&tool.path)
            .args(arguments)
            .arg("-target=module.test.terraform_data.rule[\"api-3.node-api-3.dc1\"]")
            .current_dir(scene.site.task_dir())
            .env_remove("TF_CLI_CONFIG_FILE")
            .output()
            .await
            .unwrap();
        assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stderr));
        let before = scene.site.rules();
        assert_eq!(before.len(), 2, "the state was changed");
        let error = running.engine.approve(&name(), &old.id).await.unwrap_err();
        assert!(matches!(error, Error::PlanSuperseded { .. }), "{error}");
        assert_eq!(scene.site.rules(), before, "nothing of the old plan was applied");
        running.end().await;
    }
}
