//! How to reach and use an etcd.

use std::time::Duration;

use secrecy::SecretString;

/// Connection settings of an etcd, and the keys under which resources are kept
/// there.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EtcdConfig {
    /// The client addresses of members: `http://host:port`, `https://host:port`
    /// for TLS, or `host:port`. One is used at a time, the next one when it
    /// fails.
    pub endpoints: Vec<String>,
    /// Prefix of every key; `resource-store/` by default. Stores with different
    /// prefixes, of which none begins with another, are apart.
    pub prefix: String,
    /// User to log in as, where etcd asks for one; nobody by default.
    pub user: Option<EtcdUser>,
    /// Certificates, for endpoints with `https`.
    pub tls: EtcdTls,
    /// Time limit of connecting to one endpoint; 2 seconds by default.
    pub connect_timeout: Duration,
    /// Time limit of one endpoint's answer, after which the next is asked; 3
    /// seconds by default.
    pub attempt_timeout: Duration,
    /// Time limit of an operation with all its attempts; 10 seconds by default.
    pub timeout: Duration,
    /// By how many changes the watchers of one kind, or of one kind in one
    /// tenancy, may fall behind before they have to start again; 8192 by
    /// default.
    pub watch_buffer: usize,
}

impl EtcdConfig {
    /// Reaches etcd at these endpoints.
    pub fn new<I, E>(endpoints: I) -> Self
    where
        I: IntoIterator<Item = E>,
        E: Into<String>,
    {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "resource-store/".to_owned(),
            user: None,
            tls: EtcdTls::default(),
            connect_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            watch_buffer: 8192,
        }
    }
}

/// A user of etcd. It needs to read and write everything below the prefix.
#[derive(Debug, Clone)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: SecretString,
}

/// Certificates for an etcd that is reached over TLS, in PEM.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct EtcdTls {
    /// The certificates that may sign those of the members. Without them no
    /// member is trusted.
    pub ca_pem: Option<String>,
    /// The name in the members' certificates, if it is not the host of their
    /// endpoints.
    pub server_name: Option<String>,
    /// A certificate and its key, for an etcd that asks clients for one.
    pub identity_pem: Option<(String, SecretString)>,
}
