//! Runs one task with the tool, in a directory of its own.

mod errors;
mod files;
mod left_state;
mod local_state;
mod owner;
mod plans;
mod relocation;
mod workdir_lock;

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use consul_watch::error_chain;
use cts_tasks::{
    ApplyRequest, Changes, Driver, Error as TaskError, Outcome, Plan, PlanId, PlanPurpose,
    Result as TaskResult, RunContext, Stop, Task, TaskInputs,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use self::{
    errors::InTask as _, files::TaskFiles, owner::DirectoryOwner, plans::SavedPlans,
    relocation::Relocation, workdir_lock::WorkdirLock,
};
use crate::{
    ApplyOptions, Error, GeneratedFile, Handler, Invocation, PlanOptions, Product, Result,
    RootModule, Settings, ShownPlan, Step, Terraform, ToolDiagnostic,
    dynamic::env_problems,
    held::{self, HeldLock},
    hex::hex,
};

/// Runs one task with the `terraform` or `tofu` command, in a directory of its own.
///
/// Everything it does converges: each call may follow one that was cut short
/// anywhere, also by a crash of the process.
///
/// Source: Consul-Terraform-Sync 0.9, Terraform driver.
#[derive(Debug)]
pub struct TerraformDriver {
    task: Arc<Task>,
    directory: PathBuf,
    settings: Arc<Settings>,
    terraform: Arc<dyn Terraform>,
    handlers: Vec<Arc<dyn Handler>>,
    /// The claim to the directory, from the first call on.
    owner: OnceCell<DirectoryOwner>,
}

/// Time that looking for a lock may take while the process is about to end.
const LOCK_LOOK: Duration = Duration::from_secs(5);

impl TerraformDriver {
    /// The driver of one task.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when the task asks for what Terraform would refuse.
    #[expect(clippy::needless_pass_by_value, reason = "a driver has a share of its settings")]
    pub fn new(task: Task, settings: Arc<Settings>, terraform: Arc<dyn Terraform>) -> Result<Self> {
        settings.root_module(&task, None)?.check()?;
        let settings = settings.for_task();
        Error::unless_empty(env_problems(&task))?;
        let directory = settings.base_dir().join(&task.working_dir);
        Ok(Self {
            task: Arc::new(task),
            directory,
            settings,
            terraform,
            handlers: Vec::new(),
            owner: OnceCell::new(),
        })
    }

    /// Adds a handler, which does its work when the task uses its provider.
    ///
    /// # Errors
    ///
    /// The handler's own, when a block of its provider lacks what it needs ([`Handler::check`]); and
    /// a task's root module that cannot be built.
    pub fn with_handler(mut self, handler: Arc<dyn Handler>) -> Result<Self> {
        let committed = self.settings.root_module(&self.task, None)?.committed();
        let mut own = committed.iter().filter(|block| block.name == handler.provider());
        own.try_for_each(|block| handler.check(block))?;
        self.handlers.push(handler);
        Ok(self)
    }

    /// Lets handlers finish what was applied or destroyed.
    async fn handled(
        &self,
        root: &RootModule,
        outcome: Outcome,
        context: &RunContext,
    ) -> TaskResult<Outcome> {
        if !matches!(outcome, Outcome::Applied(_) | Outcome::Unchanged) {
            return Ok(outcome);
        }
        for block in root.committed() {
            for handler in self.handlers.iter().filter(|own| own.provider() == block.name) {
                context.permit.check()?;
                handler.applied(&block, &context.stop).await.in_task(Step::Apply, &self.task)?;
            }
        }
        Ok(outcome)
    }

    async fn root_module(&self) -> Result<RootModule> {
        let tool = self.terraform.version().await?;
        let tool = Some((tool.product, &tool.version));
        self.settings.current_root_module(&self.task, tool).await
    }

    fn files(&self) -> TaskFiles {
        TaskFiles::new(self.directory.clone())
    }

    fn plans(&self) -> SavedPlans {
        SavedPlans::new(&self.directory)
    }

    /// Waits until nothing else works in the directory, which belongs to this
    /// task from then on, and gives a lock back that a killed command left, and
    /// restores a state that it cut short.
    async fn begin(&self, root: &RootModule, context: &RunContext) -> Result<Invocation> {
        let (limit, name) = (self.settings.lock_timeout(), &self.task.name);
        self.owner
            .get_or_try_init(|| DirectoryOwner::claim(&self.directory, name, limit, &context.stop))
            .await?;
        let lock = WorkdirLock::wait(&self.directory, name, limit, &context.stop).await?;
        let mut masked = self.settings.backend().secret_texts();
        masked.extend(root.env_texts());
        let run = Invocation {
            directory: self.directory.clone(),
            environment: self.settings.environment(root),
            backend_config: None,
            masked,
            stop: context.stop.clone(),
            input: Some(lock.file()),
            progress: Arc::clone(&context.progress),
        };
        self.give_back_own_lock(&run, context).await;
        let state = local_state::path(&self.directory, self.settings.backend(), name);
        if let Some(state) = state {
            local_state::restore(state, name).await?;
        }
        Ok(run)
    }

    /// Gives the lock on the state back that a command of this directory left
    /// when it was killed. Nothing runs here now, as the lock on the directory
    /// proves; a lock that cannot be proved to be ours is named and left.
    async fn give_back_own_lock(&self, run: &Invocation, context: &RunContext) {
        let Some(note) = HeldLock::read(&self.directory) else { return };
        let lock = match self.terraform.state_lock(run).await {
            Ok(lock) => lock,
            Err(error) => {
                tracing::warn!(
                    task.name = %self.task.name, error = %error_chain(&error),
                    "cannot find out whether a killed command left the state locked"
                );
                return;
            }
        };
        let Some(lock) = lock else { return self.forget_lock() };
        if !note.proves(&lock, &held::host()) || context.permit.check().is_err() {
            tracing::warn!(
                task.name = %self.task.name, lock.id = %lock.id, lock.who = %lock.who,
                lock.operation = %lock.operation,
                "the state is locked, not provably by a killed command of this directory; if its \
                 holder is gone, give it back with: {}", self.unlock_command(&lock.id).await
            );
            return;
        }
        match self.terraform.unlock_state(&lock.id, run).await {
            Ok(()) => {
                tracing::warn!(
                    task.name = %self.task.name, lock.id = %lock.id, step = note.step(),
                    "gave back the lock on the state that a killed command of this directory left"
                );
                self.forget_lock();
            }
            Err(error) => tracing::warn!(
                task.name = %self.task.name, lock.id = %lock.id, error = %error_chain(&error),
                "cannot give back the lock on the state that a killed command left; by hand: {}",
                self.unlock_command(&lock.id).await
            ),
        }
    }

    fn forget_lock(&self) {
        if let Err(error) = HeldLock::forget(&self.directory) {
            tracing::warn!(%error, "cannot remove the note of a lock that is gone");
        }
    }

    /// The command with which a person gives a lock back.
    async fn unlock_command(&self, id: &str) -> String {
        let tool = match self.terraform.version().await {
            Ok(tool) if tool.product == Product::OpenTofu => "tofu",
            _ => "terraform",
        };
        format!("{tool} -chdir={} force-unlock {id}", self.directory.display())
    }

    /// Passes a result on, and names the lock that a killed command left.
    async fn or_name_lock<T>(&self, run: &Invocation, result: TaskResult<T>) -> TaskResult<T> {
        // The note stays only where the command was killed, by us or by somebody else.
        if result.is_err() && HeldLock::read(&self.directory).is_some() {
            self.name_lock(run).await;
        }
        result
    }

    async fn name_lock(&self, run: &Invocation) {
        // The run is stopped; this look has a time limit of its own instead.
        let look = Invocation { stop: Stop::new(), ..run.clone() };
        let found = tokio::time::timeout(LOCK_LOOK, self.terraform.state_lock(&look)).await;
        let id = match found {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(lock))) => lock.id,
            Ok(Err(_)) | Err(_) => "ID".to_owned(),
        };
        tracing::error!(
            task.name = %self.task.name, lock.id = %id,
            "the killed command left the state locked; the next run here gives the lock back, and \
             until then nobody else can apply, unless it is given back with: {}",
            self.unlock_command(&id).await
        );
    }

    /// Initialises the directory and selects the task's workspace.
    ///
    /// The workspace that an earlier run remembered may be gone, in which case
    /// `init` fails or silently selects another one; so it is created where it
    /// is missing, and selected every time.
    ///
    /// Source: Consul-Terraform-Sync 0.9, initialisation of a task; Terraform
    /// 1.11.4 and `OpenTofu` 1.6.2, observed.
    ///
    /// Deviation: what the tool prints is not read; that a workspace exists is
    /// told by selecting it.
    async fn init(&self, run: &Invocation, context: &RunContext) -> TaskResult<()> {
        let name = self.task.name.as_str();
        let mut with_secrets = run.clone();
        with_secrets.backend_config = self.settings.backend().secret_attributes();
        let has_secrets = with_secrets.backend_config.is_some();
        if has_secrets {
            // The tool keeps them below, for everyone to read.
            self.files().close_tool_directory().await?;
        }
        let initialised = self.terraform.init(&with_secrets).await;
        let mut created = false;
        if let Err(error) = initialised {
            let remembered = self.files().remembered_workspace().await;
            if !matches!(error, Error::Failed { .. }) || remembered.is_none() {
                return Err(error.in_task(Step::Init, &self.task));
            }
            context.permit.check()?;
            created = self.terraform.new_workspace(name, run).await.is_ok();
            self.terraform.init(&with_secrets).await.in_task(Step::Init, &self.task)?;
        }
        if has_secrets {
            self.files().close_tool_directory().await?;
        }
        context.permit.check()?;
        let new = if created { Ok(()) } else { self.terraform.new_workspace(name, run).await };
        let selected = self.terraform.select_workspace(name, run).await;
        match (new, selected) {
            (_, Ok(())) => Ok(()),
            (Err(error), Err(Error::Failed { .. })) | (_, Err(error)) => {
                Err(error.in_task(Step::Init, &self.task))
            }
        }
    }

    /// Writes everything but inputs, and initialises.
    async fn initialised(&self, root: &RootModule, context: &RunContext) -> TaskResult<Invocation> {
        self.files().create_directory().await?;
        let run = self.begin(root, context).await?;
        self.initialise(root, &run, context).await?;
        self.push_left_state(&run, context).await?;
        Ok(run)
    }

    /// Begins in a directory that was initialised, and initialises it where
    /// another daemon made it something else in the meantime.
    async fn ready(&self, root: &RootModule, context: &RunContext) -> TaskResult<Invocation> {
        let run = self.begin(root, context).await?;
        if !self.files().holds(&root.main()).await {
            tracing::warn!(
                task.name = %self.task.name, directory = %self.directory.display(),
                "main.tf is not what it was made: initialising the directory again"
            );
            self.initialise(root, &run, context).await?;
        }
        self.push_left_state(&run, context).await?;
        Ok(run)
    }

    /// Saves the state that an earlier command of this directory could not save:
    /// before anything is compared with the one that the backend has.
    async fn push_left_state(&self, run: &Invocation, context: &RunContext) -> TaskResult<()> {
        if !left_state::is_there(&self.directory).await? {
            return Ok(());
        }
        context.permit.check()?;
        let pushed = left_state::push(&*self.terraform, &self.task.name, run).await;
        pushed.in_task(Step::State, &self.task)
    }

    async fn initialise(
        &self,
        root: &RootModule,
        run: &Invocation,
        context: &RunContext,
    ) -> TaskResult<()> {
        let files = self.files();
        files.prepare(self.settings.persist_log()).await?;
        self.plans().remove_unfinished().await?;
        context.permit.check()?;
        self.follow_backend(run).await.in_task(Step::Init, &self.task)?;
        files.write_all(&root.files()).await?;
        context.permit.check()?;
        self.init(run, context).await
    }

    /// Brings the state of the task to the configured backend if it is elsewhere.
    async fn follow_backend(&self, run: &Invocation) -> Result<()> {
        let mut run = run.clone();
        // Where the state was in Consul, it is read with our access to Consul.
        for (name, value) in self.settings.consul_environment() {
            run.environment.entry(name).or_insert(value);
        }
        let relocation = Relocation {
            directory: &self.directory,
            task: &self.task.name,
            backend: self.settings.backend(),
            terraform: &*self.terraform,
        };
        relocation.run(&run).await
    }

    async fn validate(&self, run: &Invocation) -> TaskResult<()> {
        let validation = self.terraform.validate(run).await.in_task(Step::Validate, &self.task)?;
        if validation.valid {
            for warning in &validation.diagnostics {
                tracing::warn!(task.name = %self.task.name, %warning, "validated with a warning");
            }
            return Ok(());
        }
        let reported = validation.diagnostics.iter().map(|found| self.rewritten(found));
        let mut message = reported.collect::<Vec<_>>().join("\n");
        if message.is_empty() {
            message = format!(
                "error tf-validate for '{}': the module is not valid, and the tool gave no reason; \
                 run `validate` in {}",
                self.task.name,
                self.directory.display()
            );
        }
        Err(TaskError::Driver { message, retryable: false, source: None })
    }

    /// Says for the module what Terraform says about a generated file.
    ///
    /// Source: Consul-Terraform-Sync 0.9, validation of a task.
    fn rewritten(&self, found: &ToolDiagnostic) -> String {
        let missing = ["services", "catalog_services", "consul_kv"].into_iter().find(|variable| {
            found
                .detail
                .starts_with(&format!("An argument named \"{variable}\" is not expected here."))
        });
        let Some(variable) = missing else { return found.to_string() };
        let task = &self.task.name;
        let advice = match variable {
            "services" => "",
            _ => ", add to module or set \"use_as_module_input\" to false",
        };
        format!("module for task \"{task}\" is missing the \"{variable}\" variable{advice}")
    }

    /// Writes what Consul holds and what providers get now.
    async fn write_inputs(&self, root: &RootModule, inputs: &TaskInputs) -> Result<()> {
        self.files().write(&[root.provider_values()]).await?;
        self.files().write_inputs(root, inputs).await
    }

    /// Plans into a file, and reads it back.
    async fn planned(&self, refresh_only: bool, run: &Invocation) -> Result<(ShownPlan, PathBuf)> {
        let out = self.plans().fresh().await?;
        let mut options = PlanOptions::new(&out);
        options.refresh_only = refresh_only;
        let shown = match self.terraform.plan(&options, run).await {
            Ok(_) => self.terraform.show(&out, run).await,
            Err(error) => Err(error),
        };
        match shown {
            Ok(shown) => Ok((shown, out)),
            Err(error) => {
                self.plans().remove(&out).await?;
                Err(error)
            }
        }
    }

    /// Plans and applies in one go.
    async fn apply_inputs(&self, run: &Invocation, context: &RunContext) -> TaskResult<Changes> {
        let tool = self.terraform.version().await?;
        if tool.streams() {
            context.permit.confirm().await?;
            return self
                .terraform
                .apply(&ApplyOptions::default(), run)
                .await
                .in_task(Step::Apply, &self.task);
        }
        context.permit.check()?;
        let (shown, out) = self.planned(false, run).await.in_task(Step::Plan, &self.task)?;
        context.permit.confirm().await?;
        let applied = self.terraform.apply(&ApplyOptions::plan(&out), run).await;
        self.plans().remove(&out).await?;
        applied.in_task(Step::Apply, &self.task)?;
        Ok(shown.changes)
    }

    /// Applies exactly the plan with this id, or nothing.
    ///
    /// The saved plan holds the module and all values as they were, so it is
    /// not applied when one of them is another now: a provider would be used
    /// with a secret that was replaced.
    async fn apply_plan(
        &self,
        id: &PlanId,
        root: &RootModule,
        run: &Invocation,
        context: &RunContext,
    ) -> TaskResult<Outcome> {
        let plans = self.plans();
        let Some(file) = plans.find(id).await else { return Ok(Outcome::Superseded) };
        if !id.as_str().starts_with(&module_digest(root)) {
            tracing::info!(task.name = %self.task.name, plan = %id, "the module changed since the plan");
            plans.remove(&file).await?;
            return Ok(Outcome::Superseded);
        }
        context.permit.check()?;
        let shown = match self.terraform.show(&file, run).await {
            Ok(shown) => shown,
            Err(error @ Error::Failed { .. }) if error.lock_holder().is_none() => {
                tracing::warn!(
                    task.name = %self.task.name, plan = %id, %error,
                    "the saved plan cannot be read any more, by another version perhaps"
                );
                plans.remove(&file).await?;
                return Ok(Outcome::Superseded);
            }
            Err(error) => return Err(error.in_task(Step::Apply, &self.task)),
        };
        context.permit.confirm().await?;
        let applied = self.terraform.apply(&ApplyOptions::plan(&file), run).await;
        if applied.as_ref().is_err_and(|error| error.lock_holder().is_none()) || applied.is_ok() {
            // Once begun, the same plan cannot be applied again.
            plans.remove(&file).await?;
        }
        match applied {
            Ok(_) if shown.changes.is_empty() => Ok(Outcome::Unchanged),
            Ok(_) => Ok(Outcome::Applied(shown.changes)),
            Err(error) if is_stale(&error) => Ok(Outcome::Superseded),
            Err(error) => Err(error.in_task(Step::Apply, &self.task)),
        }
    }

    /// Identifies a plan: a digest of the module, and one of inputs and
    /// planned changes.
    fn id(root: &RootModule, tfvars: &GeneratedFile, shown: &ShownPlan) -> PlanId {
        let rest = digest([tfvars.content.as_str(), shown.canonical.as_str()].into_iter());
        PlanId::new(module_digest(root) + rest.get(..48).unwrap_or(&rest))
    }
}

