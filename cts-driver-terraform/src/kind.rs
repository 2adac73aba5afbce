//! The kind of driver that the configuration names, and its factory.

use std::sync::Arc;

use async_trait::async_trait;
use consul_watch::error_chain;
use cts_tasks::{
    ConfigValue, Diagnostic, Driver, DriverFactory, DriverKind, DriverSettings, Finding, Literal,
    ProviderBlock, Result, Task, Verdict,
};

#[cfg(feature = "panos")]
use crate::PanosCommit;
use crate::{
    CliOptions, Error, Handler, RetryOnLock, Settings, Terraform, TerraformCli, TerraformDriver,
    Tool,
    cli::check_supported,
    dynamic::Keeper,
    files_kind::{LABEL, REFUSED},
    reserved_env,
};
#[cfg(feature = "download")]
use crate::{Installer, ReleaseMirror};

/// Claims `driver "terraform"`: runs tasks with the `terraform` or `tofu` command.
///
/// ```
/// use std::path::Path;
/// use cts_driver_terraform::TerraformKind;
/// use cts_tasks::{ConsulConfig, DriverKind, DriverSettings};
///
/// let consul = ConsulConfig::default();
/// let settings = DriverSettings::new(&consul, Path::new("/srv"));
/// let factory = TerraformKind::default().configure(settings, &mut Vec::new());
/// assert!(factory.is_ok());
/// ```
#[derive(Debug, Clone, Default)]
pub struct TerraformKind {
    options: CliOptions,
}

impl TerraformKind {
    /// A kind whose commands run with these options. What the configuration
    /// sets (`path`, `log`, `persist_log`) stands over them.
    pub fn new(options: CliOptions) -> Self {
        Self { options }
    }
}

impl DriverKind for TerraformKind {
    fn label(&self) -> &'static str {
        LABEL
    }

    fn compatible_with(&self) -> Option<String> {
        Some(format!("Terraform {}", crate::REQUIRED_VERSION))
    }

    fn task_blocks(&self) -> &'static [&'static str] {
        &REFUSED
    }

    fn required_in_tasks(&self) -> &'static [&'static str] {
        &["module"]
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
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Arc<dyn DriverFactory>, Vec<Diagnostic>> {
        for block in settings.providers.iter().filter(|block| block.auto_commit && !handled(block))
        {
            warnings.push(
                Diagnostic::warning(format!(
                    "auto_commit of provider {}: nothing is committed after an apply",
                    block.id()
                ))
                .at(block.place.clone())
                .help(
                    "only changes of the provider panos can be committed, by a program with the \
                     feature \"panos\"",
                ),
            );
        }
        let settings = Settings::read(settings)?;
        if settings.install() && !cfg!(feature = "download") {
            return Err(vec![
                Diagnostic::error("install of driver \"terraform\": this program installs nothing")
                    .help("build it with the feature \"download\", or install Terraform by hand"),
            ]);
        }
        if settings.release_keys().is_some() && !cfg!(feature = "verify-signature") {
            return Err(vec![
                Diagnostic::error(
                    "release_keys of driver \"terraform\": this program checks no signature",
                )
                .help("build it with the feature \"verify-signature\""),
            ]);
        }
        if settings.version().is_some() && settings.path().is_none() && !settings.install() {
            warnings.push(Diagnostic::warning(
                "version of driver \"terraform\" is compared with what is found on PATH, and \
                 nothing is installed",
            ));
        }
        let mut options = self.options.clone();
        options.path = settings.path().map(Into::into).or(options.path);
        options.log |= settings.log();
        options.persist_log |= settings.persist_log();
        #[cfg(feature = "download")]
        if settings.install() {
            options.installer = Some(installer(&settings)?);
        }
        #[cfg(feature = "panos")]
        let panos = PanosCommit::new(options.environment.clone());
        let terraform = RetryOnLock::new(TerraformCli::new(options), settings.lock_timeout());
        let factory = TerraformFactory::new(settings, Arc::new(terraform));
        #[cfg(feature = "panos")]
        let factory = factory.with_handler(Arc::new(panos));
        Ok(Arc::new(factory))
    }
}

/// Returns `true` if there is a handler for the provider's `auto_commit`.
fn handled(block: &ProviderBlock) -> bool {
    cfg!(feature = "panos") && block.name == "panos"
}

/// Installs into the configured path, or where relative paths start.
#[cfg(feature = "download")]
fn installer(settings: &Settings) -> Result<Installer, Vec<Diagnostic>> {
    let mirror = ReleaseMirror::new(settings.release_mirror().unwrap_or(ReleaseMirror::DEFAULT));
    #[cfg(feature = "verify-signature")]
    let mirror = match settings.release_keys() {
        Some(path) => mirror.with_keys(release_keys(path)?),
        None => mirror,
    };
    Ok(Installer::new(
        Arc::new(mirror),
        settings.path().unwrap_or(settings.base_dir()),
        settings.version().cloned(),
        settings.supported_versions().clone(),
    ))
}

#[cfg(feature = "verify-signature")]
fn release_keys(path: &std::path::Path) -> Result<crate::ReleaseKeys, Vec<Diagnostic>> {
    let read = std::fs::read_to_string(path)
        .map_err(|error| error.to_string())
        .and_then(|armored| crate::ReleaseKeys::read(&armored).map_err(|error| error.to_string()));
    read.map_err(|problem| {
        vec![
            Diagnostic::error(format!(
                "release_keys of driver \"terraform\": {}: {problem}",
                path.display()
            ))
            .help("it has to hold ASCII-armored public keys, as gpg --armor --export writes them"),
        ]
    })
}

