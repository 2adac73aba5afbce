//! A tool that keeps one resource for each service instance, in two files of
//! the task's directory: what it last applied, and what is really there.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use cts_driver_terraform::{
    ApplyOptions, Error, Invocation, PlanOptions, Product, Result, ShownPlan, StateLock, Step,
    Terraform, Tool, ToolDiagnostic, Validation,
};
use cts_tasks::{Action, Changes};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Resources by name, with what they are made of.
type Resources = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(crate) struct Model;

#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    serial: u64,
    resources: Resources,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    serial: u64,
    wanted: Resources,
    changes: Changes,
    drift: Changes,
}

/// Where the resources really are.
pub(crate) fn world(directory: &Path) -> PathBuf {
    directory.join("world.json")
}

pub(crate) fn read<T: DeserializeOwned + Default>(path: &Path) -> T {
    std::fs::read(path).map(|bytes| serde_json::from_slice(&bytes).unwrap()).unwrap_or_default()
}

pub(crate) fn write<T: Serialize>(path: &Path, value: &T) {
    std::fs::write(path, serde_json::to_vec(value).unwrap()).unwrap();
}

fn state(directory: &Path) -> PathBuf {
    directory.join("state.json")
}

/// The instances in `terraform.tfvars`, which is laid out as specified.
fn wanted(directory: &Path) -> Resources {
    let text = std::fs::read_to_string(directory.join("terraform.tfvars")).unwrap();
    let mut wanted = Resources::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        if let Some(key) = line.strip_prefix("  \"").and_then(|line| line.strip_suffix("\" = {")) {
            wanted.insert(key.to_owned(), String::new());
            current = Some(key.to_owned());
        } else if line == "  }," {
            current = None;
        } else if let Some(body) = current.as_ref().and_then(|key| wanted.get_mut(key)) {
            *body += line;
        }
    }
    wanted
}

/// What leads from the one to the other.
fn changes(from: &Resources, to: &Resources) -> Changes {
    let mut changes = Changes::default();
    for (name, body) in to {
        match from.get(name) {
            None => changes.record(name, Action::Create),
            Some(old) if old != body => changes.record(name, Action::Update),
            Some(_) => {}
        }
    }
    from.keys()
        .filter(|name| !to.contains_key(*name))
        .for_each(|name| changes.record(name, Action::Delete));
    changes
}

fn put(directory: &Path, serial: u64, resources: Resources) {
    write(&world(directory), &resources);
    write(&state(directory), &State { serial: serial + 1, resources });
}

fn begin(run: &Invocation) -> Result<()> {
    match run.stop.reason() {
        Some(reason) => Err(Error::Interrupted { reason }),
        None => Ok(()),
    }
}

fn planned(directory: &Path) -> Saved {
    let (state, world): (State, Resources) = (read(&state(directory)), read(&world(directory)));
    let wanted = wanted(directory);
    let (changes, drift) = (changes(&world, &wanted), changes(&state.resources, &world));
    Saved { serial: state.serial, wanted, changes, drift }
}

#[async_trait]
impl Terraform for Model {
    async fn version(&self) -> Result<Tool> {
        Ok(Tool { product: Product::Terraform, version: "1.11.4".parse()? })
    }

    async fn init(&self, run: &Invocation) -> Result<()> {
        begin(run)
    }

    async fn new_workspace(&self, _name: &str, run: &Invocation) -> Result<()> {
        begin(run)
    }

    async fn select_workspace(&self, _name: &str, run: &Invocation) -> Result<()> {
        begin(run)
    }

    async fn validate(&self, run: &Invocation) -> Result<Validation> {
        begin(run)?;
        Ok(Validation { valid: true, diagnostics: Vec::new() })
    }

    async fn plan(&self, options: &PlanOptions, run: &Invocation) -> Result<bool> {
        begin(run)?;
        let mut plan = planned(&run.directory);
        if options.refresh_only {
            plan.changes = Changes::default();
        }
        write(&options.out, &plan);
        Ok(!plan.changes.is_empty() || !plan.drift.is_empty())
    }

    async fn apply(&self, options: &ApplyOptions, run: &Invocation) -> Result<Changes> {
        begin(run)?;
        let now = planned(&run.directory);
        let plan = options
            .plan
            .as_deref()
            .map(|plan| serde_json::from_slice::<Saved>(&std::fs::read(plan).unwrap()).unwrap());
        let plan = match plan {
            Some(plan) if plan.serial != now.serial => {
                let stale = ToolDiagnostic::error("Saved plan is stale", "");
                let diagnostics = vec![stale];
                return Err(Error::Failed { step: Step::Apply, diagnostics, text: String::new() });
            }
            Some(plan) => plan,
            None => now,
        };
        put(&run.directory, plan.serial, plan.wanted);
        Ok(plan.changes)
    }

    async fn destroy(&self, run: &Invocation) -> Result<Changes> {
        begin(run)?;
        let there: Resources = read(&world(&run.directory));
        let state: State = read(&state(&run.directory));
        put(&run.directory, state.serial, Resources::new());
        Ok(changes(&there, &Resources::new()))
    }

    async fn show(&self, plan: &Path, run: &Invocation) -> Result<ShownPlan> {
        begin(run)?;
        let text = std::fs::read_to_string(plan).unwrap();
        let plan: Saved = serde_json::from_str(&text).unwrap();
        Ok(ShownPlan {
            changes: plan.changes,
            drift: plan.drift,
            canonical: text,
            text: String::new(),
            resources: None,
        })
    }

    async fn pull_state(&self, run: &Invocation) -> Result<String> {
        begin(run)?;
        Ok(String::new())
    }

    async fn push_state(&self, _state: &Path, run: &Invocation) -> Result<()> {
        begin(run)
    }

    async fn push_newer_state(&self, _state: &Path, run: &Invocation) -> Result<()> {
        begin(run)
    }

    async fn state_lock(&self, run: &Invocation) -> Result<Option<StateLock>> {
        begin(run)?;
        Ok(None)
    }

    async fn unlock_state(&self, _id: &str, run: &Invocation) -> Result<()> {
        begin(run)
    }

    async fn output(&self, run: &Invocation) -> Result<BTreeMap<String, serde_json::Value>> {
        begin(run)?;
        Ok(BTreeMap::new())
    }
}
