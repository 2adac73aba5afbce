//! The wants of one task, and the inputs made of Consul's answers to them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use consul_watch::types::ServiceEntry;
use regex::Regex;
use tokio::time::Instant;

use super::{
    settling::Settling,
    want::{Feed, Want},
};
use crate::{
    AppliedInputs, CatalogServicesSelection, Condition, InputsDigest, KvEntry, KvSelection,
    MatchingServices, ModuleInput, NamedService, ServiceInstance, ServiceSelection, Task,
    TaskInputs, store::InstanceDigest,
};

/// Knowledge of one task about Consul: it says what to watch, whether a change makes
/// the task run, and what its module gets.
///
/// Pure: whoever owns it keeps a watch for each of [`View::wants`] and hands in
/// what they yield. An answer costs what it changes, not what the task has.
#[derive(Debug, Default)]
pub(crate) struct View {
    parts: Vec<Part>,
    wants: BTreeSet<Arc<Want>>,
    /// The `wants` that were never answered.
    missing: BTreeSet<Arc<Want>>,
    latest: Latest,
    /// `true` if something came in that no run has applied yet.
    dirty: bool,
    /// `true` once everything wanted had been answered at some time.
    ready: bool,
    settling: Settling,
    /// Inputs of the newest run; `applied` holds those that were applied last.
    taken: Option<(TaskInputs, InputsDigest)>,
    applied: Option<(TaskInputs, InputsDigest)>,
}

type Latest = BTreeMap<Arc<Want>, Feed>;

/// Consequences of an answer of Consul's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Update {
    /// It makes the task run.
    pub(crate) triggers: bool,
    /// [`View::wants`] may differ from before.
    pub(crate) wants_changed: bool,
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
    Catalog { want: Arc<Want>, regex: Regex },
    Kv(Arc<Want>),
}

/// Instances of services by name.
#[derive(Debug)]
struct Named {
    /// In the order of their names.
    services: Vec<Listed>,
    /// Positions in `services` of the instances of a read.
    places: HashMap<Arc<Want>, Vec<usize>>,
}

#[derive(Debug)]
struct Listed {
    name: String,
    want: Arc<Want>,
    user_meta: BTreeMap<String, String>,
    instances: Vec<Instance>,
}

