//! The double's catalog: nodes, instances and checks, with the indexes of their tables.

use std::collections::BTreeMap;

use serde::Deserialize;
use tokio::time::Instant;

use super::{
    NODE, Refused, Seen, State,
    names::SERF,
    tables::{CheckRecord, NodeRecord},
    txn::nameless,
};
use crate::{
    testing::acl::{Access, Authorizer, Resource},
    types::{HealthCheck, HealthStatus, Node, Service, ServiceEntry, ServiceKind, nullable},
};

/// The body of a registration, as it comes over the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct Register {
    #[serde(deserialize_with = "nullable")]
    datacenter: String,
    #[serde(rename = "ID", deserialize_with = "nullable")]
    id: String,
    #[serde(deserialize_with = "nullable")]
    node: String,
    #[serde(deserialize_with = "nullable")]
    address: String,
    #[serde(deserialize_with = "nullable")]
    tagged_addresses: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    node_meta: BTreeMap<String, String>,
    service: Option<Service>,
    check: Option<HealthCheck>,
    #[serde(deserialize_with = "nullable")]
    checks: Vec<HealthCheck>,
    #[serde(deserialize_with = "nullable")]
    skip_node_update: bool,
}

/// The body of a deregistration.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct Deregister {
    #[serde(deserialize_with = "nullable")]
    datacenter: String,
    #[serde(deserialize_with = "nullable")]
    node: String,
    #[serde(rename = "ServiceID", deserialize_with = "nullable")]
    service_id: String,
    #[serde(rename = "CheckID", deserialize_with = "nullable")]
    check_id: String,
}

/// The selectors of a check's definition, under which answers show it.
const DEFINITION: [&str; 10] = [
    "HTTP",
    "TLSServerName",
    "TLSSkipVerify",
    "Header",
    "Method",
    "Body",
    "TCP",
    "Interval",
    "Timeout",
    "DeregisterCriticalServiceAfter",
];

/// A definition under the names that answers show.
fn named(definition: crate::types::JsonObject) -> crate::types::JsonObject {
    let name = |given: String| {
        let known = DEFINITION.iter().find(|known| known.eq_ignore_ascii_case(&given));
        known.map_or(given, |known| (*known).to_owned())
    };
    definition.into_iter().map(|(given, value)| (name(given), value)).collect()
}

/// Refuses a registration that contradicts itself.
fn check_registration(body: &Register, old: bool) -> Result<(), Refused> {
    let refused = |text: String| Err(Refused::new(500, text));
    if !body.id.is_empty() && body.id.len() != 36 {
        return refused("Bad node ID: uuid string is wrong length".to_owned());
    }
    if body
        .service
        .as_ref()
        .is_some_and(|service| !service.id.is_empty() && service.name.is_empty())
    {
        return refused(nameless(old).to_owned());
    }
    let node = &body.node;
    let elsewhere =
        |check: &&HealthCheck| !check.node.is_empty() && !check.node.eq_ignore_ascii_case(node);
    if let Some(check) = body.check.iter().chain(&body.checks).find(elsewhere) {
        let other = &check.node;
        return refused(if old {
            format!("check node {other:?} does not match node {node:?}")
        } else {
            let id = if check.check_id.is_empty() { &check.name } else { &check.check_id };
            format!("Node '{other}' for check '{id}' doesn't match register request node '{node}'")
        });
    }
    Ok(())
}

