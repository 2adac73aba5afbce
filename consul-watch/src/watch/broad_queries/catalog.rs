//! Decides what must be read again: no sockets, no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A check, as the broad query of checks lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckRow<'a> {
    pub(super) node: &'a str,
    pub(super) id: &'a str,
    /// Empty for a check of the node itself.
    pub(super) service: &'a str,
    pub(super) modified: u64,
}

/// A service instance, as the listing of its node has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) service: String,
    pub(super) modified: u64,
}

/// The instances on one node by id.
pub(super) type Listing = BTreeMap<String, Instance>;

/// Services to read again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Names of those that changed.
    pub(super) services: BTreeSet<String>,
    /// Every one of them.
    pub(super) all: bool,
    /// Index past which all that were read, or are being read, are read again.
    pub(super) past: Option<u64>,
}

impl Changes {
    fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    fn past(index: u64) -> Self {
        Self { past: Some(index), ..Self::default() }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.all |= other.all;
        self.services.extend(other.services);
        self.past = self.past.into_iter().chain(other.past).min();
    }
}

#[derive(Debug)]
struct Check {
    service: String,
    modified: u64,
    /// The number of the answer that had it last.
    seen: u64,
}

/// Knowledge of the instances on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Known {
    /// No: a change in the catalog of services may concern each of them.
    #[default]
    Nothing,
    /// Nodes are being listed.
    Partly,
    /// Yes, and every service was read again since.
    All,
}

/// Index since when everything on a node changed, if it did.
type Touched = Option<u64>;

/// Rows of the catalog as the broad queries have shown them so far.
///
/// Completeness: what a service's instances show is made of instances, their
/// nodes and their checks, and Consul gives each of these a new `ModifyIndex`
/// whenever it changes. The lists of checks and of nodes carry it, so each of
/// their differences names what changed. The catalog of services does not;
/// its index only says that some instance changed, and the listings of all
/// nodes say which. Without these listings all services are named.
///
/// Two lists can be equal although something came and went between them, and
/// a read in between has seen it. Such a read has an index past the older
/// list's, so those are named too ([`Changes::past`]). With all that, a
/// service that was not named looks in the newer list as it was last read.
///
/// A service is named after the answer that shows the change came in, so a
/// read at the leader that starts then has the change.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    checks: HashMap<String, HashMap<String, Check>>,
    checks_at: u64,
    nodes: BTreeMap<String, u64>,
    nodes_at: u64,
    services_at: u64,
    known: Known,
    instances: HashMap<String, Listing>,
    /// The catalog of services had this index before the last complete
    /// listing of all nodes, and before the one under way.
    listed_at: u64,
    sweep: Option<u64>,
    /// Nodes to list.
    due: BTreeMap<String, Touched>,
    /// Nodes that are being listed.
    listing: HashMap<String, Touched>,
    /// Number of lists of checks so far.
    answers: u64,
}