/// A digest of all files of the module but Consul's data: 16 characters, which
/// every id of a plan begins with.
fn module_digest(root: &RootModule) -> String {
    let files = root.files();
    let mut all = digest(files.iter().flat_map(|file| [file.name, file.content.as_str()]));
    all.truncate(16);
    all
}

fn digest<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    hex(&digest.finalize())
}

/// Returns `true` if the state changed since the plan was made.
fn is_stale(error: &Error) -> bool {
    match error {
        Error::Failed { diagnostics, .. } => {
            diagnostics.iter().any(|found| found.summary == "Saved plan is stale")
        }
        _ => false,
    }
}

fn outcome(changes: Changes) -> Outcome {
    if changes.is_empty() { Outcome::Unchanged } else { Outcome::Applied(changes) }
}

#[async_trait]
impl Driver for TerraformDriver {
    async fn prepare(&self, context: &RunContext) -> TaskResult<()> {
        let root = self.root_module().await?;
        let run = self.initialised(&root, context).await?;
        self.validate(&run).await
    }

    /// Initialises, selects no workspace, and validates: `init` reads the backend only, but
    /// for `pg`, which is left out because it creates its schema.
    async fn try_out(&self, context: &RunContext) -> TaskResult<Option<String>> {
        let root = self.root_module().await?;
        self.files().create_directory().await?;
        let mut run = self.begin(&root, context).await?;
        self.files().prepare(false).await?;
        let backend = self.settings.backend();
        if backend.label() == "pg" {
            return Ok(None);
        }
        self.files().write_all(&root.files()).await?;
        run.backend_config = backend.secret_attributes();
        self.terraform.init(&run).await.in_task(Step::Init, &self.task)?;
        run.backend_config = None;
        self.validate(&run).await?;
        let backend = backend.label();
        Ok(Some(format!("module and providers are there, backend {backend} answers")))
    }

