use serde_json::{Map, Value, json};

use super::Call;
use crate::{
    GoDuration,
    testing::{
        answer::Reply,
        state::{Checks, NODE, State},
    },
    types::{HealthCheck, HealthStatus, Node, Service, ServiceEntry, Session, SessionBehavior},
};

fn node_json(node: &Node) -> Value {
    json!({
        "ID": node.id, "Node": node.name, "Address": node.address, "Datacenter": node.datacenter,
        "TaggedAddresses": node.tagged_addresses, "Meta": node.meta,
        "CreateIndex": node.create_index, "ModifyIndex": node.modify_index,
    })
}

fn service_json(service: &Service) -> Value {
    let mut fields = json!(service);
    if let Some(fields) = fields.as_object_mut() {
        // What answers always have, although requests leave it out when empty.
        for (name, value) in [
            ("Tags", json!([])),
            ("Meta", Value::Null),
            ("EnableTagOverride", json!(false)),
            ("Proxy", json!({ "MeshGateway": {}, "Expose": {} })),
            ("Connect", json!({})),
        ] {
            fields.entry(name).or_insert(value);
        }
    }
    fields
}

fn check_json(check: &HealthCheck) -> Value {
    json!({
        "Node": check.node, "CheckID": check.check_id, "Name": check.name, "Status": check.status,
        "Notes": check.notes, "Output": check.output, "ServiceID": check.service_id,
        "ServiceName": check.service_name, "ServiceTags": check.service_tags, "Type": check.kind,
        "Definition": check.definition, "CreateIndex": check.create_index, "ModifyIndex": check.modify_index,
    })
}

fn health_entry(entry: &ServiceEntry) -> Value {
    let checks: Vec<Value> = entry.checks.iter().map(check_json).collect();
    json!({ "Node": node_json(&entry.node), "Service": service_json(&entry.service), "Checks": checks })
}

fn list<T>(items: &[T], to_json: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(to_json).collect())
}

fn has_meta(call: &Call, node: &Node) -> bool {
    call.all("node-meta").iter().all(|pair| {
        let (key, value) = pair.split_once(':').unwrap_or((pair, ""));
        node.meta.get(key).is_some_and(|found| found == value)
    })
}

fn has_tags(call: &Call, service: &Service) -> bool {
    call.all("tag").iter().all(|tag| service.tags.iter().any(|have| have.eq_ignore_ascii_case(tag)))
}

pub(super) fn health(state: &State, call: &Call, rest: &str) -> Option<Reply> {
    let (kind, name) = rest.split_once('/')?;
    let checks = match kind {
        "service" | "connect" => return Some(instances(state, call, name, kind == "connect")),
        "checks" => Checks::OfService(name),
        "node" => Checks::OfNode(name),
        "state" => Checks::InState(name),
        _ => return None,
    };
    let (found, seen) = state.checks(checks);
    Some(Reply::json(&list(&found, check_json)).at(seen))
}

fn instances(state: &State, call: &Call, name: &str, connect: bool) -> Reply {
    if name.is_empty() {
        return Reply::text(400, "Missing service name");
    }
    let passing = match call.param("passing") {
        None | Some("false" | "0") => false,
        Some("" | "true" | "1") => true,
        Some(_) => return Reply::text(400, "Invalid value for ?passing"),
    };
    let (mut found, seen) = state.instances(name, connect);
    found.retain(|entry| {
        has_meta(call, &entry.node)
            && has_tags(call, &entry.service)
            && (!passing || entry.checks.iter().all(|check| check.status == HealthStatus::Passing))
    });
    Reply::json(&list(&found, health_entry)).at(seen)
}

pub(super) fn nodes(state: &State, call: &Call) -> Reply {
    let (mut nodes, seen) = state.nodes();
    nodes.retain(|node| has_meta(call, node));
    Reply::json(&list(&nodes, node_json)).at(seen)
}

pub(super) fn services(state: &State, call: &Call) -> Reply {
    let (services, seen) = state.services(|node| has_meta(call, node));
    Reply::json(&json!(services)).at(seen)
}