impl Catalog {
    /// The checks of all nodes and services are these at this index. With
    /// `first` there was no answer before to compare with, so all watches will
    /// read: nothing is named.
    pub(super) fn checks<'a>(
        &mut self,
        index: u64,
        first: bool,
        rows: impl Iterator<Item = CheckRow<'a>>,
    ) -> Changes {
        self.answers += 1;
        let seen = self.answers;
        let mut services = BTreeSet::new();
        let mut nodes: BTreeSet<String> = BTreeSet::new();
        let mut note = |node: &str, service: &str| {
            if service.is_empty() {
                nodes.insert(node.to_owned());
            } else {
                services.insert(service.to_owned());
            }
        };
        for row in rows {
            if !self.checks.contains_key(row.node) {
                self.checks.insert(row.node.to_owned(), HashMap::new());
            }
            let Some(checks) = self.checks.get_mut(row.node) else { continue };
            let fresh = Check { service: row.service.to_owned(), modified: row.modified, seen };
            let Some(known) = checks.get_mut(row.id) else {
                note(row.node, row.service);
                checks.insert(row.id.to_owned(), fresh);
                continue;
            };
            // Without an index nothing shows that the check is as it was.
            if known.modified != row.modified || row.modified == 0 || known.service != row.service {
                note(row.node, row.service);
                note(row.node, &known.service);
                *known = fresh;
            }
            known.seen = seen;
        }
        // One pass over the old checks in place of a set of the new ones: this runs for each
        // answer, with 10,000 rows and more.
        self.checks.retain(|node, checks| {
            checks.retain(|_id, check| {
                if check.seen != seen {
                    note(node, &check.service);
                }
                check.seen == seen
            });
            !checks.is_empty()
        });
        let before = std::mem::replace(&mut self.checks_at, index);
        if first {
            return Changes::default();
        }
        // What came and went between the two lists is on neither; only who read in between may show
        // it.
        let mut changes = Changes::past(before);
        changes.services = services;
        for node in nodes {
            changes.merge(self.touch(node, self.nodes_at));
        }
        changes
    }

    /// All nodes at this index, each with its `ModifyIndex`. `first` as for checks.
    pub(super) fn nodes(
        &mut self,
        index: u64,
        first: bool,
        nodes: BTreeMap<String, u64>,
    ) -> Changes {
        if first {
            (self.nodes, self.nodes_at) = (nodes, index);
            self.due.retain(|node, _touched| self.nodes.contains_key(node));
            return Changes::default();
        }
        let old = std::mem::replace(&mut self.nodes, nodes);
        let changed: Vec<String> = self
            .nodes
            .iter()
            .filter(|(name, modified)| **modified == 0 || old.get(*name) != Some(modified))
            .map(|(name, _modified)| name.clone())
            .collect();
        let before = std::mem::replace(&mut self.nodes_at, index);
        let mut changes = Changes::past(before);
        for name in changed {
            changes.merge(self.touch(name, before));
        }
        let gone: Vec<&String> =
            old.keys().filter(|name| !self.nodes.contains_key(*name)).collect();
        for name in gone {
            if let Some(since) = self.due.remove(name).flatten() {
                changes.merge(Changes::past(since));
            }
            let listing = self.instances.remove(name).unwrap_or_default();
            changes.services.extend(services(&listing));
        }
        changes.merge(self.complete());
        changes
    }

    /// Some service instance changed: the catalog of services has this index
    /// now. `first` as for checks.
    pub(super) fn services_moved(&mut self, index: u64, first: bool) -> Changes {
        self.services_at = index;
        if first {
            return Changes::default();
        }
        // The list of services names no instance, and without all listings there is nothing to
        // compare with.
        if self.known != Known::All {
            return Changes::all();
        }
        self.begin_sweep();
        self.complete()
    }

    /// The instances on a node are now these. `None` says that there is no such node.
    pub(super) fn listed(&mut self, node: &str, listing: Option<Listing>) -> Changes {
        let Some(touched) = self.listing.remove(node) else { return Changes::default() };
        let new = listing.unwrap_or_default();
        let mut changes = Changes::default();
        if let Some(since) = touched {
            changes = Changes::past(since);
            changes.services.extend(services(&new));
        }
        if self.known == Known::Nothing {
            return changes;
        }
        // It may have left the catalog while it was listed.
        let old = if self.nodes.contains_key(node) {
            self.instances.insert(node.to_owned(), new.clone())
        } else {
            self.instances.remove(node)
        }
        .unwrap_or_default();
        if self.known == Known::All {
            changes.services.extend(differences(&old, &new));
        }
        changes.merge(self.complete());
        changes
    }

    /// A node could not be listed: falls back to what needs no listings.
    pub(super) fn not_listed(&mut self, node: &str) -> Changes {
        self.listing.remove(node);
        self.forget_instances();
        Changes::all()
    }

    /// Begins or ends to keep listings.
    pub(super) fn keep_listings(&mut self, keep: bool) -> Changes {
        match (keep, self.known) {
            (true, Known::Nothing) => {
                self.known = Known::Partly;
                self.begin_sweep();
                self.complete()
            }
            (false, Known::Partly | Known::All) => {
                self.forget_instances();
                Changes::all()
            }
            _ => Changes::default(),
        }
    }

    /// The next node to list, if there is one. One at a time is listed of each
    /// node, so that what comes in later is not older.
    pub(super) fn next_listing(&mut self) -> Option<String> {
        let node = self.due.keys().find(|node| !self.listing.contains_key(*node))?.clone();
        let touched = self.due.remove(&node).unwrap_or_default();
        self.listing.insert(node.clone(), touched);
        Some(node)
    }

    /// Returns `true` if nodes are being listed or wait for it.
    pub(super) fn is_listing(&self) -> bool {
        !self.due.is_empty() || !self.listing.is_empty()
    }

    /// Returns `true` if listings are kept, or will be.
    pub(super) fn keeps_listings(&self) -> bool {
        self.known != Known::Nothing
    }

    /// Number of checks.
    pub(super) fn check_count(&self) -> usize {
        self.checks.values().map(HashMap::len).sum()
    }

    /// Number of nodes.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Everything on a node changed. An instance that came to it later, or has
    /// left it, moved the catalog of services. What was read past `since` may
    /// have been on a new node and have left it before the node is listed.
    fn touch(&mut self, node: String, since: u64) -> Changes {
        if let Some(listing) = self.instances.get(&node) {
            return Changes { services: services(listing).collect(), ..Changes::default() };
        }
        let due = self.due.entry(node).or_default();
        *due = Some(due.map_or(since, |before| before.min(since)));
        Changes::default()
    }

    fn begin_sweep(&mut self) {
        self.sweep = Some(self.services_at);
        for node in self.nodes.keys() {
            self.due.entry(node.clone()).or_default();
        }
    }

    /// Ends a sweep when all nodes are listed. After the first one all services
    /// are read again: from then on a difference between listings is a
    /// difference from what was read.
    fn complete(&mut self) -> Changes {
        if self.is_listing() {
            return Changes::default();
        }
        let Some(index) = self.sweep.take() else { return Changes::default() };
        let before = std::mem::replace(&mut self.listed_at, index);
        if std::mem::replace(&mut self.known, Known::All) == Known::All {
            Changes::past(before)
        } else {
            Changes::all()
        }
    }

    fn forget_instances(&mut self) {
        self.known = Known::Nothing;
        self.sweep = None;
        self.instances.clear();
        // Those that were only part of a round are not needed any more; a changed node still has to
        // be named.
        self.due.retain(|_node, touched| touched.is_some());
    }
}

fn services(listing: &Listing) -> impl Iterator<Item = String> + '_ {
    listing.values().map(|instance| instance.service.clone())
}

/// The services of the instances that are not the same in both.
fn differences(old: &Listing, new: &Listing) -> BTreeSet<String> {
    let changed = |one: &Listing, other: &Listing| -> BTreeSet<String> {
        one.iter()
            .filter(|(id, instance)| instance.modified == 0 || other.get(*id) != Some(*instance))
            .map(|(_id, instance)| instance.service.clone())
            .collect()
    };
    let mut services = changed(old, new);
    services.extend(changed(new, old));
    services
}

#[cfg(test)]
mod tests;