    async fn plan(
        &self,
        inputs: &TaskInputs,
        purpose: PlanPurpose,
        context: &RunContext,
    ) -> TaskResult<Plan> {
        let root = self.root_module().await?;
        let run = self.ready(&root, context).await?;
        self.write_inputs(&root, inputs).await?;
        context.permit.check()?;
        let drift = purpose == PlanPurpose::Drift;
        let planned = self.planned(drift, &run).await.in_task(Step::Plan, &self.task);
        let (shown, out) = self.or_name_lock(&run, planned).await?;
        let id = Self::id(&root, &root.tfvars(inputs)?, &shown);
        if purpose == PlanPurpose::Apply {
            self.plans().keep(&out, &id).await?;
        } else {
            self.plans().remove(&out).await?;
        }
        if drift {
            return Ok(Plan::new(id, shown.drift, shown.text));
        }
        let mut plan = Plan::new(id, shown.changes, shown.text);
        plan.resources = shown.resources;
        Ok(plan)
    }

    async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> TaskResult<Outcome> {
        let root = self.root_module().await?;
        let run = self.ready(&root, context).await?;
        let outcome = match request {
            ApplyRequest::Inputs(inputs) => {
                self.write_inputs(&root, inputs).await?;
                self.apply_inputs(&run, context).await.map(outcome)
            }
            ApplyRequest::Plan(id) => self.apply_plan(id, &root, &run, context).await,
        };
        let outcome = self.or_name_lock(&run, outcome).await?;
        self.handled(&root, outcome, context).await
    }

