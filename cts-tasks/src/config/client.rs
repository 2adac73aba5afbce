//! What the clients of Consul and of Vault have in common.

use std::{path::PathBuf, time::Duration};

use consul_watch::ClientConfig;

use super::{
    decode::{Findings, SignedDuration, Spanned},
    environment::Environment,
    raw::{RawTls, RawTransport},
};

/// TLS towards Consul, or towards Vault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsulTls {
    /// `true` if the server's certificate is checked; default true.
    pub verify: bool,
    /// Bundle of certificate authorities.
    pub ca_cert: Option<PathBuf>,
    /// Directory of certificate authorities.
    pub ca_path: Option<PathBuf>,
    /// Client certificate; without a `key` the file holds both.
    pub cert: Option<PathBuf>,
    /// The client certificate's key.
    pub key: Option<PathBuf>,
    /// Name to check the server's certificate against.
    pub server_name: Option<String>,
}

impl Default for ConsulTls {
    fn default() -> Self {
        Self {
            verify: true,
            ca_cert: None,
            ca_path: None,
            cert: None,
            key: None,
            server_name: None,
        }
    }
}

/// Timeouts and connection limits towards Consul, or towards Vault.
///
/// A zero means what it means in Go: no limit; for `dial_keep_alive` 15 s, and for
/// `max_idle_conns_per_host` two.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsulTransport {
    /// Interval of TCP keep-alive probes; default 30 s.
    pub dial_keep_alive: Duration,
    /// Limit for one connection attempt; default 30 s.
    pub dial_timeout: Duration,
    /// `true` if each request has a connection of its own; default false.
    pub disable_keep_alives: bool,
    /// Time after which an idle connection is closed; default 5 s.
    pub idle_conn_timeout: Duration,
    /// Idle connections in all; 0, the default, is unlimited.
    pub max_idle_conns: u32,
    /// Idle connections for each host; default 100.
    pub max_idle_conns_per_host: u32,
    /// Limit for one TLS handshake; default 10 s. A connection over TLS has this and
    /// `dial_timeout` together.
    pub tls_handshake_timeout: Duration,
}

impl ConsulTransport {
    /// Sets how a client makes and keeps its connections.
    ///
    /// Source: Go 1.22 `net/http` (`Transport`), `net` (`Dialer`).
    pub fn apply_to(&self, client: &mut ClientConfig) {
        const PROBES: Duration = Duration::from_secs(15);
        const IDLE_PER_HOST: u32 = 2;

        let limited = |limit: Duration| if limit.is_zero() { Duration::MAX } else { limit };
        client.connect_timeout = limited(self.dial_timeout);
        let kept = &mut client.connections;
        kept.keep_alive =
            Some(self.dial_keep_alive).map(|every| if every.is_zero() { PROBES } else { every });
        kept.reuse = !self.disable_keep_alives;
        kept.idle_timeout = Some(self.idle_conn_timeout).filter(|limit| !limit.is_zero());
        let per_host = match self.max_idle_conns_per_host {
            0 => IDLE_PER_HOST,
            most => most,
        };
        // There is one host.
        let all = if self.max_idle_conns == 0 { u32::MAX } else { self.max_idle_conns };
        kept.max_idle = usize::try_from(per_host.min(all)).ok();
        kept.tls_handshake_timeout = Some(limited(self.tls_handshake_timeout));
    }
}

impl Default for ConsulTransport {
    fn default() -> Self {
        Self {
            dial_keep_alive: Duration::from_secs(30),
            dial_timeout: Duration::from_secs(30),
            disable_keep_alives: false,
            idle_conn_timeout: Duration::from_secs(5),
            max_idle_conns: 0,
            max_idle_conns_per_host: 100,
            tls_handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// Overwrites a default with what is configured.
pub(super) fn set<T: Clone>(target: &mut T, configured: Option<&Spanned<T>>) {
    if let Some(configured) = configured {
        target.clone_from(&configured.value);
    }
}

/// A string that is configured and not empty.
pub(super) fn non_empty(configured: Option<&Spanned<String>>) -> Option<String> {
    configured.map(|text| text.value.clone()).filter(|text| !text.is_empty())
}

/// Names of the variables, after the product's prefix: bundle, directory,
/// certificate, key, server name.
const TLS_VARIABLES: [&str; 5] =
    ["CACERT", "CAPATH", "CLIENT_CERT", "CLIENT_KEY", "TLS_SERVER_NAME"];

/// Returns `true` if the block turns TLS on: any key in it does, the environment
/// does not.
pub(super) fn is_tls_enabled(raw: &RawTls) -> bool {
    let given = raw.verify.is_some()
        || [&raw.ca_cert, &raw.ca_path, &raw.cert, &raw.key, &raw.server_name]
            .into_iter()
            .any(Option::is_some);
    raw.enabled.as_ref().map_or(given, |enabled| enabled.value)
}

/// Fills a client's TLS settings from the block and the environment.
pub(super) fn finalize_tls(raw: &RawTls, prefix: &str, environment: &Environment) -> ConsulTls {
    let [bundle, directory, cert, key, name] =
        TLS_VARIABLES.map(|variable| environment.variable(&format!("{prefix}{variable}")));
    let choose = |configured: &Option<Spanned<String>>, variable: Option<String>| match configured {
        Some(configured) => non_empty(Some(configured)),
        None => variable,
    };
    ConsulTls {
        verify: raw.verify.as_ref().is_none_or(|verify| verify.value),
        ca_cert: choose(&raw.ca_cert, bundle).map(PathBuf::from),
        ca_path: choose(&raw.ca_path, directory).map(PathBuf::from),
        cert: choose(&raw.cert, cert).map(PathBuf::from),
        key: choose(&raw.key, key).map(PathBuf::from),
        server_name: choose(&raw.server_name, name),
    }
}

/// Checks timeouts and limits.
pub(super) fn finalize_transport(
    raw: &RawTransport,
    path: &str,
    findings: &mut Findings,
) -> ConsulTransport {
    let mut transport = ConsulTransport::default();
    for (key, target, configured) in [
        ("dial_keep_alive", &mut transport.dial_keep_alive, &raw.dial_keep_alive),
        ("dial_timeout", &mut transport.dial_timeout, &raw.dial_timeout),
        ("idle_conn_timeout", &mut transport.idle_conn_timeout, &raw.idle_conn_timeout),
        ("tls_handshake_timeout", &mut transport.tls_handshake_timeout, &raw.tls_handshake_timeout),
    ] {
        match configured.as_ref().map(|configured| (configured.value, &configured.place)) {
            Some((SignedDuration::Positive(length), _)) => *target = length,
            Some((SignedDuration::Negative, place)) => {
                findings.error(format!("{path}.{key}: cannot be negative"), place.clone());
            }
            None => {}
        }
    }
    for (key, target, configured) in [
        ("max_idle_conns", &mut transport.max_idle_conns, &raw.max_idle_conns),
        (
            "max_idle_conns_per_host",
            &mut transport.max_idle_conns_per_host,
            &raw.max_idle_conns_per_host,
        ),
    ] {
        let Some(configured) = configured else { continue };
        match u32::try_from(configured.value) {
            Ok(limit) => *target = limit,
            Err(_out_of_range) => findings.error(
                format!("{path}.{key}: expected a number from 0 to {}", u32::MAX),
                configured.place.clone(),
            ),
        }
    }
    set(&mut transport.disable_keep_alives, raw.disable_keep_alives.as_ref());
    transport
}
