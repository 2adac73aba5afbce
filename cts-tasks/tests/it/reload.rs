//! A running daemon takes over the tasks of files that were read again.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use consul_watch::{
    testing::{Fault, TestConsul},
    types::HealthStatus,
};
use cts_tasks::{
    Cluster, Daemon, DaemonOptions, DriverFactory, Error, FirstRun, Member, MemoryStore, Result,
    Role, State, Stop, StopReason, Task, TaskName,
    config::Loaded,
    testing::{Call, RecordingDriver},
};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    config::support::try_load,
    scene::{ids, on},
};

/// Settings that every file here has.
const SETTINGS: &str = "port = 0\nid = \"cts\"\nbuffer_period { enabled = false }\n\
                        consul { service_registration { enabled = false } }\n";

fn files(tasks: &[&str]) -> Loaded {
    try_load(&format!("{SETTINGS}{}", tasks.concat())).unwrap()
}

/// A task of a file.
fn file_task(name: &str, service: &str) -> String {
    format!(
        "task {{\n name = \"{name}\"\n module = \"./m\"\n \
         condition \"services\" {{ names = [\"{service}\"] }}\n}}\n"
    )
}

struct Running {
    consul: TestConsul,
    driver: RecordingDriver,
    daemon: Arc<Daemon>,
    stop: Stop,
    handle: JoinHandle<Result<()>>,
}

impl Running {
    async fn start(loaded: Loaded, options: DaemonOptions) -> Self {
        let consul = TestConsul::new();
        for service in ["a", "b"] {
            let id = format!("{service}-1");
            consul.set_instance(service, &id, "10.0.0.1", 80, HealthStatus::Passing);
        }
        let driver = RecordingDriver::default();
        let factory: Arc<dyn DriverFactory> = Arc::new(driver.clone());
        let daemon = Daemon::with_client(loaded.config, factory, options, consul.client());
        let (daemon, stop) = (Arc::new(daemon), Stop::new());
        let (running, ended) = (Arc::clone(&daemon), stop.clone());
        let handle = tokio::spawn(async move { running.run(&ended).await });
        while daemon.engine().watching().await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        Self { consul, driver, daemon, stop, handle }
    }

    fn names(&self) -> Vec<String> {
        self.daemon
            .engine()
            .state(|state| state.tasks.iter().map(|task| task.name.to_string()).collect())
    }

