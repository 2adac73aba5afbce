//! The root module of a task: the files that Terraform is run on.

mod builder;
mod check;
mod file;
mod main_tf;
mod providers;
mod selection;
mod tfvars;
mod tfvars_template;
mod variables;

#[cfg(unix)]
use std::path::Path;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use cts_tasks::{Literal, Task, TaskInputs};
#[cfg(feature = "cli")]
use secrecy::ExposeSecret as _;
use secrecy::SecretString;

pub use builder::RootModuleBuilder;
#[cfg(feature = "settings")]
pub(crate) use check::{provider_argument, provider_name};
pub use file::GeneratedFile;

#[cfg(unix)]
use crate::replace;
use crate::{Backend, Result, provider::Provider, version::Version};

/// Name of the file with the values that come from Consul.
pub(crate) const TFVARS: &str = "terraform.tfvars";

/// Length in bytes from which the value of a task's environment variable is masked.
#[cfg(feature = "cli")]
const MASKED_FROM: usize = 5;

/// The versions of Terraform that generated root modules accept.
///
/// Source: Consul-Terraform-Sync 0.9.0.
pub const REQUIRED_VERSION: &str = ">= 0.13.0, <= 1.14.3";

/// Everything that the files of one task are made from.
///
/// Rendering is pure: no file, no process, no clock. The same inputs give the
/// same bytes.
///
/// Source: Consul-Terraform-Sync 0.9, generated files.
///
/// Deviation: whatever upstream inserts as it is (keys, catalog names, tags,
/// KV values, line breaks of a description, template markers) is escaped;
/// benign data gives the same bytes.
///
/// ```
/// use cts_driver_terraform::RootModule;
/// use cts_tasks::Task;
/// # let task: Task = serde_json::from_value(serde_json::json!({
/// #     "name": "web", "description": "", "enabled": true, "module": "./modules/web",
/// #     "version": null, "providers": [], "variables": {}, "buffer_period": "Disabled",
/// #     "working_dir": "sync-tasks/web", "module_inputs": [], "driver_blocks": {},
/// #     "condition": {"Schedule": {"cron": "@daily"}},
/// # }))?;
///
/// let root = RootModule::builder(&task).base_dir("/srv").build();
/// root.check()?;
/// let main = root.files().into_iter().find(|file| file.name == "main.tf").unwrap();
/// assert!(main.content.contains(r#"source   = "/srv/modules/web""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RootModule {
    task: Arc<Task>,
    base_dir: PathBuf,
    required_version: String,
    required_providers: BTreeMap<String, Literal>,
    backend: Option<Backend>,
    providers: Vec<Provider>,
    terraform_version: Option<Version>,
}

impl RootModule {
    /// Starts from a task; everything else has a default.
    pub fn builder(task: &Task) -> RootModuleBuilder {
        RootModuleBuilder::new(Arc::new(task.clone()))
    }

    /// Finds what Terraform is known to refuse, before it is asked.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] with all that was found.
    pub fn check(&self) -> Result<()> {
        check::check(self)
    }

    /// All files that do not depend on what Consul holds.
    pub fn files(&self) -> Vec<GeneratedFile> {
        let mut files = vec![
            self.main(),
            GeneratedFile::public("variables.tf", variables::render(self)),
            self.provider_values(),
            GeneratedFile::public("terraform.tfvars.tmpl", tfvars_template::render(self)),
        ];
        if !self.task.variables.is_empty() {
            files
                .push(GeneratedFile::public("variables.module.tf", variables::render_module(self)));
            files.push(GeneratedFile::secret("variables.auto.tfvars", variables::values(self)));
        }
        files
    }

    /// `main.tf`: versions, the backend, providers, and the task's module.
    pub(crate) fn main(&self) -> GeneratedFile {
        GeneratedFile::public("main.tf", main_tf::render(self))
    }

    /// `providers.auto.tfvars`: the arguments of the task's providers.
    pub(crate) fn provider_values(&self) -> GeneratedFile {
        GeneratedFile::secret("providers.auto.tfvars", providers::values(self))
    }

    /// `terraform.tfvars`: what Consul holds, as the module gets it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NotText`] with the name of a key whose value is not UTF-8.
    pub fn tfvars(&self, inputs: &TaskInputs) -> Result<GeneratedFile> {
        let mut content = String::new();
        tfvars::render(self, inputs, |piece| {
            content.push_str(piece);
            Ok(())
        })?;
        Ok(GeneratedFile::secret(TFVARS, content))
    }