/// The checks that a health read asks for.
#[derive(Debug, Clone, Copy)]
pub(in crate::testing) enum Checks<'a> {
    OfService(&'a str),
    OfNode(&'a str),
    InState(&'a str),
}

/// A node with what is on it.
type WholeNode = (Node, Vec<Service>, Vec<HealthCheck>);

impl State {
    /// Registers what a server registers by itself when it starts.
    pub(super) fn boot(&mut self) {
        let node = Node {
            id: self.uuid(),
            name: NODE.to_owned(),
            address: "127.0.0.1".to_owned(),
            datacenter: "dc1".to_owned(),
            tagged_addresses: ["lan", "lan_ipv4", "wan", "wan_ipv4"]
                .map(|form| (form.to_owned(), "127.0.0.1".to_owned()))
                .into(),
            meta: [("consul-network-segment".to_owned(), String::new())].into(),
            ..Node::default()
        };
        let mut consul = Service { port: 8300, ..Service::new("consul", "consul") };
        let mut node = node;
        let mut about = vec![
            ("non_voter", "false"),
            ("raft_version", "3"),
            ("serf_protocol_current", "2"),
            ("serf_protocol_max", "5"),
            ("serf_protocol_min", "1"),
            ("version", self.version()),
        ];
        if !self.is_1_8() {
            about.push(("read_replica", "false"));
            node.meta.insert("consul-version".to_owned(), self.version().to_owned());
        }
        consul.meta =
            about.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let serf = HealthCheck {
            name: "Serf Health Status".to_owned(),
            output: "Agent alive and reachable".to_owned(),
            ..HealthCheck::of_node(SERF, HealthStatus::Passing)
        };
        let index = self.commit();
        self.put_node(node, index);
        self.put_service(NODE, consul, index);
        self.put_check(NODE, serf, index, Instant::now());
        self.place_server(index);
    }

    pub(in crate::testing) fn register(
        &mut self,
        body: Register,
        now: Instant,
    ) -> Result<(), Refused> {
        Self::check_datacenter(&body.datacenter)?;
        if body.node.is_empty() {
            return Err(Refused::new(500, "Must provide node"));
        }
        let old = self.is_1_8();
        check_registration(&body, old)?;
        if body.address.is_empty() && !body.skip_node_update {
            return Err(Refused::new(500, "Must provide address if SkipNodeUpdate is not set"));
        }
        let name = body.node.clone();
        let known = self.nodes.get(&name.to_lowercase());
        let service = body.service.map(|mut service| {
            if service.id.is_empty() {
                service.id.clone_from(&service.name);
            }
            service
        });
        let mut checks: Vec<HealthCheck> = body.check.into_iter().chain(body.checks).collect();
        for check in &mut checks {
            check.definition = named(std::mem::take(&mut check.definition));
            if check.check_id.is_empty() {
                check.check_id.clone_from(&check.name);
            }
            let here = service.as_ref().is_some_and(|service| service.id == check.service_id)
                || known.is_some_and(|record| record.services.contains_key(&check.service_id));
            if !check.service_id.is_empty() && !here {
                let text = if old {
                    format!("failed inserting check: Missing service registration on node {name:?}")
                } else {
                    let (service, id) = (&check.service_id, &check.check_id);
                    format!("Unknown service ID '{service}' for check ID '{id}'")
                };
                return Err(Refused::new(500, text));
            }
        }
        let is_new = known.is_none();
        let index = self.commit();
        self.rename_node(&body.id, &name, index, now);
        if is_new || !body.skip_node_update {
            let node = Node {
                id: body.id,
                name: name.clone(),
                address: body.address,
                datacenter: "dc1".to_owned(),
                tagged_addresses: body.tagged_addresses,
                meta: body.node_meta,
                ..Node::default()
            };
            self.put_node(node, index);
        }
        if let Some(service) = service {
            self.put_service(&name, service, index);
        }
        for check in checks {
            self.put_check(&name, check, index, now);
        }
        Ok(())
    }

    /// Refuses a registration that the token may not make. Sending a node as
    /// it is needs no right to write it.
    pub(in crate::testing) fn vet_register(
        &self,
        body: &Register,
        who: &Authorizer,
    ) -> Result<(), Refused> {
        if !who.enforces() {
            return Ok(());
        }
        let write = |resource, name: &str| who.require(resource, name, Access::Write);
        let known = self.nodes.get(&body.node.to_lowercase());
        let same_node = known.is_some_and(|record| {
            let node = &record.node;
            body.skip_node_update
                || ((body.id.is_empty() || body.id == node.id)
                    && body.address == node.address
                    && body.tagged_addresses == node.tagged_addresses
                    && body.node_meta == node.meta)
        });
        let registered = |id: &str| known.and_then(|record| record.services.get(id));
        if !same_node {
            write(Resource::Node, &body.node)?;
        }
        let own = body.service.as_ref().map(|service| {
            let id = if service.id.is_empty() { &service.name } else { &service.id };
            (id.as_str(), service)
        });
        if let Some((id, service)) = own {
            write(Resource::Service, &service.name)?;
            if service.kind == ServiceKind::ConnectProxy {
                write(Resource::Service, &service.proxy.destination_service_name)?;
            }
            if let Some(other) = registered(id)
                && let Err(refused) = write(Resource::Service, &other.name)
            {
                // The one refusal in which current servers name no right.
                return Err(Refused::new(refused.status, "Permission denied"));
            }
        }
        for check in body.check.iter().chain(&body.checks) {
            if check.service_id.is_empty() {
                write(Resource::Node, &body.node)?;
            } else if own.is_none_or(|(id, _)| id != check.service_id) {
                let Some(other) = registered(&check.service_id) else {
                    let text = format!(
                        "Unknown service '{}' for check '{}'",
                        check.service_id, check.check_id
                    );
                    return Err(Refused::new(500, text));
                };
                write(Resource::Service, &other.name)?;
            }
        }
        Ok(())
    }

    /// Refuses a deregistration that the token may not make. Who may write a
    /// node may take everything from it.
    pub(in crate::testing) fn vet_deregister(
        &self,
        body: &Deregister,
        who: &Authorizer,
    ) -> Result<(), Refused> {
        if who.allows(Resource::Node, &body.node, Access::Write) {
            return Ok(());
        }
        let known = self.nodes.get(&body.node.to_lowercase());
        let denied = || who.denied(Resource::Node, &body.node, Access::Write);
        let service = if !body.service_id.is_empty() {
            let found = known.and_then(|record| record.services.get(&body.service_id));
            let unknown = || Refused::new(500, format!("Unknown service '{}'", body.service_id));
            found.ok_or_else(unknown)?.name.clone()
        } else if body.check_id.is_empty() {
            return Err(denied());
        } else {
            let found = known.and_then(|record| record.check(&body.check_id));
            let unknown = || Refused::new(500, format!("Unknown check '{}'", body.check_id));
            found.ok_or_else(unknown)?.check.service_name.clone()
        };
        if service.is_empty() {
            return Err(denied());
        }
        who.require(Resource::Service, &service, Access::Write)
    }

    /// Refuses what is meant for another datacenter.
    fn check_datacenter(name: &str) -> Result<(), Refused> {
        if name.is_empty() || name == "dc1" {
            return Ok(());
        }
        Err(Refused::new(500, "No path to datacenter"))
    }

    /// Takes a node away whose id comes with another name.
    fn rename_node(&mut self, id: &str, name: &str, index: u64, now: Instant) {
        let renamed =
            self.nodes.values().map(|record| &record.node).find(|node| {
                !id.is_empty() && node.id == id && !node.name.eq_ignore_ascii_case(name)
            });
        if let Some(old) = renamed.map(|node| node.name.clone()) {
            self.remove_node(&old, index, now);
        }
    }

    /// Refuses a deregistration that names no node, or one of another datacenter.
    pub(in crate::testing) fn check_deregister(body: &Deregister) -> Result<(), Refused> {
        Self::check_datacenter(&body.datacenter)?;
        if body.node.is_empty() {
            return Err(Refused::new(500, "Must provide node"));
        }
        Ok(())
    }

    pub(in crate::testing) fn deregister(&mut self, body: &Deregister, now: Instant) {
        let index = self.commit();
        if !body.service_id.is_empty() {
            self.remove_service(&body.node, &body.service_id, index, now);
        } else if body.check_id.is_empty() {
            self.remove_node(&body.node, index, now);
        } else {
            self.remove_check(&body.node, &body.check_id, index, now);
        }
    }

    pub(super) fn put_node(&mut self, mut node: Node, index: u64) {
        let key = node.name.to_lowercase();
        let Some(record) = self.nodes.get_mut(&key) else {
            (node.create_index, node.modify_index) = (index, index);
            self.nodes.insert(
                key.clone(),
                NodeRecord { node, services: BTreeMap::new(), checks: BTreeMap::new() },
            );
            self.tables.nodes = index;
            self.node_indexes.insert(key, index);
            return;
        };
        if node.id.is_empty() {
            node.id.clone_from(&record.node.id);
        }
        (node.create_index, node.modify_index) =
            (record.node.create_index, record.node.modify_index);
        if node == record.node {
            return;
        }
        node.modify_index = index;
        record.node = node;
        self.tables.nodes = index;
        self.node_indexes.insert(key.clone(), index);
        self.touch_services_of(&key, index);
    }

    /// Moves the indexes of every service on a node.
    fn touch_services_of(&mut self, key: &str, index: u64) {
        let Some(record) = self.nodes.get(key) else {
            return;
        };
        for service in record.services.values() {
            self.service_indexes.insert(service.name.clone(), index);
        }
    }

    pub(super) fn put_service(&mut self, node: &str, mut service: Service, index: u64) {
        let key = node.to_lowercase();
        let Some(record) = self.nodes.get_mut(&key) else {
            return;
        };
        let old = record.services.get(&service.id);
        service.create_index = old.map_or(index, |old| old.create_index);
        service.modify_index = old.map_or(index, |old| old.modify_index);
        if old == Some(&service) {
            return;
        }
        service.modify_index = index;
        self.tables.services = index;
        self.service_indexes.insert(service.name.clone(), index);
        record.services.insert(service.id.clone(), service.clone());
        if !self.is_1_8() {
            self.tables.nodes = index;
            self.node_indexes.insert(key, index);
        }
        self.service_appeared(&service, index);
    }

    pub(super) fn put_check(
        &mut self,
        node: &str,
        mut check: HealthCheck,
        index: u64,
        now: Instant,
    ) {
        let old_version = self.is_1_8();
        let key = node.to_lowercase();
        let Some(record) = self.nodes.get_mut(&key) else {
            return;
        };
        check.node.clone_from(&record.node.name);
        if let Some(service) = record.services.get(&check.service_id) {
            check.service_name.clone_from(&service.name);
            check.service_tags.clone_from(&service.tags);
        }
        if check.status == HealthStatus::Other(String::new()) {
            check.status = HealthStatus::Critical;
        }
        let critical = check.status == HealthStatus::Critical;
        let old = record.checks.get(&check.check_id.to_lowercase());
        check.create_index = old.map_or(index, |old| old.check.create_index);
        check.modify_index = old.map_or(index, |old| old.check.modify_index);
        let same = old.is_some_and(|old| old.check == check);
        let (id, service_id) = (check.check_id.clone(), check.service_id.clone());
        let service_name = check.service_name.clone();
        if !same {
            check.modify_index = index;
        }
        let touched = match old {
            Some(old) if same && !old_version => old.touched,
            _ => index,
        };
        record.checks.insert(id.to_lowercase(), CheckRecord { check, touched });
        if touched == index {
            self.tables.checks = index;
        }
        if !same {
            if service_id.is_empty() {
                self.touch_services_of(&key, index);
            } else {
                self.service_indexes.insert(service_name, index);
            }
        }
        if critical {
            self.end_bound_sessions(node, Some(&id), index, now);
        }
    }

    pub(super) fn remove_service(&mut self, node: &str, id: &str, index: u64, now: Instant) {
        let key = node.to_lowercase();
        let Some(service) = self.nodes.get_mut(&key).and_then(|record| record.services.remove(id))
        else {
            return;
        };
        let checks = self.nodes.get(&key).map(|record| &record.checks);
        let doomed: Vec<String> = checks
            .into_iter()
            .flatten()
            .filter(|(_, record)| record.check.service_id == id)
            .map(|(check, _)| check.clone())
            .collect();
        for check in doomed {
            self.remove_check(node, &check, index, now);
        }
        self.tables.checks = index;
        self.tables.services = index;
        if !self.is_1_8() {
            self.tables.nodes = index;
            self.node_indexes.insert(key, index);
        }
        let mut instances = self.nodes.values().flat_map(|record| record.services.values());
        if instances.any(|other| other.name == service.name) {
            self.service_indexes.insert(service.name, index);
        } else {
            self.service_indexes.remove(&service.name);
            self.service_extinction = index;
            self.service_vanished(&service.name, index);
        }
    }

    pub(super) fn remove_check(&mut self, node: &str, id: &str, index: u64, now: Instant) {
        let key = node.to_lowercase();
        let id = &id.to_lowercase();
        let Some(removed) = self.nodes.get_mut(&key).and_then(|record| record.checks.remove(id))
        else {
            return;
        };
        self.tables.checks = index;
        if removed.check.service_id.is_empty() {
            self.tables.services = index;
            self.touch_services_of(&key, index);
        } else {
            self.service_indexes.insert(removed.check.service_name, index);
        }
        self.end_bound_sessions(node, Some(id), index, now);
    }

    pub(super) fn remove_node(&mut self, node: &str, index: u64, now: Instant) {
        let key = node.to_lowercase();
        let Some(record) = self.nodes.get(&key) else {
            return;
        };
        let services: Vec<String> = record.services.keys().cloned().collect();
        let checks: Vec<String> = record.checks.keys().cloned().collect();
        for id in services {
            self.remove_service(node, &id, index, now);
        }
        for id in checks {
            self.remove_check(node, &id, index, now);
        }
        self.end_bound_sessions(node, None, index, now);
        self.nodes.remove(&key);
        self.tables.nodes = index;
        self.node_indexes.remove(&key);
        self.node_extinction = index;
        self.forget_coordinate(&key, index);
    }

    pub(in crate::testing) fn nodes(&self) -> (Vec<Node>, Seen) {
        let nodes: Vec<Node> = self.nodes.values().map(|record| record.node.clone()).collect();
        let seen = if self.is_1_8() {
            Seen::by_index(self.tables.nodes)
        } else {
            // Writes of services move the index, and wake nobody.
            let content: Vec<_> = nodes
                .iter()
                .map(|node| (&node.name, node.create_index, node.modify_index))
                .collect();
            Seen::by_content(self.tables.nodes, &content)
        };
        (nodes, seen)
    }

    /// Services with an instance that `matches` takes, with their tags, sorted by name.
    pub(in crate::testing) fn services(
        &self,
        matches: impl Fn(&Node, &Service) -> bool,
    ) -> (BTreeMap<String, Vec<String>>, Seen) {
        let mut found = BTreeMap::<String, Vec<String>>::new();
        for record in self.nodes.values() {
            let services = record.services.values();
            for service in services.filter(|service| matches(&record.node, service)) {
                let tags = found.entry(service.name.clone()).or_default();
                for tag in &service.tags {
                    if !tags.contains(tag) {
                        tags.push(tag.clone());
                    }
                }
            }
        }
        (found, Seen::by_index(self.tables.services))
    }

    pub(in crate::testing) fn node(&self, name: &str) -> (Option<(Node, Vec<Service>)>, Seen) {
        let key = name.to_lowercase();
        let found = self
            .nodes
            .get(&key)
            .map(|record| (record.node.clone(), record.services.values().cloned().collect()));
        let index = match (&found, self.is_1_8()) {
            (Some(_), true) => self.tables.nodes.max(self.tables.services),
            (Some(_), false) => self.node_indexes.get(&key).copied().unwrap_or(1),
            (None, true) => 1,
            (None, false) => self.node_extinction,
        };
        (found, Seen::by_index(index))
    }

    /// A node with its instances and checks: a read that is woken by what happens to these, and
    /// has the index of everything.
    pub(in crate::testing) fn whole_node(&self, name: &str) -> (Option<WholeNode>, Seen) {
        let index = self.tables.nodes.max(self.tables.services).max(self.tables.checks);
        let Some(record) = self.nodes.get(&name.to_lowercase()) else {
            return (None, Seen::by_content(index, &"absent"));
        };
        let services: Vec<Service> = record.services.values().cloned().collect();
        let checks = record.checks.values();
        let content = (
            record.node.modify_index,
            services.iter().map(|it| (it.id.as_str(), it.modify_index)).collect::<Vec<_>>(),
            checks.clone().map(|it| (it.check.check_id.as_str(), it.touched)).collect::<Vec<_>>(),
        );
        let seen = Seen::by_content(index, &content);
        let checks = checks.map(|record| record.check.clone()).collect();
        (Some((record.node.clone(), services, checks)), seen)
    }

    /// All nodes with their instances and checks: a read that any change of these wakes.
    pub(in crate::testing) fn whole_nodes(&self) -> (Vec<WholeNode>, Seen) {
        let index = self.tables.nodes.max(self.tables.services).max(self.tables.checks);
        let nodes = self.nodes.values().map(|record| {
            let services = record.services.values().cloned().collect();
            let checks = record.checks.values().map(|record| record.check.clone()).collect();
            (record.node.clone(), services, checks)
        });
        (nodes.collect(), Seen::by_index(index))
    }

    /// Instances of a service with their own and their nodes' checks. Only
    /// reads of `health` depend on checks while there is no instance.
    pub(in crate::testing) fn instances(
        &self,
        name: &str,
        connect: bool,
        health: bool,
    ) -> (Vec<ServiceEntry>, Seen) {
        let wanted = |service: &Service| {
            if connect {
                let proxied = service.kind == ServiceKind::ConnectProxy
                    && service.proxy.destination_service_name == name;
                proxied || (service.connect.native && service.name == name)
            } else {
                // Names are looked up without regard to case.
                service.name.eq_ignore_ascii_case(name)
            }
        };
        let mut entries = Vec::new();
        let mut index = 0;
        for record in self.nodes.values() {
            for service in record.services.values().filter(|service| wanted(service)) {
                index = index.max(self.service_indexes.get(&service.name).copied().unwrap_or(0));
                let checks = record.checks.values().map(|record| &record.check);
                entries.push(ServiceEntry {
                    node: record.node.clone(),
                    service: service.clone(),
                    checks: checks
                        .filter(|check| {
                            check.service_id.is_empty() || check.service_id == service.id
                        })
                        .cloned()
                        .collect(),
                });
            }
        }
        if connect {
            let (gateways, seen) = self.terminating_instances(name);
            if !gateways.is_empty() {
                index = index.max(seen.index);
                entries.extend(gateways);
            }
        }
        if entries.is_empty() {
            index = if self.service_extinction > 0 {
                self.service_extinction
            } else {
                let checks = if health { self.tables.checks } else { 0 };
                self.tables.services.max(self.tables.nodes).max(checks)
            };
        }
        let seen = if entries.is_empty() && health && !self.is_1_8() {
            // The streaming backend tells of this service only.
            Seen::by_content(index, &"absent")
        } else {
            Seen::by_index(index)
        };
        (entries, seen)
    }

    pub(in crate::testing) fn checks(&self, which: Checks<'_>) -> (Vec<HealthCheck>, Seen) {
        let all = self.nodes.values().flat_map(|record| record.checks.values());
        let found: Vec<&CheckRecord> = all
            .filter(|record| match which {
                Checks::OfService(name) => record.check.service_name == name,
                Checks::OfNode(name) => record.check.node.eq_ignore_ascii_case(name),
                Checks::InState("any") => true,
                Checks::InState(state) => record.check.status.as_str() == state,
            })
            .collect();
        let content: Vec<(&str, &str, u64)> = found
            .iter()
            .map(|record| {
                (record.check.node.as_str(), record.check.check_id.as_str(), record.touched)
            })
            .collect();
        let seen = Seen::by_content(self.tables.checks, &content);
        (found.into_iter().map(|record| record.check.clone()).collect(), seen)
    }

    /// Lets gossip say that a node is alive or has failed.
    pub(in crate::testing) fn set_node_alive(&mut self, node: &str, alive: bool, now: Instant) {
        let (status, output) = if alive {
            (HealthStatus::Passing, "Agent alive and reachable")
        } else {
            (HealthStatus::Critical, "Agent not live or unreachable")
        };
        let check = HealthCheck {
            name: "Serf Health Status".to_owned(),
            output: output.to_owned(),
            ..HealthCheck::of_node(SERF, status)
        };
        let index = self.commit();
        self.put_check(node, check, index, now);
    }
}
