//! The JSON of what several endpoints show, as the version in question shows it.

use serde_json::{Value, json};

use crate::{
    testing::state::{NODE, SessionRecord, State},
    types::{HealthCheck, Node, Service, ServiceEntry, ServiceKind, SessionBehavior},
};

/// `null` in place of an empty map: what nobody gave.
fn or_null(map: &std::collections::BTreeMap<String, String>) -> Value {
    if map.is_empty() { Value::Null } else { json!(map) }
}

pub(super) fn node_json(node: &Node) -> Value {
    json!({
        "ID": node.id, "Node": node.name, "Address": node.address, "Datacenter": node.datacenter,
        "TaggedAddresses": or_null(&node.tagged_addresses), "Meta": or_null(&node.meta),
        "CreateIndex": node.create_index, "ModifyIndex": node.modify_index,
    })
}

/// An instance as the catalog and health show it.
pub(super) fn service_json(state: &State, service: &Service) -> Value {
    let mut value = json!(service);
    let Some(fields) = value.as_object_mut() else { return value };
    // What answers always have, although requests leave it out when empty.
    for (name, value) in [
        ("Tags", json!([])),
        ("Meta", Value::Null),
        ("EnableTagOverride", json!(false)),
        ("Connect", json!({})),
    ] {
        fields.entry(name).or_insert(value);
    }
    let proxy = fields.entry("Proxy").or_insert_with(|| json!({}));
    fill_proxy(state.is_1_8(), proxy);
    if !state.is_1_8() {
        fields.entry("PeerName").or_insert_with(|| json!(""));
        // Port 0 is left out since 1.10.
        if fields.get("Port").and_then(Value::as_i64) == Some(0) {
            fields.remove("Port");
        }
    }
    value
}

/// Adds what the settings of a proxy always show.
fn fill_proxy(old: bool, proxy: &mut Value) {
    let Some(proxy) = proxy.as_object_mut() else { return };
    for name in ["MeshGateway", "Expose"] {
        proxy.entry(name).or_insert_with(|| json!({}));
    }
    if !old {
        proxy.entry("Mode").or_insert_with(|| json!(""));
    }
    for upstream in proxy.get_mut("Upstreams").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(upstream) = upstream.as_object_mut() {
            upstream.entry("MeshGateway").or_insert_with(|| json!({}));
            upstream.entry("Datacenter").or_insert_with(|| json!(""));
            upstream.entry("DestinationType").or_insert_with(|| json!(""));
            if old {
                upstream.entry("Config").or_insert(Value::Null);
            }
        }
    }
}

/// An instance as the agent shows its own.
pub(super) fn agent_service_json(state: &State, service: &Service) -> Value {
    let mut value = json!(service);
    let Some(fields) = value.as_object_mut() else { return value };
    for (name, value) in
        [("Tags", json!([])), ("Meta", json!({})), ("EnableTagOverride", json!(false))]
    {
        fields.entry(name).or_insert(value);
    }
    for index in ["CreateIndex", "ModifyIndex"] {
        fields.remove(index);
    }
    if service.kind == ServiceKind::Typical {
        fields.remove("Proxy");
    } else if let Some(proxy) = fields.get_mut("Proxy") {
        fill_proxy(true, proxy);
    }
    if !state.is_1_8() {
        fields.insert("Datacenter".to_owned(), json!("dc1"));
    }
    value
}

pub(super) fn check_json(state: &State, check: &HealthCheck) -> Value {
    let mut value = json!({
        "Node": check.node, "CheckID": check.check_id, "Name": check.name, "Status": check.status,
        "Notes": check.notes, "Output": check.output, "ServiceID": check.service_id,
        "ServiceName": check.service_name, "ServiceTags": check.service_tags, "Type": check.kind,
        "Definition": check.definition, "CreateIndex": check.create_index, "ModifyIndex": check.modify_index,
    });
    if state.is_1_8() {
        return value;
    }
    let timing = (check.node == NODE).then(|| state.agent.timing(&check.check_id)).flatten();
    let (interval, limit) = timing.unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("Interval".to_owned(), json!(interval));
        fields.insert("Timeout".to_owned(), json!(limit));
        fields.insert("ExposedPort".to_owned(), json!(0));
    }
    value
}

