//! Discovery chains: how routers, splitters and resolvers lead from a service
//! to sets of instances.

mod settings;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::{Refused, Seen, State, fingerprint};
use crate::GoDuration;
use settings::{Destination, Resolver, Split};

pub(in crate::testing) use settings::ChainOverride;

const DEFAULT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// A set of instances that connections may end at.
#[derive(Debug, Clone, PartialEq)]
struct Target {
    service: String,
    subset: String,
    datacenter: String,
}

impl Target {
    /// This one with what is given in place of its own. Another service has
    /// subsets of its own.
    fn rewritten(&self, to: &Destination, datacenter: &str) -> Self {
        let mut new = self.clone();
        if !to.service.is_empty() && to.service != new.service {
            new.service.clone_from(&to.service);
            new.subset.clear();
        }
        if !to.service_subset.is_empty() {
            new.subset.clone_from(&to.service_subset);
        }
        if !datacenter.is_empty() {
            datacenter.clone_into(&mut new.datacenter);
        }
        new
    }
}

/// A node of the graph.
#[derive(Debug, Clone)]
enum Node {
    Router(Vec<(Value, String)>),
    Splitter(Vec<(f64, String)>),
    Resolver { timeout: GoDuration, default: bool, target: String, failover: Vec<String> },
}

/// Puts one chain together.
struct Compiler<'a> {
    state: &'a State,
    service: &'a str,
    datacenter: &'a str,
    change: &'a ChainOverride,
    protocol: Option<String>,
    nodes: BTreeMap<String, Node>,
    targets: BTreeMap<String, Value>,
    advanced: bool,
    customized: bool,
}

fn graph_error(text: String) -> Refused {
    Refused::new(500, text)
}

fn is_http(protocol: &str) -> bool {
    matches!(protocol, "http" | "http2" | "grpc")
}

/// A share of a share, to two places.
fn share(outer: f64, inner: f64) -> f64 {
    (outer * inner).round() / 100.0
}

