//! A driver of your own: for each task it keeps a file of `HAProxy` backends in line with what
//! Consul knows to be healthy, and reloads `HAProxy` by a command.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use cts_tasks::{
    Action, ApplyRequest, Changes, Diagnostic, Driver, DriverFactory, DriverKind, DriverSettings,
    Error, InputsDigest, Outcome, Plan, PlanId, PlanPurpose, Result, RunContext, Task, TaskInputs,
};
use serde::Deserialize;
use tokio::{fs, process::Command, sync::Mutex};

/// Claims `driver "haproxy" { folder = "…"  reload = "…" }`.
#[derive(Debug)]
pub struct HaproxyKind;

impl DriverKind for HaproxyKind {
    fn label(&self) -> &'static str {
        "haproxy"
    }

    fn configure(
        &self,
        settings: DriverSettings<'_>,
        _warnings: &mut Vec<Diagnostic>,
    ) -> Result<Arc<dyn DriverFactory>, Vec<Diagnostic>> {
        let Haproxy { folder, reload } = settings.deserialize_into()?;
        Ok(Arc::new(Haproxy { folder: settings.base_dir.join(folder), reload }))
    }
}

#[derive(Debug, Deserialize)]
struct Haproxy {
    folder: PathBuf,
    reload: String,
}

impl DriverFactory for Haproxy {
    fn driver(&self, task: &Task) -> Result<Arc<dyn Driver>> {
        let (name, reload) = (task.name.to_string(), self.reload.clone());
        let file = self.folder.join(format!("{name}.cfg"));
        Ok(Arc::new(Backends { name, file, reload, kept: Mutex::default() }))
    }
}

/// The driver of one task: one file.
#[derive(Debug)]
struct Backends {
    name: String,
    file: PathBuf,
    reload: String,
    /// The plan that waits for approval, with the text that it writes.
    kept: Mutex<Option<(PlanId, String)>>,
}

impl Backends {
    /// Replaces the file and reloads. Where that fails the old text comes back, so that the
    /// next try finds the difference again.
    async fn put(&self, text: &str, context: &RunContext) -> Result<Outcome> {
        let before = fs::read_to_string(&self.file).await.unwrap_or_default();
        let changes = self.changes(&before, text);
        if changes.is_empty() {
            return Ok(Outcome::Unchanged);
        }
        context.permit.check()?;
        fs::write(&self.file, text).await.map_err(|error| self.failed(&error))?;
        context.progress.report("the file is written, reloading");
        let mut reload = Command::new("sh");
        let failed = tokio::select! {
            done = reload.args(["-c", &self.reload]).kill_on_drop(true).output() => match done {
                Ok(done) if done.status.success() => return Ok(Outcome::Applied(changes)),
                Ok(done) => self.failed(&String::from_utf8_lossy(&done.stderr)),
                Err(error) => self.failed(&error),
            },
            reason = context.stop.stopped() => Error::Stopped { reason },
        };
        fs::write(&self.file, before).await.map_err(|error| self.failed(&error))?;
        Err(failed)
    }

    fn changes(&self, before: &str, after: &str) -> Changes {
        let mut changes = Changes::default();
        if before != after {
            changes.record(self.file.display().to_string(), Action::Update);
        }
        changes
    }

    fn failed(&self, why: &impl ToString) -> Error {
        Error::driver(format!("{}: {}", self.file.display(), why.to_string().trim()))
    }
}

#[async_trait]
impl Driver for Backends {
    async fn plan(
        &self,
        inputs: &TaskInputs,
        purpose: PlanPurpose,
        _: &RunContext,
    ) -> Result<Plan> {
        let id = PlanId::new(InputsDigest::of(inputs).as_str());
        let text = rendered(&self.name, inputs);
        let before = fs::read_to_string(&self.file).await.unwrap_or_default();
        if purpose == PlanPurpose::Apply {
            *self.kept.lock().await = Some((id.clone(), text.clone()));
        }
        Ok(Plan::new(id, self.changes(&before, &text), text))
    }

    async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> Result<Outcome> {
        match (request, self.kept.lock().await.take()) {
            (ApplyRequest::Inputs(it), _) => self.put(&rendered(&self.name, it), context).await,
            (ApplyRequest::Plan(id), Some(it)) if it.0 == *id => self.put(&it.1, context).await,
            (ApplyRequest::Plan(_), _) => Ok(Outcome::Superseded),
        }
    }

    async fn discard(&self, _: &PlanId, _: &RunContext) -> Result<()> {
        *self.kept.lock().await = None;
        Ok(())
    }

    async fn destroy(&self, context: &RunContext) -> Result<Outcome> {
        self.put("", context).await
    }
}

/// One backend of the task's name, with a server for each instance.
fn rendered(task: &str, inputs: &TaskInputs) -> String {
    let instances = inputs.services.iter().flatten();
    let servers: Vec<_> = instances
        .map(|it| format!("    server {} {}:{} check\n", it.id, it.address, it.port))
        .collect();
    format!("backend {task}\n{}", servers.concat())
}
