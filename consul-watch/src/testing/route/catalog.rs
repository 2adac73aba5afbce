//! Routes of `/v1/catalog/` and `/v1/health/`, and what a token may see of them.

use serde_json::{Map, Value, json};

use super::{
    Ask, Path,
    json::{catalog_entry, check_json, health_entry, node_json, service_json},
};
use crate::{
    testing::{
        acl::{Access, Resource},
        answer::Reply,
        filter::schema,
        state::{Checks, Refused, Seen, State},
    },
    types::{HealthCheck, HealthStatus, Node, Service, ServiceEntry},
};

impl Ask<'_> {
    pub(super) fn sees_node(&self, name: &str) -> bool {
        self.who.allows(Resource::Node, name, Access::Read)
    }

    pub(super) fn sees_service(&self, name: &str) -> bool {
        self.who.allows(Resource::Service, name, Access::Read)
    }

    /// A check can be seen by who sees its node and its service.
    pub(super) fn sees_check(&self, check: &HealthCheck) -> bool {
        self.sees_node(&check.node)
            && (check.service_id.is_empty() || self.sees_service(&check.service_name))
    }

    fn has_meta(&self, node: &Node) -> bool {
        self.call.all("node-meta").iter().all(|pair| {
            let (key, value) = pair.split_once(':').unwrap_or((pair, ""));
            node.meta.get(key).is_some_and(|found| found == value)
        })
    }

    fn has_tags(&self, service: &Service) -> bool {
        self.call
            .all("tag")
            .iter()
            .all(|tag| service.tags.iter().any(|have| have.eq_ignore_ascii_case(tag)))
    }

    /// Instances of a service that can be seen and are asked for, and whether
    /// any was left out because it may not be seen.
    fn instances(&self, state: &State, name: &str, lookup: Lookup, health: bool) -> Instances {
        let (mut found, seen) = match lookup {
            Lookup::Ingress => state.ingress_instances(name),
            _ => state.instances(name, lookup == Lookup::Connect, health),
        };
        let all = found.len();
        // Who looks for proxies needs to see the service itself.
        let sees_target = lookup == Lookup::Service || self.sees_service(name);
        found.retain(|entry| {
            sees_target
                && self.sees_node(&entry.node.name)
                && self.sees_service(&entry.service.name)
        });
        let left_out = found.len() < all;
        found.retain(|entry| self.has_meta(&entry.node) && self.has_tags(&entry.service));
        Instances { found, seen, left_out }
    }

    fn list(&self, list: Vec<Value>, seen: Seen, left_out: bool) -> Reply {
        Reply::json(&Value::Array(list)).filtered(self.who, left_out).at(seen)
    }
}

/// The instances that a service's name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lookup {
    /// Instances of the service.
    Service,
    /// Instances that reach it through the mesh.
    Connect,
    /// The gateways that lead to it from outside the mesh.
    Ingress,
}

struct Instances {
    found: Vec<ServiceEntry>,
    seen: Seen,
    left_out: bool,
}

pub(super) const CATALOG: &[Path] = &[
    Path::new("catalog/register", "PUT"),
    Path::new("catalog/deregister", "PUT"),
    Path::new("catalog/connect/", "GET"),
    Path::new("catalog/datacenters", "GET"),
    Path::new("catalog/nodes", "GET"),
    Path::new("catalog/services", "GET"),
    Path::new("catalog/service/", "GET"),
    Path::new("catalog/node/", "GET"),
    Path::new("catalog/node-services/", "GET"),
    Path::new("catalog/gateway-services/", "GET"),
];

pub(super) const HEALTH: &[Path] = &[
    Path::new("health/node/", "GET"),
    Path::new("health/checks/", "GET"),
    Path::new("health/state/", "GET"),
    Path::new("health/service/", "GET"),
    Path::new("health/connect/", "GET"),
    Path::new("health/ingress/", "GET"),
];