/// Instances of all services whose names match.
#[derive(Debug)]
struct Matching {
    services: MatchingServices,
    regex: Regex,
    names: Arc<Want>,
    instances: BTreeMap<Arc<Want>, Vec<Instance>>,
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
                let want = Arc::new(catalog_want(services));
                let regex = Regex::new(&services.regexp)?;
                Some((Selection::Catalog { want, regex }, *use_as_module_input))
            }
            Condition::ConsulKv { keys, use_as_module_input } => {
                Some((Selection::Kv(Arc::new(kv_want(keys))), *use_as_module_input))
            }
            Condition::Schedule { .. } => None,
        };
        if let Some((selection, is_input)) = condition {
            parts.push(Part { selection, triggers: true, is_input });
        }
        for input in &task.module_inputs {
            let selection = match input {
                ModuleInput::Services(services) => Selection::services(services)?,
                ModuleInput::ConsulKv(keys) => Selection::Kv(Arc::new(kv_want(keys))),
            };
            parts.push(Part { selection, triggers: false, is_input: true });
        }
        let mut view = Self { parts, ..Self::default() };
        view.wants = view.wanted();
        view.missing = view.wants.clone();
        Ok(view)
    }

    /// Everything that must be watched, as far as it is known by now: names
    /// that match a regular expression add to it.
    pub(crate) fn wants(&self) -> &BTreeSet<Arc<Want>> {
        &self.wants
    }

    fn wanted(&self) -> BTreeSet<Arc<Want>> {
        self.parts.iter().flat_map(|part| part.selection.wants(&self.latest)).collect()
    }

    /// Takes an answer. What is no longer wanted afterwards is forgotten.
    pub(crate) fn update(&mut self, want: &Arc<Want>, feed: &Feed, now: Instant) -> Update {
        // Only names begin or cease to match a regular expression.
        let wants_changed = matches!(feed, Feed::Names(_));
        let before = self.latest.insert(Arc::clone(want), feed.clone());
        self.missing.remove(want);
        let gone = if wants_changed { self.forget_unwanted() } else { Latest::new() };
        self.dirty = true;
        // For good: a name that begins to match later must not hold up all runs.
        self.ready = self.ready || self.is_complete();
        for part in &mut self.parts {
            part.selection.keep(want, feed, &gone);
        }
        let mut triggers = self.parts.iter().any(|part| {
            part.triggers && part.selection.differs(want, before.as_ref(), feed, &gone)
        });
        if let Feed::Names(_) = feed {
            self.expect_instances(want, before.as_ref(), feed, now);
        } else {
            let instances = nonempty(Some(feed)).is_some();
            triggers |= self.settling.answered(want, instances, now);
        }
        Update { triggers, wants_changed }
    }

    /// Makes the run on names that came or went wait for their instances.
    fn expect_instances(&mut self, want: &Want, before: Option<&Feed>, feed: &Feed, now: Instant) {
        let catalog = self.parts.iter().filter(|part| part.triggers);
        let (came, went): (Vec<_>, Vec<_>) = catalog
            .flat_map(|part| part.selection.names_between(want, before, feed))
            .partition(|(_, came)| *came);
        let expected: Vec<_> = came
            .iter()
            .chain(&went)
            .flat_map(|(name, came)| {
                let inputs = self.parts.iter().filter(|part| part.is_input);
                inputs
                    .flat_map(|part| part.selection.instances_of(name, want))
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
        self.wants = self.wanted();
        let (kept, gone) = std::mem::take(&mut self.latest)
            .into_iter()
            .partition(|(want, _)| self.wants.contains(want));
        self.latest = kept;
        self.missing =
            self.wants.iter().filter(|want| !self.latest.contains_key(*want)).cloned().collect();
        gone
    }

    /// Returns the wants that were never answered.
    pub(crate) fn missing(&self) -> &BTreeSet<Arc<Want>> {
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

    fn wants(&self, latest: &Latest) -> Vec<Arc<Want>> {
        match self {
            Self::Named(named) => {
                named.services.iter().map(|service| Arc::clone(&service.want)).collect()
            }
            Self::Matching(matching) => {
                let known =
                    names(latest, &matching.names).into_iter().flat_map(|names| names.keys());
                let known = known.filter(|name| matching.regex.is_match(name));
                let mut wants: Vec<_> = known.map(|name| matching.instances_of(name)).collect();
                wants.push(Arc::clone(&matching.names));
                wants
            }
            Self::Catalog { want, .. } | Self::Kv(want) => vec![Arc::clone(want)],
        }
    }

    /// Returns `true` if an answer to `want` changed what this selection selects.
    ///
    /// `gone` holds what a change of names made superfluous.
    fn differs(&self, want: &Want, before: Option<&Feed>, now: &Feed, gone: &Latest) -> bool {
        match self {
            Self::Named(named) => named.places.contains_key(want) && before != Some(now),
            Self::Matching(matching) => {
                let selected = |want: &Want| matching.selects(want);
                if selected(want) {
                    nonempty(before) != nonempty(Some(now))
                } else {
                    gone.iter().any(|(want, feed)| selected(want) && nonempty(Some(feed)).is_some())
                }
            }
            Self::Catalog { want: own, regex } => {
                **own == *want && matching_names(before, regex) != matching_names(Some(now), regex)
            }
            Self::Kv(own) => **own == *want && before != Some(now),
        }
    }

    /// The names that an answer to `want` brought (`true`) or took away
    /// (`false`); none at the first answer, which comes before the first run.
    fn names_between(&self, want: &Want, before: Option<&Feed>, now: &Feed) -> Vec<(String, bool)> {
        let Self::Catalog { want: own, regex } = self else { return Vec::new() };
        let (Some(before), Some(now)) =
            (matching_names(before, regex), matching_names(Some(now), regex))
        else {
            return Vec::new();
        };
        if **own != *want {
            return Vec::new();
        }
        let came = now.difference(&before).map(|name| ((*name).to_owned(), true));
        came.chain(before.difference(&now).map(|name| ((*name).to_owned(), false))).collect()
    }

    /// The reads of the instances of a service that `catalog` lists.
    fn instances_of(&self, name: &str, catalog: &Want) -> Vec<Arc<Want>> {
        let all: Vec<_> = match self {
            Self::Named(named) => named.of_service(name),
            Self::Matching(matching) if matching.regex.is_match(name) => {
                vec![matching.instances_of(name)]
            }
            Self::Matching(_) | Self::Catalog { .. } | Self::Kv(_) => Vec::new(),
        };
        all.into_iter().filter(|want| want.may_share_services_with(catalog)).collect()
    }

    /// Keeps the instances of an answer as modules get them.
    fn keep(&mut self, want: &Arc<Want>, feed: &Feed, gone: &Latest) {
        match (self, feed) {
            (Self::Named(named), Feed::Instances(entries)) => named.keep(want, entries),
            (Self::Matching(matching), Feed::Instances(entries)) if matching.selects(want) => {
                let meta = &matching.services.cts_user_defined_meta;
                let all = entries.iter().map(|entry| Instance::of(entry, meta)).collect();
                matching.instances.insert(Arc::clone(want), all);
            }
            (Self::Matching(matching), Feed::Names(_)) => {
                for want in gone.keys() {
                    matching.instances.remove(want);
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
            Self::Catalog { want, regex } => {
                let matching = names(latest, want).map(|names| {
                    let names = names.iter().filter(|(name, _)| regex.is_match(name));
                    names.map(|(name, tags)| (name.clone(), sorted(tags))).collect()
                });
                inputs.catalog_services = Some(matching.unwrap_or_default());
            }
            Self::Kv(want) => {
                let pairs: Vec<_> = match latest.get(want) {
                    Some(Feed::Key(pair)) => pair.iter().cloned().collect(),
                    Some(Feed::Prefix(pairs)) => pairs.to_vec(),
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
                want: Arc::new(instances_want(service)),
                user_meta: service.cts_user_defined_meta.clone(),
                instances: Vec::new(),
            })
            .collect();
        services.sort_by(|a, b| a.name.cmp(&b.name));
        let mut places: HashMap<Arc<Want>, Vec<usize>> = HashMap::new();
        for (place, service) in services.iter().enumerate() {
            places.entry(Arc::clone(&service.want)).or_default().push(place);
        }
        Self { services, places }
    }

    fn keep(&mut self, want: &Want, entries: &[ServiceEntry]) {
        for place in self.places.get(want).into_iter().flatten() {
            if let Some(service) = self.services.get_mut(*place) {
                let meta = &service.user_meta;
                service.instances = entries.iter().map(|entry| Instance::of(entry, meta)).collect();
            }
        }
    }

    fn of_service(&self, name: &str) -> Vec<Arc<Want>> {
        let first = self.services.partition_point(|service| service.name.as_str() < name);
        let same = self.services.iter().skip(first).take_while(|service| service.name == name);
        same.map(|service| Arc::clone(&service.want)).collect()
    }
}

impl Matching {
    fn instances_of(&self, name: &str) -> Arc<Want> {
        Arc::new(Want::Instances {
            name: name.to_owned(),
            datacenter: self.services.datacenter.clone(),
            namespace: self.services.namespace.clone(),
            filter: self.services.filter.clone(),
            // Upstream's rule for regular expressions, whatever the filter says.
            passing: true,
        })
    }

    /// Returns `true` if `want` is about a service that is selected.
    fn selects(&self, want: &Want) -> bool {
        let own = &self.services;
        match want {
            Want::Instances { name, datacenter, namespace, filter, passing } => {
                *passing
                    && *datacenter == own.datacenter
                    && *namespace == own.namespace
                    && *filter == own.filter
                    && self.regex.is_match(name)
            }
            Want::Names { .. } | Want::Key { .. } | Want::Prefix { .. } => false,
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
fn matching_names<'a>(feed: Option<&'a Feed>, regex: &Regex) -> Option<BTreeSet<&'a str>> {
    match feed {
        Some(Feed::Names(names)) => {
            Some(names.keys().map(String::as_str).filter(|name| regex.is_match(name)).collect())
        }
        _ => None,
    }
}

/// A filter that speaks of check states decides alone which instances of a
/// service are taken; without one, those that are passing.
///
/// Source: Consul-Terraform-Sync 0.9, `templates/tftmpl/tmplfunc`.
fn instances_want(service: &NamedService) -> Want {
    Want::Instances {
        name: service.name.clone(),
        datacenter: service.datacenter.clone(),
        namespace: service.namespace.clone(),
        filter: service.filter.clone(),
        passing: !service.filter.contains("Checks.Status"),
    }
}

fn catalog_want(catalog: &CatalogServicesSelection) -> Want {
    Want::Names {
        datacenter: catalog.datacenter.clone(),
        namespace: catalog.namespace.clone(),
        node_meta: catalog.node_meta.clone(),
    }
}

fn names_of(matching: &MatchingServices) -> Want {
    Want::Names {
        datacenter: matching.datacenter.clone(),
        namespace: matching.namespace.clone(),
        node_meta: BTreeMap::new(),
    }
}

fn kv_want(keys: &KvSelection) -> Want {
    // A key's leading slash belongs to the URL, not to the key.
    let path = keys.path.strip_prefix('/').unwrap_or(&keys.path).to_owned();
    let (datacenter, namespace) = (keys.datacenter.clone(), keys.namespace.clone());
    if keys.recurse {
        Want::Prefix { path, datacenter, namespace }
    } else {
        Want::Key { path, datacenter, namespace }
    }
}

fn names<'a>(latest: &'a Latest, want: &Want) -> Option<&'a Arc<BTreeMap<String, Vec<String>>>> {
    match latest.get(want) {
        Some(Feed::Names(names)) => Some(names),
        _ => None,
    }
}

/// The instances of an answer, `None` without any.
fn nonempty(feed: Option<&Feed>) -> Option<&Arc<Vec<ServiceEntry>>> {
    match feed {
        Some(Feed::Instances(entries)) if !entries.is_empty() => Some(entries),
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
