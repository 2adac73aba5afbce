//! The seam of what runs a task: kinds, factories and drivers.

use std::{fmt, path::Path, sync::Arc};

use async_trait::async_trait;
use serde::de::DeserializeOwned;

use crate::{
    Changes, ConfigValue, ConsulConfig, Diagnostic, Finding, Plan, PlanId, PlanPurpose,
    ProviderBlock, Result, RunContext, Task, TaskInputs,
    config::{TaskBlock, VaultConfig},
};

/// Claims `driver "<label>"` in the configuration.
///
/// Configuration keeps the body of a driver's block, and of a task's blocks
/// that only this driver understands, as raw values with places. The kind
/// checks them, so that `cts-tasks` knows no driver.
///
/// # A complete driver
///
/// For each task this one keeps a file with a line for each instance. `main` judges it by
/// the conformance suite of the feature `testing`; with the feature `program`,
/// `Program::new("hosts-sync", "1.0.0").driver(HostsKind).run()` is a whole program.
///
/// ```
/// use std::{collections::BTreeSet, path::PathBuf, sync::Arc};
///
/// use async_trait::async_trait;
/// use cts_tasks::{
///     Action, ApplyRequest, Changes, Diagnostic, Driver, DriverFactory, DriverKind,
///     DriverSettings, Error, Outcome, Plan, PlanId, PlanPurpose, Result, RunContext, Task,
///     TaskInputs,
/// };
/// use tokio::{fs, sync::Mutex};
///
/// /// Claims `driver "hosts" { folder = "/etc/hosts.d" }`.
/// #[derive(Debug)]
/// struct HostsKind;
///
/// #[derive(Debug, serde::Deserialize)]
/// struct Settings {
///     folder: PathBuf,
///     #[serde(default)]
///     suffix: String,
/// }
///
/// impl DriverKind for HostsKind {
///     fn label(&self) -> &'static str {
///         "hosts"
///     }
///
///     fn configure(
///         &self,
///         settings: DriverSettings<'_>,
///         _warnings: &mut Vec<Diagnostic>,
///     ) -> Result<Arc<dyn DriverFactory>, Vec<Diagnostic>> {
///         let mut read: Settings = settings.deserialize_into()?;
///         read.folder = settings.base_dir.join(read.folder);
///         Ok(Arc::new(Hosts(read)))
///     }
/// }
///
/// #[derive(Debug)]
/// struct Hosts(Settings);
///
/// impl DriverFactory for Hosts {
///     fn driver(&self, task: &Task) -> Result<Arc<dyn Driver>> {
///         let file = self.0.folder.join(task.name.as_str());
///         Ok(Arc::new(HostsFile { file, suffix: self.0.suffix.clone(), kept: Mutex::default() }))
///     }
/// }
///
/// /// Addresses with their names.
/// type Lines = BTreeSet<String>;
///
/// #[derive(Debug)]
/// struct HostsFile {
///     file: PathBuf,
///     suffix: String,
///     /// The plan that waits for its apply: what was in the file, and what is to be.
///     kept: Mutex<Option<(PlanId, Lines, Lines)>>,
/// }
///
/// impl HostsFile {
///     async fn present(&self) -> Result<Lines> {
///         match fs::read_to_string(&self.file).await {
///             Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
///             Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Lines::new()),
///             Err(error) => Err(self.failed("cannot read", error)),
///         }
///     }
///
///     fn wanted(&self, inputs: &TaskInputs) -> Lines {
///         let instances = inputs.services.iter().flatten();
///         instances.map(|it| format!("{} {}{}", it.address, it.id, self.suffix)).collect()
///     }
///
///     fn failed(&self, action: &str, error: std::io::Error) -> Error {
///         Error::driver(format!("{action} {}", self.file.display())).caused_by(error)
///     }
///
///     /// Brings the file in line, whole or not at all.
///     async fn put(&self, before: &Lines, after: &Lines, context: &RunContext) -> Result<Outcome> {
///         let changes = changes(before, after);
///         if changes.is_empty() {
///             return Ok(Outcome::Unchanged);
///         }
///         context.permit.check()?;
///         let text: String = after.iter().map(|line| format!("{line}\n")).collect();
///         let new = self.file.with_extension("new");
///         fs::write(&new, text).await.map_err(|error| self.failed("cannot write", error))?;
///         let renamed = fs::rename(&new, &self.file).await;
///         renamed.map_err(|error| self.failed("cannot replace", error))?;
///         Ok(Outcome::Applied(changes))
///     }
/// }
///
/// fn changes(before: &Lines, after: &Lines) -> Changes {
///     let mut changes = Changes::default();
///     after.difference(before).for_each(|line| changes.record(line, Action::Create));
///     before.difference(after).for_each(|line| changes.record(line, Action::Delete));
///     changes
/// }
///
/// #[async_trait]
/// impl Driver for HostsFile {
///     async fn prepare(&self, context: &RunContext) -> Result<()> {
///         context.stop.check()
///     }
///
///     async fn plan(
///         &self,
///         inputs: &TaskInputs,
///         purpose: PlanPurpose,
///         context: &RunContext,
///     ) -> Result<Plan> {
///         context.stop.check()?;
///         let (before, after) = (self.present().await?, self.wanted(inputs));
///         // The same plan has the same id.
///         let id = PlanId::of(&(&before, &after));
///         let changes = changes(&before, &after);
///         let text = format!("{} new, {} gone", changes.add, changes.destroy);
///         if purpose == PlanPurpose::Apply {
///             *self.kept.lock().await = Some((id.clone(), before, after));
///         }
///         Ok(Plan::new(id, changes, text))
///     }
///
///     async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> Result<Outcome> {
///         context.stop.check()?;
///         let present = self.present().await?;
///         match request {
///             ApplyRequest::Inputs(inputs) => {
///                 self.put(&present, &self.wanted(inputs), context).await
///             }
///             ApplyRequest::Plan(id) => match self.kept.lock().await.take() {
///                 Some((kept, before, after)) if kept == *id && before == present => {
///                     self.put(&before, &after, context).await
///                 }
///                 _ => Ok(Outcome::Superseded),
///             },
///         }
///     }
///
///     async fn holds(&self, plan: &PlanId, _: &RunContext) -> Result<bool> {
///         Ok(self.kept.lock().await.as_ref().is_some_and(|(kept, ..)| kept == plan))
///     }
///
///     async fn discard(&self, _: &PlanId, _: &RunContext) -> Result<()> {
///         *self.kept.lock().await = None;
///         Ok(())
///     }
///
///     async fn destroy(&self, context: &RunContext) -> Result<Outcome> {
///         context.stop.check()?;
///         let present = self.present().await?;
///         self.put(&present, &Lines::new(), context).await
///     }
/// }
///
/// # #[cfg(feature = "testing")]
/// #[tokio::main]
/// async fn main() {
///     use cts_tasks::testing::{driver, task};
///
///     struct Fixture(tempfile::TempDir);
///
///     impl driver::DriverFixture for Fixture {
///         fn driver(&self) -> Arc<dyn Driver> {
///             let settings = Settings { folder: self.0.path().into(), suffix: ".local".into() };
///             Hosts(settings).driver(&task("web")).unwrap()
///         }
///     }
///
///     driver::every_case(|| Fixture(tempfile::tempdir().unwrap())).await;
/// }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
pub trait DriverKind: fmt::Debug + Send + Sync + 'static {
    /// The label that it claims, such as `terraform`.
    fn label(&self) -> &'static str;

    /// Names of the blocks in a `task` that belong to this driver.
    fn task_blocks(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns what each task of this driver must have, besides a name: `module`,
    /// `providers`, `version`, `description`, `condition`, `working_dir`, or one of
    /// [`DriverKind::task_blocks`]. Nothing by default: a driver without modules has tasks
    /// without one, and [`Task::module`] is empty.
    fn required_in_tasks(&self) -> &'static [&'static str] {
        &[]
    }

    /// Says why a task of this driver cannot set the environment variable `name` in its `env`;
    /// `None` if it can. `body` is the driver's block. By default none can be set: a driver
    /// that starts no commands has nothing to pass them to. One that starts some takes the
    /// variables from [`Task::env`], and refuses the names that it sets itself.
    fn refused_env(&self, _name: &str, _body: Option<&ConfigValue>) -> Option<String> {
        Some(format!("driver {:?} passes no environment variables on", self.label()))
    }

    /// JSON Schema of one of [`DriverKind::task_blocks`], as a request of the
    /// HTTP API has it, for the API's document. `None`, the default, for any value.
    fn task_block_schema(&self, _block: &str) -> Option<serde_json::Value> {
        None
    }

    /// Attributes of the driver's block in which templates for dynamic values
    /// may stand; elsewhere in the block they are refused.
    fn dynamic_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Attributes whose values must never be shown, as dotted paths below the
    /// block, such as `backend.*.token`; `*` is any key. Attributes whose names
    /// say that they are secret are never shown anyway.
    fn secret_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the tool and the versions that the driver works with, for
    /// `-version`: `Terraform >= 1.0`, say. `None`, the default, for nothing that
    /// an operator chooses.
    fn compatible_with(&self) -> Option<String> {
        None
    }

    /// Checks the configuration and makes the factory that it describes.
    ///
    /// Nothing outside the process is touched: no file, no network.
    ///
    /// # Errors
    ///
    /// Every mistake found, each with its place. Warnings are pushed to
    /// `warnings`.
    fn configure(
        &self,
        settings: DriverSettings<'_>,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Arc<dyn DriverFactory>, Vec<Diagnostic>>;
}

