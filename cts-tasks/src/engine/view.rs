use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use consul_watch::types::ServiceEntry;
use regex::Regex;

use super::want::{Feed, Want};
use crate::{
    CatalogServicesSelection, Condition, KvEntry, KvSelection, MatchingServices, ModuleInput,
    NamedService, ServiceInstance, ServiceSelection, Task, TaskInputs,
};

/// What one task knows of Consul: it says what to watch, whether a change makes
/// the task run, and what its module gets.
///
/// Pure: whoever owns it keeps a watch for each of [`View::wants`] and hands in
/// what they yield.
#[derive(Debug)]
pub(crate) struct View {
    parts: Vec<Part>,
    latest: BTreeMap<Want, Feed>,
    /// Whether something came in that no run has applied yet.
    dirty: bool,
    /// Whether everything wanted had been answered at some time.
    ready: bool,
}

/// What an answer of Consul's came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Update {
    /// It makes the task run.
    pub(crate) triggers: bool,
    /// [`View::wants`] may differ from before.
    pub(crate) wants_changed: bool,
}

/// One selection of the task's.
#[derive(Debug)]
struct Part {
    selection: Selection,
    triggers: bool,
    is_input: bool,
}

#[derive(Debug)]
enum Selection {
    Services(ServiceSelection, Option<Regex>),
    Catalog(CatalogServicesSelection, Regex),
    Kv(KvSelection),
}

impl View {
    /// # Errors
    ///
    /// When a regular expression does not compile; configuration has checked it.
    pub(crate) fn new(task: &Task) -> Result<Self, regex::Error> {
        let mut parts = Vec::new();
        let condition = match &task.condition {
            Condition::Services { services, use_as_module_input } => {
                Some((Selection::services(services)?, *use_as_module_input))
            }
            Condition::CatalogServices { services, use_as_module_input } => Some((
                Selection::Catalog(services.clone(), Regex::new(&services.regexp)?),
                *use_as_module_input,
            )),
            Condition::ConsulKv { keys, use_as_module_input } => {
                Some((Selection::Kv(keys.clone()), *use_as_module_input))
            }
            Condition::Schedule { .. } => None,
        };
        if let Some((selection, is_input)) = condition {
            parts.push(Part { selection, triggers: true, is_input });
        }
        for input in &task.module_inputs {
            let selection = match input {
                ModuleInput::Services(services) => Selection::services(services)?,
                ModuleInput::ConsulKv(keys) => Selection::Kv(keys.clone()),
            };
            parts.push(Part { selection, triggers: false, is_input: true });
        }
        Ok(Self { parts, latest: BTreeMap::new(), dirty: false, ready: false })
    }

    /// Everything that must be watched, as far as it is known by now: names
    /// that match a regular expression add to it.
    pub(crate) fn wants(&self) -> BTreeSet<Want> {
        self.parts.iter().flat_map(|part| part.selection.wants(&self.latest)).collect()
    }

    /// Takes an answer. What is no longer wanted afterwards is forgotten.
    pub(crate) fn update(&mut self, want: &Want, feed: &Feed) -> Update {
        let wants_changed = matches!(feed, Feed::Names(_));
        let before = self.latest.insert(want.clone(), feed.clone());
        let gone = if wants_changed { self.forget_unwanted() } else { Latest::new() };
        self.dirty = true;
        self.ready = self.ready || self.is_complete();
        let triggers = self.parts.iter().any(|part| {
            part.triggers && part.selection.differs(want, before.as_ref(), feed, &gone)
        });
        Update { triggers, wants_changed }
    }

    fn forget_unwanted(&mut self) -> Latest {
        let wanted = self.wants();
        let (kept, gone) = std::mem::take(&mut self.latest)
            .into_iter()
            .partition(|(want, _)| wanted.contains(want));
        self.latest = kept;
        gone
    }

    /// What is wanted and was never answered.
    pub(crate) fn missing(&self) -> Vec<Want> {
        self.wants().into_iter().filter(|want| !self.latest.contains_key(want)).collect()
    }

    /// Whether everything wanted was answered at least once.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing().is_empty()
    }

    /// Whether something came in that no run has applied yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// What was taken could not be applied.
    pub(crate) fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    /// What the module gets now, for a run; `None` until everything was
    /// answered once.
    pub(crate) fn take_inputs(&mut self) -> Option<TaskInputs> {
        let inputs = self.inputs()?;
        self.dirty = false;
        Some(inputs)
    }

    /// What the module gets now; `None` until everything was answered once.
    ///
    /// A service whose name has only just begun to match counts as one without
    /// instances until its own answer is there, which triggers then.
    pub(crate) fn inputs(&self) -> Option<TaskInputs> {
        if !self.ready && !self.is_complete() {
            return None;
        }
        let mut inputs = TaskInputs::default();
        for part in self.parts.iter().filter(|part| part.is_input) {
            part.selection.fill(&self.latest, &mut inputs);
        }
        Some(inputs)
    }
}

type Latest = BTreeMap<Want, Feed>;

impl Selection {
    fn services(services: &ServiceSelection) -> Result<Self, regex::Error> {
        let regex = match services {
            ServiceSelection::Named(_) => None,
            ServiceSelection::Matching(matching) => Some(Regex::new(&matching.regexp)?),
        };
        Ok(Self::Services(services.clone(), regex))
    }

