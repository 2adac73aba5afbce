//! Tests of what the lists of the catalog name: each change, whatever comes between two lists.

use proptest::prelude::*;

use super::*;

fn check<'a>(node: &'a str, service: &'a str, modified: u64) -> CheckRow<'a> {
    CheckRow { node, id: "c", service, modified }
}

fn nodes(names: &[(&str, u64)]) -> BTreeMap<String, u64> {
    names.iter().map(|(name, modified)| ((*name).to_owned(), *modified)).collect()
}

fn listing(instances: &[(&str, u64)]) -> Listing {
    let instance = |(service, modified): &(&str, u64)| Instance {
        service: (*service).into(),
        modified: *modified,
    };
    instances.iter().map(|one| (one.0.to_owned(), instance(one))).collect()
}

fn named(changes: &Changes) -> Vec<&str> {
    assert!(!changes.all, "{changes:?}");
    changes.services.iter().map(String::as_str).collect()
}

/// A catalog of two nodes, all listed.
fn listed() -> Catalog {
    let mut catalog = Catalog::default();
    catalog.nodes(10, true, nodes(&[("n1", 1), ("n2", 2)]));
    catalog.services_moved(10, true);
    catalog.keep_listings(true);
    assert_eq!(catalog.next_listing().as_deref(), Some("n1"));
    assert_eq!(catalog.listed("n1", Some(listing(&[("web", 5)]))), Changes::default());
    assert_eq!(catalog.next_listing().as_deref(), Some("n2"));
    let changes = catalog.listed("n2", Some(listing(&[("api", 6), ("db", 7)])));
    assert!(changes.all, "after the first listing of all nodes, all is read again");
    catalog
}

#[test]
fn a_check_names_its_service_when_it_comes_changes_and_goes() {
    let mut catalog = Catalog::default();
    let rows = [check("n1", "web", 1), check("n2", "api", 2)];
    assert_eq!(named(&catalog.checks(9, true, rows[..1].iter().copied())), [""; 0]);
    assert_eq!(named(&catalog.checks(10, false, rows.into_iter())), ["api"]);
    assert_eq!(named(&catalog.checks(11, false, rows.into_iter())), [""; 0]);
    let flipped = [check("n1", "web", 12), rows[1]];
    assert_eq!(named(&catalog.checks(12, false, flipped.into_iter())), ["web"]);
    let changes = catalog.checks(13, false, std::iter::once(flipped[0]));
    assert_eq!((named(&changes), changes.past), (vec!["api"], Some(12)));
}

/// At the start and after a failure all watches read anyway.
#[test]
fn what_there_was_before_the_first_answer_is_neither_named_nor_listed() {
    let mut catalog = Catalog::default();
    let checks = [check("n1", "", 1), check("n2", "web", 1)];
    let found = nodes(&[("n1", 1), ("n2", 2)]);
    assert_eq!(catalog.checks(10, true, checks.into_iter()), Changes::default());
    assert_eq!(catalog.nodes(10, true, found.clone()), Changes::default());
    assert_eq!(catalog.services_moved(10, true), Changes::default());
    assert!(!catalog.is_listing() && catalog.next_listing().is_none());
    // What it holds is compared from then on.
    assert_eq!(named(&catalog.checks(11, false, checks.into_iter())), [""; 0]);
    assert_eq!(named(&catalog.nodes(11, false, found.clone())), [""; 0]);
    catalog.nodes(12, false, nodes(&[("n1", 12), ("n2", 2)]));
    assert_eq!(catalog.next_listing().as_deref(), Some("n1"));
}

#[test]
fn a_check_of_a_node_names_all_services_on_it() {
    let mut catalog = listed();
    assert_eq!(
        named(&catalog.checks(20, false, std::iter::once(check("n2", "", 20)))),
        ["api", "db"]
    );
    assert!(!catalog.is_listing());
    // Without listings the node is listed first.
    let mut catalog = Catalog::default();
    catalog.checks(20, false, std::iter::once(check("n2", "", 20)));
    assert_eq!(catalog.next_listing().as_deref(), Some("n2"));
    assert_eq!(named(&catalog.listed("n2", Some(listing(&[("api", 6)])))), ["api"]);
}

#[test]
fn an_edit_that_the_list_of_services_hides_is_found_in_the_listings() {
    let mut catalog = listed();
    assert_eq!(catalog.services_moved(20, false), Changes::default());
    assert_eq!(catalog.next_listing().as_deref(), Some("n1"));
    assert_eq!(named(&catalog.listed("n1", Some(listing(&[("web", 20)])))), ["web"]);
    assert_eq!(catalog.next_listing().as_deref(), Some("n2"));
    let changes = catalog.listed("n2", Some(listing(&[("db", 7)])));
    assert_eq!((named(&changes), changes.past), (vec!["api"], Some(10)));
}

