//! The driver's block of the configuration: checked, completed from the environment and with
//! defaults, and read by everything else.

mod defaults;
mod reader;
mod tags;
mod token;
mod variables;
mod workspace_block;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cts_driver_terraform::{
    RootModule, VersionConstraint,
    dynamic::{self, ValueSource},
};
use cts_tasks::{
    Diagnostic, DriverSettings, Literal, ProviderBlock, Task,
    config::{Entry, find_provider},
};
use secrecy::{ExposeSecret as _, SecretString};

use self::{
    reader::Reader,
    token::{Environment, Origin},
    variables::Variables,
};
use crate::{ClientOptions, Hostname, Result, RetryOptions, TlsOptions};

pub(crate) use tags::SOURCE_TAG;
pub use workspace_block::WorkspaceBlock;
pub(crate) use workspace_block::task_block_schema;

/// Settings of the checked `driver "terraform-cloud"` block.
///
/// Source: Consul documentation, Consul-Terraform-Sync, HCP Terraform driver.
///
/// Deviation: `workspaces.project`, `workspaces.auto_apply`, `run`, `delete_workspace`,
/// `requests_per_second`, `max_retry` and `supported_versions` are ours, and no version of
/// Terraform is too new unless `supported_versions` says so.
#[derive(Clone)]
pub struct Settings {
    pub(crate) host: Hostname,
    pub(crate) organization: String,
    pub(crate) token: SecretString,
    /// Place at which the token is read again.
    origin: Origin,
    environment: Environment,
    pub(crate) prefix: String,
    pub(crate) tags: Vec<String>,
    pub(crate) allowed_tags: Vec<String>,
    pub(crate) denied_tags: Vec<String>,
    pub(crate) project: Option<String>,
    pub(crate) auto_apply: bool,
    pub(crate) delete_workspace: bool,
    pub(crate) run: RunSettings,
    requests_per_second: Option<u32>,
    max_retry: u32,
    tls: TlsOptions,
    required_providers: BTreeMap<String, Literal>,
    providers: Vec<ProviderBlock>,
    supported_versions: VersionConstraint,
    values: Arc<dyn ValueSource>,
    /// The same, as the token's user sees it: the lease of a token out of Vault is kept.
    token_values: Arc<dyn ValueSource>,
    base_dir: PathBuf,
}

/// Settings of the block `run`.
#[derive(Debug, Clone)]
pub(crate) struct RunSettings {
    /// First wait between two looks at a run.
    pub(crate) poll_min: Duration,
    /// Longest wait while a run goes on.
    pub(crate) poll_max: Duration,
    /// Time that a run may take; `None` is without limit.
    pub(crate) timeout: Option<Duration>,
    /// `true` to discard runs of ours that wait when there is something newer.
    pub(crate) discard_stale: bool,
    /// `true` to discard a run of somebody else that waits for a person and holds up the task.
    pub(crate) discard_others: bool,
    /// Number of times that a failed run is followed by another with the same values.
    pub(crate) retry_errored: u32,
}

impl Settings {
    /// Checks the block and completes it from the process's environment (`TFC_HOSTNAME`,
    /// `TFC_ORGANIZATION`, `TFC_TOKEN`) and with defaults.
    ///
    /// # Errors
    ///
    /// Every mistake found, each with its place. Warnings are pushed to `warnings`.
    pub fn read(
        settings: DriverSettings<'_>,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Self, Vec<Diagnostic>> {
        Self::read_with(settings, &|name| std::env::var(name).ok(), warnings)
    }

    /// Checks the block as [`Settings::read`] does, with another environment.
    ///
    /// # Errors
    ///
    /// The errors of [`Settings::read`].
    pub fn read_with(
        settings: DriverSettings<'_>,
        environment: &dyn Fn(&str) -> Option<String>,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut reader = Reader::new(environment, warnings);
        let mut read = Self::defaults(&settings);
        let mut deferred = DeferredEntries::default();
        let body = settings.body.map(|body| reader.entries(body, PATH)).unwrap_or_default();
        for entry in body {
            read.set(entry, &mut reader, &mut deferred);
        }
        // After the block: the environment stands over it, and what is missing is known only now.
        read.complete(&deferred, &mut reader);
        // Blocks of tasks need `supported_versions`, which may stand anywhere in the driver's
        // block.
        for block in settings.task_blocks {
            reader.workspace_block(block, &read.supported_versions);
        }
        reader.finish(read)
    }

