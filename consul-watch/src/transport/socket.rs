//! The transport over sockets: which way leads to Consul.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

#[cfg(feature = "tls")]
use crate::transport::https::Https;
use crate::{
    Result,
    config::ClientConfig,
    endpoint::Endpoint,
    transport::{ExchangeLimits, Transport, TransportError, pool::Pool},
};

/// The [`Transport`] over TCP, a unix socket or, with the feature `tls`, TLS.
///
/// TLS is rustls with the process's default provider, else aws-lc. With authorities of the
/// configuration's own, a server is accepted whose certificate chains to one of them, or is
/// itself among them, as in Go; its RSA keys have 2,048 bits at least. Over TLS
/// HTTP/2 is used where the server offers it, as Consul does: then one
/// connection carries all requests, up to the 250 at a time that Consul allows. The system's proxy settings
/// apply, except to loopback addresses. Answers come compressed (gzip), except from this machine:
/// loopback addresses and unix sockets. Connections are kept for the next requests,
/// so keep one transport (one [`Client`](crate::Client)) for each Consul.
///
/// Over plain HTTP there are never more connections than there were
/// exchanges at the same time, and an exchange that has ended has its connection
/// back, so that the next one finds it. An idle one is closed within one and a half times
/// [`ConnectionConfig::idle_timeout`](crate::client::ConnectionConfig::idle_timeout).
#[derive(Debug, Clone)]
pub struct SocketTransport {
    wire: Wire,
}

/// Owner of the connections.
#[derive(Debug, Clone)]
enum Wire {
    Plain(Arc<Pool>),
    #[cfg(feature = "tls")]
    Tls(Https),
}

impl SocketTransport {
    /// Reads certificates and sets up the pool; connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) for an address or TLS files that cannot be used,
    /// and [`Error::MissingFeature`](crate::Error::MissingFeature) for settings of TLS without the
    /// feature `tls`.
    pub fn new(config: &ClientConfig) -> Result<Self> {
        let endpoint = Endpoint::parse(config)?;
        #[cfg(not(feature = "tls"))]
        super::without_tls::refuse(config, &endpoint)?;
        let proxy = proxy_to(&endpoint);
        let over_tls = proxy.as_ref().map(speaks_tls).transpose()?.unwrap_or(false);
        if endpoint.scheme == "http" && !over_tls {
            let pool = Arc::new(Pool::new(config, endpoint, proxy));
            return Ok(Self { wire: Wire::Plain(pool) });
        }
        #[cfg(feature = "tls")]
        return Ok(Self { wire: Wire::Tls(Https::new(config, endpoint)?) });
        #[cfg(not(feature = "tls"))]
        Err(crate::Error::MissingFeature { setting: PROXIES, feature: "tls" })
    }
}

/// The variables that name a proxy; which of them did is not known any more.
const PROXIES: &str = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY";

/// Returns `true` if the proxy itself is reached over TLS.
///
/// # Errors
///
/// [`Error::Config`](crate::Error::Config) for one that is no HTTP proxy.
fn speaks_tls(proxy: &Intercept) -> Result<bool> {
    match proxy.uri().scheme_str() {
        Some("http") => Ok(false),
        Some("https") => Ok(true),
        other => {
            let (scheme, host) =
                (other.unwrap_or_default(), proxy.uri().host().unwrap_or_default());
            let problem = format!(
                "the proxy {scheme}://{host} is not supported; its address has to begin with \
                 http:// or https://"
            );
            Err(crate::Error::config(PROXIES, problem))
        }
    }
}

/// The proxy of the system's settings that stands before the endpoint.
fn proxy_to(endpoint: &Endpoint) -> Option<Intercept> {
    // As Go does: a proxy elsewhere cannot reach this machine's loopback.
    if endpoint.is_loopback() {
        return None;
    }
    Matcher::from_system().intercept(&endpoint.base().parse().ok()?)
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
            #[cfg(feature = "tls")]
            Wire::Tls(https) => https.exchange(request, limits).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `true` if a proxy speaks TLS, or why it is refused.
    fn judged(proxy: &str) -> Result<bool, String> {
        let matcher = Matcher::builder().all(proxy).build();
        let consul = http::Uri::from_static("http://consul.example.com:8500/");
        speaks_tls(&matcher.intercept(&consul).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn proxies_that_are_not_spoken_are_refused_without_their_passwords() {
        assert_eq!(judged("http://proxy:3128"), Ok(false));
        assert_eq!(judged("proxy:3128"), Ok(false));
        assert_eq!(judged("https://proxy:3128"), Ok(true));
        for scheme in ["socks4", "socks4a", "socks5", "socks5h"] {
            let error = judged(&format!("{scheme}://user:planted@proxy:1080")).unwrap_err();
            assert_eq!(
                error,
                format!(
                    "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: the proxy {scheme}://proxy is not \
                     supported; its address has to begin with http:// or https://"
                )
            );
        }
    }
}