pub(super) fn node(state: &State, name: &str) -> Reply {
    let (found, seen) = state.node(name);
    let value = found.map_or(Value::Null, |(node, services)| {
        let services: Map<String, Value> =
            services.iter().map(|service| (service.id.clone(), service_json(service))).collect();
        json!({ "Node": node_json(&node), "Services": services })
    });
    Reply::json(&value).at(seen)
}

pub(super) fn catalog_service(state: &State, call: &Call, name: &str, connect: bool) -> Reply {
    let (mut found, seen) = state.instances(name, connect);
    found.retain(|entry| has_meta(call, &entry.node) && has_tags(call, &entry.service));
    let flat = |entry: &ServiceEntry| {
        let ServiceEntry { node, service, .. } = entry;
        json!({
            "ID": node.id, "Node": node.name, "Address": node.address, "Datacenter": node.datacenter,
            "TaggedAddresses": node.tagged_addresses, "NodeMeta": node.meta, "ServiceKind": service.kind,
            "ServiceID": service.id, "ServiceName": service.name, "ServiceTags": service.tags,
            "ServiceAddress": service.address, "ServiceTaggedAddresses": service.tagged_addresses,
            "ServiceWeights": service.weights, "ServiceMeta": service.meta, "ServicePort": service.port,
            "ServiceEnableTagOverride": service.enable_tag_override, "ServiceProxy": service.proxy,
            "ServiceConnect": service.connect, "CreateIndex": service.create_index,
            "ModifyIndex": service.modify_index,
        })
    };
    Reply::json(&list(&found, flat)).at(seen)
}

pub(super) fn sessions(found: &[(Session, Vec<String>)]) -> Value {
    list(found, |(session, service_checks)| {
        let checks = list(service_checks, |id| json!({ "ID": id, "Namespace": "" }));
        json!({
            "ID": session.id, "Name": session.name, "Node": session.node,
            "LockDelay": u64::try_from(session.lock_delay.as_nanos()).unwrap_or(u64::MAX),
            "Behavior": if session.behavior == SessionBehavior::Delete { "delete" } else { "release" },
            "TTL": session.ttl.map(|ttl| GoDuration::new(ttl).to_string()).unwrap_or_default(),
            "NodeChecks": session.node_checks,
            "ServiceChecks": if service_checks.is_empty() { Value::Null } else { checks },
            "CreateIndex": session.create_index, "ModifyIndex": session.modify_index,
        })
    })
}

pub(super) fn agent_self(state: &State) -> Value {
    let version = if state.is_1_8() { "1.8.7" } else { "1.21.0" };
    let id = state.node(NODE).0.map(|(node, _)| node.id).unwrap_or_default();
    json!({
        "Config": {
            "Datacenter": "dc1", "PrimaryDatacenter": "dc1", "NodeName": NODE, "NodeID": id,
            "Revision": "", "Server": true, "Version": version,
        },
        "Member": members().get(0),
        "Meta": {},
        "xDS": { "SupportedProxies": { "envoy": [] } },
    })
}

pub(super) fn members() -> Value {
    json!([{ "Name": NODE, "Addr": "127.0.0.1", "Port": 8301, "Tags": { "role": "consul", "dc": "dc1" }, "Status": 1 }])
}

pub(super) fn agent_services(state: &State) -> Value {
    let services: Map<String, Value> =
        state.agent.services().map(|service| (service.id.clone(), service_json(service))).collect();
    Value::Object(services)
}

pub(super) fn agent_checks(state: &State) -> Value {
    let checks: Map<String, Value> =
        state.agent.checks().map(|check| (check.check_id.clone(), check_json(check))).collect();
    Value::Object(checks)
}

pub(super) fn agent_service(state: &State, id: &str) -> Reply {
    let Some((service, hash)) = state.agent.service(id) else {
        return Reply::text(404, format!("unknown service ID: {id}"));
    };
    let mut value = service_json(service);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("ContentHash".to_owned(), json!(hash));
        fields.insert("Datacenter".to_owned(), json!("dc1"));
    }
    Reply::json(&value).hashed(hash)
}