pub(super) fn catalog(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let Ask { call, who, now } = ask;
    let reply = match (call.method.as_str(), rest.split_once('/').unwrap_or((rest, ""))) {
        ("PUT", ("register", "")) => {
            let done = call.json().and_then(|body| {
                state.vet_register(&body, who)?;
                state.register(body, now)
            });
            done.map(|()| Value::Bool(true)).into()
        }
        ("PUT", ("deregister", "")) => {
            let done = call.json().and_then(|body| {
                State::check_deregister(&body)?;
                state.vet_deregister(&body, who)?;
                state.deregister(&body, now);
                Ok(Value::Bool(true))
            });
            done.into()
        }
        ("GET", ("datacenters", "")) => Reply::json(&json!(["dc1"])),
        ("GET", ("nodes", "")) => nodes(state, ask).into(),
        ("GET", ("services", "")) => services(state, ask).into(),
        ("GET", ("gateway-services", "")) => Reply::text(400, "Missing gateway name"),
        ("GET", ("gateway-services", name)) => gateway_services(state, ask, name).into(),
        ("GET", ("service" | "connect", "")) => Reply::text(400, "Missing service name"),
        ("GET", ("node" | "node-services", "")) => Reply::text(400, "Missing node name"),
        ("GET", ("service", name)) => service(state, ask, name, Lookup::Service).into(),
        ("GET", ("connect", name)) => service(state, ask, name, Lookup::Connect).into(),
        ("GET", ("node", name)) => node(state, ask, name).into(),
        ("GET", ("node-services", name)) => node_services(state, ask, name).into(),
        _ => return None,
    };
    Some(reply)
}

fn nodes(state: &State, ask: Ask<'_>) -> Result<Reply, Refused> {
    let (mut nodes, seen) = state.nodes();
    let all = nodes.len();
    nodes.retain(|node| ask.sees_node(&node.name));
    let left_out = nodes.len() < all;
    nodes.retain(|node| ask.has_meta(node));
    let list = ask.call.narrow(nodes.iter().map(node_json).collect(), schema::node)?;
    Ok(ask.list(list, seen, left_out))
}

fn services(state: &State, ask: Ask<'_>) -> Result<Reply, Refused> {
    // Servers before 1.14 ignore the filter here.
    let filter = if state.is_1_8() { None } else { ask.call.filter(schema::catalog_service)? };
    let old = state.is_1_8();
    let (mut services, seen) = state.services(|node, service| {
        let matches =
            filter.as_ref().is_none_or(|filter| filter.matches(&catalog_entry(old, node, service)));
        matches && ask.has_meta(node)
    });
    let all = services.len();
    services.retain(|name, _| ask.sees_service(name));
    let left_out = services.len() < all;
    Ok(Reply::json(&json!(services)).filtered(ask.who, left_out).at(seen))
}

fn service(state: &State, ask: Ask<'_>, name: &str, lookup: Lookup) -> Result<Reply, Refused> {
    let Instances { found, seen, left_out } = ask.instances(state, name, lookup, false);
    let list = found
        .iter()
        .map(|entry| catalog_entry(state.is_1_8(), &entry.node, &entry.service))
        .collect();
    Ok(ask.list(ask.call.narrow(list, schema::catalog_service)?, seen, left_out))
}

/// The services that a gateway stands for. Who asks must see the gateway.
fn gateway_services(state: &State, ask: Ask<'_>, gateway: &str) -> Result<Reply, Refused> {
    ask.who.require(Resource::Service, gateway, Access::Read)?;
    let (mut found, seen) = state.gateway_services(gateway);
    let all = found.len();
    found.retain(|(service, _)| ask.sees_service(service));
    let left_out = found.len() < all;
    let list: Vec<Value> = found.into_iter().map(|(_, json)| json).collect();
    let nothing = list.is_empty() && state.is_1_8();
    let value = if nothing { Value::Null } else { Value::Array(list) };
    Ok(Reply::json(&value).filtered(ask.who, left_out).at(seen))
}

/// A node with its services, unless it may not be seen.
struct NodeServices {
    found: Option<(Node, Vec<Value>)>,
    seen: Seen,
    left_out: bool,
}

/// The services of a node that can be seen and are asked for, unless the node
/// itself is hidden. `by_id` holds the instances' ids against the rules, as
/// servers do in one of the two reads.
fn services_of(
    state: &State,
    ask: Ask<'_>,
    name: &str,
    by_id: bool,
) -> Result<NodeServices, Refused> {
    let filter = ask.call.filter(schema::service)?;
    let (found, seen) = state.node(name);
    let Some((node, mut services)) = found else {
        return Ok(NodeServices { found: None, seen, left_out: false });
    };
    if !ask.sees_node(&node.name) {
        return Ok(NodeServices { found: None, seen, left_out: true });
    }
    let all = services.len();
    services.retain(|service| ask.sees_service(if by_id { &service.id } else { &service.name }));
    let left_out = services.len() < all;
    let mut list: Vec<Value> =
        services.iter().map(|service| service_json(state, service)).collect();
    list.retain(|service| filter.as_ref().is_none_or(|filter| filter.matches(service)));
    Ok(NodeServices { found: Some((node, list)), seen, left_out })
}

