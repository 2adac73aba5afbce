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

proptest! {
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
