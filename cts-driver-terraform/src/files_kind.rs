//! The kind of driver for programs that only make files.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use cts_tasks::{
    Config, ConfigValue, Diagnostic, Driver, DriverFactory, DriverKind, DriverSettings, Error,
    Result, Task,
};

use crate::{Settings, reserved_env};

/// Claims `driver "terraform"`, the default driver, for programs that read a configuration and
/// make the files of its tasks, but run nothing. It needs no Terraform and no feature `cli`.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use cts_driver_terraform::{FilesKind, Settings};
/// use cts_tasks::{Source, TaskInputs, config::{Loader, Registry}};
///
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path();
/// let loader = Loader::new(Registry::new().driver(Arc::new(FilesKind)));
/// let text = r#"
///     task {
///       name   = "web"
///       module = "org/web/aws"
///       condition "services" { names = ["web"] }
///     }
/// "#;
/// let source = Source { path: "cts.hcl".into(), text: text.into() };
/// let config = loader.load_sources(vec![source]).map_err(|found| format!("{found:?}"))?.config;
///
/// let settings = Settings::of(&config, Path::new("/srv/cts")).map_err(|found| format!("{found:?}"))?;
/// for task in &config.tasks {
///     let directory = out.join(task.name.as_str());
///     settings.root_module(task, None)?.write(directory, &TaskInputs::default())?;
/// }
/// assert!(out.join("web/main.tf").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct FilesKind;

/// Blocks of a task that only another driver understands.
pub(crate) const REFUSED: [&str; 2] = ["terraform_cloud_workspace", "terraform_version"];

impl DriverKind for FilesKind {
    fn label(&self) -> &'static str {
        LABEL
    }

    fn compatible_with(&self) -> Option<String> {
        Some(format!("Terraform {}", crate::REQUIRED_VERSION))
    }

    fn task_blocks(&self) -> &'static [&'static str] {
        &REFUSED
    }

    fn refused_env(&self, name: &str, body: Option<&ConfigValue>) -> Option<String> {
        reserved_env::refused(name, body)
    }

    fn secret_fields(&self) -> &'static [&'static str] {
        &crate::backend::SECRET_FIELDS
    }

    fn configure(
        &self,
        settings: DriverSettings<'_>,
        _warnings: &mut Vec<Diagnostic>,
    ) -> Result<Arc<dyn DriverFactory>, Vec<Diagnostic>> {
        Settings::read(settings)?;
        Ok(Arc::new(RunsNothing))
    }
}

/// Label of the driver.
pub(crate) const LABEL: &str = "terraform";

/// Factory that refuses to run tasks.
#[derive(Debug)]
struct RunsNothing;

impl RunsNothing {
    fn refusal() -> Error {
        Error::Driver {
            message: "this program only makes the files of tasks and runs none: register \
                      TerraformKind, of the feature \"cli\", in place of FilesKind"
                .to_owned(),
            retryable: false,
            source: None,
        }
    }
}

#[async_trait]
impl DriverFactory for RunsNothing {
    async fn start(&self) -> Result<()> {
        Err(Self::refusal())
    }

    fn driver(&self, _task: &Task) -> Result<Arc<dyn Driver>> {
        Err(Self::refusal())
    }
}

impl Settings {
    /// Reads the settings out of a configuration that a loader with a [`FilesKind`] or a
    /// `TerraformKind` has checked. Relative paths start at `base_dir`.
    ///
    /// # Errors
    ///
    /// Every mistake found in the block, and that the configuration is for another driver.
    pub fn of(config: &Config, base_dir: &Path) -> Result<Self, Vec<Diagnostic>> {
        if config.driver.label != LABEL {
            let message = format!(
                "the configuration is for driver {:?}, and not for {LABEL:?}",
                config.driver.label
            );
            return Err(vec![Diagnostic::error(message)]);
        }
        let mut settings = DriverSettings::new(&config.consul, base_dir);
        settings.body = config.driver.body.as_ref();
        settings.providers = &config.providers;
        settings.vault = config.vault.as_ref();
        Self::read(settings)
    }
}