/// Makes the drivers of all tasks; they share settings and binary.
#[derive(Debug, Clone)]
pub struct TerraformFactory {
    settings: Arc<Settings>,
    terraform: Arc<dyn Terraform>,
    handlers: Vec<Arc<dyn Handler>>,
    /// Keeps alive what dynamic values need, from the start on.
    keeper: Arc<Keeper>,
}

impl TerraformFactory {
    /// A factory whose drivers run this tool.
    pub fn new(settings: Settings, terraform: Arc<dyn Terraform>) -> Self {
        let (settings, keeper) = (Arc::new(settings), Arc::default());
        Self { settings, terraform, handlers: Vec::new(), keeper }
    }

    /// The tool, which is one that this driver supports.
    async fn usable(&self) -> Result<Tool> {
        let tool = self.terraform.version().await?;
        check_supported(&tool, self.settings.supported_versions())?;
        if self.settings.backend().label() == "pg" && !tool.version.at_least(0, 14) {
            return Err(Error::Unsupported {
                message: format!(
                    "Consul-Terraform-Sync does not support pg backend in automation with \
                     Terraform <= 0.13: {}",
                    tool.version
                ),
            }
            .into());
        }
        Ok(tool)
    }

    /// Adds a handler for all drivers.
    #[must_use]
    pub fn with_handler(mut self, handler: Arc<dyn Handler>) -> Self {
        self.handlers.push(handler);
        self
    }
}

#[async_trait]
impl DriverFactory for TerraformFactory {
    async fn check(&self) -> Vec<Finding> {
        let check = "driver terraform";
        if self.settings.install() {
            let detail = "Terraform is installed at the start if it is missing";
            return vec![Finding::new(check, Verdict::Unchecked, detail)];
        }
        let tool = match self.usable().await {
            Ok(tool) => tool,
            Err(error) => return vec![Finding::new(check, Verdict::Missing, error_chain(&error))],
        };
        let found = format!("{} {}", tool.product, tool.version);
        let mut findings = vec![Finding::new(check, Verdict::Ok, found)];
        if let Err(error) = self.settings.check_values().await {
            findings.push(Finding::new("dynamic values", Verdict::Missing, error_chain(&error)));
        }
        findings.extend(self.settings.findings());
        findings
    }

    async fn start(&self) -> Result<()> {
        let tool = self.usable().await?;
        if let Some(wanted) = self.settings.version().filter(|wanted| **wanted != tool.version) {
            tracing::warn!(%wanted, found = %tool.version, "another version than configured is used");
        }
        self.settings.check_values().await?;
        self.keeper.start(self.settings.values());
        Ok(())
    }

    fn driver(&self, task: &Task) -> Result<Arc<dyn Driver>> {
        let is_set = |block: &&&str| task.driver_blocks.get(**block).is_some_and(is_set);
        if let Some(block) = REFUSED.iter().find(is_set) {
            return Err(Error::invalid(format!(
                "unsupported configuration '{block}' for task {:?}: it needs the driver \
                 \"terraform-cloud\"",
                task.name.as_str()
            ))
            .into());
        }
        let mut driver = TerraformDriver::new(
            task.clone(),
            Arc::clone(&self.settings),
            Arc::clone(&self.terraform),
        )?;
        for handler in &self.handlers {
            driver = driver.with_handler(Arc::clone(handler))?;
        }
        Ok(Arc::new(driver))
    }
}

/// Returns `true` if any value of a block is not empty.
fn is_set(block: &Literal) -> bool {
    match block {
        Literal::Null => false,
        Literal::String(text) => !text.is_empty(),
        Literal::Map(members) => members.values().any(is_set),
        Literal::List(items) => items.iter().any(is_set),
        Literal::Bool(_) | Literal::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use cts_tasks::{ConsulConfig, DriverKind as _, DriverSettings, Literal, testing::task};

    use super::TerraformKind;

    /// Spec: TFC7
    #[test]
    fn settings_of_another_driver_are_refused_unless_they_are_empty() {
        let consul = ConsulConfig::default();
        let settings = DriverSettings::new(&consul, Path::new("/srv"));
        let factory = TerraformKind::default().configure(settings, &mut Vec::new()).unwrap();
        let refused = |block: &str, body: Literal| {
            let mut task = task("web");
            task.driver_blocks.insert(block.to_owned(), body);
            factory.driver(&task).err().map(|error| error.to_string())
        };
        let with = |mode: &str| {
            let fields = [("execution_mode", mode), ("agent_pool_id", "")];
            Literal::Map(BTreeMap::from(fields.map(|(key, value)| (key.to_owned(), value.into()))))
        };
        let error = refused("terraform_cloud_workspace", with("remote")).unwrap();
        let words = "unsupported configuration 'terraform_cloud_workspace' for task \"web\"";
        assert!(error.starts_with(words), "{error}");
        assert!(refused("terraform_version", "1.9.4".into()).is_some());
        for empty in [with(""), Literal::Map(BTreeMap::new()), "".into(), Literal::Null] {
            assert_eq!(refused("terraform_cloud_workspace", empty), None);
        }
    }
}
