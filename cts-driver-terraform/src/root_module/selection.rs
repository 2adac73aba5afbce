//! The data that a task watches, in the order of the generated files.

use cts_tasks::{
    CatalogServicesSelection, Condition, KvSelection, ModuleInput, ServiceSelection, Task,
};

/// A kind of data that a task watches; `true` if its module gets it.
pub(super) enum Watched<'a> {
    Services(&'a ServiceSelection, bool),
    CatalogServices(&'a CatalogServicesSelection, bool),
    ConsulKv(&'a KvSelection, bool),
}

/// Returns the data that the task watches: the condition's first, then the module inputs;
/// but what the deprecated list `services` names comes before everything.
///
/// Source: Consul-Terraform-Sync 0.9, order of templates.
pub(super) fn watched(task: &Task) -> Vec<Watched<'_>> {
    let condition = match &task.condition {
        Condition::Services { services, use_as_module_input } => {
            Some(Watched::Services(services, *use_as_module_input))
        }
        Condition::CatalogServices { services, use_as_module_input } => {
            Some(Watched::CatalogServices(services, *use_as_module_input))
        }
        Condition::ConsulKv { keys, use_as_module_input } => {
            Some(Watched::ConsulKv(keys, *use_as_module_input))
        }
        _ => None,
    };
    let inputs = task.module_inputs.iter().filter_map(|input| match input {
        ModuleInput::Services(services) => Some(Watched::Services(services, true)),
        ModuleInput::ConsulKv(keys) => Some(Watched::ConsulKv(keys, true)),
        _ => None,
    });
    let mut watched: Vec<_> = condition.into_iter().chain(inputs).collect();
    // With another condition, what is listed is the first of the module inputs.
    let first = watched.iter().position(|watched| matches!(watched, Watched::Services(..)));
    if let Some(listed) = first.filter(|_| task.services_listed) {
        watched.swap(0, listed);
    }
    watched
}

/// Returns `true` if the module gets instances; else it gets an empty map.
pub(super) fn renders_services(task: &Task) -> bool {
    watched(task).iter().any(|watched| matches!(watched, Watched::Services(_, true)))
}

/// The variables besides `services` that the module gets from Consul.
pub(super) fn extra_variables(task: &Task) -> Vec<&'static str> {
    let name = |watched: &Watched<'_>| match watched {
        Watched::CatalogServices(_, true) => Some("catalog_services"),
        Watched::ConsulKv(_, true) => Some("consul_kv"),
        Watched::Services(..) | Watched::CatalogServices(..) | Watched::ConsulKv(..) => None,
    };
    watched(task).iter().filter_map(name).collect()
}
