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

use super::{double::Shared, life::StepResult, redact, state::VariableSnapshot};
use crate::plan_json::{self, List};

/// Input of a run from the double's state.
struct Job {
    archive: Bytes,
    values: Vec<VariableSnapshot>,
    /// Arguments of the plan besides those that every plan has.
    options: Vec<String>,
    refresh_only: bool,
    /// `true` if the workspace wants JSON lines as log.
    structured: bool,
    /// State before the run.
    before: Option<Bytes>,
    /// Folder of the run's files.
    folder: PathBuf,
    /// Folder below it in which the tool works.
    working: PathBuf,
    /// First lines of the log.
    banner: String,
}

/// Plans or applies a run.
pub(super) async fn run(shared: &Shared, tool: &Path, id: &str, apply: bool) -> StepResult {
    let banner = shared.banner.get_or_init(|| banner(tool)).await.clone();
    let Some(job) = job(shared, id, banner) else { return failed("the run's files are gone") };
    let done = if apply { job.apply(tool).await } else { job.plan(tool).await };
    let mut done = done.unwrap_or_else(|error| failed(&error.to_string()));
    done.log.insert_str(0, &job.banner);
    done
}

/// Returns the three lines with which the platform's logs begin, and which Terraform's own
/// commands leave out of the log of an apply.
async fn banner(tool: &Path) -> String {
    let mut command = quiet(tool);
    command.args(["version", "-json"]);
    let output = command.output().await.map(|output| output.stdout).unwrap_or_default();
    let version: Value = serde_json::from_slice(&output).unwrap_or_default();
    let text = |name: &str| version.get(name).and_then(Value::as_str).unwrap_or("unknown");
    format!(
        "Terraform v{}\non {}\nInitializing plugins and modules...\n",
        text("terraform_version"),
        text("platform")
    )
}

/// Returns a command of the tool that asks nobody for newer versions, and ends with whoever
/// waits for it.
fn quiet(tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.env("CHECKPOINT_DISABLE", "1").stdin(Stdio::null()).kill_on_drop(true);
    // OpenTofu warns of a missing file in front of each document that it prints.
    if std::env::var_os("TF_CLI_CONFIG_FILE").is_some_and(|file| !Path::new(&file).exists()) {
        command.env_remove("TF_CLI_CONFIG_FILE");
    }
    command
}

fn failed(log: &str) -> StepResult {
    StepResult {
        ok: false,
        log: log.to_owned(),
        counts: [0; 3],
        changes: false,
        json: None,
        redacted: None,
        state: None,
    }
}

fn job(shared: &Shared, id: &str, banner: String) -> Option<Job> {
    // Cloned out of the lock, because the tool takes seconds.
    let state = shared.state();
    let run = state.runs.get(id)?;
    let workspace = state.workspaces.get(&run.workspace)?;
    let archive = state.versions.get(&run.version)?.content.clone()?;
    let root = shared.folder.as_ref()?.path();
    let mut values: Vec<VariableSnapshot> = run.snapshot.clone();
    // Values of the run stand over those of the workspace.
    values.retain(|value| value.env || run.variables.iter().all(|(key, _)| *key != value.key));
    let given = |key: &str, value: &str, env: bool| VariableSnapshot {
        key: key.to_owned(),
        value: value.to_owned(),
        hcl: !env,
        env,
    };
    values.extend(run.variables.iter().map(|(key, value)| given(key, value, false)));
    for (key, value) in [("TFC_RUN_ID", id), ("TFC_WORKSPACE_NAME", &workspace.name)] {
        values.push(given(key, value, true));
    }
    let mut options = Vec::new();
    for (flag, asked) in [
        ("-refresh-only", run.refresh_only),
        ("-destroy", run.is_destroy),
        ("-refresh=false", !run.refresh),
    ] {
        if asked {
            options.push(flag.to_owned());
        }
    }
    options.extend(run.target_addrs.iter().map(|address| format!("-target={address}")));
    options.extend(run.replace_addrs.iter().map(|address| format!("-replace={address}")));
    let directory = workspace.attributes.get("working-directory").and_then(Value::as_str);
    let folder = root.join(id);
    let working = folder.join(directory.unwrap_or_default().trim_start_matches('/'));
    let structured = workspace.attributes.get("structured-run-output-enabled");
    Some(Job {
        archive,
        values,
        options,
        refresh_only: run.refresh_only,
        structured: structured == Some(&Value::Bool(true)),
        before: state.current_state(&run.workspace),
        folder,
        working,
        banner,
    })
}