    async fn changed(&self) {
        self.settings.values_changed(&self.task).await;
    }

    async fn holds(&self, plan: &PlanId, _context: &RunContext) -> TaskResult<bool> {
        if self.plans().find(plan).await.is_none() {
            return Ok(false);
        }
        Ok(plan.as_str().starts_with(&module_digest(&self.root_module().await?)))
    }

    async fn discard(&self, plan: &PlanId, _context: &RunContext) -> TaskResult<()> {
        match self.plans().find(plan).await {
            Some(file) => Ok(self.plans().remove(&file).await?),
            None => Ok(()),
        }
    }

    async fn follow(&self, _ticket: &str, _context: &RunContext) -> TaskResult<Outcome> {
        Err(TaskError::Driver {
            message: "applies of the driver \"terraform\" never wait for a person elsewhere"
                .to_owned(),
            retryable: false,
            source: None,
        })
    }

    async fn destroy(&self, context: &RunContext) -> TaskResult<Outcome> {
        let root = self.root_module().await?;
        // It may be the first call after a restart, or on another machine.
        let run = self.initialised(&root, context).await?;
        if !self.files().has_inputs().await {
            self.write_inputs(&root, &TaskInputs::default()).await?;
        }
        context.permit.confirm().await?;
        let destroyed = self.terraform.destroy(&run).await.in_task(Step::Destroy, &self.task);
        let destroyed = self.or_name_lock(&run, destroyed).await?;
        self.handled(&root, outcome(destroyed), context).await
    }
}
