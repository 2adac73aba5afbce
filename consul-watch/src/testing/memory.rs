//! Transport to the double without a socket.

use async_trait::async_trait;
use bytes::Bytes;

use super::TestConsul;
use crate::transport::{ExchangeLimits, Transport, TransportError};

/// The [`Transport`] to a [`TestConsul`] without sockets, so that time can be paused.
#[derive(Debug)]
pub(super) struct MemoryTransport {
    consul: TestConsul,
}

impl MemoryTransport {
    pub(super) fn new(consul: TestConsul) -> Self {
        Self { consul }
    }
}

#[async_trait]
impl Transport for MemoryTransport {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        tokio::time::timeout(limits.headers, self.consul.handle(request))
            .await
            .map_err(|_elapsed| TransportError::Timeout { after: limits.headers })?
            .map_err(|cut| TransportError::Failed { source: cut.into() })
    }
}
