//! The rules of a loaded configuration for tasks that are added later.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{
    Config,
    decode::{Decoder, Findings, decode_body},
    environment::Environment,
    limits::InUse,
    provider,
    registry::Registry,
    tasks::{self, Required, Shared},
    unknown,
};
use crate::{ConfigValue, Diagnostic, DriverKind, DriverSettings, Task};

/// Checks tasks that are added to a running deployment, as the tasks of its
/// configuration were checked.
#[derive(Clone)]
pub struct TaskRules {
    config: Config,
    registry: Registry,
    base_dir: PathBuf,
}

/// Without the configuration, which has a form of its own.
impl fmt::Debug for TaskRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRules").finish_non_exhaustive()
    }
}

impl TaskRules {
    pub(super) fn new(config: &Config, registry: Registry, base_dir: PathBuf) -> Self {
        Self { config: config.clone(), registry, base_dir }
    }

    /// Directory from which relative paths of the configuration are taken.
    pub(crate) fn base_dir(&self) -> &Path {
        &self.base_dir
    }

    /// Names in a task's body that belong to a driver, whichever is in use.
    #[cfg(feature = "api")]
    pub(crate) fn driver_keys(&self) -> Vec<&'static str> {
        let claimed = self.kind().map_or(&[][..], |kind| kind.task_blocks());
        claimed.iter().chain(super::registry::DRIVER_KEYS).copied().collect()
    }

    /// Returns the keys that the driver in use requires of a task; see
    /// [`DriverKind::required_in_tasks`].
    #[cfg(feature = "api")]
    pub(crate) fn required_keys(&self) -> &'static [&'static str] {
        self.kind().map_or(&[], |kind| kind.required_in_tasks())
    }

    /// The JSON Schemas of the blocks in a task that belong to the driver in use, by name.
    #[cfg(feature = "api")]
    pub(crate) fn block_schemas(&self) -> Vec<(String, serde_json::Value)> {
        let Some(kind) = self.kind() else { return Vec::new() };
        let schema = |block: &&str| kind.task_block_schema(block).unwrap_or(true.into());
        kind.task_blocks().iter().map(|block| ((*block).to_owned(), schema(block))).collect()
    }

    /// Checks the body of a task, as it would stand in a file of JSON.
    ///
    /// # Errors
    ///
    /// Every mistake found.
    pub fn check(&self, task: &ConfigValue) -> Result<Task, Vec<Diagnostic>> {
        self.check_among(task, &[])
    }

    /// As [`TaskRules::check`], and that the task can be added to `others`.
    ///
    /// # Errors
    ///
    /// Every mistake found.
    pub(crate) fn check_among(
        &self,
        task: &ConfigValue,
        others: &[Task],
    ) -> Result<Task, Vec<Diagnostic>> {
        let mut findings = Findings::default();
        let mut decoder = Decoder::new(&self.registry, &mut findings);
        let raw = decode_body("task[0]", task, &mut decoder);
        let unread = decoder.unknown;
        if !unread.is_empty() {
            findings.errors.push(unknown::diagnostic("task", &unread));
        }
        let mut environment = Environment::default();
        environment.set_base_dir(self.base_dir.clone());
        let shared = Shared {
            environment: &environment,
            services: &[],
            providers: &self.config.providers,
            buffer_period: self.config.buffer_period,
            working_dir: &self.config.working_dir,
            shutdown_timeout: self.config.shutdown_timeout,
            vault_known: self.config.vault.is_some(),
            driver: self.kind().map(|kind| InUse { kind, body: self.config.driver.body.as_ref() }),
            task_blocks: self.kind().map_or(&[][..], |kind| kind.task_blocks()).to_vec(),
            required: self.kind().map(Required::by).unwrap_or_default(),
        };
        let raw = [raw];
        let finalized = tasks::finalize(&raw, &shared, &mut findings);
        let providers = provider::Finalized::checked(self.config.providers.clone());
        tasks::check_aliases(&raw, &providers, &mut findings);
        self.check_driver_blocks(&finalized.blocks, &mut findings);
        if let Some(task) = finalized.tasks.first() {
            let others = others.iter().filter(|other| other.name != task.name);
            let all: Vec<tasks::Claim<'_>> = others.chain([task]).map(Into::into).collect();
            tasks::check_auto_commit(&all, &self.config.providers, &mut findings);
            tasks::check_working_dirs(&all, &self.base_dir, |_| None, &mut findings);
        }
        match finalized.tasks.into_iter().next() {
            Some(mut task) if findings.errors.is_empty() => {
                // No file says anything of it.
                task.configured_enabled = None;
                Ok(task)
            }
            _ => Err(findings.errors),
        }
    }

    /// The driver's kind checks what is its own; the factory that it makes of
    /// the same configuration once more is not used.
    fn check_driver_blocks(&self, blocks: &[super::TaskBlock], findings: &mut Findings) {
        let Some(kind) = self.kind().filter(|_| !blocks.is_empty()) else { return };
        let mut settings = DriverSettings::new(&self.config.consul, &self.base_dir);
        settings.label = kind.label();
        settings.body = self.config.driver.body.as_ref();
        settings.providers = &self.config.providers;
        settings.vault = self.config.vault.as_ref();
        settings.task_blocks = blocks;
        if let Err(errors) = kind.configure(settings, &mut findings.warnings) {
            findings.errors.extend(errors);
        }
    }

    fn kind(&self) -> Option<&dyn DriverKind> {
        self.registry.find_driver(&self.config.driver.label).map(AsRef::as_ref)
    }
}