    fn set(&mut self, entry: &Entry, reader: &mut Reader<'_>, deferred: &mut DeferredEntries) {
        match entry.key.as_str() {
            "hostname" => deferred.hostname = reader.string(entry),
            "organization" => self.organization = reader.string(entry).unwrap_or_default(),
            "token" => {
                self.token = reader.string(entry).unwrap_or_default().into();
                self.origin = Origin::of(entry);
            }
            "workspace_prefix" => {
                deferred.old_prefix = reader.string(entry);
                reader.warn(entry, "workspace_prefix is deprecated since 0.5", "use workspaces { prefix = … }, and write the dash between prefix and name yourself");
            }
            "workspaces" => self.set_workspaces(entry, reader, deferred),
            "required_providers" => {
                deferred.required_providers = true;
                self.required_providers.extend(reader.required_providers(entry));
            }
            "tls" => self.set_tls(entry, reader),
            "run" => self.set_run(entry, reader),
            "requests_per_second" => self.requests_per_second = reader.number(entry, 1000),
            "max_retry" => self.max_retry = reader.number(entry, 100).unwrap_or(self.max_retry),
            "supported_versions" => reader.parsed(entry, &mut self.supported_versions),
            "delete_workspace" => match reader.string(entry).as_deref() {
                Some("never") | None => self.delete_workspace = false,
                Some("safe") => self.delete_workspace = true,
                Some(_) => reader.error(entry, "delete_workspace must be \"never\" or \"safe\""),
            },
            _ => reader.unknown(entry, PATH),
        }
    }

    fn set_workspaces(
        &mut self,
        entry: &Entry,
        reader: &mut Reader<'_>,
        deferred: &mut DeferredEntries,
    ) {
        for entry in reader.entries(&entry.value, "workspaces") {
            match entry.key.as_str() {
                "prefix" => deferred.prefix = reader.string(entry),
                "tags" => self.tags = reader.tags(entry),
                "tags_allowlist" => self.allowed_tags = reader.tags(entry),
                "tags_denylist" => self.denied_tags = reader.tags(entry),
                "project" => self.project = reader.string(entry),
                "auto_apply" => reader.boolean(entry, &mut self.auto_apply),
                _ => reader.unknown(entry, "driver.terraform-cloud.workspaces"),
            }
        }
    }

    fn set_run(&mut self, entry: &Entry, reader: &mut Reader<'_>) {
        let run = &mut self.run;
        for entry in reader.entries(&entry.value, "run") {
            match entry.key.as_str() {
                "poll_min" => reader.duration(entry, &mut run.poll_min),
                "poll_max" => reader.duration(entry, &mut run.poll_max),
                "timeout" => {
                    let mut timeout = Duration::ZERO;
                    reader.duration(entry, &mut timeout);
                    // Zero means no limit, as a missing entry does.
                    run.timeout = (timeout > Duration::ZERO).then_some(timeout);
                }
                "discard_stale" => reader.boolean(entry, &mut run.discard_stale),
                "discard_others" => reader.boolean(entry, &mut run.discard_others),
                "retry_errored" => {
                    run.retry_errored = reader.number(entry, 100).unwrap_or_default();
                }
                _ => reader.unknown(entry, "driver.terraform-cloud.run"),
            }
        }
        // Below 10 ms the rate limit would be used up by one run.
        if run.poll_min > run.poll_max || run.poll_min < Duration::from_millis(10) {
            reader.error(entry, "run.poll_min must be at least 10ms and at most run.poll_max");
        }
    }

