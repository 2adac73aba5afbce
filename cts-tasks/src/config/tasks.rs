//! The blocks `task`, alone and among each other.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::de::DeserializeOwned;

use super::{
    buffer_period,
    client::non_empty,
    condition::CRON_HELP,
    decode::{Findings, Spanned, Strings, group},
    environment::Environment,
    limits::{self, EnvRules, InUse},
    provider::{self, find_provider},
    raw::{RawService, RawTask},
    registry::DRIVER_KEYS,
    triggers, variables,
};
use crate::{
    BufferPeriod, Condition, ConfigValue, Cron, Diagnostic, DriverKind, Guard, Literal, Place,
    ProviderBlock, Task, TaskName,
};

/// A block of a task that belongs to the driver.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskBlock {
    /// The task.
    pub task: TaskName,
    /// The block's name.
    pub name: String,
    /// The block's body.
    pub body: ConfigValue,
    /// Place at which the block begins.
    pub place: Option<Place>,
}

impl TaskBlock {
    /// A block that comes from no file.
    pub fn new(task: TaskName, name: impl Into<String>, body: ConfigValue) -> Self {
        Self { task, name: name.into(), body, place: None }
    }

    /// Reads the body into a type of serde's, as [`ConfigValue::deserialize_into`].
    ///
    /// # Errors
    ///
    /// As there; messages name the task and the block.
    pub fn deserialize_into<T: DeserializeOwned>(&self) -> Result<T, Vec<Diagnostic>> {
        self.body.deserialize_at(&format!("task \"{}\".{}", self.task, self.name))
    }
}

/// Settings that all tasks of a configuration share.
pub(super) struct Shared<'a> {
    pub(super) environment: &'a Environment,
    pub(super) services: &'a [RawService],
    pub(super) providers: &'a [ProviderBlock],
    pub(super) buffer_period: BufferPeriod,
    pub(super) working_dir: &'a Path,
    /// The deployment's time for a run to end after a stop, which no task's may exceed.
    pub(super) shutdown_timeout: Duration,
    /// Vault is configured, or may be where the configuration cannot be read.
    pub(super) vault_known: bool,
    /// `None` if it is not known which one is meant.
    pub(super) driver: Option<InUse<'a>>,
    /// The blocks of a task that the driver in use claims.
    pub(super) task_blocks: Vec<&'static str>,
    /// The keys that a task must have, and the driver that says so.
    pub(super) required: Required,
}

/// The keys that a driver requires of each of its tasks.
#[derive(Debug, Default)]
pub(super) struct Required {
    pub(super) keys: Vec<&'static str>,
    /// The driver's label; empty if it is not known which one is meant.
    pub(super) driver: &'static str,
}

impl Required {
    /// Returns what this driver requires.
    pub(super) fn by(kind: &dyn DriverKind) -> Self {
        Self { keys: kind.required_in_tasks().to_vec(), driver: kind.label() }
    }

    /// Returns what all of these drivers require.
    pub(super) fn by_all(kinds: &[Arc<dyn DriverKind>]) -> Self {
        let Some((first, others)) = kinds.split_first() else { return Self::default() };
        let mut keys = first.required_in_tasks().to_vec();
        keys.retain(|key| others.iter().all(|kind| kind.required_in_tasks().contains(key)));
        Self { keys, driver: "" }
    }
}

/// The checked tasks, with the blocks that their driver has yet to check.
#[derive(Debug, Default)]
pub(super) struct Finalized {
    pub(super) tasks: Vec<Task>,
    /// Also those of tasks with mistakes.
    pub(super) blocks: Vec<TaskBlock>,
}

/// The values of a task that no other task may have.
pub(super) struct Claim<'a> {
    name: &'a str,
    working_dir: PathBuf,
    providers: &'a [String],
}

impl<'a> From<&'a Task> for Claim<'a> {
    fn from(task: &'a Task) -> Self {
        Self {
            name: task.name.as_str(),
            working_dir: task.working_dir.clone(),
            providers: &task.providers,
        }
    }
}

/// Checks all tasks, and that they go together.
///
/// Source: Consul-Terraform-Sync 0.9.0 `config/task.go`.
pub(super) fn finalize(raw: &[RawTask], shared: &Shared<'_>, findings: &mut Findings) -> Finalized {
    let mut finalized = Finalized::default();
    for raw in raw {
        finalized.tasks.extend(finalize_task(raw, shared, &mut finalized.blocks, findings));
    }
    check_names(raw, findings);
    // A task with another mistake claims what it claims.
    let providers: Vec<Vec<String>> = raw
        .iter()
        .map(|raw| raw.providers.as_ref().map(Strings::to_vec).unwrap_or_default())
        .collect();
    let claims: Vec<Claim<'_>> = raw
        .iter()
        .zip(&providers)
        .filter_map(|(raw, providers)| {
            let name = raw.name.as_ref().filter(|name| !name.value.is_empty())?.value.as_str();
            let working_dir = non_empty(raw.working_dir.as_ref()).map(PathBuf::from);
            let working_dir = working_dir.unwrap_or_else(|| shared.working_dir.join(name));
            Some(Claim { name, working_dir, providers })
        })
        .collect();
    check_auto_commit(&claims, shared.providers, findings);
    let base_dir = shared.environment.base_dir();
    let place = |task: &str| {
        let named = |raw: &&RawTask| raw.name.as_ref().is_some_and(|name| name.value == task);
        let raw = raw.iter().rfind(named)?;
        let written = raw.working_dir.as_ref().or(raw.name.as_ref());
        written.and_then(|written| written.place.clone())
    };
    check_working_dirs(&claims, &base_dir, place, findings);
    finalized
}

