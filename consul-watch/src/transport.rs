//! One HTTP exchange with Consul: the seam below [`Client`](crate::Client).

mod budget;
#[cfg(feature = "tls")]
mod https;
mod pool;
mod service;
mod socket;
#[cfg(feature = "tls")]
mod tls;
mod user_agent;
#[cfg(any(test, not(feature = "tls")))]
mod without_tls;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::BoxError;

pub(crate) use budget::Budget;
pub use service::{ServiceTransport, TransportService};
pub use socket::SocketTransport;

/// Carries out one HTTP exchange.
///
/// The request's URI is absolute; headers and body are complete.
/// Implementations neither retry nor follow redirects. They are used
/// concurrently.
///
/// # Cancel safety
///
/// Dropping the future ends the exchange at once: an HTTP/1.1 connection is
/// closed, an HTTP/2 stream reset.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Sends `request` and reads the whole answer. An answer whose version is
    /// [`http::Version::HTTP_2`] tells that requests share a connection, so that
    /// watches need fewer of them.
    ///
    /// # Errors
    ///
    /// [`TransportError`] when no complete exchange took place. A status
    /// outside 2xx is an answer, not an error.
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: Transport + ?Sized> Transport for Arc<T> {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        (**self).exchange(request, limits).await
    }
}

/// Time limits of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExchangeLimits {
    /// From the start of the request to the response headers.
    pub headers: Duration,
    /// The longest silence while the body arrives.
    pub body_idle: Duration,
}

impl ExchangeLimits {
    /// Limits of these lengths.
    pub fn new(headers: Duration, body_idle: Duration) -> Self {
        Self { headers, body_idle }
    }
}

/// The reasons why an exchange did not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A limit of [`ExchangeLimits`] passed.
    #[error("no answer within {} s", after.as_secs_f64())]
    Timeout {
        /// The limit.
        after: Duration,
    },
    /// Anything else: no connection, a cut one, a TLS failure.
    #[error("the exchange did not complete")]
    Failed {
        /// Cause of the failure. It must hold neither headers nor bodies.
        source: BoxError,
    },
}
