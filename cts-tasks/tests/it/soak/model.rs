use std::{collections::BTreeMap, time::Duration};

use cts_tasks::{
    BufferPeriod, Condition, Engine, Error, FirstRun, KvSelection, MatchingServices,
    ServiceSelection, Task, TaskInputs, TaskName, testing::RecordingDriver,
};
use tokio::time::sleep;

use super::site::{Instance, SERVICES, Site};
use crate::scene::on;

/// Operates the tasks of an engine, and knows which there must be.
pub(super) struct Model {
    engine: Engine,
    driver: RecordingDriver,
    random: fastrand::Rng,
    tasks: BTreeMap<TaskName, Known>,
    /// Names that are never used again, so that no two tasks are mixed up.
    next: usize,
    done: BTreeMap<&'static str, usize>,
}

struct Known {
    task: Task,
    /// Since it was disabled.
    frozen: Option<Frozen>,
}

/// What had been applied when a task was disabled.
#[derive(PartialEq)]
struct Frozen(Option<TaskInputs>);

/// How many tasks there are at most.
const TASKS: usize = 12;

impl Model {
    pub(super) fn new(engine: Engine, driver: RecordingDriver, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { engine, driver, random, tasks: BTreeMap::new(), next: 0, done: BTreeMap::new() }
    }

    /// One thing that an operator, or bad luck, does.
    pub(super) async fn step(&mut self) {
        let action = match self.random.u8(..100) {
            _ if self.tasks.len() < 3 => self.create().await,
            0..=19 if self.tasks.len() < TASKS => self.create().await,
            0..=29 => self.delete().await,
            30..=44 => self.disable().await,
            45..=64 => self.enable().await,
            65..=69 => self.run_now().await,
            70..=74 => self.replace().await,
            75..=84 => self.approve_all().await,
            _ => self.fail(),
        };
        *self.done.entry(action).or_default() += 1;
        sleep(Duration::from_millis(self.random.u64(5..300))).await;
    }

