//! The dependencies of one task, and the inputs made of Consul's answers to them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use consul_watch::types::ServiceEntry;
use regex::Regex;
use tokio::time::Instant;

use super::{
    dependency::{Dependency, DependencyValue},
    settling::Settling,
};
use crate::{
    AppliedInputs, CatalogServicesSelection, Condition, InputsDigest, KvEntry, KvSelection,
    MatchingServices, ModuleInput, NamedService, ServiceInstance, ServiceSelection, Task,
    TaskInputs, inputs_digest::InstanceDigest,
};

/// Knowledge of one task about Consul: it says what to watch, whether a change makes
/// the task run, and what its module gets.
///
/// Pure: whoever owns it keeps a watch for each of [`View::dependencies`] and hands in
/// what they yield. An answer costs what it changes, not what the task has.
#[derive(Debug, Default)]
pub(crate) struct View {
    parts: Vec<Part>,
    dependencies: BTreeSet<Arc<Dependency>>,
    /// The `dependencies` that were never answered.
    missing: BTreeSet<Arc<Dependency>>,
    latest: Latest,
    /// `true` if something came in that no run has applied yet.
    dirty: bool,
    /// `true` once everything wanted had been answered at some time.
    ready: bool,
    settling: Settling,
    /// Told by the worker, for those who look.
    #[cfg(feature = "ui")]
    pub(crate) pauses: Pauses,
    /// Inputs of the newest run; `applied` holds those that were applied last.
    taken: Option<(TaskInputs, InputsDigest)>,
    applied: Option<(TaskInputs, InputsDigest)>,
}

type Latest = BTreeMap<Arc<Dependency>, DependencyValue>;

/// Times until which a task's worker waits by itself; past ones mean nothing.
#[cfg(feature = "ui")]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pauses {
    /// End of the buffer period.
    pub(crate) buffer: Option<Instant>,
    /// Next try after a failure.
    pub(crate) retry: Option<Instant>,
}

/// Consequences of an answer of Consul's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Update {
    /// It makes the task run.
    pub(crate) triggers: bool,
    /// [`View::dependencies`] may differ from before.
    pub(crate) dependencies_changed: bool,
}

/// A selection of the task's, with the dependencies it consists of.
#[derive(Debug)]
struct Part {
    selection: Selection,
    triggers: bool,
    is_input: bool,
}

#[derive(Debug)]
enum Selection {
    Named(Named),
    Matching(Matching),
    Catalog { dependency: Arc<Dependency>, regex: Regex },
    Kv(Arc<Dependency>),
}

/// Instances of services by name.
#[derive(Debug)]
struct Named {
    /// In the order of their names.
    services: Vec<Listed>,
    /// Positions in `services` of the instances of a read.
    places: HashMap<Arc<Dependency>, Vec<usize>>,
}

#[derive(Debug)]
struct Listed {
    name: String,
    dependency: Arc<Dependency>,
    user_meta: BTreeMap<String, String>,
    instances: Vec<Instance>,
}

/// Instances of all services whose names match.
#[derive(Debug)]
struct Matching {
    services: MatchingServices,
    regex: Regex,
    names: Arc<Dependency>,
    instances: BTreeMap<Arc<Dependency>, Vec<Instance>>,
}

/// An instance as modules get it, made once for each answer of Consul's.
#[derive(Debug, Clone)]
struct Instance {
    value: Arc<ServiceInstance>,
    digest: InstanceDigest,
}

impl View {
    /// # Errors
    ///
    /// A regular expression that does not compile; configuration has checked it.
    pub(crate) fn new(task: &Task) -> Result<Self, regex::Error> {
        let mut parts = Vec::new();
        let condition = match &task.condition {
            Condition::Services { services, use_as_module_input } => {
                Some((Selection::services(services)?, *use_as_module_input))
            }
            Condition::CatalogServices { services, use_as_module_input } => {
                let dependency = Arc::new(catalog_dependency(services));
                let regex = Regex::new(&services.regexp)?;
                Some((Selection::Catalog { dependency, regex }, *use_as_module_input))
            }
            Condition::ConsulKv { keys, use_as_module_input } => {
                Some((Selection::Kv(Arc::new(kv_dependency(keys))), *use_as_module_input))
            }
            Condition::Schedule { .. } => None,
        };
        if let Some((selection, is_input)) = condition {
            parts.push(Part { selection, triggers: true, is_input });
        }
        for input in &task.module_inputs {
            let selection = match input {
                ModuleInput::Services(services) => Selection::services(services)?,
                ModuleInput::ConsulKv(keys) => Selection::Kv(Arc::new(kv_dependency(keys))),
            };
            parts.push(Part { selection, triggers: false, is_input: true });
        }
        let mut view = Self { parts, ..Self::default() };
        view.dependencies = view.all_dependencies();
        view.missing = view.dependencies.clone();
        Ok(view)
    }

