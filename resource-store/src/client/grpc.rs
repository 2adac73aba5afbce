//! The client of a service behind gRPC.

use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{
    Request,
    metadata::MetadataValue,
    transport::{Channel, ClientTlsConfig, Endpoint},
};

use super::ResourceClient;
use crate::{
    backend::Consistency,
    client_tls::client_tls,
    code::{Code, RpcError},
    error_chain::error_chain,
    pb::{
        DeleteRequest, Id, ListByOwnerRequest, ListRequest, MutateAndValidateRequest, ReadRequest,
        Resource, WatchListRequest, WriteRequest, WriteStatusRequest,
        resource_service_client::ResourceServiceClient,
    },
    service::{EventStream, RequestContext},
    wire,
};

/// How to reach a server.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct GrpcClientConfig {
    /// Where the server is: `http://host:port`, or `https://host:port` for TLS.
    pub url: String,
    /// The certificates that may sign the server's, in PEM. Without them no
    /// server is trusted over TLS.
    pub ca_pem: Option<String>,
    /// The name in the server's certificate, if it is not the host of the URL.
    pub server_name: Option<String>,
    /// The client's certificate and key, in PEM, for servers that ask.
    pub identity_pem: Option<(String, SecretString)>,
    /// How long to try to connect; 10 seconds if not set.
    pub connect_timeout: Option<Duration>,
}

impl GrpcClientConfig {
    /// Reaches the server of a URL.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }
}

/// Uses a service behind gRPC.
///
/// One connection serves all clones and calls, and is made anew when it breaks.
/// A call that may have taken effect is not repeated.
#[derive(Debug, Clone)]
pub struct GrpcClient {
    inner: ResourceServiceClient<Channel>,
    context: RequestContext,
}

impl GrpcClient {
    /// A client that connects when it is first used.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidArgument`] if the URL or a certificate is malformed.
    pub fn new(config: &GrpcClientConfig) -> Result<Self, RpcError> {
        let timeout = config.connect_timeout.unwrap_or(Duration::from_secs(10));
        let malformed =
            |e: tonic::transport::Error| RpcError::new(Code::InvalidArgument, error_chain(&e));
        let mut endpoint =
            Endpoint::from_shared(config.url.clone()).map_err(malformed)?.connect_timeout(timeout);
        if config.url.starts_with("https://") {
            endpoint = endpoint.tls_config(tls(config)).map_err(malformed)?;
        }
        let inner = ResourceServiceClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(wire::MAX_MESSAGE)
            .max_encoding_message_size(wire::MAX_MESSAGE);
        Ok(Self { inner, context: RequestContext::default() })
    }

    /// The same client with another token or consistency.
    #[must_use]
    pub fn with_context(mut self, context: RequestContext) -> Self {
        self.context = context;
        self
    }

    fn request<T>(&self, message: T) -> Result<Request<T>, RpcError> {
        let mut request = Request::new(message);
        if let Some(token) = &self.context.token {
            let mut value = MetadataValue::try_from(token.expose_secret())
                .map_err(|_e| RpcError::invalid("the token is not printable ASCII"))?;
            value.set_sensitive(true);
            request.metadata_mut().insert(wire::TOKEN, value);
        }
        if self.context.consistency == Consistency::Strong {
            let value = MetadataValue::from_static(wire::CONSISTENT);
            request.metadata_mut().insert(wire::CONSISTENCY, value);
        }
        Ok(request)
    }

    fn client(&self) -> ResourceServiceClient<Channel> {
        self.inner.clone()
    }
}

fn tls(config: &GrpcClientConfig) -> ClientTlsConfig {
    let identity = config.identity_pem.as_ref().map(|(certificate, key)| (&**certificate, key));
    client_tls(config.ca_pem.as_deref(), config.server_name.as_deref(), identity)
}

fn resource_of(resource: Option<Resource>) -> Result<Resource, RpcError> {
    resource.ok_or_else(|| RpcError::new(Code::Internal, "the server sent no resource"))
}

#[async_trait]
impl ResourceClient for GrpcClient {
    async fn read(&self, id: Id) -> Result<Resource, RpcError> {
        let request = self.request(ReadRequest { id: Some(id) })?;
        let response = self.client().read(request).await.map_err(wire::from_status)?;
        resource_of(response.into_inner().resource)
    }

    async fn write(&self, resource: Resource) -> Result<Resource, RpcError> {
        let request = self.request(WriteRequest { resource: Some(resource) })?;
        let response = self.client().write(request).await.map_err(wire::from_status)?;
        resource_of(response.into_inner().resource)
    }

    async fn write_status(&self, request: WriteStatusRequest) -> Result<Resource, RpcError> {
        let request = self.request(request)?;
        let response = self.client().write_status(request).await.map_err(wire::from_status)?;
        resource_of(response.into_inner().resource)
    }

    async fn list(&self, request: ListRequest) -> Result<Vec<Resource>, RpcError> {
        let request = self.request(request)?;
        let response = self.client().list(request).await.map_err(wire::from_status)?;
        Ok(response.into_inner().resources)
    }

    async fn list_by_owner(&self, owner: Id) -> Result<Vec<Resource>, RpcError> {
        let request = self.request(ListByOwnerRequest { owner: Some(owner) })?;
        let response = self.client().list_by_owner(request).await.map_err(wire::from_status)?;
        Ok(response.into_inner().resources)
    }

    async fn delete(&self, request: DeleteRequest) -> Result<(), RpcError> {
        let request = self.request(request)?;
        self.client().delete(request).await.map_err(wire::from_status)?;
        Ok(())
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<EventStream, RpcError> {
        let request = self.request(request)?;
        let response = self.client().watch_list(request).await.map_err(wire::from_status)?;
        let events = response.into_inner();
        Ok(events.map(|event| event.map_err(wire::from_status).and_then(wire::from_event)).boxed())
    }

    async fn mutate_and_validate(&self, resource: Resource) -> Result<Resource, RpcError> {
        let request = self.request(MutateAndValidateRequest { resource: Some(resource) })?;
        let response =
            self.client().mutate_and_validate(request).await.map_err(wire::from_status)?;
        resource_of(response.into_inner().resource)
    }
}
