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

/// What the platform is given of a task that is no data of Consul's.
pub(crate) struct Module {
    root: RootModule,
    files: Vec<GeneratedFile>,
    /// The folder of a local module, and where it stands in the archive.
    local: Option<(PathBuf, String)>,
}

impl Module {
    /// Generates the root module; reads nothing yet.
    ///
    /// A local module is copied into the archive, where the root module finds
    /// it by a path of its own.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Module`] when the task asks for what cannot be.
    pub(crate) fn new(
        settings: &Settings,
        task: &Task,
        providers: &[ProviderBlock],
    ) -> Result<Self> {
        let local = local_folder(&task.module, settings.base_dir());
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
    /// Those of [`Files`].
    pub(crate) async fn pack(&self) -> Result<Archive> {
        self.packed(None).await
    }

    /// Packs the files together with values, for releases of the platform that
    /// know no variables of runs.
    ///
    /// # Errors
    ///
    /// As [`Module::pack`] and [`Module::inputs`].
    pub(crate) async fn pack_with(&self, inputs: &TaskInputs) -> Result<Archive> {
        self.packed(Some(self.root.tfvars(inputs)?.content)).await
    }

    /// Files are read away from the runtime's own threads.
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
                files.add("terraform.auto.tfvars", values);
            }
            files.pack()
        });
        packing.await.unwrap_or_else(|error| {
            Err(Error::Input { operation: "pack module", problem: error.to_string() })
        })
    }

    /// Variables whose values come from the configuration; all can be secrets.
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

    /// Variables whose values come from Consul.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Module`] for what no variable can hold.
    pub(crate) fn inputs(&self, inputs: &TaskInputs) -> Result<Vec<NewVariable>> {
        let values = self.root.input_expressions(inputs)?.into_iter();
        let variables = values.map(|(name, value)| {
            let mut variable = managed(name, value);
            variable.hcl = true;
            variable
        });
        Ok(variables.collect())
    }

    /// The same for one run only.
    ///
    /// # Errors
    ///
    /// As [`Module::inputs`].
    pub(crate) fn run_variables(&self, inputs: &TaskInputs) -> Result<Vec<RunVariable>> {
        let values = self.root.input_expressions(inputs)?.into_iter();
        Ok(values.map(|(name, value)| RunVariable::new(name, value)).collect())
    }
}

/// Tells the variables that this driver may take away again.
pub(crate) const MANAGED: &str = "Managed by Consul-Terraform-Sync";

fn managed(name: impl Into<String>, value: impl Into<SecretString>) -> NewVariable {
    let mut variable = NewVariable::new(name, value);
    MANAGED.clone_into(&mut variable.description);
    variable
}

/// The folder of a module that is not fetched from elsewhere.
fn local_folder(module: &str, base_dir: &Path) -> Option<PathBuf> {
    let local = ["./", "../", "/"].iter().any(|start| module.starts_with(start));
    local.then(|| plain_path(&base_dir.join(module)))
}
