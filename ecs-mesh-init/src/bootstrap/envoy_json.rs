//! The small pieces of Envoy's configuration that several parts of the bootstrap document consist of.

use std::net::SocketAddr;

use crate::json::{Json, object};

/// Builds `socket_address` from an IP address or DNS name.
pub(super) fn socket_address(host: &str, port: u16) -> Json {
    object! { "socket_address" => object! { "address" => host, "port_value" => port } }
}

/// Builds `pipe` from a socket's path.
pub(super) fn pipe(path: &str) -> Json {
    object! { "pipe" => object! { "path" => path } }
}

/// Builds the HTTP options of a cluster that speaks exactly one version.
pub(super) fn http_protocol(version: &'static str) -> Json {
    let mut explicit = object! {};
    explicit.push(version, object! {});
    object! {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions" => object! {
            "@type" => "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config" => explicit,
        },
    }
}

/// Builds the load assignment of a cluster with one address.
pub(super) fn endpoints(cluster: &str, address: Json) -> Json {
    object! {
        "clusterName" => cluster,
        "endpoints" => vec![object! {
            "lbEndpoints" => vec![object! { "endpoint" => object! { "address" => address } }],
        }],
    }
}

/// Builds a cluster that reaches the admin interface, or a program beside it.
pub(super) fn admin_cluster(name: &'static str, admin: SocketAddr, port: u16) -> Json {
    object! {
        "name" => name,
        "ignore_health_on_host_removal" => false,
        "connect_timeout" => "5s",
        "type" => "STATIC",
        "typed_extension_protocol_options" => http_protocol("http_protocol_options"),
        "loadAssignment" => endpoints(name, socket_address(&admin.ip().to_string(), port)),
    }
}
