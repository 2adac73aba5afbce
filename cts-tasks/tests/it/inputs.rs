//! The form of inputs that a person reads and writes.

use std::sync::Arc;

use cts_tasks::{InputsDigest, KvEntry, ServiceInstance, TaskInputs};
use proptest::{collection, option, prelude::*};
use serde_json::json;

fn instance() -> impl Strategy<Value = Arc<ServiceInstance>> {
    let meta = collection::btree_map(any::<String>(), any::<String>(), 0..3);
    let texts = (any::<String>(), any::<String>(), any::<String>());
    (texts, any::<i64>(), meta, collection::vec(any::<String>(), 0..3)).prop_map(
        |((id, name, node), port, meta, tags)| {
            Arc::new(ServiceInstance { id, name, node, port, meta, tags, ..Default::default() })
        },
    )
}

prop_compose! {
    fn inputs()(
        services in option::of(collection::vec(instance(), 0..4)),
        catalog_services in option::of(collection::btree_map(
            any::<String>(), collection::vec(any::<String>(), 0..3), 0..3,
        )),
        consul_kv in option::of(collection::vec(
            (any::<String>(), prop_oneof![any::<String>().prop_map(String::into_bytes), any::<Vec<u8>>()]),
            0..4,
        )),
    ) -> TaskInputs {
        let entry = |(path, value): (String, Vec<u8>)| KvEntry::new(path, value);
        let mut inputs = TaskInputs::default();
        inputs.services = services;
        inputs.catalog_services = catalog_services;
        inputs.consul_kv = consul_kv.map(|keys| keys.into_iter().map(entry).collect());
        inputs
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(inputs in inputs()) {
        let text = serde_json::to_string_pretty(&inputs).unwrap();
        prop_assert_eq!(&serde_json::from_str::<TaskInputs>(&text).unwrap(), &inputs);
        // Through a tree as well, where text is owned.
        let tree = serde_json::to_value(&inputs).unwrap();
        prop_assert_eq!(serde_json::from_value::<TaskInputs>(tree).unwrap(), inputs);
    }
}

#[test]
fn values_are_text_or_marked() {
    let mut inputs = TaskInputs::default();
    inputs.consul_kv = Some(vec![KvEntry::new("a", "red\n"), KvEntry::new("b", [0xff])]);
    assert_eq!(
        serde_json::to_value(&inputs).unwrap()["consul_kv"],
        json!([{"path": "a", "value": "red\n"}, {"path": "b", "value_base64": "/w=="}])
    );
}

#[test]
fn a_value_that_is_wrong_is_not_shown() {
    for wrong in [
        r#"{"path": "app/key"}"#,
        r#"{"path": "app/key", "value": "hunter2", "value_base64": "aHVudGVyMg=="}"#,
        r#"{"path": "app/key", "value_base64": "hunter2!"}"#,
    ] {
        let error = serde_json::from_str::<KvEntry>(wrong).unwrap_err().to_string();
        assert!(error.contains("app/key") && !error.contains("unter"), "{error}");
    }
    let entry = KvEntry::new("app/key", "hunter2");
    assert_eq!(format!("{entry:?}"), "KvEntry { path: \"app/key\", value: 7 bytes }");
}

/// Stores keep digests: an upgrade must not make every task run.
#[test]
fn the_digest_is_that_of_earlier_versions() {
    let mut inputs = TaskInputs::default();
    inputs.consul_kv = Some(vec![KvEntry::new("a", [120, 255])]);
    assert_eq!(InputsDigest::of(&inputs).as_str(), GOLDEN);
}

const GOLDEN: &str = "bc915cc20ed432684a3d102d94a437b18508a3ad462ef07d17b19bd23f9bc210";
