use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    buffer_period, condition,
    consul::non_empty,
    decode::{Findings, Spanned, StringMap, Strings, TypedBlock, TypedBlocks, group},
    environment::Surroundings,
    provider::{ProviderBlock, find_provider},
    raw::{RawService, RawTask},
    registry::DRIVER_KEYS,
    variables,
};
use crate::{
    BufferPeriod, Condition, ConfigValue, Literal, ModuleInput, NamedService, Place,
    ServiceSelection, Task, TaskName,
};

/// A block of a task that belongs to the driver.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskBlock {
    /// The task.
    pub task: TaskName,
    /// The block's name.
    pub name: String,
    /// Its body.
    pub body: ConfigValue,
    /// Where it begins.
    pub place: Option<Place>,
}

impl TaskBlock {
    /// A block that comes from no file.
    pub fn new(task: TaskName, name: impl Into<String>, body: ConfigValue) -> Self {
        Self { task, name: name.into(), body, place: None }
    }
}

/// What all tasks of a configuration share.
pub(super) struct Shared<'a> {
    pub(super) surroundings: &'a Surroundings,
    pub(super) services: &'a [RawService],
    pub(super) providers: &'a [ProviderBlock],
    pub(super) buffer_period: BufferPeriod,
    pub(super) working_dir: &'a Path,
    /// The blocks of a task that the driver in use claims.
    pub(super) task_blocks: Vec<&'static str>,
}

/// The checked tasks, with the blocks that their driver has yet to check.
#[derive(Debug, Default)]
pub(super) struct Finalized {
    pub(super) tasks: Vec<Task>,
    pub(super) blocks: Vec<TaskBlock>,
}

/// Checks all tasks, and that they go together.
///
/// Source: Consul-Terraform-Sync 0.9.0 `config/task.go`.
pub(super) fn finalize(raw: &[RawTask], shared: &Shared<'_>, findings: &mut Findings) -> Finalized {
    let mut finalized = Finalized::default();
    let mut places: BTreeMap<TaskName, Option<Place>> = BTreeMap::new();
    for raw in raw {
        let Some(task) = finalize_task(raw, shared, &mut finalized.blocks, findings) else {
            continue;
        };
        let place = raw.name.as_ref().and_then(|name| name.place.clone());
        if let Some(first) = places.get(&task.name) {
            let help = match first {
                Some(first) => format!("the first is at {first}; rename one of them"),
                None => "rename one of them".to_owned(),
            };
            findings.error_help(format!("duplicate task name: {}", task.name), place, help);
        } else {
            places.insert(task.name.clone(), place);
        }
        finalized.tasks.push(task);
    }
    check_auto_commit(&finalized.tasks, shared.providers, findings);
    finalized
}

fn check_auto_commit(tasks: &[Task], providers: &[ProviderBlock], findings: &mut Findings) {
    for provider in providers.iter().filter(|provider| provider.auto_commit) {
        let users = tasks.iter().filter(|task| {
            let used = task.providers.iter().filter_map(|id| find_provider(providers, id));
            used.into_iter().any(|used| used.id() == provider.id())
        });
        let users: Vec<&str> = users.map(|task| task.name.as_str()).collect();
        if users.len() > 1 {
            findings.error_help(
                format!(
                    "provider with autocommit ({}) cannot be used by more than one task",
                    provider.id()
                ),
                provider.place.clone(),
                format!("it is used by {}; give each a block with an alias", users.join(", ")),
            );
        }
    }
}

