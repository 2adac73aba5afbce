//! Tasks and inputs that the tests share.

use std::collections::BTreeMap;

use cts_tasks::{Literal, ProviderBlock, ServiceInstance, Task, TaskInputs};
use serde_json::{Value as Json, json};

/// A task as `cts-tasks` would read it; `overrides` replaces fields.
pub(crate) fn task(overrides: &Json) -> Task {
    let mut task = json!({
        "name": "test",
        "description": "user description for task named 'test'",
        "enabled": true,
        "module": "namespace/test/consul",
        "version": null,
        "providers": [],
        "variables": {},
        "buffer_period": "Disabled",
        "working_dir": "sync-tasks/test",
        "condition": {"Schedule": {"cron": "@daily"}},
        "module_inputs": [],
        "driver_blocks": {},
    });
    let fields = task.as_object_mut().unwrap();
    fields.extend(overrides.as_object().unwrap().clone());
    serde_json::from_value(task).unwrap()
}

/// The services `api` and `web`; the first with all that can narrow it.
pub(crate) fn api_and_web() -> Json {
    json!({"Named": [
        named("web", "", "", ""),
        named("api", "dc1", "", "\n\"tag\" in Service.Tags\n"),
    ]})
}

pub(crate) fn named(name: &str, datacenter: &str, namespace: &str, filter: &str) -> Json {
    json!({
        "name": name, "datacenter": datacenter, "namespace": namespace, "filter": filter,
        "cts_user_defined_meta": {},
    })
}

pub(crate) fn matching() -> Json {
    json!({"Matching": {
        "regexp": "^api", "datacenter": "dc1", "namespace": "ns1",
        "filter": "\"tag\" in Service.Tags", "cts_user_defined_meta": {},
    }})
}

pub(crate) fn services_condition(services: &Json, used: bool) -> Json {
    json!({"Services": {"services": services, "use_as_module_input": used}})
}

pub(crate) fn catalog_condition(regexp: &str, scoped: bool, used: bool) -> Json {
    let (datacenter, node_meta) = if scoped { ("dc1", json!({"k": "v"})) } else { ("", json!({})) };
    json!({"CatalogServices": {
        "services": {
            "regexp": regexp, "datacenter": datacenter, "namespace": "", "node_meta": node_meta,
        },
        "use_as_module_input": used,
    }})
}

pub(crate) fn keys(path: &str, recurse: bool, namespace: &str) -> Json {
    json!({"path": path, "recurse": recurse, "datacenter": "dc1", "namespace": namespace})
}

pub(crate) fn kv_condition(keys: &Json, used: bool) -> Json {
    json!({"ConsulKv": {"keys": keys, "use_as_module_input": used}})
}

/// The instance of the specification's example.
pub(crate) fn api_instance() -> ServiceInstance {
    ServiceInstance {
        id: "api-2".into(),
        name: "api".into(),
        address: "5.6.7.8".into(),
        port: 8080,
        tags: vec!["tag".into()],
        status: "passing".into(),
        node: "worker-01".into(),
        node_id: "39e5a7f5-2834-e16d-6925-78167c9f50d8".into(),
        node_address: "127.0.0.1".into(),
        node_datacenter: "dc1".into(),
        node_tagged_addresses: map(
            &["lan", "lan_ipv4", "wan", "wan_ipv4"].map(|k| (k, "127.0.0.1"))
        ),
        node_meta: map(&[("consul-network-segment", ""), ("consul-version", "1.22.3")]),
        ..ServiceInstance::default()
    }
}

pub(crate) fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn instances(services: Vec<ServiceInstance>) -> TaskInputs {
    let mut inputs = TaskInputs::default();
    inputs.services = Some(services.into_iter().map(std::sync::Arc::new).collect());
    inputs
}

pub(crate) fn literals(json: &Json) -> BTreeMap<String, Literal> {
    match Literal::from(json.clone()) {
        Literal::Map(literals) => literals,
        other => panic!("not an object: {other:?}"),
    }
}

pub(crate) fn provider(name: &str, alias: Option<&str>, arguments: &Json) -> ProviderBlock {
    let mut block = ProviderBlock::new(name);
    block.alias = alias.map(str::to_owned);
    block.arguments = literals(arguments);
    block
}