impl Job {
    async fn plan(&self, tool: &Path) -> std::io::Result<StepResult> {
        self.unpack()?;
        let (ok, log) = self.tool(tool, &["init", "-input=false", "-no-color"]).await?;
        if !ok {
            return Ok(failed(&log));
        }
        let mut arguments = vec!["plan", "-input=false", "-no-color", "-out=plan.bin"];
        arguments.extend(self.structured.then_some("-json"));
        arguments.extend(self.options.iter().map(String::as_str));
        let (ok, log) = self.tool(tool, &arguments).await?;
        if !ok {
            return Ok(failed(&log));
        }
        let json = self.planned(tool).await?;
        if json.is_null() {
            return Ok(failed("the plan cannot be shown as JSON"));
        }
        let (ok, schemas) = self.tool(tool, &["providers", "schema", "-json"]).await?;
        let schemas: Value = serde_json::from_str(&schemas).unwrap_or_default();
        let redacted = ok.then(|| redact::plan(&json, &schemas));
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
            redacted,
            state: None,
        })
    }

    /// Returns the plan as JSON, or null if the tool cannot show it.
    async fn planned(&self, tool: &Path) -> std::io::Result<Value> {
        let (ok, shown) = self.tool(tool, &["show", "-json", "-no-color", "plan.bin"]).await?;
        Ok(if ok { serde_json::from_str(&shown).unwrap_or_default() } else { Value::Null })
    }

    async fn apply(&self, tool: &Path) -> std::io::Result<StepResult> {
        let json = self.planned(tool).await?;
        let changes = plan_json::changes(&json, List::Planned);
        let mut arguments = vec!["apply", "-input=false", "-no-color"];
        arguments.extend(self.structured.then_some("-json"));
        arguments.push("plan.bin");
        let (ok, log) = self.tool(tool, &arguments).await?;
        Ok(StepResult {
            ok,
            log,
            counts: [changes.add, changes.change, changes.destroy],
            changes: true,
            json: None,
            redacted: None,
            // Also after a failure, which leaves what was done until then.
            state: fs::read(self.state_file()).ok().map(Bytes::from),
        })
    }

    fn state_file(&self) -> PathBuf {
        self.folder.join("platform.tfstate")
    }

    /// Unpacks the upload, and writes values, the state and the state's place beside it.
    fn unpack(&self) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let gzip = flate2::read::GzDecoder::new(&self.archive[..]);
        tar::Archive::new(gzip).unpack(&self.folder)?;
        fs::create_dir_all(&self.working)?;
        if let Some(before) = &self.before {
            fs::write(self.state_file(), before)?;
        }
        // As an override, which stands over a backend and a `cloud` block of the upload, too.
        let state = quote(&self.state_file().to_string_lossy());
        let backend =
            format!("terraform {{\n  backend \"local\" {{\n    path = {state}\n  }}\n}}\n");
        fs::write(self.working.join("zz_platform_override.tf"), backend)?;
        let mut values = String::new();
        for value in self.values.iter().filter(|value| !value.env) {
            let expression = if value.hcl { value.value.clone() } else { quote(&value.value) };
            writeln!(values, "{} = {expression}", value.key).map_err(std::io::Error::other)?;
        }
        // The last name in the order of files, so that these values stand over others.
        fs::write(self.working.join("zz_platform.auto.tfvars"), values)
    }

    /// Runs the tool to its end; it is killed if nobody waits for it any more.
    async fn tool(&self, tool: &Path, arguments: &[&str]) -> std::io::Result<(bool, String)> {
        let mut command = quiet(tool);
        command
            .args(arguments)
            .current_dir(&self.working)
            .env("TF_IN_AUTOMATION", "1")
            .env_remove("TF_DATA_DIR")
            .env_remove("TF_WORKSPACE")
            .env_remove("TF_CLI_ARGS");
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