fn node(state: &State, ask: Ask<'_>, name: &str) -> Result<Reply, Refused> {
    let NodeServices { found, seen, left_out } = services_of(state, ask, name, true)?;
    let value = found.map_or(Value::Null, |(node, services)| {
        let id = |service: &Value| service.get("ID").and_then(Value::as_str).map(str::to_owned);
        let services: Map<String, Value> = services
            .into_iter()
            .map(|service| (id(&service).unwrap_or_default(), service))
            .collect();
        json!({ "Node": node_json(&node), "Services": services })
    });
    Ok(Reply::json(&value).filtered(ask.who, left_out).at(seen))
}

fn node_services(state: &State, ask: Ask<'_>, name: &str) -> Result<Reply, Refused> {
    let NodeServices { found, seen, left_out } = services_of(state, ask, name, false)?;
    let value = match found {
        Some((node, services)) => json!({ "Node": node_json(&node), "Services": services }),
        None => json!({ "Node": null, "Services": null }),
    };
    Ok(Reply::json(&value).filtered(ask.who, left_out).at(seen))
}

pub(super) fn health(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let state = &*state;
    if let Some(what) = match rest {
        "checks/" => Some("service name"),
        "node/" => Some("node name"),
        "state/" => Some("check state"),
        _ => None,
    } {
        return Some(Reply::text(400, format!("Missing {what}")));
    }
    let (kind, name) = rest.split_once('/')?;
    let reply = match kind {
        "service" => instances(state, ask, name, Lookup::Service),
        "connect" => instances(state, ask, name, Lookup::Connect),
        "ingress" => instances(state, ask, name, Lookup::Ingress),
        "checks" => checks(state, ask, Checks::OfService(name)),
        "node" => checks(state, ask, Checks::OfNode(name)),
        "state" => checks(state, ask, Checks::InState(name)),
        _ => return None,
    };
    Some(reply.into())
}

fn checks(state: &State, ask: Ask<'_>, which: Checks<'_>) -> Result<Reply, Refused> {
    let (mut found, seen) = state.checks(which);
    let all = found.len();
    found.retain(|check| ask.sees_check(check));
    let left_out = found.len() < all;
    found.retain(|check| state.node(&check.node).0.is_none_or(|(node, _)| ask.has_meta(&node)));
    let list = ask
        .call
        .narrow(found.iter().map(|check| check_json(state, check)).collect(), schema::check)?;
    Ok(ask.list(list, seen, left_out))
}

/// Returns `true` if only passing instances are asked for.
pub(super) fn only_passing(ask: Ask<'_>) -> Result<bool, Refused> {
    match ask.call.param("passing") {
        None | Some("false" | "0") => Ok(false),
        Some("" | "true" | "1") => Ok(true),
        Some(_) => Err(Refused::new(400, "Invalid value for ?passing")),
    }
}

fn instances(state: &State, ask: Ask<'_>, name: &str, lookup: Lookup) -> Result<Reply, Refused> {
    if name.is_empty() {
        return Err(Refused::new(400, "Missing service name"));
    }
    let passing = only_passing(ask)?;
    if lookup != Lookup::Service && !state.is_1_8() {
        // Servers before 1.16 answer an empty list.
        ask.who.require(Resource::Service, name, Access::Read)?;
    }
    let given = |name: &str| ask.call.param(name).is_some_and(|value| !value.is_empty());
    if !state.is_1_8() && given("sg") {
        return Err(Refused::new(500, "sameness groups are not supported in consul CE"));
    }
    let Instances { mut found, seen, left_out } = ask.instances(state, name, lookup, true);
    if !state.is_1_8() && given("peer") {
        // There are no peers, so nothing was imported.
        found.clear();
    }
    found.retain(|entry| {
        !passing || entry.checks.iter().all(|check| check.status == HealthStatus::Passing)
    });
    let list = ask
        .call
        .narrow(found.iter().map(|entry| health_entry(state, entry)).collect(), schema::instance)?;
    Ok(ask.list(list, seen, left_out))
}