impl Compiler<'_> {
    /// Namespaces and partitions, as names of nodes and targets have them.
    fn tenancy(&self) -> &'static str {
        if self.state.is_1_8() { "default" } else { "default.default" }
    }

    fn id(&self, target: &Target) -> String {
        let Target { service, subset, datacenter } = target;
        let dot = if subset.is_empty() { "" } else { "." };
        format!("{subset}{dot}{service}.{}.{datacenter}", self.tenancy())
    }

    fn name(&self, kind: &str, service: &str) -> String {
        format!("{kind}:{service}.{}", self.tenancy())
    }

    fn target(&self, service: &str, subset: &str) -> Target {
        Target {
            service: service.to_owned(),
            subset: subset.to_owned(),
            datacenter: self.datacenter.to_owned(),
        }
    }

    fn entry(&self, kind: &str, name: &str) -> Option<Value> {
        self.state.config_get(kind, name).0
    }

    /// Returns `true` if the protocol that is asked for rules out routers and splitters.
    fn is_plain(&self) -> bool {
        self.change.protocol().is_some_and(|protocol| !is_http(protocol))
    }

    fn note_protocol(&mut self, service: &str) -> Result<(), Refused> {
        let protocol = self.state.protocol_of(service);
        match &self.protocol {
            None => self.protocol = Some(protocol),
            Some(known) if *known == protocol => {}
            Some(known) => {
                return Err(graph_error(format!(
                    "discovery chain {:?} uses inconsistent protocols; service {service:?} has {protocol:?} which is not {known:?}",
                    self.service
                )));
            }
        }
        Ok(())
    }

    fn compile(&mut self) -> Result<Value, Refused> {
        let service = self.service;
        let routes = self.entry("service-router", service);
        let routes = match routes {
            Some(_) if self.is_plain() => {
                self.customized = true;
                None
            }
            other => other,
        };
        let start = match routes {
            Some(entry) => self.router(service, &entry)?,
            None => self.next_of(service)?,
        };
        self.flatten()?;
        self.keep_reachable(&start);
        let own = self.protocol.clone().unwrap_or_else(|| "tcp".to_owned());
        if self.advanced && !is_http(&own) {
            return Err(graph_error(format!(
                "discovery chain {service:?} uses a protocol {own:?} that does not permit advanced routing or splitting behavior"
            )));
        }
        let protocol = self.change.protocol().unwrap_or(&own).to_owned();
        self.customized |= protocol != own;
        Ok(self.json(&start, &protocol))
    }

    fn router(&mut self, service: &str, entry: &Value) -> Result<String, Refused> {
        self.advanced = true;
        self.note_protocol(service)?;
        let mut routes = Vec::new();
        for route in settings::routes(entry)? {
            let Destination { service: to, service_subset, .. } = &route.destination;
            let to = if to.is_empty() { service } else { to };
            let next = if service_subset.is_empty() {
                self.next_of(to)?
            } else {
                self.resolver(self.target(to, service_subset), false)?.0
            };
            routes.push((route.definition, next));
        }
        // What no route takes goes on to the service itself.
        let rest = json!({
            "Match": { "HTTP": { "PathPrefix": "/" } },
            "Destination": { "Service": service, "Namespace": "default" },
        });
        routes.push((rest, self.next_of(service)?));
        let name = self.name("router", service);
        self.nodes.insert(name.clone(), Node::Router(routes));
        Ok(name)
    }

    /// A service's splitter, or else its resolver.
    fn next_of(&mut self, service: &str) -> Result<String, Refused> {
        match self.splitter(service)? {
            Some(name) => Ok(name),
            None => self.resolver(self.target(service, ""), false).map(|(name, _)| name),
        }
    }

    fn splitter(&mut self, service: &str) -> Result<Option<String>, Refused> {
        let name = self.name("splitter", service);
        if self.nodes.contains_key(&name) {
            return Ok(Some(name));
        }
        let Some(entry) = self.entry("service-splitter", service) else { return Ok(None) };
        if self.is_plain() {
            self.customized = true;
            return Ok(None);
        }
        self.advanced = true;
        self.note_protocol(service)?;
        // Known before it is complete, so that a circle comes to an end.
        self.nodes.insert(name.clone(), Node::Splitter(Vec::new()));
        let mut splits = Vec::new();
        for Split { weight, to } in settings::splits(&entry)? {
            let next = if to.service.is_empty() { service } else { &to.service };
            let next = if next != service && to.service_subset.is_empty() {
                self.next_of(next)?
            } else {
                self.resolver(self.target(next, &to.service_subset), false)?.0
            };
            splits.push((weight, next));
        }
        self.nodes.insert(name.clone(), Node::Splitter(splits));
        Ok(Some(name))
    }

    /// The name of a target's resolver, and of the target that it ends at.
    fn resolver(
        &mut self,
        mut target: Target,
        for_failover: bool,
    ) -> Result<(String, String), Refused> {
        let mut history: Vec<String> = Vec::new();
        let resolver = loop {
            let id = self.id(&target);
            let name = format!("resolver:{id}");
            if self.nodes.contains_key(&name) {
                return Ok((name, id));
            }
            self.note_protocol(&target.service)?;
            let circular = history.contains(&id);
            history.push(id);
            if circular {
                let path = history.join(" -> ");
                return Err(graph_error(format!("detected circular resolver redirect: [{path}]")));
            }
            let entry = self.entry("service-resolver", &target.service);
            let resolver = Resolver::read(entry.as_ref())?;
            let redirected =
                resolver.redirect.as_ref().map(|to| target.rewritten(to, &to.datacenter));
            if let Some(redirected) = redirected.filter(|redirected| *redirected != target) {
                target = redirected;
            } else if target.subset.is_empty() && !resolver.default_subset.is_empty() {
                target.subset.clone_from(&resolver.default_subset);
            } else {
                break resolver;
            }
        };
        let subset = resolver.subsets.get(&target.subset);
        if !target.subset.is_empty() && subset.is_none() {
            return Err(graph_error(format!(
                "service {:?} does not have a subset named {:?}",
                target.service, target.subset
            )));
        }
        let id = self.id(&target);
        let json = self.target_json(&id, &target, subset.unwrap_or(&json!({})));
        self.targets.insert(id.clone(), json);
        let name = format!("resolver:{id}");
        if for_failover {
            return Ok((name, id));
        }
        let own = resolver.connect_timeout.unwrap_or(GoDuration::new(DEFAULT_TIMEOUT));
        let timeout = self.change.connect_timeout().unwrap_or(own);
        self.customized |= timeout != own;
        let node = |failover| Node::Resolver {
            timeout,
            default: resolver.is_default,
            target: id.clone(),
            failover,
        };
        // Known before its failover, so that a circle comes to an end.
        self.nodes.insert(name.clone(), node(Vec::new()));
        let mut failover = Vec::new();
        for other in resolver.failover_of(&target.subset) {
            let other = target.rewritten(&other, &other.datacenter);
            if other != target {
                let (_, reached) = self.resolver(other, true)?;
                failover.push(reached);
            }
        }
        self.nodes.insert(name.clone(), node(failover));
        Ok((name, id))
    }

    fn target_json(&mut self, id: &str, target: &Target, subset: &Value) -> Value {
        let Target { service, subset: subset_name, datacenter } = target;
        let dot = if subset_name.is_empty() { "" } else { "." };
        let domain = self.state.trust_domain();
        let sni = format!("{subset_name}{dot}{service}.default.{datacenter}.internal.{domain}");
        let mut json = json!({
            "ID": id, "Service": service, "Namespace": "default", "Datacenter": datacenter,
            "MeshGateway": self.gateway_mode(target), "Subset": subset, "SNI": sni, "Name": sni,
        });
        if let Some(fields) = json.as_object_mut() {
            if !subset_name.is_empty() {
                fields.insert("ServiceSubset".to_owned(), json!(subset_name));
            }
            if !self.state.is_1_8() {
                fields.insert("Partition".to_owned(), json!("default"));
            }
        }
        json
    }

    /// Returns the gateway mode of a target: servers before 1.9 set it for other
    /// datacenters only.
    fn gateway_mode(&mut self, target: &Target) -> Value {
        if self.state.is_1_8() && target.datacenter == self.datacenter {
            return json!({});
        }
        let mode = |entry: Option<Value>| {
            let mode = entry?.pointer("/MeshGateway/Mode")?.as_str()?.to_owned();
            Some(mode).filter(|mode| !mode.is_empty())
        };
        let own = mode(self.entry("service-defaults", &target.service))
            .or_else(|| mode(self.entry("proxy-defaults", "global")));
        let asked = self.change.gateway_mode().map(str::to_owned);
        self.customized |= asked.is_some() && asked != own;
        asked.or(own).map_or_else(|| json!({}), |mode| json!({ "Mode": mode }))
    }

    /// Puts what a splitter leads to in its place where that is a splitter, too.
    fn flatten(&mut self) -> Result<(), Refused> {
        let splitters: HashMap<String, Vec<(f64, String)>> = self
            .nodes
            .iter()
            .filter_map(|(name, node)| match node {
                Node::Splitter(splits) => Some((name.clone(), splits.clone())),
                _ => None,
            })
            .collect();
        for name in splitters.keys() {
            let flat = flat(name, &splitters, &mut Vec::new())?;
            self.nodes.insert(name.clone(), Node::Splitter(flat));
        }
        Ok(())
    }

    fn keep_reachable(&mut self, start: &str) {
        let mut reached = BTreeSet::new();
        let mut open = vec![start.to_owned()];
        while let Some(name) = open.pop() {
            match self.nodes.get(&name) {
                Some(Node::Router(routes)) => {
                    open.extend(routes.iter().map(|(_, next)| next.clone()));
                }
                Some(Node::Splitter(splits)) => {
                    open.extend(splits.iter().map(|(_, next)| next.clone()));
                }
                _ => {}
            }
            reached.insert(name);
        }
        self.nodes.retain(|name, _| reached.contains(name));
    }

    fn json(&self, start: &str, protocol: &str) -> Value {
        let nodes: serde_json::Map<String, Value> =
            self.nodes.iter().map(|(key, node)| (key.clone(), node.json(key))).collect();
        let mut chain = json!({
            "ServiceName": self.service, "Namespace": "default", "Datacenter": self.datacenter,
            "Protocol": protocol, "StartNode": start, "Nodes": nodes, "Targets": self.targets,
        });
        if let Some(fields) = chain.as_object_mut() {
            if self.customized {
                let hash = format!("{:016x}", fingerprint(&format!("{:?}", self.change)));
                let hash = hash.get(..8).unwrap_or_default();
                fields.insert("CustomizationHash".to_owned(), json!(hash));
            }
            if !self.state.is_1_8() {
                fields.insert("Partition".to_owned(), json!("default"));
                let default = matches!(self.nodes.get(start), Some(Node::Resolver { default: true, target, .. })
                    if *target == self.id(&self.target(self.service, "")));
                if default && protocol == "tcp" {
                    fields.insert("Default".to_owned(), json!(true));
                }
            }
        }
        chain
    }
}