/// Checks one task; `None` if it has a mistake, which is reported.
fn finalize_task(
    raw: &RawTask,
    shared: &Shared<'_>,
    blocks: &mut Vec<TaskBlock>,
    findings: &mut Findings,
) -> Option<Task> {
    let before = findings.errors.len();
    let name = task_name(raw, findings);
    let module = module(raw, findings);
    let providers = providers(raw, findings);
    let variables = variables::finalize(raw, shared.surroundings, findings);
    let (condition, module_inputs) = triggers(raw, shared.services, findings).unzip();
    let scheduled = matches!(condition, Some(Condition::Schedule { .. }));
    let buffer_period = task_buffer_period(raw, scheduled, shared.buffer_period, findings);
    let driver_blocks =
        name.as_ref().map(|name| driver_blocks(raw, name, &shared.task_blocks, blocks, findings));
    if findings.errors.len() > before || !raw.invalid.is_empty() {
        return None;
    }
    let (name, module, condition) = (name?, module?, condition?);
    let working_dir = non_empty(raw.working_dir.as_ref()).map(PathBuf::from);
    Some(Task {
        description: non_empty(raw.description.as_ref()).unwrap_or_default(),
        enabled: raw.enabled.as_ref().is_none_or(|enabled| enabled.value),
        module,
        version: non_empty(raw.version.as_ref()),
        providers,
        variables,
        buffer_period,
        working_dir: working_dir.unwrap_or_else(|| shared.working_dir.join(name.as_str())),
        condition,
        module_inputs: module_inputs.unwrap_or_default(),
        driver_blocks: driver_blocks.unwrap_or_default(),
        name,
    })
}

fn task_name(raw: &RawTask, findings: &mut Findings) -> Option<TaskName> {
    match raw.name.as_ref().filter(|name| !name.value.is_empty()) {
        Some(name) => match name.value.parse() {
            Ok(parsed) => return Some(parsed),
            Err(error) => {
                let error: crate::InvalidTaskName = error;
                findings.error_help(
                    error.to_string(),
                    name.place.clone(),
                    "the name is used for the workspace and the module block",
                );
            }
        },
        None if raw.invalid.contains(&"name") => {}
        None => findings.error_help(
            "unique name for the task is required",
            place_of(raw.name.as_ref(), raw),
            "add name = \"…\" to the task",
        ),
    }
    None
}

/// The place of a field, or that of its task.
fn place_of(field: Option<&Spanned<String>>, raw: &RawTask) -> Option<Place> {
    field.and_then(|field| field.place.clone()).or_else(|| raw.place.clone())
}

fn module(raw: &RawTask, findings: &mut Findings) -> Option<String> {
    if let Some(source) = &raw.source {
        let help = if raw.module.is_some() {
            "module is set as well and counts; remove source"
        } else {
            "rename it to module"
        };
        findings.deprecated("source is deprecated since 0.5", source.place.clone(), help);
    }
    let module = raw.module.as_ref().or(raw.source.as_ref());
    if raw.invalid.contains(&"module") || raw.invalid.contains(&"source") {
        return None;
    }
    let given = non_empty(module);
    if given.is_none() {
        findings.error_help(
            "module for the task is required",
            place_of(module, raw),
            "add module = \"…\": a local path, or a module of a registry",
        );
    }
    given
}

fn providers(raw: &RawTask, findings: &mut Findings) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for item in raw.providers.iter().flat_map(|providers| &providers.items) {
        let name = item.value.split('.').next().unwrap_or_default();
        if names.contains(&name) {
            findings.error_help(
                "only one provider instance per task",
                item.place.clone(),
                format!("keep one of the instances of {name}"),
            );
        }
        names.push(name);
    }
    raw.providers.as_ref().map(Strings::to_vec).unwrap_or_default()
}

fn task_buffer_period(
    raw: &RawTask,
    scheduled: bool,
    parent: BufferPeriod,
    findings: &mut Findings,
) -> BufferPeriod {
    if !scheduled {
        return buffer_period::finalize(raw.buffer_period.as_ref(), parent, findings);
    }
    if let Some(dropped) = &raw.buffer_period {
        findings.warn(
            "buffer_period is not supported for tasks with a schedule condition",
            dropped.place.clone(),
            "it has no effect; remove it",
        );
    }
    BufferPeriod::Disabled
}