    fn set_tls(&mut self, entry: &Entry, reader: &mut Reader<'_>) {
        let mut enabled = true;
        let mut tls = TlsOptions::default();
        for entry in reader.entries(&entry.value, "tls") {
            let mut file = |target: &mut Option<PathBuf>| {
                // Relative paths start at the configuration, not where the process was started.
                *target = reader.string(entry).map(|path| self.base_dir.join(path));
            };
            match entry.key.as_str() {
                "ca_cert" => file(&mut tls.ca_cert),
                "ca_path" => file(&mut tls.ca_path),
                "cert" => file(&mut tls.cert),
                "key" => file(&mut tls.key),
                "enabled" => reader.boolean(entry, &mut enabled),
                "server_name" => tls.server_name = reader.string(entry),
                "verify" => reader.boolean(entry, &mut tls.verify),
                _ => reader.unknown(entry, "driver.terraform-cloud.tls"),
            }
        }
        // `enabled = false` switches the whole block off, as upstream does.
        if enabled {
            self.tls = tls;
        }
    }

    /// Completes the settings from the environment, and reports what is missing.
    fn complete(&mut self, deferred: &DeferredEntries, reader: &mut Reader<'_>) {
        let variable = Variables(reader.environment);
        // Before the token, which may be stored by `terraform login` for this very host.
        if let Some(host) = variable.get("TFC_HOSTNAME").or_else(|| deferred.hostname.clone()) {
            match host.parse() {
                Ok(host) => self.host = host,
                Err(error) => reader.problem(consul_watch::error_chain(&error)),
            }
        }
        if let Some(organization) = variable.get("TFC_ORGANIZATION") {
            self.organization = organization;
        }
        if let Some(token) = variable.get(token::VARIABLE) {
            self.token = token.into();
            self.origin = Origin::Environment;
        }
        if self.token.expose_secret().is_empty() {
            self.origin = Origin::Login;
            match token::login(&self.host, reader.environment) {
                // `None` is reported below with what to do; an error names a file that cannot be
                // read.
                Ok(token) => self.token = token.unwrap_or_default(),
                Err(error) => reader.problem(consul_watch::error_chain(&error)),
            }
        }
        if self.organization.is_empty() {
            reader.missing("organization", "set it, or the variable TFC_ORGANIZATION");
        }
        if self.token.expose_secret().is_empty() {
            reader.missing(
                "token",
                &format!(
                    "set it to the token of a team, set the variable TFC_TOKEN, or run `terraform \
                     login {}`",
                    self.host.authority()
                ),
            );
        }
        if !deferred.required_providers {
            reader.missing("required_providers", "the block may be empty: required_providers { }");
        }
        match (&deferred.prefix, &deferred.old_prefix) {
            (Some(_), Some(_)) => reader.problem(
                "set workspaces.prefix or the deprecated workspace_prefix, not both".to_owned(),
            ),
            (Some(prefix), None) => self.prefix.clone_from(prefix),
            // The deprecated setting had the dash added by upstream.
            (None, Some(prefix)) => self.prefix = format!("{prefix}-"),
            (None, None) => {}
        }
    }

    /// Returns the organization.
    pub fn organization(&self) -> &str {
        &self.organization
    }

    /// Returns the name of a task's workspace.
    pub fn workspace_name(&self, task: &Task) -> String {
        format!("{}{}", self.prefix, task.name)
    }

    /// Returns the options of a client that reaches the platform.
    pub fn client_options(&self) -> ClientOptions {
        ClientOptions {
            host: self.host.clone(),
            tls: self.tls.clone(),
            retry: RetryOptions { limit: self.max_retry },
            requests_per_second: self.requests_per_second,
        }
    }

    /// Returns the folder at which relative paths of the configuration start.
    pub fn base_dir(&self) -> &Path {
        &self.base_dir
    }

    /// Returns the providers of the configuration.
    pub(crate) fn providers(&self) -> &[ProviderBlock] {
        &self.providers
    }

    /// Builds the root module of a task: without a backend, because the workspace is one.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Module`] if the task asks for what Terraform would refuse.
    pub(crate) fn root_module(
        &self,
        task: &Task,
        providers: &[ProviderBlock],
    ) -> Result<RootModule> {
        Ok(RootModule::builder(task)
            .required_version(self.supported_versions.as_str())
            .required_providers(self.required_providers.clone())
            .providers(providers)?
            .build())
    }

