//! One deployment with one task, in a directory of its own, run by a real tool.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use consul_watch::testing::parts::{Part, Suite};
use cts_driver_terraform::{CliOptions, TerraformKind};
use cts_tasks::{
    ConfigValue, ConsulConfig, Diagnostic, Driver, DriverFactory, DriverKind as _, DriverSettings,
    Outcome, ProviderBlock, RunContext, ServiceInstance, Task, TaskInputs,
    config::{Entry, ValueKind, VaultConfig},
};
use serde_json::{Value as Json, json};

use crate::{
    commands::processes_in,
    fixtures::{instances, matching, services_condition, task},
};

pub(crate) const SUITE: Suite = Suite("cts-driver-terraform");

/// The tools that are there; for one that is not, the report says so.
pub(crate) fn tools(case: &str) -> Vec<Part> {
    ["tofu", "terraform"].into_iter().flat_map(|name| SUITE.parts(name, case)).collect()
}

/// The body of a block as the reader of JSON files would give it.
pub(crate) fn body(json: &Json) -> ConfigValue {
    let kind = match json {
        Json::Null => ValueKind::Null,
        Json::Bool(value) => ValueKind::Bool(*value),
        Json::Number(number) => ValueKind::Number(number.to_string().parse().unwrap()),
        Json::String(text) => ValueKind::String(text.clone()),
        Json::Array(items) => ValueKind::List(items.iter().map(body).collect()),
        Json::Object(members) => {
            ValueKind::Object(members.iter().map(|(key, value)| entry(key, value)).collect())
        }
    };
    ConfigValue { kind, place: None }
}

fn entry(key: &str, value: &Json) -> Entry {
    Entry {
        key: key.to_owned(),
        key_place: None,
        labels: Vec::new(),
        block: false,
        value: body(value),
    }
}

pub(crate) struct Site {
    root: PathBuf,
    /// Removes everything in the end; `None` where another process does.
    guard: Option<tempfile::TempDir>,
    pub(crate) consul: ConsulConfig,
    pub(crate) driver_block: Json,
    pub(crate) providers: Vec<ProviderBlock>,
    pub(crate) vault: Option<VaultConfig>,
    pub(crate) options: CliOptions,
}

impl Site {
    /// A site whose tool is this one; the state is kept in local files.
    pub(crate) fn new(tool: &Part) -> Self {
        Self::with_binary(&tool.path)
    }

    pub(crate) fn with_binary(binary: &Path) -> Self {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir(root.path().join("rules")).unwrap();
        let binary = binary.canonicalize().unwrap();
        // Programs of several versions lie beside each other under names of their own.
        let file_name = binary.file_name().unwrap().to_string_lossy().into_owned();
        let name = if file_name.starts_with("tofu") { "tofu" } else { &file_name };
        std::os::unix::fs::symlink(&binary, bin.join(name)).unwrap();
        let mut site = Self::at(root.path());
        site.guard = Some(root);
        site
    }

    /// A site that another process made, and removes.
    pub(crate) fn at(root: &Path) -> Self {
        let mut options = CliOptions::default();
        options.path = Some(root.join("bin"));
        Self {
            root: root.to_owned(),
            guard: None,
            consul: ConsulConfig::default(),
            driver_block: json!({"backend": {"local": {}}}),
            providers: Vec::new(),
            vault: None,
            options,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn task_dir(&self) -> PathBuf {
        self.path().join("sync-tasks/test")
    }

    /// Whether the tool applies, and waits for a provisioner with a pause.
    pub(crate) fn provisions(&self) -> bool {
        let command = |id| std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        processes_in(&self.task_dir()).into_iter().any(|id| command(id).starts_with(b"sleep\0"))
    }

    /// A task that keeps a rule file for each instance.
    pub(crate) fn task(&self, overrides: &Json) -> Task {
        let mut fields = json!({
            "module": module("rules"),
            "variables": {"directory": self.path().join("rules")},
            "condition": services_condition(&matching(), true),
        });
        fields.as_object_mut().unwrap().extend(overrides.as_object().unwrap().clone());
        task(&fields)
    }

    pub(crate) fn factory(&self) -> Arc<dyn DriverFactory> {
        self.try_factory().unwrap()
    }

    pub(crate) fn try_factory(&self) -> Result<Arc<dyn DriverFactory>, Vec<Diagnostic>> {
        let body = body(&self.driver_block);
        let mut settings = DriverSettings::new(&self.consul, self.path());
        settings.body = Some(&body);
        settings.providers = &self.providers;
        settings.vault = self.vault.as_ref();
        TerraformKind::new(self.options.clone()).configure(settings, &mut Vec::new())
    }

    pub(crate) fn driver(&self, overrides: &Json) -> Arc<dyn Driver> {
        self.factory().driver(&self.task(overrides)).unwrap()
    }

    /// The rule files as `name=content`, sorted.
    pub(crate) fn rules(&self) -> Vec<String> {
        let mut rules: Vec<_> = std::fs::read_dir(self.path().join("rules"))
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                format!("{name}={}", std::fs::read_to_string(path).unwrap().trim())
            })
            .collect();
        rules.sort();
        rules
    }
}

/// Where a module of the tests stands.
pub(crate) fn module(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/modules").join(name)
}

/// Instances by id and port.
pub(crate) fn services(ids_and_ports: &[(&str, i64)]) -> TaskInputs {
    let instance = |(id, port): &(&str, i64)| ServiceInstance {
        id: (*id).to_owned(),
        name: "api".to_owned(),
        address: "10.0.0.1".to_owned(),
        port: *port,
        node: "n".to_owned(),
        ..ServiceInstance::default()
    };
    instances(ids_and_ports.iter().map(instance).collect())
}

/// How much an outcome says was added, changed and destroyed.
pub(crate) fn counts(outcome: &Outcome) -> (u64, u64, u64) {
    match outcome {
        Outcome::Applied(changes) => (changes.add, changes.change, changes.destroy),
        Outcome::Unchanged => (0, 0, 0),
        other => panic!("unexpected {other:?}"),
    }
}

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1200 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{what} did not happen");
}

pub(crate) fn context() -> RunContext {
    RunContext::default()
}
