//! Nodes with their instances and checks, as a broad query of one node or of all lists them. No
//! sockets, no clock.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::Deserialize;

/// The instances and checks of a node. The default is a node that has none, or is gone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodeRows {
    services: Vec<Row>,
    checks: Vec<Row>,
}

/// An instance or a check: everything that a change of it changes.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    id: Box<str>,
    /// Name of the service; empty for a check of the node itself.
    service: Box<str>,
    /// `ModifyIndex`; 0 shows nothing, so such a row counts as changed.
    modified: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NamedJson<'a> {
    #[serde(borrow)]
    node: Cow<'a, str>,
    #[serde(borrow)]
    services: Option<Vec<ServiceJson<'a>>>,
    #[serde(borrow)]
    checks: Option<Vec<CheckJson<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NodeJson<'a> {
    #[serde(borrow)]
    services: Option<Vec<ServiceJson<'a>>>,
    #[serde(borrow)]
    checks: Option<Vec<CheckJson<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceJson<'a> {
    #[serde(borrow, rename = "ID")]
    id: Cow<'a, str>,
    #[serde(borrow)]
    service: Cow<'a, str>,
    #[serde(default)]
    modify_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CheckJson<'a> {
    #[serde(borrow, rename = "CheckID")]
    check_id: Cow<'a, str>,
    #[serde(borrow, default)]
    service_name: Cow<'a, str>,
    #[serde(default)]
    modify_index: u64,
}

impl NodeRows {
    /// Decodes an answer of `internal/ui/node`; one without a text is a node that is gone.
    ///
    /// # Errors
    ///
    /// The decoder's, for an answer of another form.
    pub(super) fn decode(body: &[u8]) -> serde_json::Result<Self> {
        // Consul answers 404 without a body for a node that it does not know.
        if body.is_empty() {
            return Ok(Self::default());
        }
        let node = serde_json::from_slice::<Option<NodeJson<'_>>>(body)?;
        Ok(node.map(|node| Self::new(node.services, node.checks)).unwrap_or_default())
    }

    /// Decodes an answer of `internal/ui/nodes`: the rows of all nodes, by name.
    ///
    /// # Errors
    ///
    /// The decoder's, for an answer of another form.
    pub(super) fn decode_all(body: &[u8]) -> serde_json::Result<BTreeMap<String, Self>> {
        let nodes = serde_json::from_slice::<Option<Vec<NamedJson<'_>>>>(body)?.unwrap_or_default();
        let rows = nodes
            .into_iter()
            .map(|node| (node.node.into_owned(), Self::new(node.services, node.checks)));
        Ok(rows.collect())
    }

    fn new(services: Option<Vec<ServiceJson<'_>>>, checks: Option<Vec<CheckJson<'_>>>) -> Self {
        let row = |id: &str, service: &str, modified| Row {
            id: id.into(),
            service: service.into(),
            modified,
        };
        let (services, checks) = (services.unwrap_or_default(), checks.unwrap_or_default());
        let mut rows = Self {
            services: services.iter().map(|it| row(&it.id, &it.service, it.modify_index)).collect(),
            checks: checks
                .iter()
                .map(|it| row(&it.check_id, &it.service_name, it.modify_index))
                .collect(),
        };
        // Sorted once, so that two answers are compared in one pass over both.
        rows.services.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        rows.checks.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        rows
    }

    /// Adds the names of the services that may look other than they did, on all nodes.
    pub(super) fn name_all_changed(
        old: &BTreeMap<String, Self>,
        new: &BTreeMap<String, Self>,
        names: &mut BTreeSet<String>,
    ) {
        let nothing = Self::default();
        for (node, rows) in new {
            rows.name_changed(old.get(node).unwrap_or(&nothing), names);
        }
        for (_gone, rows) in old.iter().filter(|(node, _rows)| !new.contains_key(*node)) {
            rows.name_all(names);
        }
    }

    /// Adds the names of all services on the node.
    pub(super) fn name_all(&self, names: &mut BTreeSet<String>) {
        let of = |rows: &[Row], names: &mut BTreeSet<String>| {
            for row in rows.iter().filter(|row| !row.service.is_empty()) {
                if !names.contains(&*row.service) {
                    names.insert(row.service.to_string());
                }
            }
        };
        of(&self.services, names);
        // A check can be listed for a service whose instance has just gone.
        of(&self.checks, names);
    }

    /// Adds the names of the services that may look other than in `old`, and returns `true` if
    /// anything is different at all. A check of the node itself is part of all services on it.
    pub(super) fn name_changed(&self, old: &Self, names: &mut BTreeSet<String>) -> bool {
        let mut found = (false, false);
        each_difference(&old.services, &self.services, |row| {
            found.0 = true;
            names.insert(row.service.to_string());
        });
        each_difference(&old.checks, &self.checks, |row| {
            found.0 = true;
            if row.service.is_empty() {
                found.1 = true;
            } else {
                names.insert(row.service.to_string());
            }
        });
        if found.1 {
            old.name_all(names);
            self.name_all(names);
        }
        found.0
    }
}

