//! A stand-in for the command that answers as its test says.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use cts_tasks::Changes;

use crate::{
    ApplyOptions, Error, Invocation, PlanOptions, Product, Result, ShownPlan, StateLock, Step,
    Terraform, Tool, ToolDiagnostic, Validation, Version,
};

/// A tool that does nothing, remembers its calls, and ends them as told.
///
/// ```
/// use cts_driver_terraform::{Step, ToolDiagnostic, testing::ScriptedTerraform};
///
/// let terraform = ScriptedTerraform::new("1.11.4".parse()?);
/// terraform.fail(Step::Apply, ToolDiagnostic::error("no quota left", ""));
/// assert!(terraform.calls().is_empty());
/// # Ok::<(), cts_driver_terraform::Error>(())
/// ```
#[derive(Debug)]
pub struct ScriptedTerraform {
    tool: Tool,
    script: Mutex<Script>,
}

#[derive(Debug, Default)]
struct Script {
    calls: Vec<String>,
    failures: HashMap<Step, VecDeque<ToolDiagnostic>>,
    validation: Vec<ToolDiagnostic>,
    changes: Changes,
    drift: Changes,
}

impl ScriptedTerraform {
    /// Terraform of this version, whose calls all succeed and change nothing.
    pub fn new(version: Version) -> Self {
        let tool = Tool { product: Product::Terraform, version };
        Self { tool, script: Mutex::default() }
    }

    /// Lets the next call of this step fail that has no failure yet.
    pub fn fail(&self, step: Step, diagnostic: ToolDiagnostic) {
        self.script().failures.entry(step).or_default().push_back(diagnostic);
    }

    /// Sets the diagnostics of validations from now on.
    pub fn set_validation(&self, diagnostics: Vec<ToolDiagnostic>) {
        self.script().validation = diagnostics;
    }

    /// Sets the changes of plans and applies from now on.
    pub fn set_changes(&self, changes: Changes) {
        self.script().changes = changes;
    }

    /// Sets the drift that plans find from now on.
    pub fn set_drift(&self, drift: Changes) {
        self.script().drift = drift;
    }

    /// The calls so far, such as `workspace new web`.
    pub fn calls(&self) -> Vec<String> {
        self.script().calls.clone()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the call, and ends it as scripted.
    fn call(&self, step: Step, call: impl Into<String>, run: &Invocation) -> Result<()> {
        if let Some(reason) = run.stop.reason() {
            return Err(Error::Interrupted { reason });
        }
        let mut script = self.script();
        script.calls.push(call.into());
        match script.failures.get_mut(&step).and_then(VecDeque::pop_front) {
            Some(diagnostic) => {
                Err(Error::Failed { step, diagnostics: vec![diagnostic], text: String::new() })
            }
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Terraform for ScriptedTerraform {
    async fn version(&self) -> Result<Tool> {
        Ok(self.tool.clone())
    }

    async fn init(&self, run: &Invocation) -> Result<()> {
        self.call(Step::Init, "init", run)
    }

    async fn new_workspace(&self, name: &str, run: &Invocation) -> Result<()> {
        self.call(Step::Init, format!("workspace new {name}"), run)
    }

    async fn select_workspace(&self, name: &str, run: &Invocation) -> Result<()> {
        self.call(Step::Init, format!("workspace select {name}"), run)
    }

    async fn validate(&self, run: &Invocation) -> Result<Validation> {
        self.call(Step::Validate, "validate", run)?;
        let diagnostics = self.script().validation.clone();
        let valid = !diagnostics.iter().any(ToolDiagnostic::is_error);
        Ok(Validation { valid, diagnostics })
    }

    async fn plan(&self, options: &PlanOptions, run: &Invocation) -> Result<bool> {
        self.call(Step::Plan, "plan", run)?;
        tokio::fs::write(&options.out, "plan").await.map_err(|source| Error::File {
            action: "cannot write",
            path: options.out.clone(),
            source,
        })?;
        Ok(!self.script().changes.is_empty())
    }

    async fn apply(&self, options: &ApplyOptions, run: &Invocation) -> Result<Changes> {
        let call = if options.plan.is_some() { "apply plan" } else { "apply" };
        self.call(Step::Apply, call, run)?;
        Ok(self.script().changes.clone())
    }

    async fn destroy(&self, run: &Invocation) -> Result<Changes> {
        self.call(Step::Destroy, "destroy", run)?;
        Ok(self.script().changes.clone())
    }

    async fn show(&self, _plan: &Path, run: &Invocation) -> Result<ShownPlan> {
        self.call(Step::Show, "show", run)?;
        let script = self.script();
        Ok(ShownPlan {
            changes: script.changes.clone(),
            drift: script.drift.clone(),
            canonical: format!("{:?} {:?}", script.changes, script.drift),
            text: "as scripted".to_owned(),
            resources: None,
        })
    }

    async fn pull_state(&self, run: &Invocation) -> Result<String> {
        self.call(Step::State, "state pull", run)?;
        Ok(String::new())
    }

    async fn push_state(&self, _state: &Path, run: &Invocation) -> Result<()> {
        self.call(Step::State, "state push", run)
    }

    async fn push_newer_state(&self, _state: &Path, run: &Invocation) -> Result<()> {
        self.call(Step::State, "state push newer", run)
    }

    async fn state_lock(&self, run: &Invocation) -> Result<Option<StateLock>> {
        self.call(Step::Unlock, "state lock", run)?;
        Ok(None)
    }

    async fn unlock_state(&self, id: &str, run: &Invocation) -> Result<()> {
        self.call(Step::Unlock, format!("unlock {id}"), run)
    }

    async fn output(&self, run: &Invocation) -> Result<BTreeMap<String, serde_json::Value>> {
        self.call(Step::Output, "output", run)?;
        Ok(BTreeMap::new())
    }
}
