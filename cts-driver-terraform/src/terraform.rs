//! The commands of the tool that a task needs, as a trait, with what they take and give.

mod changes;
mod diagnostic;
mod invocation;
mod retry_on_lock;
mod state_lock;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use cts_tasks::{Changes, PlannedResources};

pub(crate) use self::changes::{PlanJson, planned};
pub use self::{
    diagnostic::ToolDiagnostic,
    invocation::{Invocation, Step},
    retry_on_lock::RetryOnLock,
    state_lock::StateLock,
};
use crate::{Product, Result, Version};

/// The commands of `terraform` and `tofu` that a task needs, one call each.
///
/// No call retries. Each ends soon after `run.stop` is given, with
/// [`crate::Error::Interrupted`] unless its work was done by then. Calls for
/// different directories may run at the same time.
#[async_trait]
pub trait Terraform: Debug + Send + Sync + 'static {
    /// Finds the binary, and returns its product and version; asking again costs nothing.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NotFound`], or what running it reported.
    async fn version(&self) -> Result<Tool>;

    /// Makes the directory ready: backend, modules, providers.
    ///
    /// Where the backend is another than the directory had, the tool copies the
    /// states of all workspaces to it, over whatever is there. So a caller first
    /// moves the state of its own task, and lets the directory forget the other
    /// backend.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with what the tool reported.
    async fn init(&self, run: &Invocation) -> Result<()>;

    /// Creates a workspace and selects it. One that exists is an error.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with what the tool reported.
    async fn new_workspace(&self, name: &str, run: &Invocation) -> Result<()>;

    /// Selects a workspace. One that does not exist is an error.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with what the tool reported.
    async fn select_workspace(&self, name: &str, run: &Invocation) -> Result<()>;

    /// Checks the module against its configuration.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] when no verdict was reached; a module that is
    /// not valid is a verdict.
    async fn validate(&self, run: &Invocation) -> Result<Validation>;

    /// Plans, writes the plan to `options.out`, and tells whether it changes anything.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with the tool's diagnostics.
    async fn plan(&self, options: &PlanOptions, run: &Invocation) -> Result<bool>;

    /// Applies a saved plan, or plans and applies in one go.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with the tool's diagnostics.
    async fn apply(&self, options: &ApplyOptions, run: &Invocation) -> Result<Changes>;

    /// Destroys everything in the selected workspace.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with the tool's diagnostics.
    async fn destroy(&self, run: &Invocation) -> Result<Changes>;

    /// Reads a saved plan.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with the tool's diagnostics.
    async fn show(&self, plan: &Path, run: &Invocation) -> Result<ShownPlan>;

    /// Reads the state of the selected workspace, as the JSON text that the tool
    /// keeps; empty if there is none. Secrets stand in it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with the tool's diagnostics.
    async fn pull_state(&self, run: &Invocation) -> Result<String>;

    /// Writes a file of [`Terraform::pull_state`] over the state of the selected
    /// workspace, whatever that is.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with the tool's diagnostics.
    async fn push_state(&self, state: &Path, run: &Invocation) -> Result<()>;

    /// Writes a file with a state over that of the selected workspace, unless
    /// that one is newer, or of another lineage.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with the tool's diagnostics.
    async fn push_newer_state(&self, state: &Path, run: &Invocation) -> Result<()>;

    /// Finds the lock that is on the state of the selected workspace, and changes
    /// nothing. `None` also where the backend does not show its lock, as Consul's.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Process`] when the command could not be run.
    async fn state_lock(&self, run: &Invocation) -> Result<Option<StateLock>>;

    /// Gives a lock on the state back, whoever holds it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] when there is no lock with this id.
    async fn unlock_state(&self, id: &str, run: &Invocation) -> Result<()>;

    /// The values of the root module's outputs, as JSON.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Failed`] with the tool's diagnostics.
    async fn output(&self, run: &Invocation) -> Result<BTreeMap<String, serde_json::Value>>;
}

