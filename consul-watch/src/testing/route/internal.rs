//! Paths that Consul keeps for its own UI and other servers. The double knows
//! that they are there, and serves those that watches use: nodes with what is on them.

use serde_json::{Value, json};

use super::{
    Ask, Path,
    json::{check_json, node_json, service_json},
};
use crate::{
    testing::{answer::Reply, state::State},
    types::{HealthCheck, Node, Service},
};

pub(super) const PATHS: &[Path] = &[
    Path::new("internal/federation-states", "GET"),
    Path::new("internal/federation-states/mesh-gateways", "GET"),
    Path::new("internal/federation-state/", "GET"),
    Path::new("internal/ui/metrics-proxy/", "GET").newer(),
    Path::new("internal/ui/nodes", "GET"),
    Path::new("internal/ui/node/", "GET"),
    Path::new("internal/ui/services", "GET"),
    Path::new("internal/ui/exported-services", "GET").newer(),
    Path::new("internal/ui/catalog-overview", "GET").newer(),
    Path::new("internal/ui/gateway-services-nodes/", "GET"),
    Path::new("internal/ui/gateway-intentions/", "GET").newer(),
    Path::new("internal/ui/service-topology/", "GET").newer(),
    Path::new("internal/acl/authorize", "POST"),
    Path::new("internal/service-virtual-ip", "PUT").newer(),
];

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let path = rest.strip_prefix("ui/")?;
    match (ask.call.method.as_str(), path, path.strip_prefix("node/")) {
        ("GET", "nodes", _) => Some(nodes(state, ask)),
        ("GET", _, Some("")) => Some(Reply::text(400, "Missing node name")),
        ("GET", _, Some(name)) => Some(node(state, ask, name)),
        _ => None,
    }
}

/// All nodes with their instances and checks.
fn nodes(state: &State, ask: Ask<'_>) -> Reply {
    let (mut found, seen) = state.whole_nodes();
    let all = found.len();
    found.retain(|(node, _, _)| ask.sees_node(&node.name));
    let mut left_out = found.len() < all;
    let mut values = Vec::new();
    for (node, services, checks) in found {
        let (value, less) = whole_node(state, ask, &node, services, checks);
        left_out |= less;
        values.push(value);
    }
    Reply::json(&Value::Array(values)).filtered(ask.who, left_out).at(seen)
}

/// A node with its instances and checks. One that is not there, or must not be seen, is answered
/// without any header of a read, but blocks like one.
fn node(state: &State, ask: Ask<'_>, name: &str) -> Reply {
    let (found, seen) = state.whole_node(name);
    let Some((node, services, checks)) = found.filter(|(node, _, _)| ask.sees_node(&node.name))
    else {
        return Reply { seen: Some(seen), only_index: true, ..Reply::empty(404) };
    };
    let (value, left_out) = whole_node(state, ask, &node, services, checks);
    Reply::json(&value).filtered(ask.who, left_out).at(seen)
}

/// A node with what may be seen of what is on it; `true` if that is not all.
fn whole_node(
    state: &State,
    ask: Ask<'_>,
    node: &Node,
    mut services: Vec<Service>,
    mut checks: Vec<HealthCheck>,
) -> (Value, bool) {
    let all = services.len() + checks.len();
    services.retain(|service| ask.sees_service(&service.name));
    checks.retain(|check| ask.sees_check(check));
    let left_out = services.len() + checks.len() < all;
    let services: Vec<Value> = services
        .iter()
        .map(|service| null_when_empty(service_json(state, service), "Tags"))
        .collect();
    let checks: Vec<Value> = checks
        .iter()
        .map(|check| null_when_empty(check_json(state, check), "ServiceTags"))
        .collect();
    let mut value = node_json(node);
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !["Datacenter", "CreateIndex", "ModifyIndex"].contains(&&**name));
        fields.insert("Services".to_owned(), Value::Array(services));
        fields.insert("Checks".to_owned(), Value::Array(checks));
    }
    (value, left_out)
}

/// Lists are as they are stored here; other endpoints show one that is not there as empty.
fn null_when_empty(mut value: Value, field: &str) -> Value {
    if let Some(list) = value.get_mut(field).filter(|list| **list == json!([])) {
        *list = Value::Null;
    }
    value
}
