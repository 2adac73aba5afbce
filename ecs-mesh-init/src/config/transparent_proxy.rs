//! The `transparentProxy` object of the configuration.

use serde::Deserialize;

/// Redirection of the task's traffic through the proxy (current generation).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct TransparentProxyConfig {
    /// `true` to redirect traffic. Default `true`; gateways never do.
    pub enabled: bool,
    /// Ports whose incoming traffic bypasses the proxy.
    pub exclude_inbound_ports: Vec<u16>,
    /// Destination ports whose traffic bypasses the proxy.
    pub exclude_outbound_ports: Vec<u16>,
    /// Destination networks (CIDR) whose traffic bypasses the proxy.
    #[serde(rename = "excludeOutboundCIDRs")]
    pub exclude_outbound_cidrs: Vec<String>,
    /// Users (UIDs) whose outgoing traffic bypasses the proxy.
    #[serde(rename = "excludeUIDs")]
    pub exclude_uids: Vec<String>,
    /// Name resolution through Consul's DNS.
    #[serde(rename = "consulDNS")]
    pub consul_dns: ConsulDnsConfig,
}

impl Default for TransparentProxyConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            exclude_inbound_ports: Vec::new(),
            exclude_outbound_ports: Vec::new(),
            exclude_outbound_cidrs: Vec::new(),
            exclude_uids: Vec::new(),
            consul_dns: ConsulDnsConfig::default(),
        }
    }
}

/// Name resolution through Consul's DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ConsulDnsConfig {
    /// `true` to let the task's resolver ask Consul first. Default `false`.
    pub enabled: bool,
}
