//! Where and how a server listens.

use std::time::Duration;

use secrecy::SecretString;

use crate::wire;

/// Where and how a server listens, and the limits of what clients may take.
///
/// Source: limits of `agent/grpc-external`, Consul 1.21.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The address to listen at; `127.0.0.1:8502` by default. Port 0 takes any
    /// that is free.
    pub address: String,
    /// Certificates; none by default, which means plain text.
    pub tls: Option<ServerTls>,
    /// The largest message or body that is received; 50 MiB by default.
    pub max_message_bytes: usize,
    /// How many calls and watches one connection may have at a time; 2048 by
    /// default.
    pub max_streams_per_connection: u32,
    /// How long a call, or the beginning of a watch, may take; one minute by
    /// default. What takes longer ends with `CANCELLED`.
    pub request_timeout: Duration,
    /// How often an idle connection is checked; 30 seconds by default.
    pub keepalive_interval: Duration,
    /// How long the answer to that may take, before the connection ends; 20
    /// seconds by default.
    pub keepalive_timeout: Duration,
    /// Number of connections at a time; 4096 by default. Beyond it, a new one
    /// takes the place of the oldest that has not said anything yet, or is
    /// ended. Each takes a descriptor of the process.
    pub max_connections: usize,
    /// How long a new connection has for TLS and its first 24 bytes; 10 seconds
    /// by default.
    pub handshake_timeout: Duration,
    /// Number of watches at a time, over all connections; 50,000 by default.
    /// Beyond it a watch is refused with `RESOURCE_EXHAUSTED`.
    pub max_watches: usize,
    /// Serves beyond this machine's own addresses also without TLS, or with
    /// everything allowed to everybody; `false` by default.
    pub allow_insecure: bool,
    /// How long calls may go on after the server was told to stop; 10 seconds
    /// by default.
    pub drain_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8502".to_owned(),
            tls: None,
            max_message_bytes: wire::MAX_MESSAGE,
            max_streams_per_connection: 2048,
            request_timeout: Duration::from_mins(1),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(20),
            max_connections: 4096,
            handshake_timeout: Duration::from_secs(10),
            max_watches: 50_000,
            allow_insecure: false,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// The certificates of a server, in PEM.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerTls {
    /// The server's certificate, followed by those between it and the root.
    pub certificate_pem: String,
    /// The server's key.
    pub key_pem: SecretString,
    /// The certificates that sign those of clients. With them, a client
    /// without a certificate is refused.
    pub client_ca_pem: Option<String>,
}

impl ServerTls {
    /// A certificate and its key; clients need none.
    pub fn new(certificate_pem: String, key_pem: SecretString) -> Self {
        Self { certificate_pem, key_pem, client_ca_pem: None }
    }
}