#[test]
fn without_listings_a_change_of_services_names_all() {
    let mut catalog = Catalog::default();
    assert!(catalog.services_moved(20, false).all);
    let mut catalog = listed();
    assert!(catalog.keep_listings(false).all);
    assert!(catalog.services_moved(21, false).all);
    let mut catalog = listed();
    catalog.services_moved(20, false);
    let node = catalog.next_listing().unwrap();
    assert!(catalog.not_listed(&node).all);
    assert!(catalog.services_moved(21, false).all && !catalog.is_listing());
}

#[test]
fn a_node_that_comes_changes_or_goes_names_what_is_on_it() {
    let mut catalog = listed();
    assert_eq!(named(&catalog.nodes(20, false, nodes(&[("n1", 20), ("n2", 2)]))), ["web"]);
    assert_eq!(named(&catalog.nodes(21, false, nodes(&[("n1", 20)]))), ["api", "db"]);
    catalog.nodes(22, false, nodes(&[("n1", 20), ("n3", 22)]));
    assert_eq!(catalog.next_listing().as_deref(), Some("n3"));
    let changes = catalog.listed("n3", Some(listing(&[("new", 22)])));
    assert_eq!((named(&changes), changes.past), (vec!["new"], Some(21)));
}

/// A Consul small enough to compute what each service looks like.
#[derive(Debug, Clone, Default)]
struct World {
    index: u64,
    nodes: BTreeMap<u8, u64>,
    /// By node and id.
    instances: BTreeMap<(u8, u8), (u8, u64)>,
    /// By node and id; the service is 255 for a check of the node.
    checks: BTreeMap<(u8, u8), (u8, u64)>,
    checks_at: u64,
    nodes_at: u64,
    services_at: u64,
    /// When each service changed last.
    changed: BTreeMap<u8, u64>,
}

type Look = (u64, Vec<(u8, u64)>, Vec<((u8, u8), (u8, u64))>, Vec<((u8, u8), (u8, u64))>);

impl World {
    /// A service's index, and everything that a read of it shows.
    fn look(&self, service: u8) -> Look {
        let instances: Vec<_> = self
            .instances
            .iter()
            .filter(|(_, instance)| instance.0 == service)
            .map(|(id, instance)| (*id, *instance))
            .collect();
        let on = |node: u8| instances.iter().any(|((on, _), _)| *on == node);
        let nodes = self.nodes.iter().filter(|(node, _)| on(**node)).map(|(a, b)| (*a, *b));
        let checks = self
            .checks
            .iter()
            .filter(|((node, _), (of, _))| *of == service || *of == 255 && on(*node))
            .map(|(a, b)| (*a, *b));
        let index = self.changed.get(&service).copied().unwrap_or(1);
        (index, nodes.collect(), instances.clone(), checks.collect())
    }

    fn change(&mut self, kind: u8, node: u8, id: u8, service: u8) {
        self.index += 1;
        let before: Vec<Look> = (0..SERVICES).map(|service| self.look(service)).collect();
        let at = self.index;
        match kind {
            0 => {
                self.nodes.insert(node, at);
                self.nodes_at = at;
            }
            1 | 2 => {
                self.nodes.entry(node).or_insert_with(|| {
                    self.nodes_at = at;
                    at
                });
                self.instances.insert((node, id), (service, at));
                self.services_at = at;
            }
            3 if self.instances.remove(&(node, id)).is_some() => self.services_at = at,
            4 | 5 if self.nodes.contains_key(&node) => {
                let on = self.instances.get(&(node, id)).map_or(255, |instance| instance.0);
                self.checks.insert((node, id), (on, at));
                self.checks_at = at;
            }
            6 if self.checks.remove(&(node, id)).is_some() => self.checks_at = at,
            7 if self.nodes.remove(&node).is_some() => {
                self.instances.retain(|(on, _), _| *on != node);
                self.checks.retain(|(on, _), _| *on != node);
                (self.nodes_at, self.services_at, self.checks_at) = (at, at, at);
            }
            _ => {}
        }
        for (service, before) in (0..SERVICES).zip(before) {
            if self.look(service) != before {
                self.changed.insert(service, at);
            }
        }
    }
}

const SERVICES: u8 = 4;

/// Readers of all services, one read of each under way at most.
struct Readers {
    seen: Vec<Look>,
    due: Vec<bool>,
    reading: Vec<Option<Look>>,
}

impl Readers {
    fn apply(&mut self, changes: &Changes) {
        for service in 0..usize::from(SERVICES) {
            let named = changes.services.contains(&service.to_string());
            let past = changes
                .past
                .is_some_and(|past| self.seen[service].0 > past || self.reading[service].is_some());
            self.due[service] |= changes.all || named || past;
        }
    }