/// Passes every call on.
macro_rules! forward {
    ($pointer:ident) => {
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<T: Terraform + ?Sized> Terraform for $pointer<T> {
            async fn version(&self) -> Result<Tool> {
                (**self).version().await
            }
            async fn init(&self, run: &Invocation) -> Result<()> {
                (**self).init(run).await
            }
            async fn new_workspace(&self, name: &str, run: &Invocation) -> Result<()> {
                (**self).new_workspace(name, run).await
            }
            async fn select_workspace(&self, name: &str, run: &Invocation) -> Result<()> {
                (**self).select_workspace(name, run).await
            }
            async fn validate(&self, run: &Invocation) -> Result<Validation> {
                (**self).validate(run).await
            }
            async fn plan(&self, options: &PlanOptions, run: &Invocation) -> Result<bool> {
                (**self).plan(options, run).await
            }
            async fn apply(&self, options: &ApplyOptions, run: &Invocation) -> Result<Changes> {
                (**self).apply(options, run).await
            }
            async fn destroy(&self, run: &Invocation) -> Result<Changes> {
                (**self).destroy(run).await
            }
            async fn show(&self, plan: &Path, run: &Invocation) -> Result<ShownPlan> {
                (**self).show(plan, run).await
            }
            async fn pull_state(&self, run: &Invocation) -> Result<String> {
                (**self).pull_state(run).await
            }
            async fn push_state(&self, state: &Path, run: &Invocation) -> Result<()> {
                (**self).push_state(state, run).await
            }
            async fn push_newer_state(&self, state: &Path, run: &Invocation) -> Result<()> {
                (**self).push_newer_state(state, run).await
            }
            async fn state_lock(&self, run: &Invocation) -> Result<Option<StateLock>> {
                (**self).state_lock(run).await
            }
            async fn unlock_state(&self, id: &str, run: &Invocation) -> Result<()> {
                (**self).unlock_state(id, run).await
            }
            async fn output(
                &self,
                run: &Invocation,
            ) -> Result<BTreeMap<String, serde_json::Value>> {
                (**self).output(run).await
            }
        }
    };
}

forward!(Arc);
forward!(Box);

/// A tool that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Terraform or OpenTofu.
    pub product: Product,
    /// Version of the binary.
    pub version: Version,
}

impl Tool {
    /// Returns `true` if plans and applies report their progress as a stream of JSON.
    ///
    /// Source: Terraform 0.15.3, machine-readable UI.
    pub fn streams(&self) -> bool {
        self.product == Product::OpenTofu || self.version.at_least(1, 0)
    }
}

/// Options of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanOptions {
    /// File to which the plan is written.
    pub out: PathBuf,
    /// `true` if only differences between state and real infrastructure are planned.
    pub refresh_only: bool,
}

impl PlanOptions {
    /// A plan of everything, written to `out`.
    pub fn new(out: impl Into<PathBuf>) -> Self {
        Self { out: out.into(), refresh_only: false }
    }
}

/// Options of an apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplyOptions {
    /// A saved plan; without one the directory is planned again.
    pub plan: Option<PathBuf>,
}

impl ApplyOptions {
    /// Applies a saved plan.
    pub fn plan(plan: impl Into<PathBuf>) -> Self {
        Self { plan: Some(plan.into()) }
    }
}

/// The verdict on a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validation {
    /// `true` if the module can be used.
    pub valid: bool,
    /// Errors and warnings.
    pub diagnostics: Vec<ToolDiagnostic>,
}

/// A saved plan, read back.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ShownPlan {
    /// Planned changes.
    pub changes: Changes,
    /// Differences between state and real infrastructure.
    pub drift: Changes,
    /// The planned changes in a form that is the same for the same changes.
    /// It holds values, also secret ones.
    pub canonical: String,
    /// For people; secrets are masked.
    pub text: String,
    /// Resources that would change, with sensitive values masked; `None` where the tool cannot
    /// tell.
    pub resources: Option<PlannedResources>,
}

impl Debug for ShownPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShownPlan")
            .field("changes", &self.changes)
            .field("drift", &self.drift)
            .finish_non_exhaustive()
    }
}