/// The condition and the module inputs, and whether they go together.
fn triggers(
    raw: &RawTask,
    services: &[RawService],
    findings: &mut Findings,
) -> Option<(Condition, Vec<ModuleInput>)> {
    let block = condition_block(raw, findings);
    let inputs = input_blocks(raw, findings);
    check_combination(raw, block, &inputs, findings);
    let condition = block.and_then(|block| condition::condition(block, findings));
    let mut module_inputs: Vec<ModuleInput> =
        inputs.iter().filter_map(|block| condition::module_input(block, findings)).collect();
    let Some(list) = raw.services.as_ref().filter(|list| !list.items.is_empty()) else {
        return condition.map(|condition| (condition, module_inputs));
    };
    findings.deprecated(
        "services is deprecated since 0.5",
        list.place.clone(),
        "use condition \"services\" { names = […] }, or module_input \"services\" beside another condition",
    );
    let selection =
        ServiceSelection::Named(list.to_vec().iter().map(|id| named(id, services)).collect());
    if block.is_some() {
        module_inputs.insert(0, ModuleInput::Services(selection));
        return condition.map(|condition| (condition, module_inputs));
    }
    let condition = Condition::Services { services: selection, use_as_module_input: true };
    Some((condition, module_inputs))
}

fn condition_block<'a>(raw: &'a RawTask, findings: &mut Findings) -> Option<&'a TypedBlock> {
    const HELP: &str =
        "write condition \"services\" { … }, or one of catalog-services, consul-kv, schedule";
    let Some(conditions) = &raw.condition else {
        let given = raw.services.as_ref().is_some_and(|list| !list.items.is_empty());
        if !given && !raw.invalid.contains(&"condition") && !raw.invalid.contains(&"services") {
            findings.error_help(
                "task should be configured with a condition block",
                raw.place.clone(),
                HELP,
            );
        }
        return None;
    };
    if let Some((_, place)) = conditions.odd.iter().find(|(labels, _)| labels.is_empty()) {
        findings.error_help("missing condition type for the condition block", place.clone(), HELP);
    }
    if let Some(second) = conditions.blocks.get(1) {
        findings.error_help(
            "only one 'condition' block can be configured",
            second.place.clone(),
            "make a task for each condition, or use a module_input",
        );
    }
    conditions.blocks.first()
}

fn input_blocks<'a>(raw: &'a RawTask, findings: &mut Findings) -> Vec<&'a TypedBlock> {
    if let Some(old) = &raw.source_inputs {
        let place = old.blocks.first().and_then(|block| block.place.clone());
        findings.deprecated(
            "source_input is deprecated since 0.5",
            place,
            "rename it to module_input",
        );
    }
    let both: Vec<&TypedBlocks> =
        [&raw.module_inputs, &raw.source_inputs].into_iter().flatten().collect();
    for (labels, place) in both.iter().flat_map(|blocks| &blocks.odd) {
        if labels.is_empty() {
            findings.error_help(
                "missing module_input type for the module_input block",
                place.clone(),
                "write module_input \"services\" { … } or module_input \"consul-kv\" { … }",
            );
        }
    }
    both.into_iter().flat_map(|blocks| &blocks.blocks).collect()
}

/// Source: Consul-Terraform-Sync 0.9.0 `config/task.go` (`validateModuleInputs`).
fn check_combination(
    raw: &RawTask,
    condition: Option<&TypedBlock>,
    inputs: &[&TypedBlock],
    findings: &mut Findings,
) {
    let listed = raw.services.as_ref().is_some_and(|list| !list.items.is_empty());
    for (position, input) in inputs.iter().enumerate() {
        let variable = match input.label.as_str() {
            "services" => "services",
            "consul-kv" => "consul_kv",
            // An unknown type has an error of its own.
            _ => continue,
        };
        let place = || input.place.clone();
        if inputs.iter().take(position).any(|earlier| earlier.label == input.label) {
            findings.error_help(
                format!(
                    "more than one 'module_input' block for the {variable:?} variable. variable types must be unique"
                ),
                place(),
                "merge the blocks into one",
            );
        }
        if condition.is_some_and(|condition| condition.label == input.label) {
            findings.error_help(
                format!(
                    "task's condition block and module_input block both monitor {variable:?} variable type. \
                     condition and module_input variable type must be unique"
                ),
                place(),
                "the condition's data reaches the module as it is; remove the module_input",
            );
        }
        if listed && input.label == "services" {
            both_services("module_input", place(), findings);
        }
    }
    if listed && let Some(condition) = condition.filter(|block| block.label == "services") {
        both_services("condition", condition.place.clone(), findings);
    }
}