    /// Everything that must be watched, as far as it is known by now: names
    /// that match a regular expression add to it.
    pub(crate) fn dependencies(&self) -> &BTreeSet<Arc<Dependency>> {
        &self.dependencies
    }

    fn all_dependencies(&self) -> BTreeSet<Arc<Dependency>> {
        self.parts.iter().flat_map(|part| part.selection.dependencies(&self.latest)).collect()
    }

    /// Takes an answer. What is no longer wanted afterwards is forgotten.
    pub(crate) fn update(
        &mut self,
        dependency: &Arc<Dependency>,
        value: &DependencyValue,
        now: Instant,
    ) -> Update {
        // Only names begin or cease to match a regular expression.
        let dependencies_changed = matches!(value, DependencyValue::Names(_));
        let before = self.latest.insert(Arc::clone(dependency), value.clone());
        self.missing.remove(dependency);
        let gone = if dependencies_changed { self.forget_unwanted() } else { Latest::new() };
        self.dirty = true;
        // For good: a name that begins to match later must not hold up all runs.
        self.ready = self.ready || self.is_complete();
        for part in &mut self.parts {
            part.selection.keep(dependency, value, &gone);
        }
        let mut triggers = self.parts.iter().any(|part| {
            part.triggers && part.selection.differs(dependency, before.as_ref(), value, &gone)
        });
        if let DependencyValue::Names(_) = value {
            self.expect_instances(dependency, before.as_ref(), value, now);
        } else {
            let instances = nonempty(Some(value)).is_some();
            triggers |= self.settling.answered(dependency, instances, now);
        }
        Update { triggers, dependencies_changed }
    }

    /// Makes the run on names that came or went wait for their instances.
    fn expect_instances(
        &mut self,
        dependency: &Dependency,
        before: Option<&DependencyValue>,
        value: &DependencyValue,
        now: Instant,
    ) {
        let catalog = self.parts.iter().filter(|part| part.triggers);
        let (came, went): (Vec<_>, Vec<_>) = catalog
            .flat_map(|part| part.selection.names_between(dependency, before, value))
            .partition(|(_, came)| *came);
        let expected: Vec<_> = came
            .iter()
            .chain(&went)
            .flat_map(|(name, came)| {
                let inputs = self.parts.iter().filter(|part| part.is_input);
                inputs
                    .flat_map(|part| part.selection.instances_of(name, dependency))
                    .map(|instances| (instances, *came))
            })
            .filter(|(instances, came)| nonempty(self.latest.get(instances)).is_some() != *came)
            .collect();
        for (instances, came) in expected {
            self.settling.expect(instances, came, now);
        }
    }

    /// Returns until when a run has to wait for instances of names that came
    /// or went, at most; `None` if it need not.
    pub(crate) fn holds(&mut self, now: Instant) -> Option<Instant> {
        self.settling.holds(now)
    }

    fn forget_unwanted(&mut self) -> Latest {
        self.dependencies = self.all_dependencies();
        let (kept, gone) = std::mem::take(&mut self.latest)
            .into_iter()
            .partition(|(dependency, _)| self.dependencies.contains(dependency));
        self.latest = kept;
        self.missing = self
            .dependencies
            .iter()
            .filter(|dependency| !self.latest.contains_key(*dependency))
            .cloned()
            .collect();
        gone
    }

    /// Returns the dependencies that were never answered.
    pub(crate) fn missing(&self) -> &BTreeSet<Arc<Dependency>> {
        &self.missing
    }

    /// Returns `true` if everything wanted was answered at least once.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Returns `true` if something came in that no run has applied yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Notes that what was taken could not be applied.
    pub(crate) fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    /// Takes the inputs of the module for a run, with their digest; `None` until
    /// everything was answered once.
    pub(crate) fn take_inputs(&mut self) -> Option<(TaskInputs, InputsDigest)> {
        let inputs = self.inputs()?;
        self.dirty = false;
        self.settling.run_begins();
        // Instances are shared, so this copies a pointer for each.
        self.taken = Some(inputs.clone());
        Some(inputs)
    }

