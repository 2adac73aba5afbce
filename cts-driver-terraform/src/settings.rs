//! The settings of `driver "terraform"`, checked.

mod reader;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cts_tasks::{
    Diagnostic, DriverSettings, Literal, ProviderBlock, Task,
    config::{Entry, find_provider},
};
use secrecy::SecretString;

use self::reader::Reader;
use crate::{
    Backend, Product, Result, RootModule, RootModuleBuilder, Version, VersionConstraint,
    backend::{self, consul_environment},
    dynamic::{self, LiveValues, ValueSource},
};

/// Default of the longest wait for a lock on the state.
///
/// A lock that a killed process left in Consul lives on for its session's TTL
/// of 15 s, which Consul may double, and the lock delay of 5 s.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);

/// The checked `driver "terraform"` block.
///
/// ```
/// use std::path::Path;
/// use cts_driver_terraform::Settings;
/// use cts_tasks::{ConsulConfig, DriverSettings};
///
/// let consul = ConsulConfig::default();
/// let settings = Settings::read(DriverSettings::new(&consul, Path::new("/srv"))).unwrap();
/// assert_eq!(settings.backend().label(), "consul");
/// ```
#[derive(Clone)]
pub struct Settings {
    log: bool,
    persist_log: bool,
    path: Option<PathBuf>,
    version: Option<Version>,
    supported_versions: VersionConstraint,
    lock_timeout: Duration,
    install: bool,
    release_mirror: Option<String>,
    release_keys: Option<PathBuf>,
    backend: Backend,
    required_providers: BTreeMap<String, Literal>,
    providers: Vec<ProviderBlock>,
    consul_environment: BTreeMap<String, SecretString>,
    /// The file of the token that each command gets as it starts.
    consul_token_file: Option<PathBuf>,
    values: Arc<dyn ValueSource>,
    base_dir: PathBuf,
}

impl Settings {
    /// Checks the block and completes it with defaults.
    ///
    /// Source: Consul-Terraform-Sync 0.9, `driver "terraform"`.
    ///
    /// Deviation: `supported_versions`, `lock_timeout`, `install`,
    /// `release_mirror` and `release_keys` are ours. A relative
    /// `path` is made absolute at once. Names that Terraform refuses are
    /// found here instead of at the first run.
    ///
    /// # Errors
    ///
    /// Every mistake found, each with its place.
    pub fn read(settings: DriverSettings<'_>) -> Result<Self, Vec<Diagnostic>> {
        let mut reader = Reader::default();
        let mut read = Self::defaults(&settings);
        let mut backends: Vec<(&Entry, BTreeMap<String, Literal>)> = Vec::new();
        for entry in
            settings.body.map(|body| reader.entries(body, "driver.terraform")).unwrap_or_default()
        {
            read.set(entry, &mut reader, &mut backends);
        }
        read.check_version(settings.body, &mut reader);
        read.set_backend(&backends, &mut reader);
        for block in settings.providers {
            reader.provider_names(block);
            reader.templates(block);
        }
        reader.finish(read)
    }

    fn defaults(settings: &DriverSettings<'_>) -> Self {
        Self {
            log: false,
            persist_log: false,
            path: None,
            version: None,
            supported_versions: VersionConstraint::default(),
            lock_timeout: LOCK_TIMEOUT,
            install: false,
            release_mirror: None,
            release_keys: None,
            backend: Backend::consul(settings.consul, settings.base_dir),
            required_providers: BTreeMap::new(),
            providers: settings.providers.to_vec(),
            consul_environment: consul_environment(settings.consul, settings.base_dir),
            consul_token_file: settings
                .consul
                .token_file
                .as_ref()
                .map(|file| settings.base_dir.join(file)),
            values: Arc::new(LiveValues::new(*settings)),
            base_dir: settings.base_dir.to_owned(),
        }
    }

    fn set<'a>(
        &mut self,
        entry: &'a Entry,
        reader: &mut Reader,
        backends: &mut Vec<(&'a Entry, BTreeMap<String, Literal>)>,
    ) {
        match entry.key.as_str() {
            "log" => reader.boolean(entry, &mut self.log),
            "persist_log" => reader.boolean(entry, &mut self.persist_log),
            "path" => {
                if let Some(path) = reader.string(entry) {
                    self.path = Some(self.base_dir.join(path));
                }
            }
            "version" => self.version = reader.exact_version(entry),
            "supported_versions" => reader.parsed(entry, &mut self.supported_versions),
            "lock_timeout" => reader.duration(entry, &mut self.lock_timeout),
            "install" => reader.boolean(entry, &mut self.install),
            "release_mirror" => self.release_mirror = reader.address(entry),
            "release_keys" => {
                if let Some(path) = reader.string(entry) {
                    self.release_keys = Some(self.base_dir.join(path));
                }
            }
            "backend" => backends.extend(reader.labelled(entry)),
            "required_providers" => {
                self.required_providers.extend(reader.required_providers(entry));
            }
            "working_dir" => reader.unknown(
                entry,
                "driver.terraform",
                Some("it was removed in 0.5: set working_dir at the top level or in a task"),
            ),
            _ => reader.unknown(entry, "driver.terraform", None),
        }
    }