/// A splitter's shares, with those of the splitters that it leads to in their place.
fn flat(
    name: &str,
    splitters: &HashMap<String, Vec<(f64, String)>>,
    path: &mut Vec<String>,
) -> Result<Vec<(f64, String)>, Refused> {
    path.push(name.to_owned());
    if path.iter().filter(|known| *known == name).count() > 1 {
        let text = format!("detected circular reference: [{}]", path.join(" -> "));
        return Err(graph_error(text));
    }
    let mut found = Vec::new();
    for (weight, next) in splitters.get(name).into_iter().flatten() {
        if splitters.contains_key(next) {
            let inner = flat(next, splitters, path)?;
            found.extend(inner.into_iter().map(|(part, next)| (share(*weight, part), next)));
        } else {
            found.push((*weight, next.clone()));
        }
    }
    path.pop();
    Ok(found)
}

impl Node {
    fn json(&self, key: &str) -> Value {
        let (kind, name) = key.split_once(':').unwrap_or((key, ""));
        let mut json = json!({ "Type": kind, "Name": name });
        let (field, value) = match self {
            Self::Router(routes) => {
                let routes = routes.iter().map(
                    |(definition, next)| json!({ "Definition": definition, "NextNode": next }),
                );
                ("Routes", Value::Array(routes.collect()))
            }
            Self::Splitter(splits) => {
                let splits = splits
                    .iter()
                    .map(|(weight, next)| json!({ "Weight": weight, "NextNode": next }));
                ("Splits", Value::Array(splits.collect()))
            }
            Self::Resolver { timeout, default, target, failover } => {
                let mut resolver =
                    json!({ "ConnectTimeout": timeout.to_string(), "Target": target });
                if let Some(fields) = resolver.as_object_mut() {
                    if *default {
                        fields.insert("Default".to_owned(), json!(true));
                    }
                    if !failover.is_empty() {
                        fields.insert("Failover".to_owned(), json!({ "Targets": failover }));
                    }
                }
                ("Resolver", resolver)
            }
        };
        if let Some(fields) = json.as_object_mut() {
            fields.insert(field.to_owned(), value);
        }
        json
    }
}

