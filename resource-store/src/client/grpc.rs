//! The client of a service behind gRPC.

use std::{future::Future, time::Duration};

use async_trait::async_trait;
use futures::StreamExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{
    Request, Response, Status,
    metadata::MetadataValue,
    transport::{Channel, ClientTlsConfig, Endpoint},
};

use super::ResourceClient;
use crate::{
    backend::Consistency,
    client_tls::client_tls,
    code::{Code, RpcError},
    error_chain::{error_chain, never_sent},
    pb::{
        DeleteRequest, Id, ListByOwnerRequest, ListRequest, MutateAndValidateRequest, ReadRequest,
        Resource, WatchListRequest, WriteRequest, WriteStatusRequest,
        resource_service_client::ResourceServiceClient,
    },
    service::{EventStream, RequestContext},
    wire,
};

const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Above the 15 seconds that Consul's servers enforce.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connection settings of a client: address, time limit, token and TLS.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct GrpcClientConfig {
    /// Address of the server: `http://host:port`, or `https://host:port` for TLS.
    pub url: String,
    /// The certificates that may sign the server's, in PEM. Without them no
    /// server is trusted over TLS.
    pub ca_pem: Option<String>,
    /// The name in the server's certificate, if it is not the host of the URL.
    pub server_name: Option<String>,
    /// The client's certificate and key, in PEM, for servers that ask.
    pub identity_pem: Option<(String, SecretString)>,
    /// Time limit of connecting; 10 seconds if not set.
    pub connect_timeout: Option<Duration>,
    /// Time limit of a call, and of a watch until it begins; one minute if not
    /// set. The limit is sent to the server, so that it stops working on it, too.
    pub call_timeout: Option<Duration>,
    /// Interval of questions to the server whether it is there still, while
    /// nothing else comes from it, also between calls; 20 seconds if not set. Consul
    /// ends connections that ask more often than every 15 seconds.
    pub keepalive_interval: Option<Duration>,
    /// Time limit of the answer to that, before the connection counts as dead
    /// and every call and watch on it fails; 10 seconds if not set.
    pub keepalive_timeout: Option<Duration>,
}

impl GrpcClientConfig {
    /// Reaches the server of a URL.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }
}

/// Uses a service behind gRPC.
///
/// One connection serves all clones and calls, and is made again when it breaks.
/// A connection that dies without a word, as when a machine or a firewall
/// forgets it, is noticed within [`GrpcClientConfig::keepalive_interval`] and
/// [`GrpcClientConfig::keepalive_timeout`].
///
/// No call is repeated. A change fails with [`Code::Unavailable`] if nothing was
/// sent or the server refused it, and with [`Code::Unknown`] or
/// [`Code::DeadlineExceeded`] if it may have taken effect. A watch ends with an
/// error; [`resuming_watch`](crate::resuming_watch) goes on.
#[derive(Debug, Clone)]
pub struct GrpcClient {
    inner: ResourceServiceClient<Channel>,
    context: RequestContext,
    call_timeout: Duration,
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
        endpoint = endpoint
            .http2_keep_alive_interval(config.keepalive_interval.unwrap_or(KEEPALIVE_INTERVAL))
            .keep_alive_timeout(config.keepalive_timeout.unwrap_or(KEEPALIVE_TIMEOUT))
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        if config.url.starts_with("https://") {
            endpoint = endpoint.tls_config(tls(config)).map_err(malformed)?;
        }
        let inner = ResourceServiceClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(wire::MAX_MESSAGE)
            .max_encoding_message_size(wire::MAX_MESSAGE);
        let call_timeout = config.call_timeout.unwrap_or(CALL_TIMEOUT);
        Ok(Self { inner, context: RequestContext::default(), call_timeout })
    }

    /// The same client with another token or consistency.
    #[must_use]
    pub fn with_context(mut self, context: RequestContext) -> Self {
        self.context = context;
        self
    }

    fn request<T>(&self, message: T) -> Result<Request<T>, RpcError> {
        let mut request = Request::new(message);
        request.set_timeout(self.call_timeout);
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

    /// Waits for the answer to a call, and no longer than a call may take.
    async fn within<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>> + Send,
    ) -> Result<T, Failed> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Failed::Status(status)),
            Err(_elapsed) => Err(Failed::Timeout(self.call_timeout)),
        }
    }

    fn client(&self) -> ResourceServiceClient<Channel> {
        self.inner.clone()
    }
}