/// A check as `agent/health` shows it: the id, the state and what belongs to it.
pub(super) fn agent_check_json(state: &State, check: &HealthCheck) -> Value {
    let of_service = !check.service_id.is_empty();
    let mut value = check_json(state, check);
    let Some(fields) = value.as_object_mut() else { return value };
    if of_service {
        return value;
    }
    // Checks of the node come without what is known of their kind.
    for name in ["Interval", "Timeout"] {
        fields.remove(name);
    }
    fields.insert("Type".to_owned(), json!(""));
    fields.insert("ServiceTags".to_owned(), Value::Null);
    let mut definition = json!({
        "Interval": "0s", "Timeout": "0s", "DeregisterCriticalServiceAfter": "0s", "HTTP": "",
        "Header": null, "Method": "", "Body": "", "TLSSkipVerify": false, "TCP": "",
    });
    if !state.is_1_8()
        && let Some(definition) = definition.as_object_mut()
    {
        for name in ["TLSServerName", "UDP", "GRPC", "OSService"] {
            definition.insert(name.to_owned(), json!(""));
        }
        for name in ["TCPUseTLS", "GRPCUseTLS"] {
            definition.insert(name.to_owned(), json!(false));
        }
    }
    fields.insert("Definition".to_owned(), definition);
    value
}

pub(super) fn health_entry(state: &State, entry: &ServiceEntry) -> Value {
    let checks: Vec<Value> = entry.checks.iter().map(|check| check_json(state, check)).collect();
    let service = service_json(state, &entry.service);
    json!({ "Node": node_json(&entry.node), "Service": service, "Checks": checks })
}

pub(super) fn list<T>(items: &[T], to_json: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(to_json).collect())
}

/// An instance as `catalog/service` shows it.
pub(super) fn catalog_entry(old: bool, node: &Node, service: &Service) -> Value {
    let mut proxy = json!(service.proxy);
    fill_proxy(old, &mut proxy);
    let mut value = json!({
        "ID": node.id, "Node": node.name, "Address": node.address, "Datacenter": node.datacenter,
        "TaggedAddresses": or_null(&node.tagged_addresses), "NodeMeta": or_null(&node.meta),
        "ServiceKind": service.kind, "ServiceID": service.id, "ServiceName": service.name,
        "ServiceTags": service.tags, "ServiceAddress": service.address,
        "ServiceWeights": service.weights, "ServiceMeta": service.meta, "ServicePort": service.port,
        "ServiceEnableTagOverride": service.enable_tag_override, "ServiceProxy": proxy,
        "ServiceConnect": service.connect, "CreateIndex": service.create_index,
        "ModifyIndex": service.modify_index,
    });
    if let Some(fields) = value.as_object_mut() {
        if !service.tagged_addresses.is_empty() {
            let addresses = json!(service.tagged_addresses);
            fields.insert("ServiceTaggedAddresses".to_owned(), addresses);
        }
        if !old {
            fields.insert("ServiceSocketPath".to_owned(), json!(service.socket_path));
            fields.insert("ServiceLocality".to_owned(), json!(service.locality));
        }
    }
    value
}

pub(super) fn sessions(found: &[SessionRecord]) -> Value {
    list(found, |SessionRecord { session, ttl, node_checks, service_checks, .. }| {
        let checks = list(service_checks, |id| json!({ "ID": id, "Namespace": "" }));
        json!({
            "ID": session.id, "Name": session.name, "Node": session.node,
            "LockDelay": u64::try_from(session.lock_delay.as_nanos()).unwrap_or(u64::MAX),
            "Behavior": if session.behavior == SessionBehavior::Delete { "delete" } else { "release" },
            "TTL": ttl,
            "NodeChecks": node_checks,
            "ServiceChecks": if service_checks.is_empty() { Value::Null } else { checks },
            "CreateIndex": session.create_index, "ModifyIndex": session.modify_index,
        })
    })
}
