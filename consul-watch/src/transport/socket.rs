use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header::CONNECTION};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};

use crate::{
    Error, Result,
    client::{ClientConfig, endpoint::Endpoint},
    error_chain,
    transport::{ExchangeLimits, Transport, TransportError, pool::Pool, tls},
};

/// Interval of HTTP/2's pings.
const PING: Duration = Duration::from_secs(30);
/// How long a server may take to answer a ping of HTTP/2.
const PING_LIMIT: Duration = Duration::from_secs(10);
pub(super) const AGENT: &str = concat!("consul-watch/", env!("CARGO_PKG_VERSION"));

/// The [`Transport`] over TCP, TLS or a unix socket.
///
/// TLS is rustls with the process's default provider, else aws-lc. With authorities of the
/// configuration's own, a server is accepted whose certificate chains to one of them, or is
/// itself among them, as in Go; its RSA keys have 2,048 bits at least. Over TLS
/// HTTP/2 is used where the server offers it, as Consul does: then one
/// connection carries all requests, up to the 250 at a time that Consul allows. The system's proxy settings
/// apply, except to loopback addresses. Connections are kept for the next requests,
/// so keep one transport (one [`Client`](crate::Client)) for each Consul.
///
/// Over plain HTTP without a proxy there are never more connections than there were
/// exchanges at the same time, and an exchange that has ended has its connection
/// back, so that the next one finds it. An idle one is closed within one and a half times
/// [`ConnectionConfig::idle_timeout`](crate::client::ConnectionConfig::idle_timeout).
#[derive(Debug, Clone)]
pub struct SocketTransport {
    wire: Wire,
}

/// Who has the connections.
#[derive(Debug, Clone)]
enum Wire {
    Plain(Arc<Pool>),
    /// Over TLS, where one connection carries all, and through proxies.
    Other(reqwest::Client),
}

impl SocketTransport {
    /// Reads certificates and sets up the pool; connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an address or TLS files that cannot be used.
    pub fn new(config: &ClientConfig) -> Result<Self> {
        let endpoint = Endpoint::parse(config)?;
        if endpoint.scheme == "http" && is_direct(&endpoint) {
            let pool = Arc::new(Pool::new(config, endpoint.unix_socket));
            return Ok(Self { wire: Wire::Plain(pool) });
        }
        let kept = config.connections;
        let handshake = kept.tls_handshake_timeout.filter(|_| endpoint.scheme == "https");
        let mut builder = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(config.connect_timeout.saturating_add(handshake.unwrap_or_default()))
            .tcp_keepalive(kept.keep_alive)
            .pool_idle_timeout(kept.idle_timeout)
            .pool_max_idle_per_host(if kept.reuse {
                kept.max_idle.unwrap_or(usize::MAX)
            } else {
                0
            })
            // A lost HTTP/2 connection would take all its streams along in silence.
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING_LIMIT)
            .user_agent(AGENT);
        if endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        if !kept.reuse {
            // One connection of HTTP/2 would carry all requests at a time.
            let close = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("close"))]);
            builder = builder.http1_only().default_headers(close);
        }
        if endpoint.scheme == "https" {
            builder = tls::configure(builder, &config.tls)?;
            if let Some(target) = endpoint.connect_to {
                builder = builder.no_proxy().dns_resolver(Redirected { host: target });
            }
        }
        let http = builder.build().map_err(|error| Error::config("tls", error_chain(&error)))?;
        Ok(Self { wire: Wire::Other(http) })
    }
}

/// Whether no proxy stands between.
fn is_direct(endpoint: &Endpoint) -> bool {
    let proxied = |uri: http::Uri| Matcher::from_system().intercept(&uri).is_some();
    endpoint.unix_socket.is_some()
        || endpoint.is_loopback()
        || !endpoint.base().parse().is_ok_and(proxied)
}

/// Sends every name to one host: TLS verifies the name in the URL, which is
/// the configured server name, while the connection goes to the address.
#[derive(Debug, Clone)]
struct Redirected {
    host: String,
}

impl Resolve for Redirected {
    fn resolve(&self, _name: Name) -> Resolving {
        let host = self.host.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn failed(error: reqwest::Error) -> TransportError {
    TransportError::Failed { source: error.without_url().into() }
}

#[async_trait]
impl Transport for SocketTransport {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        match &self.wire {
            Wire::Plain(pool) => pool.exchange(request, limits).await,
            Wire::Other(http) => exchange(http, request, limits).await,
        }
    }
}

async fn exchange(
    http: &reqwest::Client,
    request: http::Request<Bytes>,
    limits: ExchangeLimits,
) -> Result<http::Response<Bytes>, TransportError> {
    let request = reqwest::Request::try_from(request).map_err(failed)?;
    let mut answer = tokio::time::timeout(limits.headers, http.execute(request))
        .await
        .map_err(|_elapsed| TransportError::Timeout { after: limits.headers })?
        .map_err(failed)?;
    let mut body = BytesMut::new();
    loop {
        let chunk = tokio::time::timeout(limits.body_idle, answer.chunk())
            .await
            .map_err(|_elapsed| TransportError::Timeout { after: limits.body_idle })?
            .map_err(failed)?;
        match chunk {
            // The common answer comes in one piece.
            Some(bytes) => body.extend_from_slice(&bytes),
            None => break,
        }
    }
    let mut response = http::Response::new(body.freeze());
    *response.status_mut() = answer.status();
    *response.version_mut() = answer.version();
    *response.headers_mut() = std::mem::take(answer.headers_mut());
    Ok(response)
}