fn tls(config: &GrpcClientConfig) -> ClientTlsConfig {
    let identity = config.identity_pem.as_ref().map(|(certificate, key)| (&**certificate, key));
    client_tls(config.ca_pem.as_deref(), config.server_name.as_deref(), identity)
}

/// Why a call has no answer.
enum Failed {
    Status(Status),
    Timeout(Duration),
}

impl Failed {
    fn of_question(self) -> RpcError {
        match self {
            Self::Status(status) => wire::from_status(status),
            Self::Timeout(after) => {
                let text = format!("no answer within {} ms", after.as_millis());
                RpcError::new(Code::DeadlineExceeded, text)
            }
        }
    }

    /// A server says what it did; a connection that broke after it was there
    /// does not.
    fn of_change(self) -> RpcError {
        match self {
            Self::Status(status)
                if std::error::Error::source(&status).is_some() && !never_sent(&status) =>
            {
                let text = format!(
                    "the outcome is unknown, because the connection failed: {}; read the resource \
                     again before repeating it",
                    error_chain(&status)
                );
                RpcError::new(Code::Unknown, text)
            }
            other => other.of_question(),
        }
    }
}

fn resource_of(resource: Option<Resource>) -> Result<Resource, RpcError> {
    resource.ok_or_else(|| RpcError::new(Code::Internal, "the server sent no resource"))
}

#[async_trait]
impl ResourceClient for GrpcClient {
    async fn read(&self, id: Id) -> Result<Resource, RpcError> {
        let request = self.request(ReadRequest { id: Some(id) })?;
        let answer = self.within(self.client().read(request)).await;
        resource_of(answer.map_err(Failed::of_question)?.resource)
    }

    async fn read_strong(&self, id: Id) -> Result<Resource, RpcError> {
        let context = self.context.clone().with_consistency(Consistency::Strong);
        self.clone().with_context(context).read(id).await
    }

    async fn write(&self, resource: Resource) -> Result<Resource, RpcError> {
        let request = self.request(WriteRequest { resource: Some(resource) })?;
        let answer = self.within(self.client().write(request)).await;
        resource_of(answer.map_err(Failed::of_change)?.resource)
    }

    async fn write_status(&self, request: WriteStatusRequest) -> Result<Resource, RpcError> {
        let request = self.request(request)?;
        let answer = self.within(self.client().write_status(request)).await;
        resource_of(answer.map_err(Failed::of_change)?.resource)
    }

    async fn list(&self, request: ListRequest) -> Result<Vec<Resource>, RpcError> {
        let request = self.request(request)?;
        let answer = self.within(self.client().list(request)).await;
        Ok(answer.map_err(Failed::of_question)?.resources)
    }

    async fn list_by_owner(&self, owner: Id) -> Result<Vec<Resource>, RpcError> {
        let request = self.request(ListByOwnerRequest { owner: Some(owner) })?;
        let answer = self.within(self.client().list_by_owner(request)).await;
        Ok(answer.map_err(Failed::of_question)?.resources)
    }

    async fn delete(&self, request: DeleteRequest) -> Result<(), RpcError> {
        let request = self.request(request)?;
        self.within(self.client().delete(request)).await.map_err(Failed::of_change)?;
        Ok(())
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<EventStream, RpcError> {
        let mut request = self.request(request)?;
        // The time of a watch is not limited, only that until it begins.
        request.metadata_mut().remove("grpc-timeout");
        let events = self.within(self.client().watch_list(request)).await;
        let events = events.map_err(Failed::of_question)?;
        Ok(events.map(|event| event.map_err(wire::from_status).and_then(wire::from_event)).boxed())
    }

    async fn mutate_and_validate(&self, resource: Resource) -> Result<Resource, RpcError> {
        let request = self.request(MutateAndValidateRequest { resource: Some(resource) })?;
        let answer = self.within(self.client().mutate_and_validate(request)).await;
        resource_of(answer.map_err(Failed::of_question)?.resource)
    }
}
