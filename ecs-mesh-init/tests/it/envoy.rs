//! A real Envoy accepts what is generated for it.

use std::{path::Path, process::Stdio};

use consul_watch::testing::parts::Suite;
use ecs_mesh_init::bootstrap::{
    AccessLogSink, AccessLogs, BootstrapOptions, HostPort, PrometheusTls, ProxySettings, XdsAddress,
};
use serde_json::{Value, json};
use tokio::process::Command;

const SUITE: Suite = Suite("ecs-mesh-init with Envoy");

fn options(config: &Value) -> BootstrapOptions {
    let mut options = BootstrapOptions::new("test-proxy", "test");
    options.datacenter = Some("dc1".into());
    options.settings = ProxySettings::from_config(config.as_object().unwrap()).unwrap();
    options
}

/// A certificate of its own authority with its key, which Consul makes.
async fn certificate(consul: &Path, folder: &Path) {
    let made = Command::new(consul)
        .args(["tls", "ca", "create"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .status()
        .await
        .unwrap();
    assert!(made.success());
    for (made, name) in
        [("consul-agent-ca.pem", "cert.pem"), ("consul-agent-ca-key.pem", "key.pem")]
    {
        std::fs::rename(folder.join(made), folder.join(name)).unwrap();
    }
}

/// Every feature, and all that may go together.
fn cases(folder: &Path) -> Vec<(&'static str, BootstrapOptions)> {
    let cert = folder.join("cert.pem").display().to_string();
    let key = folder.join("key.pem").display().to_string();
    let pem = std::fs::read_to_string(&cert).unwrap();
    let mut cases = vec![("defaults", options(&json!({})))];

    let mut backend = options(&json!({"envoy_prometheus_bind_addr": "0.0.0.0:9000"}));
    backend.prometheus_backend_port = Some(20100);
    backend.prometheus_scrape_path = "/scrape-path".into();
    for (name, file, path) in [
        ("Prometheus TLS", cert.as_str(), ""),
        ("Prometheus TLS folder", "", folder.to_str().unwrap()),
    ] {
        let mut tls = backend.clone();
        tls.prometheus_tls = PrometheusTls::from_flags(file, path, &cert, &key).unwrap();
        cases.push((name, tls.clone()));
        if let Some(settings) = &mut tls.prometheus_tls {
            settings.require_client_certificate = true;
        }
        cases.push(("Prometheus TLS with client certificates", tls));
    }

    let mut grpc = options(&json!({"envoy_prometheus_bind_addr": "0.0.0.0:9102"}));
    grpc.xds.tls = true;
    grpc.xds.ca_pem = pem;
    grpc.xds.token = Some("c9a52720-bf6c-4aa6-b8bc-66881a5ade95".into());
    cases.push(("gRPC TLS", grpc));

    let mut socket = options(&json!({}));
    socket.xds.address = XdsAddress::Unix("/var/run/consul.sock".into());
    socket.node_name = Some("node".into());
    socket.omit_deprecated_tags = true;
    cases.push(("socket", socket));

    let mut all = options(&json!({
        "envoy_statsd_url": "udp://127.0.0.1:9125", "envoy_dogstatsd_url": "udp://127.0.0.1:9126",
        "envoy_telemetry_collector_bind_socket_dir": "/tmp", "envoy_stats_tags": ["env=prod", "canary"],
        "envoy_stats_flush_interval": "10s", "envoy_prometheus_bind_addr": "127.0.0.1:9000",
        "envoy_stats_bind_addr": "127.0.0.1:9001",
    }));
    all.ready = Some(HostPort::new("127.0.0.1", 22000));
    cases.push(("all listeners and sinks", all));

    for (name, logs) in [
        ("logs to stdout", AccessLogs::default()),
        (
            "logs to stderr",
            AccessLogs::to_sink(AccessLogSink::Stderr).with_text_format("%START_TIME%"),
        ),
        ("logs to a file", AccessLogs::to_sink(AccessLogSink::File("/dev/null".into()))),
    ] {
        let mut logged = options(&json!({}));
        logged.access_logs = Some(logs);
        cases.push((name, logged));
    }
    cases
}

#[tokio::test]
async fn a_real_envoy_accepts_every_document() {
    let Some(part) = SUITE.part("envoy", "every bootstrap document is valid") else { return };
    let Some(consul) = SUITE.part("consul", "every bootstrap document is valid") else { return };
    let folder = tempfile::tempdir().unwrap();
    certificate(&consul.path, folder.path()).await;
    for (name, options) in cases(folder.path()) {
        let file = folder.path().join("bootstrap.json");
        std::fs::write(&file, options.render(&|_| None).unwrap().to_text()).unwrap();
        let output = Command::new(&part.path)
            .args(["--mode", "validate", "--disable-hot-restart", "--config-path"])
            .arg(&file)
            .output()
            .await
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {printed}");
    }
}