    fn wants(&self, latest: &Latest) -> Vec<Want> {
        match self {
            Self::Services(ServiceSelection::Named(named), _) => {
                named.iter().map(instances_want).collect()
            }
            Self::Services(ServiceSelection::Matching(matching), regex) => {
                let mut wants = instances_of_matching(matching, regex.as_ref(), latest);
                wants.push(names_of(matching));
                wants
            }
            Self::Catalog(catalog, _) => vec![catalog_want(catalog)],
            Self::Kv(keys) => vec![kv_want(keys)],
        }
    }

    /// Whether an answer to `want` changed what this selection selects.
    ///
    /// `gone` holds what a change of names made superfluous.
    fn differs(&self, want: &Want, before: Option<&Feed>, now: &Feed, gone: &Latest) -> bool {
        match self {
            Self::Services(ServiceSelection::Named(named), _) => {
                named.iter().any(|service| instances_want(service) == *want) && before != Some(now)
            }
            Self::Services(ServiceSelection::Matching(matching), regex) => {
                let selected = |want: &Want| is_instances_of(want, matching, regex.as_ref());
                if selected(want) {
                    nonempty(before) != nonempty(Some(now))
                } else {
                    gone.iter().any(|(want, feed)| selected(want) && nonempty(Some(feed)).is_some())
                }
            }
            Self::Catalog(catalog, regex) => {
                let matching = |feed: Option<&Feed>| match feed {
                    Some(Feed::Names(names)) => {
                        Some(names.keys().filter(|name| regex.is_match(name)).cloned().collect())
                    }
                    _ => None::<Vec<_>>,
                };
                catalog_want(catalog) == *want && matching(before) != matching(Some(now))
            }
            Self::Kv(keys) => kv_want(keys) == *want && before != Some(now),
        }
    }

    fn fill(&self, latest: &Latest, inputs: &mut TaskInputs) {
        match self {
            Self::Services(ServiceSelection::Named(named), _) => {
                let mut named: Vec<_> = named.iter().collect();
                named.sort_by(|a, b| a.name.cmp(&b.name));
                let all = named.into_iter().flat_map(|service| {
                    instances(latest, &instances_want(service))
                        .iter()
                        .flat_map(|entries| entries.iter())
                        .map(|entry| instance(entry, &service.cts_user_defined_meta))
                        .collect::<Vec<_>>()
                });
                inputs.services.get_or_insert_default().extend(all);
            }
            Self::Services(ServiceSelection::Matching(matching), regex) => {
                let mut all: Vec<ServiceInstance> =
                    instances_of_matching(matching, regex.as_ref(), latest)
                        .iter()
                        .filter_map(|want| instances(latest, want))
                        .flat_map(|entries| entries.iter())
                        .map(|entry| instance(entry, &matching.cts_user_defined_meta))
                        .collect();
                all.sort_by(|a, b| (&a.node, &a.id).cmp(&(&b.node, &b.id)));
                inputs.services.get_or_insert_default().extend(all);
            }
            Self::Catalog(catalog, regex) => {
                let matching = names(latest, &catalog_want(catalog)).map(|names| {
                    let names = names.iter().filter(|(name, _)| regex.is_match(name));
                    names.map(|(name, tags)| (name.clone(), sorted(tags))).collect()
                });
                inputs.catalog_services = Some(matching.unwrap_or_default());
            }
            Self::Kv(keys) => {
                let pairs: Vec<_> = match latest.get(&kv_want(keys)) {
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

fn instances_of_matching(
    matching: &MatchingServices,
    regex: Option<&Regex>,
    latest: &Latest,
) -> Vec<Want> {
    let Some(names) = names(latest, &names_of(matching)) else { return Vec::new() };
    names
        .keys()
        .filter(|name| regex.is_some_and(|regex| regex.is_match(name)))
        .map(|name| Want::Instances {
            name: name.clone(),
            datacenter: matching.datacenter.clone(),
            namespace: matching.namespace.clone(),
            filter: matching.filter.clone(),
            // Upstream's rule for regular expressions, whatever the filter says.
            passing: true,
        })
        .collect()
}

fn names<'a>(latest: &'a Latest, want: &Want) -> Option<&'a Arc<BTreeMap<String, Vec<String>>>> {
    match latest.get(want) {
        Some(Feed::Names(names)) => Some(names),
        _ => None,
    }
}

fn instances<'a>(latest: &'a Latest, want: &Want) -> Option<&'a Arc<Vec<ServiceEntry>>> {
    match latest.get(want) {
        Some(Feed::Instances(entries)) => Some(entries),
        _ => None,
    }
}

/// Whether `want` is about a service that `matching` selects.
fn is_instances_of(want: &Want, matching: &MatchingServices, regex: Option<&Regex>) -> bool {
    match want {
        Want::Instances { name, datacenter, namespace, filter, passing } => {
            *passing
                && *datacenter == matching.datacenter
                && *namespace == matching.namespace
                && *filter == matching.filter
                && regex.is_some_and(|regex| regex.is_match(name))
        }
        Want::Names { .. } | Want::Key { .. } | Want::Prefix { .. } => false,
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
