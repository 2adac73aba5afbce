use serde_json::{Value, json};

use crate::{
    GoDuration,
    testing::state::{NODE, State},
    types::{HealthCheck, Node, Service, ServiceEntry, Session, SessionBehavior},
};

pub(super) fn node_json(node: &Node) -> Value {
    json!({
        "ID": node.id, "Node": node.name, "Address": node.address, "Datacenter": node.datacenter,
        "TaggedAddresses": node.tagged_addresses, "Meta": node.meta,
        "CreateIndex": node.create_index, "ModifyIndex": node.modify_index,
    })
}

pub(super) fn service_json(service: &Service) -> Value {
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

pub(super) fn check_json(check: &HealthCheck) -> Value {
    json!({
        "Node": check.node, "CheckID": check.check_id, "Name": check.name, "Status": check.status,
        "Notes": check.notes, "Output": check.output, "ServiceID": check.service_id,
        "ServiceName": check.service_name, "ServiceTags": check.service_tags, "Type": check.kind,
        "Definition": check.definition, "CreateIndex": check.create_index, "ModifyIndex": check.modify_index,
    })
}

pub(super) fn health_entry(entry: &ServiceEntry) -> Value {
    let checks: Vec<Value> = entry.checks.iter().map(check_json).collect();
    json!({ "Node": node_json(&entry.node), "Service": service_json(&entry.service), "Checks": checks })
}

pub(super) fn list<T>(items: &[T], to_json: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(to_json).collect())
}

/// An instance as `catalog/service` shows it.
pub(super) fn catalog_entry(node: &Node, service: &Service) -> Value {
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
    let id = state.node(NODE).0.map(|(node, _)| node.id).unwrap_or_default();
    json!({
        "Config": {
            "Datacenter": "dc1", "PrimaryDatacenter": "dc1", "NodeName": NODE, "NodeID": id,
            "Revision": "", "Server": true, "Version": state.version(),
        },
        "Member": members().get(0),
        "Meta": {},
        "xDS": { "SupportedProxies": { "envoy": [] } },
    })
}

pub(super) fn members() -> Value {
    json!([{ "Name": NODE, "Addr": "127.0.0.1", "Port": 8301, "Tags": { "role": "consul", "dc": "dc1" }, "Status": 1 }])
}