    /// Returns the versions of Terraform that a workspace may have.
    pub(crate) fn supported_versions(&self) -> &str {
        self.supported_versions.as_str()
    }
}

/// Path of the block in messages.
const PATH: &str = "driver.terraform-cloud";

/// Entries that count only when all are known, because they depend on each other.
#[derive(Default)]
struct DeferredEntries {
    hostname: Option<String>,
    prefix: Option<String>,
    old_prefix: Option<String>,
    required_providers: bool,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the token nor providers, whose values are secrets.
        f.debug_struct("Settings")
            .field("host", &self.host)
            .field("organization", &self.organization)
            .field("prefix", &self.prefix)
            .field("tags", &self.tags)
            .finish_non_exhaustive()
    }
}

/// Returns a source as one user of it sees it.
fn for_one(values: &Arc<dyn ValueSource>) -> Arc<dyn ValueSource> {
    values.for_task().unwrap_or_else(|| Arc::clone(values))
}

impl Settings {
    /// Replaces the source of dynamic values, which asks the process, Consul and Vault.
    #[must_use]
    pub fn with_values(mut self, values: Arc<dyn ValueSource>) -> Self {
        self.token_values = for_one(&values);
        self.values = values;
        self
    }

    /// Replaces the environment in which a token is looked up again, which is the process's.
    #[must_use]
    pub fn with_environment(
        mut self,
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.environment = Arc::new(environment);
        self
    }

    /// Returns the providers of a task with the values that they have now.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Module`] for a value that cannot be read.
    pub(crate) async fn current_providers(
        &self,
        task: &Task,
        values: &dyn ValueSource,
    ) -> Result<Vec<ProviderBlock>> {
        // Only those of the task: a Vault that another task needs must not fail this one.
        let used = task.providers.iter().filter_map(|id| find_provider(&self.providers, id));
        let used: BTreeSet<_> = used.map(ProviderBlock::id).collect();
        let blocks = self.providers.iter().filter(|block| used.contains(&block.id()));
        let blocks: Vec<_> = blocks.cloned().collect();
        Ok(dynamic::resolve(&blocks, values).await?)
    }

    /// Returns the source of dynamic values.
    pub(crate) fn values(&self) -> &Arc<dyn ValueSource> {
        &self.values
    }

    /// Returns the source of dynamic values as one task sees it; see [`ValueSource::for_task`].
    pub(crate) fn values_for_task(&self) -> Arc<dyn ValueSource> {
        for_one(&self.values)
    }

    /// Waits until a dynamic value that the task uses is another one than it was.
    pub(crate) async fn values_changed(&self, task: &Task, values: &dyn ValueSource) {
        dynamic::changed(task, &self.providers, values).await;
    }

    /// Returns the token as it is now, which may be a dynamic value.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Module`] for a value that cannot be read.
    pub(crate) async fn current_token(&self) -> Result<SecretString> {
        self.resolved(self.token.clone()).await
    }

    /// Returns the token as it now is at the place that it came from.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Setting`] for a file that cannot be read; [`crate::Error::Module`] for a
    /// value that cannot be read.
    pub(crate) async fn renewed_token(&self) -> Result<SecretString> {
        let (origin, host) = (self.origin.clone(), self.host.clone());
        let environment = Arc::clone(&self.environment);
        // Files are read, which blocks.
        let reading = tokio::task::spawn_blocking(move || origin.read(&host, &*environment));
        let found = reading.await.map_err(|source| crate::Error::Setting {
            setting: "token",
            problem: format!("cannot be read again: {source}"),
        })??;
        // Nothing there any more: the one in memory may still be right.
        self.resolved(found.unwrap_or_else(|| self.token.clone())).await
    }

    async fn resolved(&self, token: SecretString) -> Result<SecretString> {
        // In the form of a provider, whose values the same code resolves.
        let mut block = ProviderBlock::new("terraform-cloud");
        block.task_env.insert("token".to_owned(), token);
        let resolved = dynamic::resolve(&[block], &*self.token_values).await?;
        let token =
            resolved.into_iter().next().and_then(|mut block| block.task_env.remove("token"));
        Ok(token.unwrap_or_default())
    }
}
