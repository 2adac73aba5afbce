//! Tasks: what makes one run, and what its module gets.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

#[cfg(feature = "engine")]
use consul_watch::watch::Buffer;
use serde::{Deserialize, Serialize};

use crate::{Cron, Guard, InvalidCron, Literal, Retry, TaskEnv};

/// Folder of the tasks' directories unless the configuration names another.
pub(crate) const DEFAULT_WORKING_DIR: &str = "sync-tasks";
/// Quiet time of a buffer period that has none of its own.
pub(crate) const DEFAULT_MIN: Duration = Duration::from_secs(5);
/// The maximum as a multiple of the minimum, unless it is set.
pub(crate) const MAX_FACTOR: u32 = 4;

/// The name of a task: a letter or `_`, then letters, digits, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskName(String);

/// A text that cannot name a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a task name must start with a letter or underscore and may contain only letters, digits, underscores, and dashes: {0:?}"
)]
pub struct InvalidTaskName(String);

impl TaskName {
    /// A name that was refused, for what is reported about its task beside that.
    #[cfg(feature = "engine")]
    pub(crate) fn refused(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TaskName {
    type Err = InvalidTaskName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for TaskName {
    type Error = InvalidTaskName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut characters = text.chars();
        let first = characters.next().is_some_and(|c| c == '_' || c.is_alphabetic());
        if first && characters.all(|c| c == '_' || c == '-' || c.is_alphanumeric()) {
            Ok(Self(text))
        } else {
            Err(InvalidTaskName(text))
        }
    }
}

impl From<TaskName> for String {
    fn from(name: TaskName) -> Self {
        name.0
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A checked task: the condition of its runs, its module, and the module's inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "settings that do not depend on each other")]
pub struct Task {
    /// Name, unique in a deployment.
    pub name: TaskName,
    /// For people; stands in the generated files.
    pub description: String,
    /// A disabled task is prepared but never run.
    pub enabled: bool,
    /// Value of `enabled` in the files of the deployment; `None` for a task that stands in no
    /// file, such as one that was made through the API. A store thereby knows which tasks go
    /// when they leave the files, and whether somebody has enabled or disabled one since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_enabled: Option<bool>,
    /// The module's source, as written; empty where the driver requires none.
    pub module: String,
    /// The module's version, for modules of a registry.
    pub version: Option<String>,
    /// The providers, as `name` or `name.alias`.
    pub providers: Vec<String>,
    /// Input variables of the module besides those made from Consul.
    pub variables: BTreeMap<String, Literal>,
    /// Time for which changes are collected before a run.
    pub buffer_period: BufferPeriod,
    /// `true` if the buffer period is the deployment's, and not the task's own.
    #[serde(default)]
    pub buffer_period_inherited: bool,
    /// Folder in which the driver keeps the task's files.
    pub working_dir: PathBuf,
    /// `true` if `working_dir` is the deployment's, with the task's name, and
    /// not the task's own: each instance then has it below its own.
    #[serde(default)]
    pub working_dir_inherited: bool,
    /// Condition that makes the task run.
    pub condition: Condition,
    /// Inputs of the module besides the condition's own data.
    pub module_inputs: Vec<ModuleInput>,
    /// `true` if the services come from the deprecated list `services`, which
    /// generated files name before the condition. With another condition they are
    /// the first of the module inputs.
    #[serde(default)]
    pub services_listed: bool,
    /// `true` if no condition is configured. The task runs once, and then whenever the
    /// services among its inputs change; these stand in [`Task::condition`], and are none
    /// without such an input.
    #[serde(default)]
    pub unconditional: bool,
    /// Limits that a plan has to keep to be applied without a person.
    #[serde(default)]
    pub guard: Guard,
    /// `true` if the infrastructure is destroyed when somebody deletes the task;
    /// false by default, as upstream. A task that only left the configuration is
    /// not deleted in that sense.
    #[serde(default)]
    pub destroy_on_delete: bool,
    /// When to look for differences between what was last applied and what is
    /// really there, as a cron expression; `None`, the default, is never.
    #[serde(default)]
    pub drift_check: Option<String>,
    /// Environment variables of the driver's commands, besides those that the driver sets.
    #[serde(default, skip_serializing_if = "TaskEnv::is_empty")]
    pub env: TaskEnv,
    /// The longest that one run may take, with its tries and the pauses between them, but
    /// without waiting for its turn or for a person; `None`, the default, sets no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Retries of a failed run, instead of those of [`EngineOptions::retry`](crate::EngineOptions).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The longest that a run may go on after it was told to end, before it is killed; `None`,
    /// the default, leaves that to the deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_timeout: Option<Duration>,
    /// Blocks that belong to a driver, by name; the driver has checked them.
    pub driver_blocks: BTreeMap<String, Literal>,
}

impl Task {
    /// Creates an enabled task without module, guard and inputs of its own. Its buffer period
    /// is [`BufferPeriod::default`], and none for a schedule; its working directory is below
    /// the deployment's. Everything else is a field to set.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use cts_tasks::{BufferPeriod, Condition, KvSelection, ModuleInput, Retry, Task};
    ///
    /// let mut task = Task::new("web".parse()?, Condition::services(["web", "api"]))
    ///     .with_module("./modules/haproxy")
    ///     .with_input(ModuleInput::ConsulKv(KvSelection::below("haproxy/")))
    ///     .with_variable("port", 8080);
    /// task.buffer_period = BufferPeriod::Disabled;
    /// task.timeout = Some(Duration::from_secs(600));
    /// task.retry = Some(Retry::TASK.with_limit(Some(5)));
    /// task.env.set("HAPROXY_TOKEN", "s3cret")?;
    /// assert_eq!(task.service_names(), ["web", "api"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(name: TaskName, condition: Condition) -> Self {
        let scheduled = matches!(condition, Condition::Schedule { .. });
        Self {
            description: String::new(),
            enabled: true,
            configured_enabled: None,
            module: String::new(),
            version: None,
            providers: Vec::new(),
            variables: BTreeMap::new(),
            buffer_period: if scheduled { BufferPeriod::Disabled } else { BufferPeriod::default() },
            buffer_period_inherited: true,
            working_dir: Path::new(DEFAULT_WORKING_DIR).join(name.as_str()),
            working_dir_inherited: true,
            condition,
            module_inputs: Vec::new(),
            services_listed: false,
            unconditional: false,
            guard: Guard::default(),
            destroy_on_delete: false,
            drift_check: None,
            env: TaskEnv::default(),
            timeout: None,
            retry: None,
            shutdown_timeout: None,
            driver_blocks: BTreeMap::new(),
            name,
        }
    }

    /// Sets the module's source, such as a local path.
    #[must_use]
    pub fn with_module(mut self, source: impl Into<String>) -> Self {
        self.module = source.into();
        self
    }

    /// Sets one of the module's variables.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<Literal>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Adds what the module gets besides the condition's own data.
    #[must_use]
    pub fn with_input(mut self, input: ModuleInput) -> Self {
        self.module_inputs.push(input);
        self
    }

    /// Sets a block that belongs to the driver.
    #[must_use]
    pub fn with_driver_block(mut self, name: impl Into<String>, body: impl Into<Literal>) -> Self {
        self.driver_blocks.insert(name.into(), body.into());
        self
    }

    /// Gives a task without a working directory of its own one below `deployment`.
    #[must_use]
    pub fn resolved(mut self, deployment: &Path) -> Self {
        if self.working_dir_inherited {
            self.working_dir = deployment.join(self.name.as_str());
        }
        self
    }

    /// Returns the task's selection of service instances, and `true` if its module
    /// gets them.
    pub fn service_selection(&self) -> Option<(&ServiceSelection, bool)> {
        if let Condition::Services { services, use_as_module_input } = &self.condition {
            return Some((services, *use_as_module_input));
        }
        self.module_inputs.iter().find_map(|input| match input {
            ModuleInput::Services(services) => Some((services, true)),
            ModuleInput::ConsulKv(_) => None,
        })
    }

    /// The names in the deprecated list of services; none for a task without one.
    pub fn listed_services(&self) -> Vec<String> {
        if self.services_listed { self.service_names() } else { Vec::new() }
    }

    /// The services that the task selects by name.
    pub fn service_names(&self) -> Vec<String> {
        match self.service_selection() {
            Some((ServiceSelection::Named(named), _)) => {
                named.iter().map(|service| service.name.clone()).collect()
            }
            Some((ServiceSelection::Matching(_), _)) | None => Vec::new(),
        }
    }
}

/// The time for which changes are collected before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BufferPeriod {
    /// Every change runs the task at once.
    Disabled,
    /// A run starts after a quiet time of `min`, and at the latest `max` after the first change.
    Enabled {
        /// The quiet time.
        min: Duration,
        /// The longest wait.
        max: Duration,
    },
}

impl Default for BufferPeriod {
    /// 5 s of quiet, at most 20 s.
    fn default() -> Self {
        Self::Enabled { min: DEFAULT_MIN, max: DEFAULT_MIN * MAX_FACTOR }
    }
}

#[cfg(feature = "engine")]
impl From<BufferPeriod> for Buffer {
    fn from(period: BufferPeriod) -> Self {
        match period {
            BufferPeriod::Disabled => Self::none(),
            BufferPeriod::Enabled { min, max } => Self::new(min, max),
        }
    }
}

/// The conditions that make a task run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Condition {
    /// A change among service instances.
    Services {
        /// Selected instances.
        services: ServiceSelection,
        /// `true` if the module gets them.
        use_as_module_input: bool,
    },
    /// A change of the set of service names.
    CatalogServices {
        /// Selected names.
        services: CatalogServicesSelection,
        /// `true` if the module gets them.
        use_as_module_input: bool,
    },
    /// A change of a key, or under a prefix.
    ConsulKv {
        /// Selected keys.
        keys: KvSelection,
        /// `true` if the module gets them.
        use_as_module_input: bool,
    },
    /// The clock.
    Schedule {
        /// The cron expression, as written.
        cron: String,
    },
}

impl Condition {
    /// Returns the condition that instances of services change, by the services' names. The
    /// module gets them.
    pub fn services<S: Into<NamedService>>(services: impl IntoIterator<Item = S>) -> Self {
        let named = services.into_iter().map(Into::into).collect();
        Self::Services { services: ServiceSelection::Named(named), use_as_module_input: true }
    }

