//! A task as requests and answers write it.

use std::{collections::BTreeMap, time::Duration};

use consul_watch::GoDuration;
use serde::{Deserialize, Serialize};

use crate::{
    BufferPeriod, CatalogServicesSelection, Condition, KvSelection, Literal, ModuleInput, Retry,
    ServiceSelection, Task, TaskEnv,
};

/// A task as configured: without what it only inherits, and without its directory.
///
/// A request may leave out everything but `name`, `condition`, and what the driver requires
/// of its tasks, such as a `module`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDocument {
    /// Names the task.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// `true` if the task runs at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The module's source; empty where the driver requires none.
    #[serde(default)]
    pub module: String,
    /// The module's version; empty is the latest.
    #[serde(default)]
    pub version: String,
    /// Ids of providers, as `name` or `name.alias`.
    #[serde(default)]
    pub providers: Vec<String>,
    /// Values of the module's variables, each an expression: a string has its quotes.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// Only if the task has one of its own; of a scheduled task it is off, with zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_period: Option<BufferPeriodDocument>,
    /// When it runs; `None`, `{}` in JSON, for a task without a condition.
    #[serde(with = "condition")]
    pub condition: Option<ConditionDocument>,
    /// Further inputs of the task's module; `{}` in JSON if there are none.
    #[serde(default)]
    pub module_input: ModuleInputDocument,
    /// The most resources that one run may destroy without approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_destroy: Option<u64>,
    /// `true` if every plan with changes has to be approved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_approval: bool,
    /// `true` if the task's infrastructure is destroyed when it is deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub destroy_on_delete: bool,
    /// When to look for drift, as a cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_check: Option<String>,
    /// Environment variables of the driver's commands: in an answer the names, each with the
    /// value `[redacted]`; in a request the values themselves.
    #[serde(default, skip_serializing_if = "TaskEnv::is_empty")]
    pub env: TaskEnv,
    /// The longest that one run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Retries of a failed run, if the task has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryDocument>,
    /// The longest that a run may go on after it was told to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_timeout: Option<GoDuration>,
    /// Blocks that only the driver knows, such as `terraform_cloud_workspace`.
    #[serde(flatten)]
    pub driver_blocks: BTreeMap<String, Literal>,
}

/// A condition as an object that is empty for none.
mod condition {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error, ser::SerializeMap};

    use super::ConditionDocument;

    #[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub(super) fn serialize<S: Serializer>(
        condition: &Option<ConditionDocument>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match condition {
            Some(condition) => condition.serialize(serializer),
            None => serializer.serialize_map(Some(0))?.end(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ConditionDocument>, D::Error> {
        let value = serde_json::Map::deserialize(deserializer)?;
        if value.is_empty() {
            return Ok(None);
        }
        serde_json::from_value(value.into()).map(Some).map_err(D::Error::custom)
    }
}

fn yes() -> bool {
    true
}

/// Time for which changes are collected before a run. What is left out of a request
/// is unset, as in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferPeriodDocument {
    /// `true` if changes are collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The quiet time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<GoDuration>,
    /// The longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<GoDuration>,
}

/// Tries of a run, and the pauses between them. What is left out of a request is the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryDocument {
    /// Tries in all, the first one too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Pause before the second try; it doubles from try to try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<GoDuration>,
    /// The longest pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backoff: Option<GoDuration>,
}

impl From<Retry> for RetryDocument {
    fn from(retry: Retry) -> Self {
        Self {
            attempts: retry.limit.map(|retries| retries.saturating_add(1)),
            backoff: Some(retry.backoff.into()),
            max_backoff: Some(retry.max_backoff.into()),
        }
    }
}

/// When a task runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionDocument {
    /// Instances of services change.
    Services(UsedAsInput<ServicesDocument>),
    /// Services come and go.
    CatalogServices(UsedAsInput<CatalogServicesDocument>),
    /// Keys change.
    ConsulKv(UsedAsInput<ConsulKvDocument>),
    /// A time comes.
    Schedule {
        /// When, as a cron expression.
        cron: String,
    },
}

/// A condition's selection, and whether the module gets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsedAsInput<T> {
    /// Watched data.
    #[serde(flatten)]
    pub selection: T,
    /// `true` if the module gets the data.
    #[serde(default = "yes")]
    pub use_as_module_input: bool,
}

/// Further inputs of a module.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModuleInputDocument {
    /// Instances of services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<ServicesDocument>,
    /// Keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consul_kv: Option<ConsulKvDocument>,
}

/// Services, either by `names` or by `regexp`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesDocument {
    /// Their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Regular expression that the names have to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regexp: Option<String>,
    /// Empty is the agent's.
    #[serde(default)]
    pub datacenter: String,
    /// Enterprise namespace; empty is the default.
    #[serde(default)]
    pub namespace: String,
    /// A filter expression of Consul.
    #[serde(default)]
    pub filter: String,
    /// Given to the module with each service.
    #[serde(default)]
    pub cts_user_defined_meta: BTreeMap<String, String>,
}

/// The names of services in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogServicesDocument {
    /// Regular expression that the names have to match.
    pub regexp: String,
    /// Empty is the agent's.
    #[serde(default)]
    pub datacenter: String,
    /// Enterprise namespace; empty is the default.
    #[serde(default)]
    pub namespace: String,
    /// Only services on nodes with this metadata.
    #[serde(default)]
    pub node_meta: BTreeMap<String, String>,
}

