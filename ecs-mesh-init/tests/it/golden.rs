//! Bootstrap documents against the golden cases of the specification, and single features of them.

use ecs_mesh_init::bootstrap::{
    AccessLogSink, AccessLogs, BootstrapOptions, HostPort, PrometheusTls, ProxySettings, XdsAddress,
};
use serde_json::{Value, json};

const DEFAULTS: &str = include_str!("../data/bootstrap/defaults.json");
const PROMETHEUS_TLS: &str = include_str!("../data/bootstrap/prometheus-tls.json");
const GRPC_TLS: &str = include_str!("../data/bootstrap/grpc-tls-token-prometheus.json");

fn options() -> BootstrapOptions {
    let mut options = BootstrapOptions::new("test-proxy", "test");
    options.datacenter = Some("dc1".into());
    options
}

fn settings(config: &Value) -> ProxySettings {
    ProxySettings::from_config(config.as_object().unwrap()).unwrap()
}

fn render(options: &BootstrapOptions) -> String {
    options.render(&|_| None).unwrap().to_text()
}

fn value(options: &BootstrapOptions) -> Value {
    serde_json::from_str(&render(options)).unwrap()
}

fn with(config: &Value) -> Value {
    let mut options = options();
    options.settings = settings(config);
    value(&options)
}

#[test]
fn the_defaults_are_equal_to_the_byte() {
    assert_eq!(render(&options()), DEFAULTS);
}

#[test]
fn prometheus_over_tls_with_a_backend_is_equal_to_the_byte() {
    let mut options = options();
    options.settings = settings(&json!({"envoy_prometheus_bind_addr": "0.0.0.0:9000"}));
    options.prometheus_backend_port = Some(20100);
    options.prometheus_scrape_path = "/scrape-path".into();
    options.prometheus_tls = PrometheusTls::from_flags(
        "ourdomain.cer",
        "",
        "ourdomain_server.cer",
        "ourdomain_server.key",
    )
    .unwrap();
    assert_eq!(render(&options), PROMETHEUS_TLS);
}

#[test]
fn grpc_over_tls_with_a_token_is_equal_to_the_byte() {
    let mut options = options();
    options.settings = settings(&json!({"envoy_prometheus_bind_addr": "0.0.0.0:9102"}));
    options.xds.tls = true;
    options.xds.ca_pem = "-----BEGIN CERTIFICATE-----\nMIIE...\n-----END CERTIFICATE-----\n".into();
    options.xds.token = Some("c9a52720-bf6c-4aa6-b8bc-66881a5ade95".into());
    assert_eq!(render(&options), GRPC_TLS);
    let bootstrap = options.render(&|_| None).unwrap();
    assert!(!format!("{bootstrap:?} {options:?}").contains("c9a52720"));
}