    /// Notes that what has this digest was applied, and returns the record of it.
    pub(crate) fn mark_applied(&mut self, digest: &InputsDigest) -> AppliedInputs {
        match self.taken.as_ref().filter(|(_, taken)| taken == digest) {
            Some(applied) => {
                self.applied = Some(applied.clone());
                AppliedInputs::new(&applied.0, digest.clone())
            }
            // Newer inputs were taken while this apply waited for a person elsewhere.
            None => AppliedInputs::unknown(digest.clone()),
        }
    }

    /// Returns what was last applied since this view began.
    pub(crate) fn applied(&self) -> Option<&(TaskInputs, InputsDigest)> {
        self.applied.as_ref()
    }

    /// Returns the inputs of the module, with their digest; `None` until everything was
    /// answered once.
    ///
    /// A service whose name has only just begun to match counts as one without
    /// instances until its own answer is there, which triggers then.
    pub(crate) fn inputs(&self) -> Option<(TaskInputs, InputsDigest)> {
        if !self.ready && !self.is_complete() {
            return None;
        }
        let (mut inputs, mut digests) = (TaskInputs::default(), Vec::new());
        for part in self.parts.iter().filter(|part| part.is_input) {
            part.selection.fill(&self.latest, &mut inputs, &mut digests);
        }
        let digest = InputsDigest::compose(&inputs, &digests);
        Some((inputs, digest))
    }
}

impl Selection {
    fn services(services: &ServiceSelection) -> Result<Self, regex::Error> {
        Ok(match services {
            ServiceSelection::Named(named) => Self::Named(Named::new(named)),
            ServiceSelection::Matching(matching) => Self::Matching(Matching {
                services: matching.clone(),
                regex: Regex::new(&matching.regexp)?,
                names: Arc::new(names_of(matching)),
                instances: BTreeMap::new(),
            }),
        })
    }

    fn dependencies(&self, latest: &Latest) -> Vec<Arc<Dependency>> {
        match self {
            Self::Named(named) => {
                named.services.iter().map(|service| Arc::clone(&service.dependency)).collect()
            }
            Self::Matching(matching) => {
                let known =
                    names(latest, &matching.names).into_iter().flat_map(|names| names.keys());
                let known = known.filter(|name| matching.regex.is_match(name));
                let mut dependencies: Vec<_> =
                    known.map(|name| matching.instances_of(name)).collect();
                dependencies.push(Arc::clone(&matching.names));
                dependencies
            }
            Self::Catalog { dependency, .. } | Self::Kv(dependency) => vec![Arc::clone(dependency)],
        }
    }

    /// Returns `true` if an answer to `dependency` changed what this selection selects.
    ///
    /// `gone` holds what a change of names made superfluous.
    fn differs(
        &self,
        dependency: &Dependency,
        before: Option<&DependencyValue>,
        now: &DependencyValue,
        gone: &Latest,
    ) -> bool {
        match self {
            Self::Named(named) => named.places.contains_key(dependency) && before != Some(now),
            Self::Matching(matching) => {
                let selected = |dependency: &Dependency| matching.selects(dependency);
                if selected(dependency) {
                    nonempty(before) != nonempty(Some(now))
                } else {
                    gone.iter().any(|(dependency, value)| {
                        selected(dependency) && nonempty(Some(value)).is_some()
                    })
                }
            }
            Self::Catalog { dependency: own, regex } => {
                **own == *dependency
                    && matching_names(before, regex) != matching_names(Some(now), regex)
            }
            Self::Kv(own) => **own == *dependency && before != Some(now),
        }
    }

    /// The names that an answer to `dependency` brought (`true`) or took away
    /// (`false`); none at the first answer, which comes before the first run.
    fn names_between(
        &self,
        dependency: &Dependency,
        before: Option<&DependencyValue>,
        now: &DependencyValue,
    ) -> Vec<(String, bool)> {
        let Self::Catalog { dependency: own, regex } = self else { return Vec::new() };
        let (Some(before), Some(now)) =
            (matching_names(before, regex), matching_names(Some(now), regex))
        else {
            return Vec::new();
        };
        if **own != *dependency {
            return Vec::new();
        }
        let came = now.difference(&before).map(|name| ((*name).to_owned(), true));
        came.chain(before.difference(&now).map(|name| ((*name).to_owned(), false))).collect()
    }

