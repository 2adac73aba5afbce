//! Transport to the double without a socket.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::TestConsul;
use crate::{
    Client, ClientConfig,
    transport::{ExchangeLimits, Transport, TransportError},
};

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

/// Clients of the double that need no socket.
impl TestConsul {
    /// A client that reaches this Consul in memory. It sends the
    /// [management token](super::TestConsulBuilder::management_token), if there is one.
    pub fn client(&self) -> Client {
        self.client_with(ClientConfig { token: self.management_token(), ..ClientConfig::default() })
    }

    /// Such a client with other settings; its address is not used.
    ///
    /// # Panics
    ///
    /// If the settings cannot be used.
    #[expect(clippy::expect_used, reason = "a test double tells a wrong test at once")]
    pub fn client_with(&self, config: ClientConfig) -> Client {
        Client::with_transport(config, self.transport()).expect("the client's settings can be used")
    }

    /// The transport of such clients.
    pub fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(MemoryTransport::new(self.clone()))
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
