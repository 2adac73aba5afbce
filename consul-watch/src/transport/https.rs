//! Exchanges over TLS, where one connection of HTTP/2 carries all, and through proxies that speak
//! anything but plain HTTP.

use std::{net::SocketAddr, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header::CONNECTION};
use reqwest::{
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};

use crate::{
    Error, Result,
    config::ClientConfig,
    endpoint::Endpoint,
    error_chain,
    transport::{ExchangeLimits, TransportError, tls, user_agent::USER_AGENT_NAME},
};

/// Interval of HTTP/2's pings.
const PING: Duration = Duration::from_secs(30);
/// Time limit for the answer to a ping of HTTP/2.
const PING_LIMIT: Duration = Duration::from_secs(10);

/// Connections to one Consul over TLS.
#[derive(Debug, Clone)]
pub(super) struct Https {
    http: reqwest::Client,
}

impl Https {
    /// Reads certificates; connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for TLS files that cannot be used.
    pub(super) fn new(config: &ClientConfig, endpoint: Endpoint) -> Result<Self> {
        let kept = config.connections;
        let handshake = kept.tls_handshake_timeout.filter(|_| endpoint.scheme == "https");
        let mut builder = reqwest::Client::builder()
            // A redirect would send the token to whoever it names.
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
            .user_agent(USER_AGENT_NAME);
        if endpoint.is_loopback() {
            // Compression costs more than it saves there.
            builder = builder.no_proxy().no_gzip();
        }
        if !kept.reuse {
            // One connection of HTTP/2 would carry all requests at a time.
            let close = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("close"))]);
            builder = builder.http1_only().default_headers(close);
        }
        if endpoint.scheme == "https" {
            builder = tls::configure(builder, &config.tls)?;
            if let Some(target) = endpoint.connect_to {
                // A proxy would resolve the name in the URL by itself, which is not the address.
                builder = builder.no_proxy().dns_resolver(Redirected { host: target });
            }
        }
        let http = builder.build().map_err(|error| Error::config("tls", error_chain(&error)))?;
        Ok(Self { http })
    }

    pub(super) async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let request = reqwest::Request::try_from(request).map_err(failed)?;
        let mut answer = tokio::time::timeout(limits.headers, self.http.execute(request))
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
