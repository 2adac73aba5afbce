//! Static listeners for Prometheus, statistics and readiness, each of which exposes one path of
//! Envoy's admin interface and nothing else of it.

use super::{
    BootstrapOptions, HostPort,
    envoy_json::{admin_cluster, socket_address},
    prometheus_tls,
};
use crate::{
    Error, Result,
    json::{Json, object},
};

const SELF_ADMIN: &str = "self_admin";
const PROMETHEUS_BACKEND: &str = "prometheus_backend";

/// Static clusters and listeners gathered so far.
pub(super) struct Static {
    pub(super) clusters: Vec<Json>,
    pub(super) listeners: Vec<Json>,
}

impl Static {
    /// Adds a cluster unless one of its name exists: Envoy refuses to start with two.
    fn add_cluster(&mut self, name: &'static str, options: &BootstrapOptions, port: u16) {
        let known = |cluster: &Json| cluster.get("name").and_then(Json::as_str) == Some(name);
        if !self.clusters.iter().any(known) {
            self.clusters.push(admin_cluster(name, options.admin, port));
        }
    }
}

/// Listener that exposes one part of the admin interface.
struct Shown<'a> {
    name: &'static str,
    address: HostPort,
    /// Matcher (`path` or `prefix`) and its value.
    matched: (&'static str, &'a str),
    rewrite: &'static str,
    cluster: &'static str,
    transport_socket: Option<Json>,
}

/// Adds the listeners for metrics and readiness that the settings ask for.
pub(super) fn add(options: &BootstrapOptions, fixed: &mut Static) -> Result<()> {
    if let Some(address) = &options.settings.prometheus_bind_addr {
        // With a backend port, a program that merges its own metrics with Envoy's answers instead
        // of the admin interface.
        let (cluster, port) = match options.prometheus_backend_port {
            Some(port) => (PROMETHEUS_BACKEND, port),
            None => (SELF_ADMIN, options.admin.port()),
        };
        fixed.add_cluster(cluster, options, port);
        let shown = Shown {
            name: "envoy_prometheus_metrics",
            address: parse("envoy_prometheus_metrics", address)?,
            matched: ("path", &options.prometheus_scrape_path),
            rewrite: "/stats/prometheus",
            cluster,
            transport_socket: options.prometheus_tls.as_ref().map(prometheus_tls::transport_socket),
        };
        fixed.listeners.push(shown.listener());
    }
    if let Some(address) = &options.settings.stats_bind_addr {
        fixed.add_cluster(SELF_ADMIN, options, options.admin.port());
        let shown = Shown {
            name: "envoy_metrics",
            address: parse("envoy_metrics", address)?,
            matched: ("prefix", "/stats"),
            rewrite: "/stats",
            cluster: SELF_ADMIN,
            transport_socket: None,
        };
        fixed.listeners.push(shown.listener());
    }
    if let Some(address) = &options.ready {
        fixed.add_cluster(SELF_ADMIN, options, options.admin.port());
        let shown = Shown {
            name: "envoy_ready",
            address: address.clone(),
            matched: ("path", "/ready"),
            rewrite: "/ready",
            cluster: SELF_ADMIN,
            transport_socket: None,
        };
        fixed.listeners.push(shown.listener());
    }
    Ok(())
}

fn parse(name: &str, address: &str) -> Result<HostPort> {
    address.parse().map_err(|error| Error::input(format!("invalid {name} bind address: {error}")))
}

impl Shown<'_> {
    fn listener(self) -> Json {
        let (kind, value) = self.matched;
        let mut matched = object! {};
        matched.push(kind, value);
        let routes = vec![
            object! {
                "match" => matched,
                "route" => object! { "cluster" => self.cluster, "prefix_rewrite" => self.rewrite },
            },
            // Every other path is closed: the admin interface can also stop Envoy.
            object! {
                "match" => object! { "prefix" => "/" },
                "direct_response" => object! { "status" => 404_u16 },
            },
        ];
        let manager = object! {
            "@type" => "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix" => self.name,
            "codec_type" => "HTTP1",
            "route_config" => object! {
                "name" => "self_admin_route",
                "virtual_hosts" => vec![object! {
                    "name" => "self_admin",
                    "domains" => vec![Json::from("*")],
                    "routes" => routes,
                }],
            },
            "http_filters" => vec![object! {
                "name" => "envoy.filters.http.router",
                "typedConfig" => object! {
                    "@type" => "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                },
            }],
        };
        let chain = object! {
            "filters" => vec![object! {
                "name" => "envoy.filters.network.http_connection_manager",
                "typedConfig" => manager,
            }],
        }
        .with("transportSocket", self.transport_socket);
        object! {
            "name" => format!("{}_listener", self.name),
            "address" => socket_address(&self.address.host, self.address.port),
            "filter_chains" => vec![chain],
        }
    }
}