/// Keys of Consul KV.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsulKvDocument {
    /// The key, or what the keys begin with.
    pub path: String,
    /// `true` if all keys below `path` are meant.
    #[serde(default)]
    pub recurse: bool,
    /// Empty is the agent's.
    #[serde(default)]
    pub datacenter: String,
    /// Enterprise namespace; empty is the default.
    #[serde(default)]
    pub namespace: String,
}

impl TaskDocument {
    /// The document of a request that creates `task`: as an answer's, but with the values of its
    /// environment variables.
    pub fn request(task: &Task) -> Self {
        Self { env: task.env.clone(), ..Self::from(task) }
    }
}

/// As an answer shows the task.
impl From<&Task> for TaskDocument {
    fn from(task: &Task) -> Self {
        let expressions = task.variables.iter();
        let scheduled = matches!(task.condition, Condition::Schedule { .. });
        let mut module_input = ModuleInputDocument::default();
        for input in &task.module_inputs {
            match input {
                ModuleInput::Services(services) => module_input.services = Some(services.into()),
                ModuleInput::ConsulKv(keys) => module_input.consul_kv = Some(keys.into()),
            }
        }
        if task.unconditional
            && let Condition::Services { services, .. } = &task.condition
            && !matches!(services, ServiceSelection::Named(named) if named.is_empty())
        {
            module_input.services = Some(services.into());
        }
        Self {
            name: task.name.to_string(),
            description: task.description.clone(),
            enabled: task.enabled,
            module: task.module.clone(),
            version: task.version.clone().unwrap_or_default(),
            providers: task.providers.clone(),
            variables: expressions
                .map(|(key, value)| (key.clone(), value.to_expression()))
                .collect(),
            buffer_period: (scheduled || !task.buffer_period_inherited)
                .then(|| task.buffer_period.into()),
            condition: (!task.unconditional).then(|| (&task.condition).into()),
            module_input,
            max_destroy: task.guard.max_destroy,
            require_approval: task.guard.require_approval,
            destroy_on_delete: task.destroy_on_delete,
            drift_check: task.drift_check.clone(),
            env: task.env.masked(),
            timeout: task.timeout.map(Into::into),
            retry: task.retry.map(Into::into),
            shutdown_timeout: task.shutdown_timeout.map(Into::into),
            driver_blocks: task
                .driver_blocks
                .iter()
                .filter(|(_, block)| !says_nothing(block))
                .map(|(name, block)| (name.clone(), block.clone()))
                .collect(),
        }
    }
}

/// A block in which nothing is set, or only to the empty text, is as good as none.
fn says_nothing(block: &Literal) -> bool {
    match block {
        Literal::Map(members) => members.values().all(says_nothing),
        Literal::String(text) => text.is_empty(),
        Literal::Null => true,
        _ => false,
    }
}

impl From<BufferPeriod> for BufferPeriodDocument {
    fn from(period: BufferPeriod) -> Self {
        let (enabled, min, max) = match period {
            BufferPeriod::Disabled => (false, Duration::ZERO, Duration::ZERO),
            BufferPeriod::Enabled { min, max } => (true, min, max),
        };
        Self { enabled: Some(enabled), min: Some(min.into()), max: Some(max.into()) }
    }
}

impl From<&Condition> for ConditionDocument {
    fn from(condition: &Condition) -> Self {
        match condition {
            Condition::Services { services, use_as_module_input } => Self::Services(UsedAsInput {
                selection: services.into(),
                use_as_module_input: *use_as_module_input,
            }),
            Condition::CatalogServices { services, use_as_module_input } => {
                Self::CatalogServices(UsedAsInput {
                    selection: services.into(),
                    use_as_module_input: *use_as_module_input,
                })
            }
            Condition::ConsulKv { keys, use_as_module_input } => Self::ConsulKv(UsedAsInput {
                selection: keys.into(),
                use_as_module_input: *use_as_module_input,
            }),
            Condition::Schedule { cron } => Self::Schedule { cron: cron.clone() },
        }
    }
}

impl From<&ServiceSelection> for ServicesDocument {
    /// The settings of a block hold for all of its names.
    fn from(selection: &ServiceSelection) -> Self {
        match selection {
            ServiceSelection::Named(named) => {
                let first = named.first().cloned();
                let names = named.iter().map(|service| service.name.clone()).collect();
                first.map_or_else(Self::default, |first| Self {
                    names: Some(names),
                    regexp: None,
                    datacenter: first.datacenter,
                    namespace: first.namespace,
                    filter: first.filter,
                    cts_user_defined_meta: first.cts_user_defined_meta,
                })
            }
            ServiceSelection::Matching(matching) => Self {
                names: None,
                regexp: Some(matching.regexp.clone()),
                datacenter: matching.datacenter.clone(),
                namespace: matching.namespace.clone(),
                filter: matching.filter.clone(),
                cts_user_defined_meta: matching.cts_user_defined_meta.clone(),
            },
        }
    }
}

impl From<&CatalogServicesSelection> for CatalogServicesDocument {
    fn from(selection: &CatalogServicesSelection) -> Self {
        Self {
            regexp: selection.regexp.clone(),
            datacenter: selection.datacenter.clone(),
            namespace: selection.namespace.clone(),
            node_meta: selection.node_meta.clone(),
        }
    }
}

impl From<&KvSelection> for ConsulKvDocument {
    fn from(selection: &KvSelection) -> Self {
        Self {
            path: selection.path.clone(),
            recurse: selection.recurse,
            datacenter: selection.datacenter.clone(),
            namespace: selection.namespace.clone(),
        }
    }
}