/// Checks that no two tasks have one name.
fn check_names(raw: &[RawTask], findings: &mut Findings) {
    let mut places: BTreeMap<&str, Option<Place>> = BTreeMap::new();
    for name in raw.iter().filter_map(|raw| raw.name.as_ref()) {
        if name.value.is_empty() {
            continue;
        }
        let Some(first) = places.get(name.value.as_str()) else {
            places.insert(&name.value, name.place.clone());
            continue;
        };
        let help = match first {
            Some(first) => format!("the first is at {first}; rename one of them"),
            None => "rename one of them".to_owned(),
        };
        let message = format!("duplicate task name: {}", name.value);
        findings.error_help(message, name.place.clone(), help);
    }
}

/// Checks that no two of `tasks` have the same working directory, however it is written.
pub(super) fn check_working_dirs(
    tasks: &[Claim<'_>],
    base_dir: &Path,
    place: impl Fn(&str) -> Option<Place>,
    findings: &mut Findings,
) {
    let mut taken: BTreeMap<PathBuf, &Claim<'_>> = BTreeMap::new();
    for task in tasks {
        let folder = lexical(&base_dir.join(&task.working_dir));
        match taken.get(&folder) {
            Some(first) if first.name != task.name => findings.error_help(
                format!(
                    "tasks {} and {} have the same working_dir {}: each would plan and apply into \
                     the other's state",
                    first.name,
                    task.name,
                    folder.display()
                ),
                place(task.name),
                "give each task a working_dir of its own, or none",
            ),
            Some(_) => {}
            None => {
                taken.insert(folder, task);
            }
        }
    }
}

/// The complaint about two of `tasks` with the same working directory.
pub(crate) fn shared_working_dir(tasks: &[Task], base_dir: &Path) -> Option<String> {
    let mut findings = Findings::default();
    check_working_dirs(&claims(tasks), base_dir, |_| None, &mut findings);
    findings.errors.first().map(ToString::to_string)
}

fn claims(tasks: &[Task]) -> Vec<Claim<'_>> {
    tasks.iter().map(Claim::from).collect()
}

/// A path without `.` and `..`, as far as its text tells.
fn lexical(path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                short.pop();
            }
            other => short.push(other),
        }
    }
    short
}

/// That each instance of a provider which a task names by its alias is configured.
///
/// Deviation: upstream takes a provider without arguments in its place, so the
/// task would run with the credentials of nobody knows whom.
pub(super) fn check_aliases(
    raw: &[RawTask],
    providers: &provider::Finalized,
    findings: &mut Findings,
) {
    for item in raw.iter().filter_map(|raw| raw.providers.as_ref()).flat_map(|named| &named.items) {
        let id = item.value.as_str();
        let Some((name, alias)) = id.split_once('.') else { continue };
        if find_provider(&providers.blocks, id).is_some() || providers.is_doubtful(name) {
            continue;
        }
        findings.error_help(
            format!(
                "provider {id:?} is not configured: there is no terraform_provider block {name:?} \
                 with the alias {alias:?}"
            ),
            item.place.clone(),
            format!(
                "add terraform_provider \"{name}\" {{ alias = \"{alias}\" }}, or name only {name}"
            ),
        );
    }
}