    async fn create(&mut self) -> &'static str {
        self.next += 1;
        let task = self.task(&format!("t{}", self.next));
        let now = self.random.bool();
        let first_run = if now { FirstRun::Now } else { FirstRun::WhenTriggered };
        if self.engine.create(task.clone(), first_run).await.is_err() {
            return "refused creations";
        }
        let name = task.name.clone();
        self.tasks.insert(name.clone(), Known { task, frozen: None });
        if !now {
            self.must_run(&name).await;
        }
        "creations"
    }

    async fn delete(&mut self) -> &'static str {
        let Some(name) = self.any() else { return "nothing" };
        self.engine.delete(&name).await.unwrap();
        self.tasks.remove(&name);
        "deletions"
    }

    async fn disable(&mut self) -> &'static str {
        let Some(name) = self.any() else { return "nothing" };
        self.until_idle(&name, |engine, name| async move {
            engine.set_enabled(&name, false, FirstRun::WhenTriggered).await
        })
        .await;
        let applied = Frozen(self.driver.applied(name.as_str()));
        if let Some(known) = self.tasks.get_mut(&name)
            && known.frozen.is_none()
        {
            known.frozen = Some(applied);
        }
        "disablings"
    }

    async fn enable(&mut self) -> &'static str {
        let Some(name) = self.any() else { return "nothing" };
        if self.tasks[&name].frozen.is_none() {
            return "nothing";
        }
        self.until_idle(&name, |engine, name| async move {
            engine.set_enabled(&name, true, FirstRun::WhenTriggered).await
        })
        .await;
        if let Some(known) = self.tasks.get_mut(&name) {
            known.frozen = None;
        }
        self.must_run(&name).await;
        "enablings"
    }

    async fn run_now(&mut self) -> &'static str {
        let Some(name) = self.any() else { return "nothing" };
        if self.tasks[&name].frozen.is_none() {
            self.must_run(&name).await;
        }
        "runs by hand"
    }

    async fn replace(&mut self) -> &'static str {
        let Some(name) = self.any() else { return "nothing" };
        let known = &self.tasks[&name];
        if known.frozen.is_some() {
            return "nothing";
        }
        let task = self.task(name.as_str());
        match self.engine.replace(task.clone()).await {
            Ok(()) => {
                self.tasks.insert(name.clone(), Known { task, frozen: None });
                // Its first run may meet a failure, which a retry cures.
                "replacements"
            }
            Err(_) => "refused replacements",
        }
    }

    /// Makes one apply fail in a way that a retry cures.
    fn fail(&mut self) -> &'static str {
        let Some(name) = self.any() else { return "nothing" };
        if self.driver.failures_left(name.as_str()) == 0 {
            self.driver.fail_next(name.as_str(), "bad luck", true);
        }
        "failures"
    }

    /// Approves what waits; a plan may be superseded meanwhile.
    pub(super) async fn approve_all(&mut self) -> &'static str {
        for (name, plan) in self.engine.waiting_plans() {
            match self.engine.approve(&name, &plan.id).await {
                Ok(()) => *self.done.entry("approvals").or_default() += 1,
                Err(Error::Driver { .. }) if self.tasks.contains_key(&name) => {
                    self.must_run(&name).await;
                }
                Err(_) => {}
            }
        }
        "looks for plans"
    }

    /// A run by hand is not tried again by the engine, so it is here.
    async fn must_run(&self, name: &TaskName) {
        self.until_idle(name, |engine, name| async move {
            loop {
                match engine.run_now(&name).await {
                    Err(Error::Driver { .. }) => {}
                    done => return done,
                }
            }
        })
        .await;
    }

    async fn until_idle<F>(&self, name: &TaskName, act: impl Fn(Engine, TaskName) -> F)
    where
        F: Future<Output = cts_tasks::Result<()>>,
    {
        loop {
            match act(self.engine.clone(), name.clone()).await {
                Ok(()) => return,
                Err(Error::TaskActive { .. }) => sleep(Duration::from_millis(20)).await,
                // Preparing reads nothing of Consul, so nothing else may fail.
                Err(error) => panic!("task {name}: {error}"),
            }
        }
    }

    fn any(&mut self) -> Option<TaskName> {
        let at = self.random.usize(..self.tasks.len().max(1));
        self.tasks.keys().nth(at).cloned()
    }

    /// A random task of this name.
    fn task(&mut self, name: &str) -> Task {
        let services: Vec<&str> =
            SERVICES.into_iter().filter(|_| self.random.u8(..3) == 0).collect();
        let services = if services.is_empty() { vec!["web"] } else { services };
        let mut task = on(name, &services);
        let keys = KvSelection {
            path: "app/".to_owned(),
            recurse: true,
            datacenter: String::new(),
            namespace: String::new(),
        };
        match self.random.u8(..6) {
            0 => {
                let services = ServiceSelection::Matching(MatchingServices {
                    regexp: "^(web|db)".to_owned(),
                    datacenter: String::new(),
                    namespace: String::new(),
                    filter: String::new(),
                    cts_user_defined_meta: BTreeMap::new(),
                });
                task.condition = Condition::Services { services, use_as_module_input: true };
            }
            1 => {
                task.condition = Condition::ConsulKv { keys, use_as_module_input: true };
            }
            _ => {}
        }
        if self.random.bool() {
            let min = Duration::from_millis(self.random.u64(10..300));
            task.buffer_period = BufferPeriod::Enabled { min, max: min * 4 };
        }
        match self.random.u8(..5) {
            0 => task.guard.require_approval = true,
            1 => task.guard.max_destroy = Some(1),
            _ => {}
        }
        task
    }

    /// The first thing that is not as it must be.
    pub(super) async fn differences(&self, site: &Site) -> Option<String> {
        let there: Vec<(TaskName, bool)> = self.engine.state(|state| {
            state.tasks.iter().map(|task| (task.name.clone(), task.enabled)).collect()
        });
        let mut there = there;
        there.sort();
        let wanted: Vec<(TaskName, bool)> =
            self.tasks.iter().map(|(name, known)| (name.clone(), known.frozen.is_none())).collect();
        if there != wanted {
            return Some(format!("there are the tasks {there:?}, not {wanted:?}"));
        }
        let (instances, pairs) = (site.instances().await, site.pairs("app/").await);
        for (name, known) in &self.tasks {
            let applied = self.driver.applied(name.as_str());
            match &known.frozen {
                Some(Frozen(frozen)) if *frozen != applied => {
                    return Some(format!("task {name} was applied while it was disabled"));
                }
                Some(_) => {}
                None => {
                    let wrong = wrongly_applied(&known.task, applied.as_ref(), &instances, &pairs);
                    if let Some(wrong) = wrong {
                        return Some(format!("task {name}: {wrong}"));
                    }
                }
            }
        }
        None
    }

    pub(super) fn summary(&self) -> String {
        let done = self.done.iter().filter(|(what, _)| **what != "nothing");
        let done: Vec<String> = done.map(|(what, times)| format!("{times} {what}")).collect();
        done.join(", ")
    }
}

/// What is wrong with what a task applied last.
fn wrongly_applied(
    task: &Task,
    applied: Option<&TaskInputs>,
    instances: &BTreeMap<String, Vec<Instance>>,
    pairs: &[(String, Vec<u8>)],
) -> Option<String> {
    let empty = TaskInputs::default();
    let applied = applied.unwrap_or(&empty);
    let got: Vec<Instance> = applied
        .services
        .iter()
        .flatten()
        .map(|found| (found.name.clone(), found.id.clone(), found.node.clone(), found.port))
        .collect();
    let got_pairs: Vec<(String, Vec<u8>)> = applied
        .consul_kv
        .iter()
        .flatten()
        .map(|entry| (entry.path.clone(), entry.value.clone()))
        .collect();
    let (wanted, wanted_pairs) = match &task.condition {
        Condition::Services { services: ServiceSelection::Named(_), .. } => {
            let names = task.service_names();
            let of_names = instances.iter().filter(|(name, _)| names.contains(name));
            (of_names.flat_map(|(_, instances)| instances.clone()).collect(), Vec::new())
        }
        Condition::Services { .. } => {
            let matching = instances
                .iter()
                .filter(|(name, _)| name.starts_with("web") || name.starts_with("db"));
            let mut all: Vec<Instance> =
                matching.flat_map(|(_, instances)| instances.clone()).collect();
            all.sort_by(|a, b| (&a.2, &a.1).cmp(&(&b.2, &b.1)));
            (all, Vec::new())
        }
        _ => (Vec::new(), pairs.to_vec()),
    };
    if got != wanted {
        return Some(format!("applied {got:?}, and Consul has {wanted:?}"));
    }
    (got_pairs != wanted_pairs)
        .then(|| format!("applied {got_pairs:?}, and Consul has {wanted_pairs:?}"))
}