    /// Returns the condition that instances of any service change whose name matches. The
    /// module gets them.
    pub fn services_matching(services: MatchingServices) -> Self {
        Self::Services { services: ServiceSelection::Matching(services), use_as_module_input: true }
    }

    /// Returns the condition that services come and go. The module gets their names.
    pub fn catalog_services(services: CatalogServicesSelection) -> Self {
        Self::CatalogServices { services, use_as_module_input: true }
    }

    /// Returns the condition that keys change. The module gets them.
    pub fn consul_kv(keys: KvSelection) -> Self {
        Self::ConsulKv { keys, use_as_module_input: true }
    }

    /// Returns the condition that a time comes, by a cron expression such as `@hourly`.
    ///
    /// # Errors
    ///
    /// When `cron` is no such expression.
    pub fn schedule(cron: impl Into<String>) -> Result<Self, InvalidCron> {
        let cron = cron.into();
        cron.parse::<Cron>()?;
        Ok(Self::Schedule { cron })
    }
}

/// Data that a task's module gets without it making the task run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ModuleInput {
    /// Service instances.
    Services(ServiceSelection),
    /// Keys and values.
    ConsulKv(KvSelection),
}

/// A selection of service instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ServiceSelection {
    /// Instances of the services named, in this order after sorting by name.
    Named(Vec<NamedService>),
    /// Instances of every service whose name matches.
    Matching(MatchingServices),
}