fn both_services(block: &str, place: Option<Place>, findings: &mut Findings) {
    findings.error_help(
        format!(
            "task's `services` field and `{block} 'services'` block both monitor \"services\" variable type. \
             only one of these can be configured per task"
        ),
        place,
        "move the names of services into the block",
    );
}

/// The service that an entry of `services` means: a `service` block by its id, or a name.
fn named(id: &str, services: &[RawService]) -> NamedService {
    let block = services.iter().find(|service| {
        let name = service.id.as_ref().or(service.name.as_ref());
        name.is_some_and(|name| name.value == id)
    });
    let text = |field: Option<&Option<Spanned<String>>>| {
        field.and_then(|field| non_empty(field.as_ref())).unwrap_or_default()
    };
    NamedService {
        name: block
            .and_then(|block| non_empty(block.name.as_ref()))
            .unwrap_or_else(|| id.to_owned()),
        datacenter: text(block.map(|block| &block.datacenter)),
        namespace: text(block.map(|block| &block.namespace)),
        filter: text(block.map(|block| &block.filter)),
        cts_user_defined_meta: block
            .and_then(|block| block.cts_user_defined_meta.as_ref())
            .map(StringMap::to_map)
            .unwrap_or_default(),
    }
}

/// Checks the deprecated `service` blocks.
///
/// Source: Consul-Terraform-Sync 0.9.0 `config/service.go`.
pub(super) fn check_services(services: &[RawService], findings: &mut Findings) {
    let mut ids: Vec<&str> = Vec::new();
    for service in services {
        findings.deprecated(
            "service blocks are deprecated since 0.5",
            service.place.clone(),
            "write what they select into condition \"services\" of the tasks",
        );
        let Some(name) = service.name.as_ref().filter(|name| !name.value.is_empty()) else {
            if !service.invalid.contains(&"name") {
                findings.error_help(
                    "logical name for the Consul service is required",
                    service.place.clone(),
                    "add name = \"…\" to the service",
                );
            }
            continue;
        };
        let id = service.id.as_ref().unwrap_or(name);
        if ids.contains(&id.value.as_str()) {
            findings.error_help(
                format!("unique service IDs are required: {}", id.value),
                id.place.clone(),
                "give each service block an id of its own",
            );
        }
        ids.push(&id.value);
    }
}

/// Sorts out the entries of a task that this crate does not read: those of
/// the driver in use are kept, others are refused.
fn driver_blocks(
    raw: &RawTask,
    task: &TaskName,
    claimed: &[&str],
    blocks: &mut Vec<TaskBlock>,
    findings: &mut Findings,
) -> BTreeMap<String, Literal> {
    let mut literals = BTreeMap::new();
    for group in group(&raw.rest) {
        let Some((entry, others)) = group.entries.split_first() else { continue };
        let place = entry.key_place.clone();
        if !claimed.contains(&group.key) {
            findings.error_help(
                format!("unsupported configuration '{}' for task \"{task}\"", group.key),
                place,
                if DRIVER_KEYS.contains(&group.key) {
                    "it needs driver \"terraform-cloud\"; remove it, or use that driver"
                } else {
                    "another driver knows it; remove it, or use that driver"
                },
            );
            continue;
        }
        if let Some(second) = others.first() {
            findings.error_help(
                format!("only one '{}' block can be configured", group.key),
                second.key_place.clone(),
                "keep one of the blocks, with the settings of both",
            );
        }
        literals.insert(group.key.to_owned(), entry.value.to_literal());
        blocks.push(TaskBlock {
            task: task.clone(),
            name: group.key.to_owned(),
            body: entry.value.clone(),
            place,
        });
    }
    literals
}