    fn check_version(&self, body: Option<&cts_tasks::ConfigValue>, reader: &mut Reader) {
        let Some(version) = &self.version else { return };
        if !self.supported_versions.accepts(version) {
            let place = body.and_then(|body| reader::place_of(body, "version"));
            reader.error(
                Diagnostic::error(unsupported_version(&self.supported_versions, version)).at(place),
            );
        }
    }

    fn set_backend(
        &mut self,
        backends: &[(&Entry, BTreeMap<String, Literal>)],
        reader: &mut Reader,
    ) {
        let mut chosen: Option<&str> = None;
        for (entry, attributes) in backends {
            let label = entry.key.as_str();
            if chosen.is_some_and(|chosen| chosen != label) {
                reader.error(
                    Diagnostic::error("only one backend can be configured")
                        .at(entry.key_place.clone()),
                );
                continue;
            }
            let known = if label == "consul" || chosen.is_some() {
                Ok(self.backend.clone().with(attributes.clone()))
            } else {
                Backend::new(label, attributes.clone())
            };
            match known {
                Ok(backend) => self.backend = backend,
                Err(_) => reader.error(
                    Diagnostic::error(backend::unsupported(label))
                        .at(entry.key_place.clone())
                        .help(format!("one of: {}", backend::LABELS.join(", "))),
                ),
            }
            chosen = Some(label);
        }
    }

    /// Returns `true` if Terraform's output is logged.
    pub fn log(&self) -> bool {
        self.log
    }

    /// Returns `true` if Terraform writes its own trace into the task's directory.
    pub fn persist_log(&self) -> bool {
        self.persist_log
    }

    /// The directory of the binary; `None` means that it is looked up on `PATH`.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The version that is wanted.
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// The versions of Terraform that may be run.
    pub fn supported_versions(&self) -> &VersionConstraint {
        &self.supported_versions
    }

    /// Returns the longest wait for a lock on the state.
    pub fn lock_timeout(&self) -> Duration {
        self.lock_timeout
    }

    /// Returns `true` if a missing Terraform is installed; `false` by default.
    pub fn install(&self) -> bool {
        self.install
    }

    /// The address of the release server that it is installed from, if not the usual one.
    pub fn release_mirror(&self) -> Option<&str> {
        self.release_mirror.as_deref()
    }

    /// The file with the keys that have to have signed what is installed.
    pub fn release_keys(&self) -> Option<&Path> {
        self.release_keys.as_deref()
    }

    /// Returns the backend of the state.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Returns the directory from which relative paths of the configuration are taken.
    pub fn base_dir(&self) -> &Path {
        &self.base_dir
    }

    /// Replaces the source of dynamic values, which is [`LiveValues`].
    #[must_use]
    pub fn with_values(mut self, values: Arc<dyn ValueSource>) -> Self {
        self.values = values;
        self
    }

    /// Returns the settings as one task uses them: the leases of its secrets are kept until they
    /// are dropped; see [`ValueSource::for_task`].
    #[must_use]
    pub fn for_task(self: &Arc<Self>) -> Arc<Self> {
        match self.values.for_task() {
            Some(values) => Arc::new(Self::clone(self).with_values(values)),
            None => Arc::clone(self),
        }
    }

    /// Looks up the dynamic values of all providers, and forgets them.
    ///
    /// Source: Consul-Terraform-Sync 0.9, which fails to start without them.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Value`] for a value that is not available.
    pub async fn check_values(&self) -> Result<()> {
        dynamic::resolve(&self.providers, &*self.values).await.map(drop)
    }

    /// Waits until a dynamic value that the task uses is another one than it was.
    #[cfg(feature = "cli")]
    pub(crate) async fn values_changed(&self, task: &Task) {
        dynamic::changed(task, &self.providers, &*self.values).await;
    }

    /// Providers that every root module requires, by local name.
    #[cfg(feature = "cli")]
    pub(crate) fn required_providers(&self) -> &BTreeMap<String, Literal> {
        &self.required_providers
    }

