//! The root module of a task and its variables: what of it is uploaded as files, and what goes as
//! variables of the workspace or of a run.

use std::path::{Path, PathBuf};

use cts_driver_terraform::{GeneratedFile, RootModule};
use cts_tasks::{ProviderBlock, Task, TaskInputs};
use secrecy::SecretString;

use crate::{
    Error, Result, Settings,
    archive::{Archive, Files, plain_path},
    types::{Category, NewVariable, RunVariable},
};

/// Files of the root module that are uploaded. Values go by variables.
const UPLOADED: [&str; 3] = ["main.tf", "variables.tf", "variables.module.tf"];

/// Part of a task that the platform is given and that is no data of Consul's.
pub(crate) struct Module {
    root: RootModule,
    files: Vec<GeneratedFile>,
    /// Folder of a local module, and its place in the archive.
    local: Option<(PathBuf, String)>,
}

impl Module {
    /// Generates the root module; reads nothing yet.
    ///
    /// A local module is copied into the archive, where the root module finds it by a path of its
    /// own.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Module`] if the task asks for what Terraform would refuse.
    pub(crate) fn new(
        settings: &Settings,
        task: &Task,
        providers: &[ProviderBlock],
    ) -> Result<Self> {
        let local = local_folder(&task.module, settings.base_dir());
        // A copy, because the path of a local module is another one in the archive.
        let mut task = task.clone();
        let local = local.map(|folder| {
            let name = format!("modules/{}", task.name);
            task.module = format!("./{name}");
            (folder, format!("{name}/"))
        });
        let root = settings.root_module(&task, providers)?;
        root.check()?;
        let files = root.files();
        Ok(Self { root, files, local })
    }

    /// Packs the files, with the local module as it is now.
    ///
    /// # Errors
    ///
    /// Errors of [`Files`] for a local module that cannot be packed.
    pub(crate) async fn pack(&self) -> Result<Archive> {
        self.packed(None).await
    }

    /// Packs the files together with values, for releases of the platform that know no variables of
    /// runs.
    ///
    /// # Errors
    ///
    /// Errors of [`Module::pack`] and [`Module::inputs`].
    pub(crate) async fn pack_with(&self, inputs: &TaskInputs) -> Result<Archive> {
        self.packed(Some(self.root.tfvars(inputs)?.content)).await
    }

    /// Packs the files on a thread for blocking work, away from the runtime's own.
    async fn packed(&self, values: Option<String>) -> Result<Archive> {
        let (generated, local) = (self.files.clone(), self.local.clone());
        let packing = tokio::task::spawn_blocking(move || {
            let mut files = Files::default();
            if let Some((folder, place)) = &local {
                files.add_folder(folder, place)?;
            }
            for file in generated.iter().filter(|file| UPLOADED.contains(&file.name)) {
                files.add(file.name, file.content.clone());
            }
            if let Some(values) = values {
                // `auto`, because nobody can name the file to the platform's Terraform.
                files.add("terraform.auto.tfvars", values);
            }
            files.pack()
        });
        packing.await.unwrap_or_else(|error| {
            Err(Error::Input { operation: "pack module", problem: error.to_string() })
        })
    }

    /// Returns the variables whose values come from the configuration; all can be secrets.
    pub(crate) fn settings(&self) -> Vec<NewVariable> {
        let inputs = self.root.setting_expressions().into_iter();
        let inputs = inputs.map(|(name, value)| {
            let mut variable = managed(name, value);
            variable.hcl = true;
            variable.sensitive = true;
            variable
        });
        let environment = self.root.task_env().into_iter();
        let environment = environment.map(|(name, value)| {
            let mut variable = managed(name, value);
            variable.category = Category::Env;
            variable.sensitive = true;
            variable
        });
        inputs.chain(environment).collect()
    }

    /// Returns the variables whose values come from Consul.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Module`] for a value that no variable can hold.
    pub(crate) fn inputs(&self, inputs: &TaskInputs) -> Result<Vec<NewVariable>> {
        let values = self.root.input_expressions(inputs)?.into_iter();
        let variables = values.map(|(name, value)| {
            let mut variable = managed(name, value);
            // An expression, because the values are lists and maps.
            variable.hcl = true;
            variable
        });
        Ok(variables.collect())
    }

    /// Returns the values of [`Module::inputs`] as variables of one run.
    ///
    /// # Errors
    ///
    /// Errors of [`Module::inputs`].
    pub(crate) fn run_variables(&self, inputs: &TaskInputs) -> Result<Vec<RunVariable>> {
        let values = self.root.input_expressions(inputs)?.into_iter();
        Ok(values.map(|(name, value)| RunVariable::new(name, value)).collect())
    }
}

/// Description of the variables that this driver made and may delete again.
pub(crate) const MANAGED: &str = "Managed by Consul-Terraform-Sync";

fn managed(name: impl Into<String>, value: impl Into<SecretString>) -> NewVariable {
    let mut variable = NewVariable::new(name, value);
    MANAGED.clone_into(&mut variable.description);
    variable
}

/// Returns the folder of a module that is not fetched from elsewhere.
fn local_folder(module: &str, base_dir: &Path) -> Option<PathBuf> {
    let local = ["./", "../", "/"].iter().any(|start| module.starts_with(start));
    local.then(|| plain_path(&base_dir.join(module)))
}
