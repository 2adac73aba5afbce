//! Runs the real tool on the uploaded files.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use bytes::Bytes;
use cts_driver_terraform::language::quote;
use serde_json::Value;
use tokio::process::Command;

use super::{double::Shared, life::StepResult, state::VariableSnapshot};
use crate::plan_json::{self, List};

/// Input of a run from the double's state.
struct Job {
    archive: Bytes,
    values: Vec<VariableSnapshot>,
    refresh_only: bool,
    is_destroy: bool,
    /// Folder of the run's files.
    folder: PathBuf,
    /// File of the workspace's state.
    state: PathBuf,
}

/// Plans or applies a run.
pub(super) async fn run(shared: &Shared, tool: &Path, id: &str, apply: bool) -> StepResult {
    let Some(job) = job(shared, id) else { return failed("the run's files are gone") };
    let done = if apply { job.apply(tool).await } else { job.plan(tool).await };
    done.unwrap_or_else(|error| failed(&error.to_string()))
}

fn failed(log: &str) -> StepResult {
    let log = log.to_owned();
    StepResult { ok: false, log, counts: [0; 3], changes: false, json: None, resources: None }
}

fn job(shared: &Shared, id: &str) -> Option<Job> {
    // Cloned out of the lock, because the tool takes seconds.
    let state = shared.state();
    let run = state.runs.get(id)?;
    let archive = state.versions.get(&run.version)?.content.clone()?;
    let root = shared.folder.as_ref()?.path();
    let mut values: Vec<VariableSnapshot> = run.snapshot.clone();
    // Values of the run stand over those of the workspace.
    values.retain(|value| value.env || run.variables.iter().all(|(key, _)| *key != value.key));
    let own = run.variables.iter().map(|(key, value)| VariableSnapshot {
        key: key.clone(),
        value: value.clone(),
        hcl: true,
        env: false,
    });
    values.extend(own);
    Some(Job {
        archive,
        values,
        refresh_only: run.refresh_only,
        is_destroy: run.is_destroy,
        folder: root.join(id),
        state: root.join(format!("{}.tfstate", run.workspace)),
    })
}

impl Job {
    async fn plan(&self, tool: &Path) -> std::io::Result<StepResult> {
        self.unpack()?;
        let (ok, mut log) = self.tool(tool, &["init", "-input=false", "-no-color"]).await?;
        if !ok {
            return Ok(failed(&log));
        }
        let mut arguments = vec!["plan", "-input=false", "-no-color", "-out=plan.bin"];
        if self.refresh_only {
            arguments.push("-refresh-only");
        }
        if self.is_destroy {
            arguments.push("-destroy");
        }
        let (ok, text) = self.tool(tool, &arguments).await?;
        log = text;
        if !ok {
            return Ok(failed(&log));
        }
        let (ok, shown) = self.tool(tool, &["show", "-json", "-no-color", "plan.bin"]).await?;
        let json: Value = serde_json::from_str(&shown).unwrap_or_default();
        if !ok || json.is_null() {
            return Ok(failed(&shown));
        }
        let changes = plan_json::changes(&json, List::Planned);
        let outputs = json.get("output_changes").and_then(Value::as_object);
        // A plan that changes only outputs has changes, too.
        let outputs = outputs.into_iter().flatten().any(|(_, change)| {
            change.get("actions").is_some_and(|actions| *actions != serde_json::json!(["no-op"]))
        });
        let drift = self.refresh_only && !plan_json::changes(&json, List::Drift).is_empty();
        Ok(StepResult {
            ok: true,
            log,
            counts: [changes.add, changes.change, changes.destroy],
            changes: !changes.is_empty() || outputs || drift,
            json: Some(json),
            resources: None,
        })
    }

    async fn apply(&self, tool: &Path) -> std::io::Result<StepResult> {
        let (shown, json) = self.tool(tool, &["show", "-json", "-no-color", "plan.bin"]).await?;
        let json: Value =
            if shown { serde_json::from_str(&json).unwrap_or_default() } else { Value::Null };
        let changes = plan_json::changes(&json, List::Planned);
        let arguments = ["apply", "-input=false", "-no-color", "plan.bin"];
        let (ok, log) = self.tool(tool, &arguments).await?;
        let state: Value = fs::read(&self.state)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let resources = state.get("resources").and_then(Value::as_array).map_or(0, Vec::len);
        Ok(StepResult {
            ok,
            log,
            counts: [changes.add, changes.change, changes.destroy],
            changes: true,
            json: None,
            resources: u64::try_from(resources).ok(),
        })
    }

    /// Unpacks the upload, and writes values and the place of the state beside it.
    fn unpack(&self) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let gzip = flate2::read::GzDecoder::new(&self.archive[..]);
        tar::Archive::new(gzip).unpack(&self.folder)?;
        // As an override, because the upload names no backend.
        let state = quote(&self.state.to_string_lossy());
        let backend =
            format!("terraform {{\n  backend \"local\" {{\n    path = {state}\n  }}\n}}\n");
        fs::write(self.folder.join("platform_override.tf"), backend)?;
        let mut values = String::new();
        for value in self.values.iter().filter(|value| !value.env) {
            let expression = if value.hcl { value.value.clone() } else { quote(&value.value) };
            writeln!(values, "{} = {expression}", value.key).map_err(std::io::Error::other)?;
        }
        // The last name in the order of files, so that these values stand over others.
        fs::write(self.folder.join("zz_platform.auto.tfvars"), values)
    }

    /// Runs the tool to its end; it is killed if nobody waits for it any more.
    async fn tool(&self, tool: &Path, arguments: &[&str]) -> std::io::Result<(bool, String)> {
        let mut command = Command::new(tool);
        command
            .args(arguments)
            .current_dir(&self.folder)
            // No request to HashiCorp from a test.
            .env("CHECKPOINT_DISABLE", "1")
            .env("TF_IN_AUTOMATION", "1")
            .env_remove("TF_DATA_DIR")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        for value in self.values.iter().filter(|value| value.env) {
            command.env(&value.key, &value.value);
        }
        let output = command.output().await?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            text.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        Ok((output.status.success(), text))
    }
}