/// That no two of `tasks` use one provider that commits by itself.
pub(super) fn check_auto_commit(
    tasks: &[Claim<'_>],
    providers: &[ProviderBlock],
    findings: &mut Findings,
) {
    for provider in providers.iter().filter(|provider| provider.auto_commit) {
        let users = tasks.iter().filter(|task| {
            let used = task.providers.iter().filter_map(|id| find_provider(providers, id));
            used.into_iter().any(|used| used.id() == provider.id())
        });
        let users: Vec<&str> = users.map(|task| task.name).collect();
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

/// The complaint about a provider that commits by itself and that two of
/// `tasks` use.
pub(crate) fn shared_auto_commit(tasks: &[Task], providers: &[ProviderBlock]) -> Option<String> {
    let mut findings = Findings::default();
    check_auto_commit(&claims(tasks), providers, &mut findings);
    findings.errors.first().map(ToString::to_string)
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
    let module = module(raw, &shared.required, findings);
    let providers = providers(raw, findings);
    let variables = variables::finalize(raw, shared.environment, findings);
    let (condition, module_inputs) = triggers::finalize(raw, shared.services, findings).unzip();
    let scheduled = matches!(condition, Some(Condition::Schedule { .. }));
    let buffer_period = task_buffer_period(raw, scheduled, shared.buffer_period, findings);
    let guard = guard(raw, findings);
    let drift_check = drift_check(raw, findings);
    let limits = limits::finalize(raw, shared.shutdown_timeout, findings);
    let rules = EnvRules {
        driver: shared.driver,
        providers: shared.providers,
        vault_known: shared.vault_known,
    };
    let env = limits::env(raw, &rules, findings);
    // A name that was refused, or none, keeps no block from being checked.
    let named = name.clone().unwrap_or_else(|| {
        TaskName::refused(raw.name.as_ref().map_or("", |name| name.value.as_str()))
    });
    let driver_blocks = driver_blocks(raw, &named, &shared.task_blocks, blocks, findings);
    check_required(raw, &shared.required, findings);
    if findings.errors.len() > before || !raw.invalid.is_empty() {
        return None;
    }
    let (name, module, condition) = (name?, module?, condition?);
    let working_dir = non_empty(raw.working_dir.as_ref()).map(PathBuf::from);
    let enabled = raw.enabled.as_ref().is_none_or(|enabled| enabled.value);
    Some(Task {
        configured_enabled: Some(enabled),
        description: non_empty(raw.description.as_ref()).unwrap_or_default(),
        enabled,
        module,
        version: non_empty(raw.version.as_ref()),
        providers,
        variables,
        buffer_period,
        buffer_period_inherited: scheduled || raw.buffer_period.is_none(),
        working_dir_inherited: working_dir.is_none(),
        working_dir: working_dir.unwrap_or_else(|| shared.working_dir.join(name.as_str())),
        condition,
        module_inputs: module_inputs.unwrap_or_default(),
        unconditional: raw.condition.is_none()
            && raw.services.as_ref().is_none_or(|list| list.items.is_empty()),
        services_listed: raw.services.as_ref().is_some_and(|list| !list.items.is_empty()),
        guard,
        destroy_on_delete: raw.destroy_on_delete.as_ref().is_some_and(|destroy| destroy.value),
        drift_check,
        env,
        timeout: limits.timeout,
        retry: limits.retry,
        shutdown_timeout: limits.shutdown_timeout,
        driver_blocks,
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

/// Checks that everything is there that the driver requires besides a module.
fn check_required(raw: &RawTask, required: &Required, findings: &mut Findings) {
    for key in &required.keys {
        let set = match *key {
            "module" => true,
            "description" => non_empty(raw.description.as_ref()).is_some(),
            "version" => non_empty(raw.version.as_ref()).is_some(),
            "providers" => raw.providers.as_ref().is_some_and(|list| !list.items.is_empty()),
            "condition" => raw.condition.is_some(),
            "working_dir" => non_empty(raw.working_dir.as_ref()).is_some(),
            _ => raw.rest.iter().any(|entry| entry.key == *key),
        };
        if !set && !raw.invalid.contains(key) {
            let by = match required.driver {
                "" => "the driver".to_owned(),
                label => format!("driver \"{label}\""),
            };
            findings.error_help(
                format!("{key} is required of a task by {by}"),
                raw.place.clone(),
                format!("add {key} to the task"),
            );
        }
    }
}

/// The module; empty where the driver requires none.
fn module(raw: &RawTask, required: &Required, findings: &mut Findings) -> Option<String> {
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
    if !required.keys.contains(&"module") {
        return Some(given.unwrap_or_default());
    }
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

fn guard(raw: &RawTask, findings: &mut Findings) -> Guard {
    let max_destroy = raw.max_destroy.as_ref().and_then(|limit| {
        let checked = u64::try_from(limit.value).ok();
        if checked.is_none() {
            findings.error_help(
                format!("max_destroy: cannot be negative: {}", limit.value),
                limit.place.clone(),
                "it is the most resources that one run may destroy without approval; 0 is none",
            );
        }
        checked
    });
    let require_approval = raw.require_approval.as_ref().is_some_and(|required| required.value);
    Guard { max_destroy, require_approval }
}

fn drift_check(raw: &RawTask, findings: &mut Findings) -> Option<String> {
    let cron = raw.drift_check.as_ref().filter(|cron| !cron.value.is_empty())?;
    if let Err(error) = cron.value.parse::<Cron>() {
        findings.error_help(
            format!("unable to parse drift_check's cron expression {:?}: {error}", cron.value),
            cron.place.clone(),
            CRON_HELP,
        );
    }
    Some(cron.value.clone())
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