/// Settings that a [`DriverKind`] gets to check.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DriverSettings<'a> {
    /// The body of its block; `None` when the configuration has none.
    pub body: Option<&'a ConfigValue>,
    /// Connection settings for Consul, for drivers that keep state there.
    pub consul: &'a ConsulConfig,
    /// All `terraform_provider` blocks.
    pub providers: &'a [ProviderBlock],
    /// Connection settings for Vault, for dynamic values of providers.
    pub vault: Option<&'a VaultConfig>,
    /// The blocks of tasks that [`DriverKind::task_blocks`] names.
    pub task_blocks: &'a [TaskBlock],
    /// Folder at which relative paths of the configuration start: the process's
    /// working directory.
    pub base_dir: &'a Path,
    /// The label of the block, for messages; empty outside of a configuration.
    pub(crate) label: &'static str,
}

impl<'a> DriverSettings<'a> {
    /// Settings without a block of the driver's own, providers and Vault; set
    /// the fields for those.
    pub fn new(consul: &'a ConsulConfig, base_dir: &'a Path) -> Self {
        Self {
            body: None,
            consul,
            providers: &[],
            vault: None,
            task_blocks: &[],
            base_dir,
            label: "",
        }
    }

    /// Reads the driver's block into a type of serde's, as
    /// [`ConfigValue::deserialize_into`] does; without a block, as if it were empty.
    ///
    /// # Errors
    ///
    /// As there; messages name the driver and the key, as `driver.haproxy.reload`.
    pub fn deserialize_into<T: DeserializeOwned>(&self) -> Result<T, Vec<Diagnostic>> {
        let path = match self.label {
            "" => "driver".to_owned(),
            label => format!("driver.{label}"),
        };
        match self.body {
            Some(body) => body.deserialize_at(&path),
            None => ConfigValue::empty_block().deserialize_at(&path),
        }
    }
}

