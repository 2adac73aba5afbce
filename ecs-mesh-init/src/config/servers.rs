use serde::{Deserialize, Deserializer};

use super::or_default;

/// The Consul servers, for the current generation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ServersConfig {
    /// An IP address, a DNS name, or `exec=<command>` that prints addresses.
    pub hosts: String,
    /// Whether changes among the servers are not followed. Default false.
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
    /// Whether TLS is used. Default true.
    pub tls: bool,
    /// Name that the servers' certificate must have; empty is `hosts`.
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
    /// Instead of the default authority.
    pub ca_cert_file: String,
    /// Instead of the default choice.
    pub tls: Option<bool>,
    /// Instead of the default name.
    pub tls_server_name: String,
}

impl Default for GrpcConfig {
    fn default() -> Self {
        Self { port: 8503, ca_cert_file: String::new(), tls: None, tls_server_name: String::new() }
    }
}

/// Settings for HTTP. A key `tls` is accepted and has no effect: only `https` counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct HttpConfig {
    /// Port. Default 8501.
    #[serde(deserialize_with = "http_port")]
    pub port: u16,
    /// Whether TLS is used. Default true.
    pub https: bool,
    /// Instead of the default authority.
    pub ca_cert_file: String,
    /// Instead of the default name.
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

/// What holds for one protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// Whether TLS is used.
    pub enabled: bool,
    /// PEM file of the servers' authority; empty is the system's.
    pub ca_cert_file: String,
    /// Name that the certificate must have; empty when it follows from the address.
    pub server_name: String,
}

impl ServersConfig {
    /// TLS for gRPC.
    pub fn grpc_tls(&self) -> TlsSettings {
        TlsSettings {
            enabled: self.grpc.tls.unwrap_or(self.defaults.tls),
            ca_cert_file: either(&self.grpc.ca_cert_file, &self.defaults.ca_cert_file),
            server_name: self.server_name(&self.grpc.tls_server_name),
        }
    }

    /// TLS for HTTP.
    pub fn http_tls(&self) -> TlsSettings {
        TlsSettings {
            enabled: self.http.https,
            ca_cert_file: either(&self.http.ca_cert_file, &self.defaults.ca_cert_file),
            server_name: self.server_name(&self.http.tls_server_name),
        }
    }

    fn server_name(&self, own: &str) -> String {
        let configured = either(own, &self.defaults.tls_server_name);
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
