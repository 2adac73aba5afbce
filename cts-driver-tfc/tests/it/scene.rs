//! A driver over the double, in memory.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use cts_driver_tfc::{
    Settings, TfcFactory,
    testing::{Recorded, TestTfc},
};
use cts_tasks::{
    ConfigValue, ConsulConfig, Diagnostic, Driver, DriverFactory as _, DriverSettings, Literal,
    Progress, RunContext, ServiceInstance, Task, TaskInputs, config::TaskBlock, testing::task,
};
use serde_json::{Value, json};

/// Reads settings without the process's environment; `more` stands over what
/// every test needs.
pub(crate) fn read(
    more: &Value,
    blocks: &[TaskBlock],
) -> Result<(Settings, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut body =
        json!({"organization": "my-org", "token": TestTfc::TOKEN, "required_providers": {}});
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let body = ConfigValue::from(body);
    let consul = ConsulConfig::default();
    let mut settings = DriverSettings::new(&consul, Path::new("/nowhere"));
    settings.body = Some(&body);
    settings.task_blocks = blocks;
    let mut warnings = Vec::new();
    let read = Settings::read_with(settings, &|_| None, &mut warnings)?;
    Ok((read, warnings))
}

/// A task with a module that is fetched from elsewhere.
pub(crate) fn web() -> Task {
    let mut task = task("web");
    "org/rules/cts".clone_into(&mut task.module);
    task.version = Some("1.2.3".to_owned());
    task
}

/// A task with these settings of its workspace.
pub(crate) fn with_block(fields: &[(&str, &str)]) -> Task {
    let mut task = web();
    let fields = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).into()));
    let block = Literal::Map(fields.collect::<BTreeMap<_, Literal>>());
    task.driver_blocks.insert("terraform_cloud_workspace".to_owned(), block);
    task
}

/// Instances of these ids.
pub(crate) fn inputs(ids: &[&str]) -> TaskInputs {
    let instance = |id: &&str| ServiceInstance {
        id: (*id).to_owned(),
        name: "web".to_owned(),
        ..ServiceInstance::default()
    };
    let mut inputs = TaskInputs::default();
    inputs.services = Some(ids.iter().map(instance).map(Arc::new).collect());
    inputs
}

pub(crate) struct Scene {
    pub(crate) tfc: TestTfc,
    pub(crate) factory: TfcFactory,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(TestTfc::new(), json!({})).await
    }

    /// A scene whose driver was started.
    pub(crate) async fn with(tfc: TestTfc, settings: Value) -> Self {
        let (settings, _) = read(&settings, &[]).unwrap();
        let factory = TfcFactory::new(settings, Some(Arc::new(tfc.clone())));
        factory.start().await.unwrap();
        Self { tfc, factory }
    }

    pub(crate) fn driver(&self, task: &Task) -> Arc<dyn Driver> {
        self.factory.driver(task).unwrap()
    }

    /// A driver that is prepared.
    pub(crate) async fn prepared(&self, task: &Task) -> Arc<dyn Driver> {
        let driver = self.driver(task);
        driver.prepare(&RunContext::default()).await.unwrap();
        driver
    }

    /// Why a task cannot be prepared.
    pub(crate) async fn refused(&self, task: &Task) -> String {
        self.driver(task).prepare(&RunContext::default()).await.unwrap_err().to_string()
    }
}

/// Progress that keeps the lines that a driver reports.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgressLines(Arc<Mutex<Vec<String>>>);

impl Progress for ProgressLines {
    fn report(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
}

impl ProgressLines {
    pub(crate) fn context() -> (Self, RunContext) {
        let reported = Self::default();
        let context = RunContext::default().with_progress(Arc::new(reported.clone()));
        (reported, context)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, part: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(part)).count()
    }

    /// Number of lines before the first with this text.
    pub(crate) fn place(&self, part: &str) -> usize {
        let lines = self.lines();
        let found = lines.iter().position(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("no line has {part:?}: {lines:#?}"))
    }
}

/// Requests with this method whose path ends so, or holds it where it ends with `*`.
pub(crate) fn count(requests: &[Recorded], method: &str, path: &str) -> usize {
    let fits = |request: &&Recorded| {
        request.method == method
            && match path.strip_suffix('*') {
                Some(part) => request.path.contains(part),
                None => request.path.ends_with(path),
            }
    };
    requests.iter().filter(fits).count()
}

/// `METHOD last/parts`, with ids as `:id`.
pub(crate) fn request_line(request: &Recorded) -> String {
    let segments = request.path.split('/').filter(|part| !part.is_empty());
    let segments = segments.map(|part| {
        let id = ["ws-", "run-", "cv-", "var-", "plan-", "apply-"];
        if id.iter().any(|start| part.starts_with(start)) { ":id" } else { part }
    });
    let path: Vec<&str> = segments.filter(|part| !["api", "v2"].contains(part)).collect();
    format!("{} {}", request.method, path.join("/"))
}
