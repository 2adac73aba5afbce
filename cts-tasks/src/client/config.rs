//! Settings of the client: address, certificates, token.

use std::{path::PathBuf, time::Duration};

use secrecy::SecretString;

/// Connection settings of a [`Client`](crate::client::Client): address, timeouts,
/// TLS and token. `Debug` shows no secret.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// `http://host[:port]`, `https://host[:port]`, or `unix:///path` of a
    /// socket that a proxy listens on. Default `http://localhost:8558`.
    pub address: String,
    /// Trusted authorities and the client's certificate, for https addresses.
    pub tls: TlsConfig,
    /// Sent as a bearer token. Default none.
    pub token: Option<SecretString>,
    /// The longest time to connect. Default 30 s.
    pub connect_timeout: Duration,
    /// The longest time to an answer. Default none, because a request that
    /// creates or runs a task is answered when that is done.
    pub request_timeout: Option<Duration>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            address: "http://localhost:8558".to_owned(),
            tls: TlsConfig::default(),
            token: None,
            connect_timeout: Duration::from_secs(30),
            request_timeout: None,
        }
    }
}

/// TLS settings of a [`ClientConfig`]; all files are PEM.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TlsConfig {
    /// Bundle of accepted authorities, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Folder of such files, used when `ca_file` is not set.
    pub ca_path: Option<PathBuf>,
    /// Certificate that this client shows; needs `client_key`.
    pub client_cert: Option<PathBuf>,
    /// Key of `client_cert`.
    pub client_key: Option<PathBuf>,
    /// DNS name that the server's certificate must have, instead of the address's host.
    pub server_name: Option<String>,
    /// `true` if the server's certificate is checked. Default true.
    pub verify: bool,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            ca_file: None,
            ca_path: None,
            client_cert: None,
            client_key: None,
            server_name: None,
            verify: true,
        }
    }
}
