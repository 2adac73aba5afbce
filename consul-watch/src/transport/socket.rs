//! The transport over sockets: which way leads to Consul.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

#[cfg(feature = "tls")]
use crate::transport::https::Https;
use crate::{
    Result,
    client::{ClientConfig, endpoint::Endpoint},
    transport::{ExchangeLimits, Transport, TransportError, pool::Pool},
};

pub(super) const AGENT: &str = concat!("consul-watch/", env!("CARGO_PKG_VERSION"));

/// The [`Transport`] over TCP, a unix socket or, with the feature `tls`, TLS.
///
/// TLS is rustls with the process's default provider, else aws-lc. With authorities of the
/// configuration's own, a server is accepted whose certificate chains to one of them, or is
/// itself among them, as in Go; its RSA keys have 2,048 bits at least. Over TLS
/// HTTP/2 is used where the server offers it, as Consul does: then one
/// connection carries all requests, up to the 250 at a time that Consul allows. The system's proxy settings
/// apply, except to loopback addresses. Connections are kept for the next requests,
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

/// Who has the connections.
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
        let plain_proxy = proxy.as_ref().is_none_or(|it| it.uri().scheme_str() == Some("http"));
        if endpoint.scheme == "http" && plain_proxy {
            let pool = Arc::new(Pool::new(config, endpoint.unix_socket, proxy));
            return Ok(Self { wire: Wire::Plain(pool) });
        }
        #[cfg(feature = "tls")]
        return Ok(Self { wire: Wire::Tls(Https::new(config, endpoint)?) });
        #[cfg(not(feature = "tls"))]
        Err(crate::Error::MissingFeature { setting: "HTTP_PROXY", feature: "tls" })
    }
}

/// The proxy of the system's settings that stands before the endpoint.
fn proxy_to(endpoint: &Endpoint) -> Option<Intercept> {
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