    fn step(&mut self, world: &World, service: usize) {
        if let Some(look) = self.reading[service].take() {
            self.seen[service] = look;
        } else if self.due[service] {
            self.due[service] = false;
            self.reading[service] = Some(world.look(u8::try_from(service).unwrap()));
        }
    }
}

/// Answers of the three broad queries, each as old as it takes to arrive.
fn broad(catalog: &mut Catalog, world: &World, kind: u8, at: &mut [u64; 3]) -> Changes {
    let texts: Vec<String> = (0..=255u8).map(|number| number.to_string()).collect();
    let text = |number: u8| texts[usize::from(number)].as_str();
    let first = at[usize::from(kind)] == 0;
    match kind {
        0 if world.checks_at > at[0] => {
            at[0] = world.checks_at;
            let rows = world.checks.iter().map(|((node, id), (service, modified))| CheckRow {
                node: text(*node),
                id: text(*id),
                service: if *service == 255 { "" } else { text(*service) },
                modified: *modified,
            });
            catalog.checks(world.checks_at, first, rows)
        }
        1 if world.nodes_at > at[1] => {
            at[1] = world.nodes_at;
            let nodes = world.nodes.iter().map(|(node, modified)| (node.to_string(), *modified));
            catalog.nodes(world.nodes_at, first, nodes.collect())
        }
        2 if world.services_at > at[2] && !catalog.is_listing() => {
            at[2] = world.services_at;
            catalog.services_moved(world.services_at, first)
        }
        _ => Changes::default(),
    }
}

fn list(world: &World, node: &str) -> Option<Listing> {
    let node: u8 = node.parse().unwrap();
    world.nodes.contains_key(&node).then(|| {
        let on = world.instances.iter().filter(|((on, _), _)| *on == node);
        on.map(|((_, id), (service, modified))| {
            let instance = Instance { service: service.to_string(), modified: *modified };
            (id.to_string(), instance)
        })
        .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    /// In whatever order changes, broad answers, listings and reads come, and
    /// however old each is when it arrives: in the end every reader has seen
    /// its service as it is.
    #[test]
    fn no_order_of_events_loses_a_change(
        keep in any::<bool>(),
        steps in proptest::collection::vec((0u8..12, 0u8..8, 0u8..3, 0u8..2, 0..SERVICES), 1..250)
    ) {
        let mut world = World { index: 1, checks_at: 1, nodes_at: 1, services_at: 1, ..World::default() };
        let (mut catalog, mut at) = (Catalog::default(), [0; 3]);
        let first = vec![world.look(0); SERVICES.into()];
        let none = vec![None; SERVICES.into()];
        let mut readers = Readers { seen: first, due: vec![true; SERVICES.into()], reading: none };
        let mut lists: Vec<(String, Option<Listing>)> = Vec::new();
        for kind in 0..3 {
            broad(&mut catalog, &world, kind, &mut at);
        }
        readers.apply(&Changes::all());
        readers.apply(&catalog.keep_listings(keep));
        // Answers that are under way.
        let mut answers: [Option<World>; 3] = [None, None, None];
        for (what, kind, node, id, service) in steps {
            match what {
                0..=3 => world.change(kind, node, id, service),
                4 => answers[usize::from(kind % 3)] = Some(world.clone()),
                5 | 6 => {
                    if let Some(then) = answers[usize::from(kind % 3)].take() {
                        readers.apply(&broad(&mut catalog, &then, kind % 3, &mut at));
                    }
                }
                7 | 8 => {
                    if let Some(node) = catalog.next_listing() {
                        let listing = list(&world, &node);
                        lists.push((node, listing));
                    }
                }
                9 if !lists.is_empty() => {
                    let (node, listing) = lists.swap_remove(usize::from(kind) % lists.len());
                    readers.apply(&catalog.listed(&node, listing));
                }
                _ => readers.step(&world, service.into()),
            }
        }
        // Everything under way arrives, until nothing more follows from it.
        for (kind, then) in answers.into_iter().enumerate() {
            if let Some(then) = then {
                readers.apply(&broad(&mut catalog, &then, u8::try_from(kind).unwrap(), &mut at));
            }
        }
        for _ in 0..10 {
            for kind in 0..3 {
                readers.apply(&broad(&mut catalog, &world, kind, &mut at));
            }
            while let Some((node, listing)) = lists.pop() {
                readers.apply(&catalog.listed(&node, listing));
            }
            while let Some(node) = catalog.next_listing() {
                readers.apply(&catalog.listed(&node, list(&world, &node)));
            }
            for service in 0..usize::from(SERVICES) {
                readers.step(&world, service);
                readers.step(&world, service);
            }
        }
        for service in 0..SERVICES {
            let (seen, look) = (&readers.seen[usize::from(service)], world.look(service));
            // What came and went unseen moved nothing but the index.
            prop_assert_eq!((&seen.1, &seen.2, &seen.3), (&look.1, &look.2, &look.3));
        }
    }
}
