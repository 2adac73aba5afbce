//! Inputs of a bootstrap document, with upstream's defaults.

use std::{net::SocketAddr, path::PathBuf};

use secrecy::SecretString;

use super::{AccessLogs, HostPort, PrometheusTls, ProxySettings};

/// Inputs of a bootstrap document.
///
/// ```
/// use ecs_mesh_init::bootstrap::BootstrapOptions;
///
/// let mut options = BootstrapOptions::new("web-1-sidecar-proxy", "web");
/// options.datacenter = Some("dc1".into());
/// let bootstrap = options.render(&|_variable| None)?;
/// assert!(bootstrap.to_text().starts_with("{\n  \"admin\": {"));
/// # Ok::<(), ecs_mesh_init::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BootstrapOptions {
    /// Id of the proxy, which becomes Envoy's node id.
    pub proxy_id: String,
    /// Name of Envoy's cluster: the service that the proxy stands before, or the gateway's name.
    pub cluster: String,
    /// Value of the tag that names the source service. Default: `cluster`.
    pub source_service: Option<String>,
    /// Name of the node that the proxy is registered on, when Consul cannot know it.
    pub node_name: Option<String>,
    /// Enterprise namespace; `None` is `default`.
    pub namespace: Option<String>,
    /// Enterprise partition; `None` is `default`.
    pub partition: Option<String>,
    /// Datacenter, for the tag that names it.
    pub datacenter: Option<String>,
    /// Listen address of Envoy's admin interface. Default `127.0.0.1:19000`.
    pub admin: SocketAddr,
    /// Access log file of the admin interface. Default `/dev/null`.
    pub admin_access_log_path: String,
    /// Access logs from `proxy-defaults`; when set they replace `admin_access_log_path`.
    pub access_logs: Option<AccessLogs>,
    /// Connection to the control plane.
    pub xds: XdsOptions,
    /// Port of a program that adds its metrics to Envoy's, instead of the admin interface.
    pub prometheus_backend_port: Option<u16>,
    /// Path that Prometheus asks for. Default `/metrics`.
    pub prometheus_scrape_path: String,
    /// TLS for Prometheus.
    pub prometheus_tls: Option<PrometheusTls>,
    /// Listen address of the readiness endpoint `/ready`; `None` for no such listener.
    pub ready: Option<HostPort>,
    /// `true` to leave out the statistics tags of older versions. Default `false`.
    pub omit_deprecated_tags: bool,
    /// Settings from the proxy's opaque `Config`.
    pub settings: ProxySettings,
}

/// Connection over which Envoy gets its configuration (xDS).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct XdsOptions {
    /// Name of the cluster in Envoy. Default `local_agent`; consul-dataplane uses its own name.
    pub cluster_name: String,
    /// Address. Default `127.0.0.1:8502`.
    pub address: XdsAddress,
    /// `true` to use TLS. Default `false`.
    pub tls: bool,
    /// PEM certificates of accepted authorities, when TLS is used.
    pub ca_pem: String,
    /// ACL token, sent as metadata `x-consul-token`.
    pub token: Option<SecretString>,
}

impl Default for XdsOptions {
    fn default() -> Self {
        Self {
            cluster_name: "local_agent".to_owned(),
            address: XdsAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 8502))),
            tls: false,
            ca_pem: String::new(),
            token: None,
        }
    }
}

/// An address that Envoy can connect to without a resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XdsAddress {
    /// IP address and port.
    Tcp(SocketAddr),
    /// Path of a Unix domain socket.
    Unix(PathBuf),
}

impl BootstrapOptions {
    /// Creates the options of one proxy, with upstream's defaults.
    pub fn new(proxy_id: impl Into<String>, cluster: impl Into<String>) -> Self {
        Self {
            proxy_id: proxy_id.into(),
            cluster: cluster.into(),
            source_service: None,
            node_name: None,
            namespace: None,
            partition: None,
            datacenter: None,
            admin: SocketAddr::from(([127, 0, 0, 1], 19000)),
            admin_access_log_path: "/dev/null".to_owned(),
            access_logs: None,
            xds: XdsOptions::default(),
            prometheus_backend_port: None,
            prometheus_scrape_path: "/metrics".to_owned(),
            prometheus_tls: None,
            ready: None,
            omit_deprecated_tags: false,
            settings: ProxySettings::default(),
        }
    }

    pub(super) fn namespace(&self) -> &str {
        non_empty(self.namespace.as_deref()).unwrap_or("default")
    }

    pub(super) fn partition(&self) -> &str {
        non_empty(self.partition.as_deref()).unwrap_or("default")
    }

    pub(super) fn source_service(&self) -> &str {
        self.source_service.as_deref().unwrap_or(&self.cluster)
    }
}

pub(super) fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}