    /// The reads of the instances of a service that `catalog` lists.
    fn instances_of(&self, name: &str, catalog: &Dependency) -> Vec<Arc<Dependency>> {
        let all: Vec<_> = match self {
            Self::Named(named) => named.of_service(name),
            Self::Matching(matching) if matching.regex.is_match(name) => {
                vec![matching.instances_of(name)]
            }
            Self::Matching(_) | Self::Catalog { .. } | Self::Kv(_) => Vec::new(),
        };
        all.into_iter().filter(|dependency| dependency.may_share_services_with(catalog)).collect()
    }

    /// Keeps the instances of an answer as modules get them.
    fn keep(&mut self, dependency: &Arc<Dependency>, value: &DependencyValue, gone: &Latest) {
        match (self, value) {
            (Self::Named(named), DependencyValue::Instances(entries)) => {
                named.keep(dependency, entries);
            }
            (Self::Matching(matching), DependencyValue::Instances(entries))
                if matching.selects(dependency) =>
            {
                let meta = &matching.services.cts_user_defined_meta;
                let all = entries.iter().map(|entry| Instance::of(entry, meta)).collect();
                matching.instances.insert(Arc::clone(dependency), all);
            }
            (Self::Matching(matching), DependencyValue::Names(_)) => {
                for dependency in gone.keys() {
                    matching.instances.remove(dependency);
                }
            }
            _ => {}
        }
    }

    fn fill(&self, latest: &Latest, inputs: &mut TaskInputs, digests: &mut Vec<InstanceDigest>) {
        match self {
            Self::Named(named) => {
                let all = named.services.iter().flat_map(|service| &service.instances);
                fill_instances(all, inputs, digests);
            }
            Self::Matching(matching) => {
                let mut all: Vec<&Instance> = matching.instances.values().flatten().collect();
                all.sort_by(|a, b| (&a.value.node, &a.value.id).cmp(&(&b.value.node, &b.value.id)));
                fill_instances(all.into_iter(), inputs, digests);
            }
            Self::Catalog { dependency, regex } => {
                let matching = names(latest, dependency).map(|names| {
                    let names = names.iter().filter(|(name, _)| regex.is_match(name));
                    names.map(|(name, tags)| (name.clone(), sorted(tags))).collect()
                });
                inputs.catalog_services = Some(matching.unwrap_or_default());
            }
            Self::Kv(dependency) => {
                let pairs: Vec<_> = match latest.get(dependency) {
                    Some(DependencyValue::Key(pair)) => pair.iter().cloned().collect(),
                    Some(DependencyValue::Prefix(pairs)) => pairs.to_vec(),
                    _ => Vec::new(),
                };
                let entries = pairs
                    .into_iter()
                    .map(|pair| KvEntry { path: pair.key, value: pair.value.to_vec() });
                inputs.consul_kv = Some(entries.collect());
            }
        }
    }
}

impl Named {
    fn new(named: &[NamedService]) -> Self {
        let mut services: Vec<_> = named
            .iter()
            .map(|service| Listed {
                name: service.name.clone(),
                dependency: Arc::new(instances_dependency(service)),
                user_meta: service.cts_user_defined_meta.clone(),
                instances: Vec::new(),
            })
            .collect();
        services.sort_by(|a, b| a.name.cmp(&b.name));
        let mut places: HashMap<Arc<Dependency>, Vec<usize>> = HashMap::new();
        for (place, service) in services.iter().enumerate() {
            places.entry(Arc::clone(&service.dependency)).or_default().push(place);
        }
        Self { services, places }
    }

    fn keep(&mut self, dependency: &Dependency, entries: &[ServiceEntry]) {
        for place in self.places.get(dependency).into_iter().flatten() {
            if let Some(service) = self.services.get_mut(*place) {
                let meta = &service.user_meta;
                service.instances = entries.iter().map(|entry| Instance::of(entry, meta)).collect();
            }
        }
    }

    fn of_service(&self, name: &str) -> Vec<Arc<Dependency>> {
        let first = self.services.partition_point(|service| service.name.as_str() < name);
        let same = self.services.iter().skip(first).take_while(|service| service.name == name);
        same.map(|service| Arc::clone(&service.dependency)).collect()
    }
}

impl Matching {
    fn instances_of(&self, name: &str) -> Arc<Dependency> {
        Arc::new(Dependency::Instances {
            name: name.to_owned(),
            datacenter: self.services.datacenter.clone(),
            namespace: self.services.namespace.clone(),
            filter: self.services.filter.clone(),
            // Upstream's rule for regular expressions, whatever the filter says.
            passing: true,
        })
    }