    /// Gives the text of [`RootModule::tfvars`] to `take` piece by piece.
    ///
    /// # Errors
    ///
    /// As [`RootModule::tfvars`], and those of `take`.
    #[cfg(unix)]
    pub(crate) fn tfvars_pieces(
        &self,
        inputs: &TaskInputs,
        take: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        tfvars::render(self, inputs, take)
    }

    /// Checks the root module and writes all of it into `directory`: [`RootModule::files`] and
    /// [`RootModule::tfvars`]. `terraform` or `tofu` can be run there.
    ///
    /// The directory is made where it is missing. Each file is replaced in one step, and only
    /// where its content changed; those that can hold secrets have mode 0600. Files of
    /// variables that the task has no more are removed, and nothing else is touched. It blocks
    /// until the files are on disk.
    ///
    /// ```
    /// use cts_driver_terraform::{Backend, RootModule};
    /// use cts_tasks::{Condition, Task, TaskInputs};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let directory = folder.path().join("web");
    /// let task = Task::new("web".parse()?, Condition::services(["web"])).with_module("org/web/aws");
    /// let backend = Backend::new("local", Default::default())?;
    /// RootModule::builder(&task).backend(backend).build().write(&directory, &TaskInputs::default())?;
    /// assert!(directory.join("main.tf").exists() && directory.join("terraform.tfvars").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] as [`RootModule::check`] gives it, before anything is written, or
    /// as [`RootModule::tfvars`] does; [`crate::Error::File`] with the file that cannot be written.
    #[cfg(unix)]
    pub fn write(&self, directory: impl AsRef<Path>, inputs: &TaskInputs) -> Result<()> {
        self.check()?;
        let directory = directory.as_ref();
        replace::create_directory(directory)?;
        replace::write_all(directory, &self.files())?;
        replace::write_inputs(directory, self, inputs)
    }

    /// Returns the variables that come from Consul, each with its value as
    /// an expression: for whoever hands variables over by other means than files.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NotText`] with the name of a key whose value is not UTF-8.
    pub fn input_expressions(&self, inputs: &TaskInputs) -> Result<Vec<(&'static str, String)>> {
        tfvars::expressions(self, inputs)
    }

    /// Values of the providers' variables and of the operator's, as expressions.
    /// They can be secrets.
    pub fn setting_expressions(&self) -> Vec<(String, SecretString)> {
        let expression =
            |value: &Literal| crate::language::format(&crate::language::literal(value));
        let providers = self.providers.iter();
        let providers =
            providers.map(|provider| (provider.name.clone(), expression(&provider.value())));
        let variables = self.task.variables.iter();
        let variables = variables.map(|(name, value)| (name.clone(), expression(value)));
        providers.chain(variables).map(|(name, value)| (name, value.trim().into())).collect()
    }

    /// Returns the environment variables that Terraform's process gets for this task: those that
    /// its providers need (`task_env`), and the task's own (`env`).
    pub fn task_env(&self) -> BTreeMap<String, SecretString> {
        let of_providers = self.providers.iter().flat_map(|provider| provider.task_env.clone());
        let own = self.task.env.iter().map(|(name, value)| (name.to_owned(), value.clone()));
        of_providers.chain(own).collect()
    }

    /// The values of the task's own environment variables, to be masked in what the tool prints.
    /// Short ones are not: without them a text could not be read.
    #[cfg(feature = "cli")]
    pub(crate) fn env_texts(&self) -> Vec<SecretString> {
        let values = self.task.env.iter().map(|(_, value)| value);
        values.filter(|value| value.expose_secret().len() >= MASKED_FROM).cloned().collect()
    }

    /// The task's providers that are to be committed after an apply.
    #[cfg(feature = "cli")]
    pub(crate) fn committed(&self) -> Vec<cts_tasks::ProviderBlock> {
        let committed = self.providers.iter().filter(|provider| provider.auto_commit);
        committed.map(Provider::block).collect()
    }

    /// The comment that every generated file begins with.
    fn header(&self) -> String {
        format!(
            "# This file is generated by Consul-Terraform-Sync.\n\
             #\n\
             # The HCL blocks, arguments, variables, and values are derived from the\n\
             # operator configuration for Consul-Terraform-Sync. Any manual changes to\n\
             # this file may not be preserved and could be overwritten by a subsequent\n\
             # update.\n\
             #\n\
             # Task: {}\n\
             # Description: {}\n",
            self.task.name,
            comment(&self.task.description),
        )
    }
}

impl std::fmt::Debug for RootModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RootModule").field("task", &self.task.name).finish_non_exhaustive()
    }
}

/// A text for the rest of a comment line; further lines become comments too.
fn comment(text: &str) -> String {
    text.split(['\n', '\r']).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n# ")
}