/// Makes one [`Driver`] for each task.
#[async_trait]
pub trait DriverFactory: fmt::Debug + Send + Sync + 'static {
    /// Checks what all tasks share before the first of them: that the tool is
    /// there and usable, for example; nothing by default. Called once at start-up.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] that says what was looked for, where, and what to do.
    async fn start(&self) -> Result<()> {
        Ok(())
    }

    /// Checks what [`DriverFactory::start`] checks, and what all tasks need besides, such as the
    /// place of their state; nothing by default. Changes and downloads nothing.
    ///
    /// Each finding is named after what was looked at: `driver terraform`, `backend local`.
    async fn check(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Makes the driver of one task. Touches nothing outside.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] when the task asks for what this driver cannot do.
    fn driver(&self, task: &Task) -> Result<Arc<dyn Driver>>;
}

/// Carries out single operations for one task: it schedules and retries nothing.
///
/// The engine never calls two methods of one driver at the same time, except
/// [`Driver::follow`] and [`Driver::holds`]. Every method ends soon after `context.stop` is given,
/// with [`crate::Error::Stopped`] unless the work is done; what it leaves
/// behind must be such that the next call converges.
#[async_trait]
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// Makes everything ready: files written, tool initialised, module validated.
    /// Nothing by default.
    ///
    /// Twice is as good as once.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] with the tool's diagnostics.
    async fn prepare(&self, context: &RunContext) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Tries [`Driver::prepare`] in the task's working directory, which is an empty one made for
    /// this, and says what worked. Changes nothing elsewhere; downloads may fill caches. `None`,
    /// the default, where there is nothing to try.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] with what `prepare` would fail with.
    async fn try_out(&self, context: &RunContext) -> Result<Option<String>> {
        let _ = context;
        Ok(None)
    }

    /// Finds out what an apply of `inputs` would change, and changes nothing.
    ///
    /// With [`PlanPurpose::Apply`] the plan is kept, so that
    /// [`ApplyRequest::Plan`] can apply it later, until it is applied or
    /// discarded; it may wait there for days, and outlive this process. The
    /// engine keeps at most one for each task. With any other purpose nothing
    /// is kept. The same plan made twice has the same id.
    ///
    /// With [`PlanPurpose::Drift`] the plan's changes are the differences
    /// between what was last applied and what is really there, and `inputs`
    /// are those that a run would take now.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] with the tool's diagnostics.
    async fn plan(
        &self,
        inputs: &TaskInputs,
        purpose: PlanPurpose,
        context: &RunContext,
    ) -> Result<Plan>;

    /// Brings real infrastructure in line.
    ///
    /// With [`ApplyRequest::Inputs`] it plans and applies in one go; with
    /// [`ApplyRequest::Plan`] it applies exactly that plan or nothing: a plan
    /// that this driver does not hold, or that no longer fits the
    /// infrastructure, is [`Outcome::Superseded`]. A plan whose apply has begun
    /// is not held any more, however that ended, unless nothing of it was done.
    /// Asks `context.permit` before each step that changes something outside.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] with the tool's diagnostics.
    async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> Result<Outcome>;

    /// Returns `true` if [`ApplyRequest::Plan`] could apply this plan now: it was
    /// made for an apply, it was neither applied nor discarded, and this process
    /// can reach what belongs to it. Changes nothing.
    ///
    /// The engine asks after a restart or a change of leader, and makes the
    /// plan again when the answer is no. So the default, no, is always safe.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] when that is unknown; taken for a no.
    async fn holds(&self, plan: &PlanId, context: &RunContext) -> Result<bool> {
        let _ = (plan, context);
        Ok(false)
    }

    /// Waits until something that the task uses, besides what Consul tells the engine, is another
    /// than it was, such as a secret whose lease ended: the engine then runs the task, or, for
    /// one with a schedule, leaves that to its next time. Never ends by default.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait, and nothing else.
    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    /// Forgets a plan that [`Driver::plan`] made for an apply. An unknown id is no error.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] when what belongs to it cannot be removed.
    async fn discard(&self, plan: &PlanId, context: &RunContext) -> Result<()>;

    /// Resumes an apply that ended as [`Outcome::Waiting`], until it waits no longer.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] with the tool's diagnostics. A driver whose
    /// applies never wait answers, as by default, with an error that no retry cures.
    async fn follow(&self, ticket: &str, context: &RunContext) -> Result<Outcome> {
        let _ = (ticket, context);
        let message = "no apply of this driver waits for a person elsewhere".to_owned();
        Err(crate::Error::Driver { message, retryable: false, source: None })
    }

    /// Destroys the infrastructure of the task, all of it.
    ///
    /// Where nothing was ever applied, or everything is destroyed already, that
    /// is [`Outcome::Unchanged`]. Afterwards the task can be applied again.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Driver`] with the tool's diagnostics.
    async fn destroy(&self, context: &RunContext) -> Result<Outcome>;
}

/// The order for [`Driver::apply`]: inputs to apply, or a plan.
#[derive(Debug, Clone, Copy)]
pub enum ApplyRequest<'a> {
    /// Whatever these inputs call for.
    Inputs(&'a TaskInputs),
    /// Exactly this plan, or nothing.
    Plan(&'a PlanId),
}

/// The ways in which an apply ends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Infrastructure was changed.
    Applied(Changes),
    /// There was nothing to change.
    Unchanged,
    /// The plan is no longer the right one; nothing was applied.
    Superseded,
    /// A person has to act elsewhere; [`Driver::follow`] resumes with the ticket.
    Waiting {
        /// Token with which `follow` finds the apply again.
        ticket: String,
        /// URL at which the person decides.
        url: Option<String>,
    },
}
