use serde::Deserialize;

/// Redirection of the task's traffic through the proxy (current generation).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct TransparentProxyConfig {
    /// Whether traffic is redirected. Default true; gateways never do.
    pub enabled: bool,
    /// Ports whose incoming traffic goes straight to the application.
    pub exclude_inbound_ports: Vec<u16>,
    /// Ports to which outgoing traffic goes straight.
    pub exclude_outbound_ports: Vec<u16>,
    /// Networks to which outgoing traffic goes straight.
    #[serde(rename = "excludeOutboundCIDRs")]
    pub exclude_outbound_cidrs: Vec<String>,
    /// Users whose outgoing traffic goes straight.
    #[serde(rename = "excludeUIDs")]
    pub exclude_uids: Vec<String>,
    /// Names of services by DNS.
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

/// Names of services by DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ConsulDnsConfig {
    /// Whether the task's resolver asks Consul first. Default false.
    pub enabled: bool,
}
