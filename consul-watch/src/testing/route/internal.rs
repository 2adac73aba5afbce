//! Paths that Consul keeps for its own UI and other servers. The double knows
//! that they are there, and serves the one that watches use: a node with what is on it.

use serde_json::{Value, json};

use super::{
    Ask, Path,
    json::{check_json, node_json, service_json},
};
use crate::testing::{answer::Reply, state::State};

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
    match (ask.call.method.as_str(), rest.strip_prefix("ui/node/")?) {
        ("GET", "") => Some(Reply::text(400, "Missing node name")),
        ("GET", name) => Some(node(state, ask, name)),
        _ => None,
    }
}

/// A node with its instances and checks. One that is not there, or must not be seen, is answered
/// without any header of a read, but blocks like one.
fn node(state: &State, ask: Ask<'_>, name: &str) -> Reply {
    let (found, seen) = state.whole_node(name);
    let Some((node, mut services, mut checks)) =
        found.filter(|(node, _, _)| ask.sees_node(&node.name))
    else {
        return Reply { seen: Some(seen), only_index: true, ..Reply::empty(404) };
    };
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
    let mut value = node_json(&node);
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !["Datacenter", "CreateIndex", "ModifyIndex"].contains(&&**name));
        fields.insert("Services".to_owned(), Value::Array(services));
        fields.insert("Checks".to_owned(), Value::Array(checks));
    }
    Reply::json(&value).filtered(ask.who, left_out).at(seen)
}

/// Lists are as they are stored here; other endpoints show one that is not there as empty.
fn null_when_empty(mut value: Value, field: &str) -> Value {
    if let Some(list) = value.get_mut(field).filter(|list| **list == json!([])) {
        *list = Value::Null;
    }
    value
}