/// A service by name, and what narrows its instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedService {
    /// The service's name in Consul.
    pub name: String,
    /// Datacenter; empty is the agent's own.
    pub datacenter: String,
    /// Enterprise namespace; empty is the default.
    pub namespace: String,
    /// Consul filter expression; empty is none.
    pub filter: String,
    /// Metadata of the operator's, handed through to the module.
    pub cts_user_defined_meta: BTreeMap<String, String>,
}

impl NamedService {
    /// Selects all healthy instances of a service in the agent's datacenter. What narrows
    /// them is set by struct update:
    ///
    /// ```
    /// use cts_tasks::NamedService;
    ///
    /// let web = NamedService { filter: "Node.Meta.rack == a".into(), ..NamedService::new("web") };
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            datacenter: String::new(),
            namespace: String::new(),
            filter: String::new(),
            cts_user_defined_meta: BTreeMap::new(),
        }
    }
}

impl From<&str> for NamedService {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for NamedService {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

/// A text that is no regular expression, with what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a regular expression: {0}")]
pub struct InvalidRegexp(String);

/// Checks that an expression compiles.
fn checked_regexp(regexp: String) -> Result<String, InvalidRegexp> {
    match regex::Regex::new(&regexp) {
        Ok(_) => Ok(regexp),
        Err(error) => Err(InvalidRegexp(error.to_string())),
    }
}

/// All services whose name matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchingServices {
    /// RE2 expression, matched anywhere in the name; checked to compile.
    pub regexp: String,
    /// Datacenter; empty is the agent's own.
    pub datacenter: String,
    /// Enterprise namespace; empty is the default.
    pub namespace: String,
    /// Consul filter expression; empty is none.
    pub filter: String,
    /// Metadata of the operator's, handed through to the module.
    pub cts_user_defined_meta: BTreeMap<String, String>,
}

impl MatchingServices {
    /// Selects the services whose name `regexp` matches anywhere. The other fields are set
    /// by struct update.
    ///
    /// # Errors
    ///
    /// When `regexp` does not compile.
    pub fn new(regexp: impl Into<String>) -> Result<Self, InvalidRegexp> {
        Ok(Self {
            regexp: checked_regexp(regexp.into())?,
            datacenter: String::new(),
            namespace: String::new(),
            filter: String::new(),
            cts_user_defined_meta: BTreeMap::new(),
        })
    }
}

/// A selection of service names from the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogServicesSelection {
    /// RE2 expression, matched anywhere in the name; checked to compile.
    pub regexp: String,
    /// Datacenter; empty is the agent's own.
    pub datacenter: String,
    /// Enterprise namespace; empty is the default.
    pub namespace: String,
    /// Metadata that the nodes must have.
    pub node_meta: BTreeMap<String, String>,
}

impl CatalogServicesSelection {
    /// Selects the names that `regexp` matches anywhere. The other fields are set by struct
    /// update.
    ///
    /// # Errors
    ///
    /// When `regexp` does not compile.
    pub fn new(regexp: impl Into<String>) -> Result<Self, InvalidRegexp> {
        Ok(Self {
            regexp: checked_regexp(regexp.into())?,
            datacenter: String::new(),
            namespace: String::new(),
            node_meta: BTreeMap::new(),
        })
    }
}

/// A selection of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvSelection {
    /// The key, or the prefix.
    pub path: String,
    /// `true` if `path` is a prefix.
    pub recurse: bool,
    /// Datacenter; empty is the agent's own.
    pub datacenter: String,
    /// Enterprise namespace; empty is the default.
    pub namespace: String,
}

impl KvSelection {
    /// Selects one key.
    pub fn key(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            recurse: false,
            datacenter: String::new(),
            namespace: String::new(),
        }
    }

    /// Selects every key that begins with `prefix`.
    pub fn below(prefix: impl Into<String>) -> Self {
        Self { recurse: true, ..Self::key(prefix) }
    }
}