    /// Returns `true` if `dependency` is about a service that is selected.
    fn selects(&self, dependency: &Dependency) -> bool {
        let own = &self.services;
        match dependency {
            Dependency::Instances { name, datacenter, namespace, filter, passing } => {
                *passing
                    && *datacenter == own.datacenter
                    && *namespace == own.namespace
                    && *filter == own.filter
                    && self.regex.is_match(name)
            }
            Dependency::Names { .. } | Dependency::Key { .. } | Dependency::Prefix { .. } => false,
        }
    }
}

impl Instance {
    fn of(entry: &ServiceEntry, user_meta: &BTreeMap<String, String>) -> Self {
        let value = instance(entry, user_meta);
        Self { digest: InstanceDigest::of(&value), value: Arc::new(value) }
    }
}

fn fill_instances<'a>(
    all: impl Iterator<Item = &'a Instance>,
    inputs: &mut TaskInputs,
    digests: &mut Vec<InstanceDigest>,
) {
    let services = inputs.services.get_or_insert_default();
    for instance in all {
        services.push(Arc::clone(&instance.value));
        digests.push(instance.digest);
    }
}

/// The names of an answer that match; `None` if there is no such answer.
fn matching_names<'a>(
    value: Option<&'a DependencyValue>,
    regex: &Regex,
) -> Option<BTreeSet<&'a str>> {
    match value {
        Some(DependencyValue::Names(names)) => {
            Some(names.keys().map(String::as_str).filter(|name| regex.is_match(name)).collect())
        }
        _ => None,
    }
}

/// A filter that speaks of check states decides alone which instances of a
/// service are taken; without one, those that are passing.
///
/// Source: Consul-Terraform-Sync 0.9, `templates/tftmpl/tmplfunc`.
fn instances_dependency(service: &NamedService) -> Dependency {
    Dependency::Instances {
        name: service.name.clone(),
        datacenter: service.datacenter.clone(),
        namespace: service.namespace.clone(),
        filter: service.filter.clone(),
        passing: !service.filter.contains("Checks.Status"),
    }
}

fn catalog_dependency(catalog: &CatalogServicesSelection) -> Dependency {
    Dependency::Names {
        datacenter: catalog.datacenter.clone(),
        namespace: catalog.namespace.clone(),
        node_meta: catalog.node_meta.clone(),
    }
}

fn names_of(matching: &MatchingServices) -> Dependency {
    Dependency::Names {
        datacenter: matching.datacenter.clone(),
        namespace: matching.namespace.clone(),
        node_meta: BTreeMap::new(),
    }
}

fn kv_dependency(keys: &KvSelection) -> Dependency {
    // A key's leading slash belongs to the URL, not to the key.
    let path = keys.path.strip_prefix('/').unwrap_or(&keys.path).to_owned();
    let (datacenter, namespace) = (keys.datacenter.clone(), keys.namespace.clone());
    if keys.recurse {
        Dependency::Prefix { path, datacenter, namespace }
    } else {
        Dependency::Key { path, datacenter, namespace }
    }
}

fn names<'a>(
    latest: &'a Latest,
    dependency: &Dependency,
) -> Option<&'a Arc<BTreeMap<String, Vec<String>>>> {
    match latest.get(dependency) {
        Some(DependencyValue::Names(names)) => Some(names),
        _ => None,
    }
}

/// The instances of an answer, `None` without any.
fn nonempty(value: Option<&DependencyValue>) -> Option<&Arc<Vec<ServiceEntry>>> {
    match value {
        Some(DependencyValue::Instances(entries)) if !entries.is_empty() => Some(entries),
        _ => None,
    }
}

fn sorted(tags: &[String]) -> Vec<String> {
    let mut tags = tags.to_vec();
    tags.sort();
    tags
}

/// An instance as modules get it.
fn instance(entry: &ServiceEntry, user_meta: &BTreeMap<String, String>) -> ServiceInstance {
    let (node, service) = (&entry.node, &entry.service);
    ServiceInstance {
        id: service.id.clone(),
        name: service.name.clone(),
        kind: service.kind.to_string(),
        address: entry.address().to_owned(),
        port: service.port,
        meta: service.meta.clone(),
        tags: sorted(&service.tags),
        namespace: service.namespace.clone().unwrap_or_default(),
        status: entry.aggregated_status().to_string(),
        node: node.name.clone(),
        node_id: node.id.clone(),
        node_address: node.address.clone(),
        node_datacenter: node.datacenter.clone(),
        node_tagged_addresses: node.tagged_addresses.clone(),
        node_meta: node.meta.clone(),
        cts_user_defined_meta: user_meta.clone(),
    }
}

#[cfg(test)]
mod tests;