/// Case MI47: a cluster `self_admin` of the user's is not added again.
#[test]
fn a_cluster_of_the_users_is_not_added_again() {
    let own = json!({"name": "self_admin", "type": "STATIC"});
    let mut options = options();
    options.ready = Some(HostPort::new("127.0.0.1", 22000));
    options.settings = settings(&json!({
        "envoy_extra_static_clusters_json": own.to_string(),
        "envoy_prometheus_bind_addr": "0.0.0.0:9000", "envoy_stats_bind_addr": "0.0.0.0:9001",
    }));
    let json = value(&options);
    let clusters = json["static_resources"]["clusters"].as_array().unwrap();
    assert_eq!(clusters.len(), 2);
    assert_eq!(clusters[1], own);
    let names: Vec<&str> = json["static_resources"]["listeners"]
        .as_array()
        .unwrap()
        .iter()
        .map(|listener| listener["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["envoy_prometheus_metrics_listener", "envoy_metrics_listener", "envoy_ready_listener"]
    );
    let routes = |at: usize| {
        json["static_resources"]["listeners"][at]["filter_chains"][0]["filters"][0]["typedConfig"]["route_config"]
            ["virtual_hosts"][0]["routes"]
            .clone()
    };
    assert_eq!(
        routes(1)[0],
        json!({"match": {"prefix": "/stats"}, "route": {"cluster": "self_admin", "prefix_rewrite": "/stats"}})
    );
    assert_eq!(
        routes(2)[0],
        json!({"match": {"path": "/ready"}, "route": {"cluster": "self_admin", "prefix_rewrite": "/ready"}})
    );
    assert_eq!(routes(2)[1], json!({"match": {"prefix": "/"}, "direct_response": {"status": 404}}));
}

#[test]
fn sinks_come_in_upstreams_order() {
    let json = with(&json!({
        "envoy_statsd_url": "udp://127.0.0.1:9125", "envoy_dogstatsd_url": "unix:///var/run/dog.sock",
        "envoy_extra_stats_sinks_json": "{\"name\": \"own\"},",
        "envoy_telemetry_collector_bind_socket_dir": "/tmp/consul/telemetry-collector",
    }));
    let sinks = json["stats_sinks"].as_array().unwrap();
    assert_eq!(
        sinks[0],
        json!({"name": "envoy.stat_sinks.statsd", "typedConfig": {
            "@type": "type.googleapis.com/envoy.config.metrics.v3.StatsdSink",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": 9125}}}})
    );
    assert_eq!(
        sinks[1],
        json!({"name": "envoy.stat_sinks.dog_statsd", "typedConfig": {
            "@type": "type.googleapis.com/envoy.config.metrics.v3.DogStatsdSink",
            "address": {"pipe": {"path": "/var/run/dog.sock"}}}})
    );
    assert_eq!(sinks[2], json!({"name": "own"}));
    assert_eq!(sinks[3]["name"], "envoy.stat_sinks.metrics_service");
    assert_eq!(json.get("stats_flush_interval"), None);
    let cluster = &json["static_resources"]["clusters"][1];
    assert_eq!(cluster["name"], "consul_telemetry_collector_loopback");
    assert_eq!(
        cluster["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"]["pipe"]
            ["path"],
        "/tmp/consul/telemetry-collector/k3bWnyJyKvjUYXrBdOX2nXzSSCQ.sock"
    );
}

#[test]
fn telemetry_alone_flushes_every_minute() {
    let json = with(&json!({"envoy_telemetry_collector_bind_socket_dir": "/tmp"}));
    assert_eq!(json["stats_flush_interval"], "60s");
    let json = with(
        &json!({"envoy_telemetry_collector_bind_socket_dir": "/tmp", "envoy_stats_flush_interval": "10s"}),
    );
    assert_eq!(json["stats_flush_interval"], "10s");
}

#[test]
fn the_users_parts_replace_or_extend_ours() {
    let json = with(&json!({
        "envoy_stats_config_json": "{\"own\": 1}", "envoy_tracing_json": "{\"http\": {\"name\": \"zipkin\"}}",
        "envoy_extra_static_clusters_json": "{\"name\": \"a\"}, {\"name\": \"b\"}",
        "envoy_extra_static_listeners_json": "{\"name\": \"l\"}", "envoy_stats_bind_addr": "[::]:9001",
    }));
    assert_eq!(json["stats_config"], json!({"own": 1}));
    assert_eq!(json["tracing"], json!({"http": {"name": "zipkin"}}));
    let names = |kind: &str| -> Vec<Value> {
        json["static_resources"][kind]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].clone())
            .collect()
    };
    assert_eq!(names("clusters"), ["local_agent", "a", "b", "self_admin"]);
    assert_eq!(names("listeners"), ["l", "envoy_metrics_listener"]);
    assert_eq!(
        json["static_resources"]["listeners"][1]["address"]["socket_address"]["address"],
        "::"
    );
    let text = render(&options());
    let order: Vec<usize> = [
        "\"admin\"",
        "\"node\"",
        "\"layered_runtime\"",
        "\"static_resources\"",
        "\"stats_config\"",
        "\"dynamic_resources\"",
    ]
    .iter()
    .map(|key| text.find(key).unwrap())
    .collect();
    assert!(order.is_sorted());
}

#[test]
fn addresses_and_values_that_cannot_be_used_are_named() {
    let error = |config: Value| {
        let settings = ProxySettings::from_config(config.as_object().unwrap())?;
        let mut options = options();
        options.settings = settings;
        options.render(&|_| None)
    };
    let text = |config: Value| error(config).unwrap_err().to_string();
    assert_eq!(
        text(json!({"envoy_prometheus_bind_addr": "9102"})),
        "invalid envoy_prometheus_metrics bind address: address 9102: missing port in address"
    );
    assert!(
        text(json!({"envoy_stats_bind_addr": "a:b"}))
            .starts_with("invalid envoy_metrics bind address: ")
    );
    assert!(
        text(json!({"envoy_tracing_json": "{"}))
            .starts_with("failed parsing Proxy.Config: envoy_tracing_json")
    );
    assert!(
        text(json!({"envoy_statsd_url": []}))
            .starts_with("failed parsing Proxy.Config: envoy_statsd_url")
    );
}

#[test]
fn access_logs_of_the_mesh_replace_the_admin_log() {
    let mut options = options();
    options.access_logs = Some(AccessLogs::default());
    let json = value(&options);
    let log = &json["admin"]["access_log"][0];
    assert_eq!(log["name"], "Consul Listener Filter Log");
    assert_eq!(
        log["typedConfig"]["@type"],
        "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"
    );
    let format = log["typedConfig"]["logFormat"]["jsonFormat"].as_object().unwrap();
    assert_eq!((format.len(), &format["user_agent"]), (24, &json!("%REQ(USER-AGENT)%")));

    options.access_logs =
        Some(AccessLogs::to_sink(AccessLogSink::Stderr).with_text_format("%METHOD%"));
    assert_eq!(
        value(&options)["admin"]["access_log"][0]["typedConfig"],
        json!({"@type": "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StderrAccessLog",
            "logFormat": {"textFormatSource": {"inlineString": "%METHOD%\n"}}})
    );

    let entry = json!({"Enabled": true, "Type": "file", "Path": "/log", "JSONFormat": "{\"b\": 1, \"a\": 2}"});
    options.access_logs = AccessLogs::from_config_entry(entry.as_object().unwrap()).unwrap();
    let text = render(&options);
    let places = ["FileAccessLog", "\"path\": \"/log\"", "\"logFormat\"", "\"b\": 1", "\"a\": 2"]
        .map(|it| text.find(it).unwrap());
    assert!(places.is_sorted(), "{places:?}");

    for (entry, problem) in [
        (json!({"Enabled": true, "Type": "x"}), "\"x\""),
        (json!({"Enabled": true, "JSONFormat": "[]"}), "not a JSON object"),
        (json!({"Enabled": true, "JSONFormat": "{"}), "not JSON"),
    ] {
        let error = AccessLogs::from_config_entry(entry.as_object().unwrap()).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
    assert_eq!(
        AccessLogs::from_config_entry(json!({"Enabled": false}).as_object().unwrap()).unwrap(),
        None
    );
}

/// Case MI46: `-admin-access-log-path` is used, with a warning that it is deprecated.
#[test]
fn the_admin_log_may_go_elsewhere() {
    let mut options = options();
    options.admin_access_log_path = "/some/path/access.log".into();
    let log = &value(&options)["admin"]["access_log"][0];
    assert_eq!(log["typed_config"]["path"], "/some/path/access.log");
}

#[test]
fn nodes_sockets_and_dataplanes() {
    let mut options = options();
    options.node_name = Some("node\"1".into());
    options.namespace = Some("ns".into());
    options.partition = Some(String::new());
    options.source_service = Some("source".into());
    options.omit_deprecated_tags = true;
    options.xds.cluster_name = "consul-dataplane".into();
    options.xds.address = XdsAddress::Unix("/var/run/consul.sock".into());
    let json = value(&options);
    assert_eq!(
        json["node"]["metadata"],
        json!({"node_name": "node\"1", "namespace": "ns", "partition": "default"})
    );
    let cluster = &json["static_resources"]["clusters"][0];
    assert_eq!(cluster["name"], "consul-dataplane");
    assert_eq!(
        cluster["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"],
        json!({"pipe": {"path": "/var/run/consul.sock"}})
    );
    assert_eq!(
        json["dynamic_resources"]["ads_config"]["grpc_services"]["envoy_grpc"]["cluster_name"],
        "consul-dataplane"
    );
    let tags = json["stats_config"]["stats_tags"].as_array().unwrap();
    assert_eq!(tags.len(), 16 + 5);
    assert_eq!(tags[17], json!({"tag_name": "consul.source.service", "fixed_value": "source"}));
}

#[test]
fn prometheus_tls_needs_all_of_its_files() {
    let flags = PrometheusTls::from_flags;
    assert_eq!(flags("", "", "", "").unwrap(), None);
    for (ca, cert, key) in [("", "c", "k"), ("a", "", "k"), ("a", "c", "")] {
        let error = flags(ca, "", cert, key).unwrap_err().to_string();
        assert_eq!(
            error,
            "Must provide a CA (-prometheus-ca-file or -prometheus-ca-path) as well as -prometheus-cert-file and \
             -prometheus-key-file to enable TLS for prometheus metrics"
        );
    }
    let mut tls = flags("", "/ca", "c", "k").unwrap().unwrap();
    tls.require_client_certificate = true;
    let mut options = options();
    options.prometheus_tls = Some(tls);
    options.settings = settings(&json!({"envoy_prometheus_bind_addr": "0.0.0.0:9000"}));
    let json = value(&options);
    assert_eq!(
        json["static_resources"]["secrets"][1]["validationContext"],
        json!({"watchedDirectory": {"path": "/ca"}})
    );
    let socket = &json["static_resources"]["listeners"][0]["filter_chains"][0]["transportSocket"];
    assert_eq!(socket["typedConfig"]["requireClientCertificate"], true);
}