    /// Returns the source of dynamic values.
    pub fn values(&self) -> &Arc<dyn ValueSource> {
        &self.values
    }

    /// The root module of a task with the values that providers have now.
    ///
    /// Deviation: upstream evaluates dynamic values once, at the start; ours
    /// are looked up for each run.
    ///
    /// # Errors
    ///
    /// A root module that cannot be built ([`Settings::root_module`]), and
    /// [`crate::Error::Value`] for a value that is not available.
    pub async fn current_root_module(
        &self,
        task: &Arc<Task>,
        tool: Option<(Product, &Version)>,
    ) -> Result<RootModule> {
        let used = task.providers.iter().filter_map(|id| find_provider(&self.providers, id));
        let used: BTreeSet<_> = used.map(ProviderBlock::id).collect();
        let blocks = self.providers.iter().filter(|block| used.contains(&block.id()));
        let blocks: Vec<_> = blocks.cloned().collect();
        let resolved = dynamic::resolve(&blocks, &*self.values).await?;
        if task.env.is_empty() {
            return self.root_module_with(task, tool, &resolved);
        }
        let task = Arc::new(dynamic::resolve_env(task, &*self.values).await?);
        self.root_module_with(&task, tool, &resolved)
    }

    /// The root module of a task, for this version of a tool, with templates in
    /// place of dynamic values.
    ///
    /// Deviation: a root module for an `OpenTofu` that the constraint for
    /// Terraform would refuse requires `>= 1.6.0` instead.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] when the task asks for what cannot be.
    pub fn root_module(
        &self,
        task: &Task,
        tool: Option<(Product, &Version)>,
    ) -> Result<RootModule> {
        self.root_module_with(&Arc::new(task.clone()), tool, &self.providers)
    }

    fn root_module_with(
        &self,
        task: &Arc<Task>,
        tool: Option<(Product, &Version)>,
        providers: &[ProviderBlock],
    ) -> Result<RootModule> {
        let mut builder = RootModuleBuilder::new(Arc::clone(task))
            .base_dir(&self.base_dir)
            .required_version(self.supported_versions.as_str())
            .required_providers(self.required_providers.clone())
            .backend(self.backend.clone())
            .providers(providers)?;
        if let Some((product, version)) = tool {
            if product == Product::OpenTofu && !self.supported_versions.accepts(version) {
                builder = builder.required_version(">= 1.6.0");
            }
            // OpenTofu has everything that a current Terraform has.
            if product == Product::Terraform {
                builder = builder.terraform_version(version.clone());
            }
        }
        Ok(builder.build())
    }

    /// The variables that Terraform's process gets besides the inherited ones:
    /// how to reach Consul where the state is there, and what the task's
    /// providers ask for. Secrets of the backend are not among them; see
    /// [`Backend::secret_attributes`].
    ///
    /// Source: Consul-Terraform-Sync 0.9, environment of the Terraform process.
    pub fn environment(&self, root: &RootModule) -> BTreeMap<String, SecretString> {
        let mut environment = BTreeMap::new();
        if self.backend.label() == "consul" {
            environment.extend(self.consul_environment());
        }
        environment.extend(root.task_env());
        environment
    }

    /// The variables that let a state in Consul be reached, wherever the state is kept now, with
    /// the token that its file holds now.
    pub(crate) fn consul_environment(&self) -> BTreeMap<String, SecretString> {
        let mut environment = self.consul_environment.clone();
        let Some(file) = &self.consul_token_file else { return environment };
        match std::fs::read_to_string(file) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => {
                environment.insert("CONSUL_HTTP_TOKEN".to_owned(), text.trim().into());
            }
            // The tool then says itself that it cannot read it.
            Err(_unreadable) => {
                let path = file.to_string_lossy().into_owned();
                environment.insert("CONSUL_HTTP_TOKEN_FILE".to_owned(), path.into());
            }
        }
        environment
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("log", &self.log)
            .field("persist_log", &self.persist_log)
            .field("path", &self.path)
            .field("version", &self.version)
            .field("supported_versions", &self.supported_versions)
            .field("lock_timeout", &self.lock_timeout)
            .field("backend", &self.backend)
            .field("providers", &self.providers)
            .finish_non_exhaustive()
    }
}

/// The specified words for a configured version outside of the constraint.
fn unsupported_version(supported: &VersionConstraint, version: &Version) -> String {
    format!(
        "Terraform version is not supported by Consul-Terraform-Sync, try updating to a different \
         version ({supported}): {version}"
    )
}

#[cfg(test)]
mod tests;