    async fn gone(&self, name: &str) {
        while self.names().iter().any(|known| known == name) {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn end(self) {
        self.stop.stop(StopReason::Shutdown);
        self.handle.await.unwrap().unwrap();
    }
}

fn name(text: &str) -> TaskName {
    text.parse().unwrap()
}

#[tokio::test]
async fn tasks_are_added_changed_and_forgotten_as_the_files_say() {
    let (keep, change, remove) =
        (file_task("keep", "a"), file_task("change", "a"), file_task("remove", "a"));
    let running = Running::start(files(&[&keep, &change, &remove]), DaemonOptions::default()).await;
    let (changed, added) = (file_task("change", "b"), file_task("add", "b"));
    let reloaded = running.daemon.reload(files(&[&keep, &changed, &added])).await.unwrap();
    assert_eq!(reloaded.added, [name("add")]);
    assert_eq!(reloaded.changed, [name("change")]);
    assert_eq!(reloaded.removed, [name("remove")]);
    assert!(reloaded.failed.is_empty() && reloaded.needs_restart.is_empty(), "{reloaded:?}");
    running.gone("remove").await;
    assert_eq!(running.names(), ["keep", "change", "add"]);
    assert_eq!(ids(&running.driver.wait_for_applies("change", 2).await[1]), ["b-1"]);
    assert_eq!(running.driver.applies("add").len(), 1);
    assert_eq!(running.driver.applies("keep").len(), 1, "what did not change does not run");
    assert!(running.driver.applied("remove").is_some(), "nothing is destroyed");

    let again = running.daemon.reload(files(&[&keep, &changed, &added])).await.unwrap();
    assert!(again.added.is_empty() && again.changed.is_empty() && again.removed.is_empty());
    running.end().await;
}

/// One that a task has which was made through the API.
#[tokio::test]
async fn a_working_directory_of_another_task_is_refused_at_a_reload() {
    let keep = file_task("keep", "a");
    let running = Running::start(files(&[&keep]), DaemonOptions::default()).await;
    let mut made = on("made", &["a"]);
    made.working_dir = "w".into();
    running.daemon.engine().create(made, FirstRun::WhenTriggered).await.unwrap();
    let base = env!("CARGO_MANIFEST_DIR");
    for same in ["x/../w".to_owned(), format!("{base}/w")] {
        let setting = format!(" working_dir = \"{same}\"\n module");
        let add = file_task("add", "a").replace(" module", &setting);
        let error = running.daemon.reload(files(&[&keep, &add])).await.unwrap_err().to_string();
        let expected = format!("tasks made and add have the same working_dir {base}/w");
        assert!(error.contains(&expected), "{same}: {error}");
    }
    assert_eq!(running.names(), ["keep", "made"]);
    running.end().await;
}

#[tokio::test]
async fn watches_keep_to_the_connections_that_are_configured() {
    let names: Vec<String> = (0..30).map(|number| format!("\"s{number}\"")).collect();
    let task = format!(
        "task {{\n name = \"t\"\n module = \"./m\"\n \
         condition \"services\" {{ names = [{}] }}\n}}\n",
        names.join(", ")
    );
    for limit in [None, Some(16)] {
        let setting = limit.map(|limit| format!("watch_connections = {limit}\n"));
        let settings =
            SETTINGS.replace("consul {", &format!("consul {{\n{}", setting.unwrap_or_default()));
        let loaded = try_load(&format!("{settings}{task}")).unwrap();
        let running = Running::start(loaded, DaemonOptions::default()).await;
        running.driver.wait_for_applies("t", 1).await;
        let open = running.consul.open();
        assert!(open > 0 && open <= limit.unwrap_or(usize::MAX), "{open} with {limit:?}");
        if limit.is_none() {
            // Each watch has its own.
            while running.consul.blocked() < 30 {
                sleep(Duration::from_millis(1)).await;
            }
        }
        running.end().await;
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_added_is_tried_again_at_the_next_reload() {
    let task = file_task("t", "a");
    let running = Running::start(files(&[&task]), DaemonOptions::default()).await;
    let added = file_task("new", "c");
    running.consul.inject_always(Some(Fault::status(400, "no")));
    let reloaded = running.daemon.reload(files(&[&task, &added])).await.unwrap();
    assert_eq!(reloaded.failed.keys().collect::<Vec<_>>(), [&name("new")]);
    assert_eq!(running.names(), ["t"]);
    running.consul.inject_always(None);
    let reloaded = running.daemon.reload(files(&[&task, &added])).await.unwrap();
    assert_eq!(reloaded.added, [name("new")]);
    running.end().await;
}

#[tokio::test]
async fn what_somebody_told_the_running_engine_stays() {
    let task = file_task("t", "a");
    let running = Running::start(files(&[&task]), DaemonOptions::default()).await;
    let engine = running.daemon.engine();
    engine.create(on("by-api", &["a"]), FirstRun::Now).await.unwrap();
    engine.set_enabled(&name("t"), false, FirstRun::WhenTriggered).await.unwrap();
    let changed = file_task("t", "b");
    running.daemon.reload(files(&[&changed])).await.unwrap();
    assert_eq!(running.names(), ["t", "by-api"]);
    let enabled = |state: &State| {
        let task: &Task = state.tasks.iter().find(|task| task.name == name("t")).unwrap();
        task.enabled
    };
    assert!(!engine.state(enabled), "the files did not say anything new about it");
    // A task of the API is not taken over by a file.
    let taken = file_task("by-api", "b");
    let reloaded = running.daemon.reload(files(&[&changed, &taken])).await.unwrap();
    assert!(matches!(reloaded.failed[&name("by-api")], Error::TaskExists { .. }));
    running.end().await;
}

#[tokio::test]
async fn other_settings_are_named_and_wait_for_a_restart() {
    let task = file_task("t", "a");
    let running = Running::start(files(&[&task]), DaemonOptions::default()).await;
    let provider = "terraform_provider \"aws\" { region = \"x\" }\nlog_level = \"DEBUG\"\n";
    let reloaded = running.daemon.reload(files(&[&task, provider])).await.unwrap();
    assert_eq!(reloaded.needs_restart, ["log_level", "terraform_provider \"aws\""]);

    let uses = file_task("u", "a").replace("module =", "providers = [\"aws\"]\n module =");
    let error = running.daemon.reload(files(&[&task, provider, &uses])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the configuration is not reloaded, and nothing changed: task 'u' uses the provider \
         \"aws\", whose terraform_provider block changed; that needs a restart"
    );
    assert_eq!(running.names(), ["t"]);
    running.end().await;
}

#[tokio::test]
async fn a_provider_that_commits_is_not_shared_with_a_task_of_the_api() {
    let provider = "terraform_provider \"panos\" { auto_commit = true }\n";
    let task = file_task("t", "a");
    let running = Running::start(files(&[&task, provider]), DaemonOptions::default()).await;
    let mut by_api = on("by-api", &["a"]);
    by_api.providers = vec!["panos".to_owned()];
    running.daemon.engine().create(by_api, FirstRun::Now).await.unwrap();
    let uses = file_task("u", "a").replace("module =", "providers = [\"panos\"]\n module =");
    let error = running.daemon.reload(files(&[&task, provider, &uses])).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("provider with autocommit (panos) cannot be used by more than one task"),
        "{error}"
    );
    running.end().await;
}

/// A member of a cluster, whose store keeps the tasks.
#[derive(Debug)]
struct Clustered;

#[async_trait]
impl Cluster for Clustered {
    fn role(&self) -> Role {
        Role::Leader
    }

    fn name(&self) -> Option<String> {
        Some("blue".to_owned())
    }

    fn tags(&self) -> Vec<String> {
        Vec::new()
    }

    async fn members(&self) -> Result<Vec<Member>> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn under_high_availability_nothing_is_reloaded_and_the_reason_is_told() {
    let mut options = DaemonOptions::default();
    options.cluster = Arc::new(Clustered);
    let task = file_task("t", "a");
    let loaded = files(&[&task]);
    let mut stored = State::default();
    stored.tasks.clone_from(&loaded.config.tasks);
    options.engine.store = Arc::new(MemoryStore::with_state(stored));
    let running = Running::start(loaded, options).await;
    let added = file_task("new", "b");
    let error = running.daemon.reload(files(&[&task, &added])).await.unwrap_err();
    assert!(error.to_string().contains("cluster \"blue\" keeps its tasks in its store"), "{error}");
    assert_eq!(running.names(), ["t"]);
    running.end().await;
}

#[tokio::test]
async fn a_daemon_that_does_not_run_reloads_nothing() {
    let consul = TestConsul::new();
    let driver: Arc<dyn DriverFactory> = Arc::new(RecordingDriver::default());
    let loaded = files(&[]);
    let daemon =
        Daemon::with_client(loaded.config, driver, DaemonOptions::default(), consul.client());
    let error = daemon.reload(files(&[&file_task("t", "a")])).await.unwrap_err();
    assert!(matches!(error, Error::NotRunning), "{error}");
}

/// A driver whose tool never answers.
#[derive(Debug)]
struct Hung;

#[async_trait]
impl DriverFactory for Hung {
    async fn start(&self) -> Result<()> {
        std::future::pending().await
    }

    fn driver(&self, task: &Task) -> Result<Arc<dyn cts_tasks::Driver>> {
        Err(Error::NoSuchTask { task: task.name.to_string() })
    }
}

#[tokio::test]
async fn a_stop_ends_a_driver_that_does_not_start() {
    let consul = TestConsul::new();
    let options = DaemonOptions::default();
    let daemon = Daemon::with_client(files(&[]).config, Arc::new(Hung), options, consul.client());
    let stop = Stop::new();
    let starting = daemon.start_driver(&stop);
    tokio::pin!(starting);
    assert!(futures::poll!(&mut starting).is_pending());
    stop.stop(StopReason::Shutdown);
    let error = starting.await.unwrap_err();
    assert!(matches!(error, Error::Stopped { reason: StopReason::Shutdown }), "{error}");
}

#[tokio::test]
async fn an_inspection_is_told_of_as_soon_as_it_ends() {
    let consul = TestConsul::new();
    let driver = RecordingDriver::default();
    let tasks = [file_task("one", "a"), file_task("two", "b")];
    let loaded = files(&[&tasks[0], &tasks[1]]);
    let factory: Arc<dyn DriverFactory> = Arc::new(driver.clone());
    let daemon =
        Daemon::with_client(loaded.config, factory, DaemonOptions::default(), consul.client());
    let mut plans_when_told = Vec::new();
    let plans = || driver.calls().iter().filter(|call| matches!(call, Call::Plan(..))).count();
    daemon.inspect_each(&[], &Stop::new(), |_| plans_when_told.push(plans())).await.unwrap();
    assert_eq!(plans_when_told, [1, 2]);
}
