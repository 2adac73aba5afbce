//! The `consulServers` object of the configuration, and the TLS settings that follow from it for
//! each protocol.

use serde::{Deserialize, Deserializer};

use super::default_value::or_default;

/// Addresses and TLS settings of the Consul servers (current generation).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ServersConfig {
    /// An IP address, a DNS name, or `exec=<command>` that prints addresses.
    pub hosts: String,
    /// `true` not to follow changes among the servers. Default `false`.
    pub skip_server_watch: bool,
    /// TLS settings for both protocols.
    pub defaults: TlsDefaults,
    /// Settings for gRPC, over `defaults`.
    pub grpc: GrpcConfig,
    /// Settings for HTTP, over `defaults`.
    pub http: HttpConfig,
}

/// TLS settings of both protocols.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct TlsDefaults {
    /// PEM file of the servers' authority.
    pub ca_cert_file: String,
    /// `true` to use TLS. Default `true`.
    pub tls: bool,
    /// Name that the servers' certificate must have; empty takes `hosts`.
    pub tls_server_name: String,
}

impl Default for TlsDefaults {
    fn default() -> Self {
        Self { ca_cert_file: String::new(), tls: true, tls_server_name: String::new() }
    }
}

/// Settings for gRPC.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct GrpcConfig {
    /// Port. Default 8503.
    #[serde(deserialize_with = "grpc_port")]
    pub port: u16,
    /// PEM file of the authority, over `defaults`; empty keeps the default.
    pub ca_cert_file: String,
    /// Use of TLS, over `defaults`; `None` keeps the default.
    pub tls: Option<bool>,
    /// Name in the certificate, over `defaults`; empty keeps the default.
    pub tls_server_name: String,
}

impl Default for GrpcConfig {
    fn default() -> Self {
        Self { port: 8503, ca_cert_file: String::new(), tls: None, tls_server_name: String::new() }
    }
}

/// Settings for HTTP. A key `tls` is accepted without effect: only `https` selects TLS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct HttpConfig {
    /// Port. Default 8501.
    #[serde(deserialize_with = "http_port")]
    pub port: u16,
    /// `true` to use TLS. Default `true`.
    pub https: bool,
    /// PEM file of the authority, over `defaults`; empty keeps the default.
    pub ca_cert_file: String,
    /// Name in the certificate, over `defaults`; empty keeps the default.
    pub tls_server_name: String,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            port: 8501,
            https: true,
            ca_cert_file: String::new(),
            tls_server_name: String::new(),
        }
    }
}

/// Effective TLS settings of one protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// `true` to use TLS.
    pub enabled: bool,
    /// PEM file of the servers' authority; empty for the system's.
    pub ca_cert_file: String,
    /// Name that the certificate must have; empty when the address decides.
    pub server_name: String,
}

impl ServersConfig {
    /// Returns the effective TLS settings for gRPC.
    pub fn grpc_tls(&self) -> TlsSettings {
        TlsSettings {
            enabled: self.grpc.tls.unwrap_or(self.defaults.tls),
            ca_cert_file: either(&self.grpc.ca_cert_file, &self.defaults.ca_cert_file),
            server_name: self.server_name(&self.grpc.tls_server_name),
        }
    }

    /// Returns the effective TLS settings for HTTP.
    pub fn http_tls(&self) -> TlsSettings {
        TlsSettings {
            enabled: self.http.https,
            ca_cert_file: either(&self.http.ca_cert_file, &self.defaults.ca_cert_file),
            server_name: self.server_name(&self.http.tls_server_name),
        }
    }

    fn server_name(&self, own: &str) -> String {
        let configured = either(own, &self.defaults.tls_server_name);
        // A command prints addresses, which differ from server to server: there is no one name to
        // verify.
        if configured.is_empty() && !self.hosts.starts_with("exec=") {
            return self.hosts.clone();
        }
        configured
    }
}

fn either(own: &str, default: &str) -> String {
    if own.is_empty() { default } else { own }.to_owned()
}

fn grpc_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    or_default(deserializer, |port: &u16| *port == 0, || 8503)
}

fn http_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    or_default(deserializer, |port: &u16| *port == 0, || 8501)
}
