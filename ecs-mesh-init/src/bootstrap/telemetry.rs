//! Sink and cluster of Consul's telemetry collector, which receives a proxy's metrics over a socket
//! whose name both sides derive from the proxy's id.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{
    envoy_json::{endpoints, http_protocol, pipe},
    sha1,
};
use crate::json::{Json, object};

// Upstream's name of the cluster.
const CLUSTER: &str = "consul_telemetry_collector_loopback";

/// Returns the path of the socket on which Consul collects the metrics of one proxy.
pub(super) fn socket_path(folder: &str, namespace: &str, proxy_id: &str) -> String {
    // Hashed, since ids are long and the address of a Unix socket has room for about 100 bytes.
    let id = format!("{namespace}_{proxy_id}");
    let name = URL_SAFE_NO_PAD.encode(sha1::digest(id.as_bytes()));
    format!("{}/{name}.sock", folder.trim_end_matches('/'))
}

pub(super) fn sink() -> Json {
    object! {
        "name" => "envoy.stat_sinks.metrics_service",
        "typed_config" => object! {
            "@type" => "type.googleapis.com/envoy.config.metrics.v3.MetricsServiceConfig",
            "transport_api_version" => "V3",
            "grpc_service" => object! { "envoy_grpc" => object! { "cluster_name" => CLUSTER } },
            "emit_tags_as_labels" => true,
        },
    }
}

pub(super) fn cluster(path: &str) -> Json {
    object! {
        "name" => CLUSTER,
        "type" => "STATIC",
        "typed_extension_protocol_options" => http_protocol("http2_protocol_options"),
        "loadAssignment" => endpoints(CLUSTER, pipe(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_named_after_namespace_and_proxy() {
        assert_eq!(
            socket_path("/tmp/consul/telemetry-collector", "default", "test-proxy"),
            "/tmp/consul/telemetry-collector/k3bWnyJyKvjUYXrBdOX2nXzSSCQ.sock"
        );
    }
}