impl State {
    /// Compiles the routes, splits and resolutions of connections to a service,
    /// seen from a datacenter.
    pub(in crate::testing) fn discovery_chain(
        &self,
        service: &str,
        datacenter: &str,
        change: &ChainOverride,
    ) -> Result<(Value, Seen), Refused> {
        let mut compiler = Compiler {
            state: self,
            service,
            datacenter,
            change,
            protocol: None,
            nodes: BTreeMap::new(),
            targets: BTreeMap::new(),
            advanced: false,
            customized: false,
        };
        let chain = compiler.compile()?;
        // A blocked read looks at the entries that the chain is made of.
        let seen = Seen::by_content(self.config_index(), &chain.to_string());
        Ok((chain, seen))
    }

    /// Refuses configuration with which a chain could not be put together.
    pub(super) fn check_chains(&self) -> Result<(), Refused> {
        let kinds = ["service-resolver", "service-router", "service-splitter"];
        let mut names = BTreeSet::new();
        for kind in kinds {
            let entries = self.config_list(kind, |_, _| true).0;
            let of = |entry: &Value| entry.get("Name").and_then(Value::as_str).map(str::to_owned);
            names.extend(entries.iter().filter_map(of));
        }
        for name in names {
            self.discovery_chain(&name, "dc1", &ChainOverride::default())?;
        }
        Ok(())
    }
}
