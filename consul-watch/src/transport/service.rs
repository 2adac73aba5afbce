//! The seam to `tower`: layers (timeouts, tracing, authentication) around a transport.

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use tower_service::Service;

use super::{ExchangeLimits, Transport, TransportError};
use crate::BoxError;

/// Limits for requests whose layers have dropped theirs: more than Consul holds
/// one.
const WITHOUT_LIMITS: ExchangeLimits =
    ExchangeLimits { headers: Duration::from_mins(11), body_idle: Duration::from_secs(30) };

/// A [`Transport`] as a [`Service`], the innermost one of a stack of layers.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::{sync::Arc, time::Duration};
/// use consul_watch::{Client, ClientConfig, testing::TestConsul};
/// use consul_watch::transport::{ServiceTransport, TransportService};
/// use http::HeaderValue;
///
/// let consul = TestConsul::new(); // a program: SocketTransport::new(&config)?
/// let service = tower::ServiceBuilder::new()
///     .timeout(Duration::from_mins(11))
///     .map_request(|mut request: http::Request<_>| {
///         request.headers_mut().insert("x-gateway-key", HeaderValue::from_static("k"));
///         request
///     })
///     .service(TransportService::new(consul.transport()));
/// let transport = Arc::new(ServiceTransport::new(service));
/// let client = Client::with_transport(ClientConfig::default(), transport)?;
/// assert!(client.status_leader().await?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The limits of an exchange are an extension of the request, and so is a watcher's budget of
/// connections: layers that make a new request keep its extensions.
#[derive(Debug)]
pub struct TransportService<T> {
    transport: Arc<T>,
}

impl<T: Transport> TransportService<T> {
    /// The service that sends requests with this transport.
    pub fn new(transport: T) -> Self {
        Self { transport: Arc::new(transport) }
    }
}

impl<T> Clone for TransportService<T> {
    fn clone(&self) -> Self {
        Self { transport: Arc::clone(&self.transport) }
    }
}

impl<T: Transport> Service<http::Request<Bytes>> for TransportService<T> {
    type Response = http::Response<Bytes>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<http::Response<Bytes>, TransportError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Bytes>) -> Self::Future {
        let transport = Arc::clone(&self.transport);
        let limits = request.extensions().get().copied().unwrap_or(WITHOUT_LIMITS);
        Box::pin(async move { transport.exchange(request, limits).await })
    }
}

/// A stack of `tower` layers as a [`Transport`]; see [`TransportService`].
///
/// The service is cloned for each exchange and waited for until it is ready. A
/// [`TransportError`] from within keeps its kind; any other error is
/// [`TransportError::Failed`], and a retry may help.
///
/// A timeout of a layer must be longer than the wait of blocking queries (60 s by default, at
/// most ten minutes) and a sixteenth of it, or watches fail instead of waiting.
#[derive(Clone)]
pub struct ServiceTransport<S> {
    service: S,
}

impl<S> ServiceTransport<S> {
    /// The transport that sends requests through this service.
    pub fn new(service: S) -> Self {
        Self { service }
    }
}

impl<S> fmt::Debug for ServiceTransport<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Layers may hold keys.
        f.debug_struct("ServiceTransport").finish_non_exhaustive()
    }
}

#[async_trait]
impl<S> Transport for ServiceTransport<S>
where
    S: Service<http::Request<Bytes>, Response = http::Response<Bytes>>,
    S: Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    async fn exchange(
        &self,
        mut request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        // In the request, since layers pass on nothing else.
        request.extensions_mut().insert(limits);
        let mut service = self.service.clone();
        // A clone is not ready because the service it came from was: tower's contract asks for
        // each.
        poll_fn(|cx| service.poll_ready(cx)).await.map_err(failed)?;
        service.call(request).await.map_err(failed)
    }
}

fn failed(error: impl Into<BoxError>) -> TransportError {
    match error.into().downcast::<TransportError>() {
        Ok(error) => *error,
        Err(source) => TransportError::Failed { source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers nothing but what is inside of it.
    #[derive(Debug)]
    struct Late;

    #[async_trait]
    impl Transport for Late {
        async fn exchange(
            &self,
            _request: http::Request<Bytes>,
            limits: ExchangeLimits,
        ) -> Result<http::Response<Bytes>, TransportError> {
            Err(TransportError::Timeout { after: limits.headers })
        }
    }

    #[tokio::test]
    async fn limits_and_kinds_of_errors_pass_through_layers() {
        let limits = ExchangeLimits::new(Duration::from_secs(7), Duration::from_secs(1));
        let boxed = tower::ServiceBuilder::new()
            .timeout(Duration::from_mins(1))
            .service(TransportService::new(Late));
        let transport = ServiceTransport::new(boxed);
        let error = transport.exchange(http::Request::default(), limits).await.unwrap_err();
        assert!(
            matches!(error, TransportError::Timeout { after } if after == limits.headers),
            "{error:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_layer_that_gives_up_is_a_failed_exchange() {
        #[derive(Debug)]
        struct Never;

        #[async_trait]
        impl Transport for Never {
            async fn exchange(
                &self,
                _request: http::Request<Bytes>,
                _limits: ExchangeLimits,
            ) -> Result<http::Response<Bytes>, TransportError> {
                std::future::pending().await
            }
        }

        let limits = ExchangeLimits::new(Duration::from_mins(2), Duration::from_secs(1));
        let service = tower::ServiceBuilder::new()
            .timeout(Duration::from_mins(1))
            .service(TransportService::new(Never));
        let transport = ServiceTransport::new(service);
        let error = transport.exchange(http::Request::default(), limits).await.unwrap_err();
        assert!(matches!(error, TransportError::Failed { .. }), "{error:?}");
    }
}
