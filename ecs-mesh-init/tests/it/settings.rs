//! Settings of proxies that nobody checked.

use ecs_mesh_init::bootstrap::{BootstrapOptions, ProxySettings};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const KEYS: &[&str] = &[
    "envoy_bootstrap_json_tpl",
    "envoy_statsd_url",
    "envoy_dogstatsd_url",
    "envoy_extra_stats_sinks_json",
    "envoy_stats_tags",
    "envoy_stats_config_json",
    "envoy_stats_flush_interval",
    "envoy_extra_static_clusters_json",
    "envoy_extra_static_listeners_json",
    "envoy_prometheus_bind_addr",
    "envoy_stats_bind_addr",
    "envoy_tracing_json",
    "envoy_telemetry_collector_bind_socket_dir",
];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        "\\PC{0,20}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!({"a": [1]})),
        proptest::collection::vec("\\PC{0,8}", 0..3).prop_map(Value::from),
        Just(json!("127.0.0.1:9000")),
        Just(json!("udp://$HOST_IP:1")),
        Just(json!("{\"name\": \"x\"}")),
        Just(json!("{{ .ProxyID }}")),
    ]
}

/// Settings that are all used, in the forms that upstream documents.
const VALID: &str = r#"{
  "envoy_bootstrap_json_tpl": "{\"node\": {\"id\": \"{{ .ProxyID }}\"{{ if .Token }}, \"t\": \"{{ .Token }}\"{{ end }}}}",
  "envoy_statsd_url": "udp://127.0.0.1:9125", "envoy_dogstatsd_url": "udp://${HOST_IP}:9126",
  "envoy_extra_stats_sinks_json": "{\"name\": \"own\"}", "envoy_stats_tags": ["canary", "env=prod"],
  "envoy_stats_config_json": "{\"own\": 1}", "envoy_stats_flush_interval": "10s",
  "envoy_extra_static_clusters_json": "{\"name\": \"a\"}, {\"name\": \"self_admin\"}",
  "envoy_extra_static_listeners_json": "{\"name\": \"l\"}", "envoy_prometheus_bind_addr": "0.0.0.0:9102",
  "envoy_stats_bind_addr": "[::]:9103", "envoy_tracing_json": "{\"http\": {}}",
  "envoy_telemetry_collector_bind_socket_dir": "/tmp"}"#;

/// Renders settings in a document's bytes: a document of JSON, or `None` for an error.
fn rendered(document: &[u8], templated: bool) -> Option<Value> {
    let mut config: Map<String, Value> = serde_json::from_slice(document).ok()?;
    if !templated {
        config.remove("envoy_bootstrap_json_tpl");
    }
    let mut options = BootstrapOptions::new("p", "c");
    options.settings = ProxySettings::from_config(&config).ok()?;
    let bootstrap = options.render(&|_| Some("1.2.3.4".to_owned())).ok()?;
    Some(serde_json::from_str(&bootstrap.to_text()).unwrap())
}

#[test]
fn the_valid_settings_are_used() {
    let document = rendered(VALID.as_bytes(), false).unwrap();
    assert_eq!(document["stats_sinks"].as_array().unwrap().len(), 4);
    assert_eq!(document["static_resources"]["listeners"].as_array().unwrap().len(), 3);
    assert_eq!(rendered(VALID.as_bytes(), true).unwrap(), json!({"node": {"id": "p"}}));
}

proptest! {
    #[test]
    fn any_bytes_as_settings_give_json_or_an_error(
        key in 0..KEYS.len(),
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        rendered(json!({KEYS[key]: text}).to_string().as_bytes(), true);
    }

    #[test]
    fn valid_settings_that_were_cut_or_changed_give_json_or_an_error(
        at in 0..VALID.len(),
        other in 0..VALID.len(),
        byte in any::<u8>(),
        templated in any::<bool>(),
    ) {
        let mut bytes = VALID.as_bytes().to_vec();
        // A byte of the document itself more often leaves it readable.
        for byte in [byte, bytes[other]] {
            bytes[at] = byte;
            rendered(&bytes, templated);
        }
        bytes.remove(at);
        rendered(&bytes, templated);
        rendered(&VALID.as_bytes()[..at], templated);
    }

    #[test]
    fn any_settings_give_json_or_an_error(values in proptest::collection::vec((0..KEYS.len(), value()), 0..6)) {
        let config: Map<String, Value> =
            values.into_iter().map(|(at, value)| (KEYS[at].to_owned(), value)).collect();
        if let Ok(settings) = ProxySettings::from_config(&config) {
            let mut options = BootstrapOptions::new("p", "c");
            options.settings = settings;
            if let Ok(bootstrap) = options.render(&|_| Some("1.2.3.4".to_owned())) {
                prop_assert!(serde_json::from_str::<Value>(&bootstrap.to_text()).is_ok());
            }
        }
    }
}
