//! Tasks as the API writes them: as configured.

use std::{collections::BTreeMap, time::Duration};

use consul_watch::GoDuration;
use serde::Serialize;

use crate::{
    BufferPeriod, CatalogServicesSelection, Condition, KvSelection, Literal, ModuleInput,
    ServiceSelection, Task,
};

/// One task.
///
/// Source: Consul-Terraform-Sync 0.9, `api/openapi.yaml` (`Task`).
#[derive(Debug, Serialize)]
pub(crate) struct TaskForm {
    name: String,
    description: String,
    enabled: bool,
    module: String,
    version: String,
    providers: Vec<String>,
    variables: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buffer_period: Option<BufferForm>,
    condition: ConditionForm,
    #[serde(skip_serializing_if = "Option::is_none")]
    module_input: Option<ModuleInputForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_destroy: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    require_approval: bool,
    /// What only the driver knows, such as `terraform_cloud_workspace`.
    #[serde(flatten)]
    driver_blocks: BTreeMap<String, Literal>,
}

#[derive(Debug, Serialize)]
struct BufferForm {
    enabled: bool,
    min: GoDuration,
    max: GoDuration,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ConditionForm {
    Services(Used<ServicesForm>),
    CatalogServices(Used<CatalogForm>),
    ConsulKv(Used<KvForm>),
    Schedule { cron: String },
}

#[derive(Debug, Serialize)]
struct Used<T> {
    #[serde(flatten)]
    selection: T,
    use_as_module_input: bool,
}

#[derive(Debug, Default, Serialize)]
struct ModuleInputForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    services: Option<ServicesForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consul_kv: Option<KvForm>,
}

#[derive(Debug, Default, Serialize)]
struct ServicesForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    regexp: Option<String>,
    datacenter: String,
    namespace: String,
    filter: String,
    cts_user_defined_meta: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct CatalogForm {
    regexp: String,
    datacenter: String,
    namespace: String,
    node_meta: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct KvForm {
    path: String,
    recurse: bool,
    datacenter: String,
    namespace: String,
}

impl TaskForm {
    /// Without what the task only inherited, and without its directory.
    pub(crate) fn of(task: &Task) -> Self {
        let expressions = task.variables.iter();
        let mut module_input = ModuleInputForm::default();
        for input in &task.module_inputs {
            match input {
                ModuleInput::Services(services) => {
                    module_input.services = Some(ServicesForm::of(services));
                }
                ModuleInput::ConsulKv(keys) => module_input.consul_kv = Some(KvForm::of(keys)),
            }
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
            buffer_period: (!task.buffer_period_inherited)
                .then(|| BufferForm::of(task.buffer_period)),
            condition: ConditionForm::of(&task.condition),
            module_input: (!task.module_inputs.is_empty()).then_some(module_input),
            max_destroy: task.guard.max_destroy,
            require_approval: task.guard.require_approval,
            driver_blocks: task.driver_blocks.clone(),
        }
    }
}

impl BufferForm {
    fn of(period: BufferPeriod) -> Self {
        let (enabled, min, max) = match period {
            BufferPeriod::Disabled => (false, Duration::ZERO, Duration::ZERO),
            BufferPeriod::Enabled { min, max } => (true, min, max),
        };
        Self { enabled, min: min.into(), max: max.into() }
    }
}

impl ConditionForm {
    fn of(condition: &Condition) -> Self {
        match condition {
            Condition::Services { services, use_as_module_input } => Self::Services(Used {
                selection: ServicesForm::of(services),
                use_as_module_input: *use_as_module_input,
            }),
            Condition::CatalogServices { services, use_as_module_input } => {
                Self::CatalogServices(Used {
                    selection: CatalogForm::of(services),
                    use_as_module_input: *use_as_module_input,
                })
            }
            Condition::ConsulKv { keys, use_as_module_input } => Self::ConsulKv(Used {
                selection: KvForm::of(keys),
                use_as_module_input: *use_as_module_input,
            }),
            Condition::Schedule { cron } => Self::Schedule { cron: cron.clone() },
        }
    }
}

impl ServicesForm {
    /// The settings of a block hold for all of its names.
    fn of(selection: &ServiceSelection) -> Self {
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

impl CatalogForm {
    fn of(selection: &CatalogServicesSelection) -> Self {
        Self {
            regexp: selection.regexp.clone(),
            datacenter: selection.datacenter.clone(),
            namespace: selection.namespace.clone(),
            node_meta: selection.node_meta.clone(),
        }
    }
}

impl KvForm {
    fn of(selection: &KvSelection) -> Self {
        Self {
            path: selection.path.clone(),
            recurse: selection.recurse,
            datacenter: selection.datacenter.clone(),
            namespace: selection.namespace.clone(),
        }
    }
}
