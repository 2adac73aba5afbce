//! Where and how a server listens.

use std::time::Duration;

use crate::{server_tls::ServerTls, wire};

/// Address, certificates and limits of a server.
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
    /// Upper bound of the calls and watches of one connection at a time; 2048 by
    /// default.
    pub max_streams_per_connection: u32,
    /// Time limit of a call, or of the beginning of a watch; one minute by default.
    /// What takes longer ends with `CANCELLED`.
    pub request_timeout: Duration,
    /// Interval at which an idle connection is checked; 30 seconds by default.
    pub keepalive_interval: Duration,
    /// Time limit of the answer to that, before the connection ends; 20
    /// seconds by default.
    pub keepalive_timeout: Duration,
    /// Number of connections at a time; 4096 by default. Beyond it, a new one
    /// takes the place of one that has said nothing yet or has no call under
    /// way, and is ended if there is none. Each takes a descriptor of the process.
    pub max_connections: usize,
    /// Number of connections at a time of one address, or of one IPv6 network of
    /// 64 bits; 1024 by default. Beyond it as with `max_connections`, among those
    /// of the address.
    pub max_connections_per_address: usize,
    /// Time limit of a new connection for TLS, and then the preface of HTTP/2 or
    /// the head of a request of HTTP/1; 10 seconds by default.
    pub handshake_timeout: Duration,
    /// Time for which a connection may have no call and no watch under way before
    /// it ends; 5 minutes by default.
    pub idle_timeout: Duration,
    /// Time for which a client may take no byte of what is sent to it before its
    /// connection ends; 1 minute by default.
    pub write_timeout: Duration,
    /// Upper bound of the bytes that the bodies of all requests under way take;
    /// 256 MiB by default, of which one address gets a quarter. Beyond it a call
    /// ends with `RESOURCE_EXHAUSTED`.
    pub max_body_memory: usize,
    /// Number of watches at a time, over all connections; 50,000 by default.
    /// Beyond it a watch is refused with `RESOURCE_EXHAUSTED`.
    pub max_watches: usize,
    /// Interval between two looks whether the store can be used, which health
    /// follows; 1 second by default. A look that takes three times that long
    /// counts as failed.
    pub health_interval: Duration,
    /// Serves beyond this machine's own addresses also without TLS, or with
    /// everything allowed to everybody; `false` by default.
    pub allow_insecure: bool,
    /// Time for which calls may go on after the server was stopped; 10 seconds by
    /// default.
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
            max_connections_per_address: 1024,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(5),
            write_timeout: Duration::from_mins(1),
            max_body_memory: 256 << 20,
            max_watches: 50_000,
            health_interval: Duration::from_secs(1),
            allow_insecure: false,
            drain_timeout: Duration::from_secs(10),
        }
    }
}