/// Calls `note` for each row that is not the same in both lists, which are sorted by id.
fn each_difference<'a>(mut old: &'a [Row], mut new: &'a [Row], mut note: impl FnMut(&'a Row)) {
    loop {
        match (old.split_first(), new.split_first()) {
            (Some((before, olds)), Some((after, news))) if before.id == after.id => {
                if before != after || after.modified == 0 {
                    // The id may have gone to another service, which then lost an instance.
                    note(before);
                    note(after);
                }
                (old, new) = (olds, news);
            }
            (Some((before, olds)), after) if after.is_none_or(|(it, _)| before.id < it.id) => {
                note(before);
                old = olds;
            }
            (_, Some((after, news))) => {
                note(after);
                new = news;
            }
            (_, None) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    type Table = BTreeMap<u8, (u8, u64)>;

    /// A node with instances and checks by id: service and `ModifyIndex`. Service 0 is the node.
    fn node(services: &Table, checks: &Table) -> NodeRows {
        let name = |service: &u8| if *service == 0 { String::new() } else { format!("s{service}") };
        let services: Vec<Value> = services
            .iter()
            .rev()
            .map(|(id, (service, modified))| {
                json!({ "ID": format!("i{id}"), "Service": name(service), "ModifyIndex": modified })
            })
            .collect();
        let checks: Vec<Value> = checks
            .iter()
            .map(|(id, (service, modified))| {
                json!({ "Node": "n", "CheckID": format!("c{id}"), "ServiceName": name(service), "ModifyIndex": modified })
            })
            .collect();
        let body = json!({ "Node": "n", "Services": services, "Checks": checks });
        NodeRows::decode(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_node_that_is_gone_has_nothing() {
        for body in [&b""[..], b"null", br#"{"Node":"n","Services":null,"Checks":null}"#] {
            assert_eq!(NodeRows::decode(body).unwrap(), NodeRows::default());
        }
        assert!(NodeRows::decode(br#"[{"ID":"a"}]"#).is_err());
        assert!(NodeRows::decode(br#"{"Services":[{"ID":"a"}]}"#).is_err());
    }

    #[test]
    fn a_list_of_all_nodes_names_what_changed_on_each() {
        let list = |nodes: &[(&str, &str, u64)]| {
            let nodes: Vec<Value> = nodes
                .iter()
                .map(|(node, service, modified)| {
                    let row = json!({ "ID": "a", "Service": service, "ModifyIndex": modified });
                    json!({ "Node": node, "Address": "10.0.0.1", "Services": [row], "Checks": null })
                })
                .collect();
            NodeRows::decode_all(json!(nodes).to_string().as_bytes()).unwrap()
        };
        let old = list(&[("n1", "same", 1), ("n2", "edited", 1), ("n3", "gone", 1)]);
        let new = list(&[("n1", "same", 1), ("n2", "edited", 2), ("n4", "came", 3)]);
        let mut names = BTreeSet::new();
        NodeRows::name_all_changed(&old, &new, &mut names);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["came", "edited", "gone"]);
        assert!(NodeRows::decode_all(b"null").unwrap().is_empty());
        assert!(NodeRows::decode_all(br#"{"Node":"n1"}"#).is_err());
    }

    fn table(services: std::ops::Range<u8>) -> impl Strategy<Value = Table> {
        proptest::collection::btree_map(0u8..12, (services, 0u64..4), 0..10)
    }

    proptest! {
        /// Exactly the services are named of which something came, went or changed, and all of
        /// a node whose own checks changed.
        #[test]
        fn changes_name_what_looks_different(
            before in (table(1..5), table(0..5)),
            after in (table(1..5), table(0..5)),
        ) {
            let (old, new) = (node(&before.0, &before.1), node(&after.0, &after.1));
            let mut names = BTreeSet::new();
            let different = new.name_changed(&old, &mut names);
            let changed = |old: &Table, new: &Table| -> BTreeSet<u8> {
                let of = |one: &Table, other: &Table| -> Vec<u8> {
                    let such = one.iter().filter(|(id, row)| {
                        other.get(*id) != Some(row) || row.1 == 0
                    });
                    such.map(|(_id, row)| row.0).collect()
                };
                of(old, new).into_iter().chain(of(new, old)).collect()
            };
            let mut expected = changed(&before.0, &after.0);
            expected.extend(changed(&before.1, &after.1));
            prop_assert_eq!(different, !expected.is_empty());
            if expected.remove(&0) {
                for table in [&before.0, &before.1, &after.0, &after.1] {
                    expected.extend(table.values().map(|row| row.0).filter(|it| *it != 0));
                }
            }
            let expected: BTreeSet<String> =
                expected.into_iter().map(|service| format!("s{service}")).collect();
            prop_assert_eq!(names, expected);
        }

        /// Whatever an answer holds, it is decoded or refused.
        #[test]
        fn no_answer_makes_it_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(NodeRows::decode(&body));
        }
    }
}
