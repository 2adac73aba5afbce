//! The boundary to the network, so that tests put a double in the place of sockets.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::BoxError;
use http::{Request, Response};

/// Transport of one HTTP exchange with the platform, or with the host of its archives.
///
/// [`HttpPlatform`](crate::HttpPlatform) goes over sockets; the double of the feature `testing`
/// answers in memory too, so that a test can pause the clock. Retries, rate limits and the meaning
/// of answers are the [`Client`](crate::Client)'s.
#[async_trait]
pub trait Platform: fmt::Debug + Send + Sync + 'static {
    /// Sends the request, whose address is absolute, and reads the whole answer. Redirects are not
    /// followed; nothing is tried twice.
    ///
    /// # Errors
    ///
    /// [`ExchangeError`] if no complete exchange took place. The request may have taken effect.
    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ExchangeError>;
}

/// Reason that no complete exchange took place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The connection could not be made, or was cut.
    #[error("the exchange failed")]
    Failed {
        /// Error of the transport, without the address.
        source: BoxError,
    },
    /// There was no answer in time.
    #[error("no answer within {} s", after.as_secs_f64())]
    Timeout {
        /// Limit that was reached.
        after: Duration,
    },
}
