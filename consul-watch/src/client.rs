//! The HTTP client: one method for each endpoint, and narrow traits over them.

mod acl;
mod acl_policy;
mod acl_token;
mod agent;
mod agent_control;
mod agent_health;
mod auth_method;
mod authorize;
mod catalog;
mod config_entry;
mod connect_ca;
mod coordinate;
mod event;
mod health;
mod intention;
mod kv;
mod mesh;
mod nesting;
mod operator;
mod peering;
mod prepared_query;
mod request;
mod response;
mod session;
mod snapshot;
mod status;
mod tenancy;
mod txn;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{
    Answer, Consistency, Error, Result,
    endpoint::Endpoint,
    telemetry::{self, Held},
    token::{StaticToken, TokenWatch, secret_header, token_header},
    transport::{Budget, ExchangeLimits, SocketTransport, Transport, TransportError},
};

pub use crate::config::{BasicAuth, ClientConfig, ConnectionConfig, TlsConfig};
pub use crate::token::{FileToken, SharedToken, TokenProvider};
pub use acl::AclApi;
pub use acl_token::AclTokenFilter;
pub use agent::AgentApi;
pub use agent_control::AgentTokenKind;
pub use agent_health::ServiceHealth;
pub use authorize::AclAuthorization;
pub use catalog::CatalogApi;
pub use event::EventOptions;
pub use health::HealthOptions;
pub use kv::{DeleteOptions, KvStore, PutCondition, PutOptions};
pub use prepared_query::ExecuteOptions;
pub use request::Request;
pub use response::Response;
pub use session::SessionApi;
pub use tenancy::TenancyApi;
pub use txn::TxnOptions;

const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");

/// Credentials of basic authentication, and their text, which no error may show.
#[derive(Clone)]
struct Authorization {
    header: HeaderValue,
    encoded: SecretString,
    password: SecretString,
}

impl Authorization {
    fn new(auth: &BasicAuth) -> Result<Self> {
        let password = auth.password.clone().unwrap_or_default();
        let encoded = STANDARD.encode(format!("{}:{}", auth.user, password.expose_secret()));
        let header = secret_header(&format!("Basic {encoded}"))
            .ok_or_else(|| Error::config("basic auth", "it cannot stand in a header"))?;
        Ok(Self { header, encoded: encoded.into(), password })
    }
}

/// Talks to one Consul agent.
///
/// Cheap to clone; clones share connections. Make one for each Consul that a
/// program talks to. No method retries: see [`Error::is_retryable`].
///
/// ```no_run
/// # async fn example() -> consul_watch::Result<()> {
/// use consul_watch::{Client, QueryOptions};
///
/// let client = Client::from_env()?;
/// let answer = client.kv_get("app/color", &QueryOptions::default()).await?;
/// match answer.value {
///     Some(pair) => println!("{:?} at index {}", pair.text(), pair.modify_index),
///     None => println!("not set"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// Dropping the future of a call ends the request. A write may have taken effect by then.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    base: String,
    /// Address of the peer as errors name it.
    name: String,
    transport: Arc<dyn Transport>,
    tokens: Arc<dyn TokenProvider>,
    authorization: Option<Authorization>,
    namespace: Option<String>,
    partition: Option<String>,
    datacenter: Option<String>,
    consistency: Consistency,
    request_timeout: Duration,
    body_idle: Duration,
    /// `true` if reads go to the leader whatever they ask for.
    ordered: bool,
    /// The connections that requests may use together.
    budget: Option<Budget>,
    /// `true` if the last answer came over HTTP/2. Clients over the same
    /// connections share it.
    multiplexed: Arc<AtomicBool>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.inner.name).finish_non_exhaustive()
    }
}

impl Client {
    /// A client over TCP, TLS or a unix socket. Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an address, token file or TLS file that cannot be used.
    pub fn new(config: ClientConfig) -> Result<Self> {
        let transport = Arc::new(SocketTransport::new(&config)?);
        Self::with_transport(config, transport)
    }

    /// A client configured by the process's `CONSUL_*` variables.
    ///
    /// # Errors
    ///
    /// As [`ClientConfig::from_env`] and [`Client::new`].
    pub fn from_env() -> Result<Self> {
        Self::new(ClientConfig::from_env()?)
    }

    /// A client over another transport, such as one in memory for tests.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an address or token file that cannot be used.
    pub fn with_transport(config: ClientConfig, transport: Arc<dyn Transport>) -> Result<Self> {
        let endpoint = Endpoint::parse(&config)?;
        let tokens = config.tokens()?;
        let authorization = config.basic_auth.as_ref().map(Authorization::new).transpose()?;
        Ok(Self {
            inner: Arc::new(Inner {
                base: endpoint.base(),
                name: endpoint.name(),
                transport,
                tokens,
                authorization,
                namespace: config.namespace,
                partition: config.partition,
                datacenter: config.datacenter,
                consistency: config.consistency,
                request_timeout: config.request_timeout,
                body_idle: config.body_idle_timeout,
                ordered: false,
                budget: None,
                multiplexed: Arc::default(),
            }),
        })
    }

    /// A client that sends another token over the same connections; `None` sends none.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a token that cannot stand in a header.
    pub fn with_token(&self, token: Option<SecretString>) -> Result<Self> {
        let tokens = Arc::new(StaticToken::new(token)?);
        Ok(Self { inner: Arc::new(Inner { tokens, ..Inner::clone(&self.inner) }) })
    }

    /// A client whose reads have this consistency when they ask for none,
    /// over the same connections.
    #[must_use]
    pub fn with_consistency(&self, consistency: Consistency) -> Self {
        Self { inner: Arc::new(Inner { consistency, ..Inner::clone(&self.inner) }) }
    }

    /// A client over the same connections each of whose reads shows what any
    /// read that has ended before it began has shown: all are answered by the
    /// leader, also those that would be content with less.
    pub(crate) fn ordered(&self) -> Self {
        Self { inner: Arc::new(Inner { ordered: true, ..Inner::clone(&self.inner) }) }
    }

    /// Such a client whose leader also makes sure that it still leads, and has
    /// caught up with what was acknowledged before it was elected.
    pub(crate) fn confirmed(&self) -> Self {
        self.ordered().with_consistency(Consistency::Consistent)
    }

    /// A client over the same connections that uses no more of them than the budget allows.
    pub(crate) fn within(&self, budget: &Budget) -> Self {
        let budget = Some(budget.clone());
        Self { inner: Arc::new(Inner { budget, ..Inner::clone(&self.inner) }) }
    }

    /// Returns `true` if requests share a connection, as far as is known.
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.inner.multiplexed.load(Ordering::Relaxed)
    }

    /// Returns the address that requests go to, without credentials.
    pub fn address(&self) -> &str {
        &self.inner.name
    }

    /// Sends a request for which there is no method.
    ///
    /// # Errors
    ///
    /// [`Error::Transport`] or [`Error::Timeout`] when there was no answer,
    /// [`Error::Status`] for one outside 2xx that the request does not accept.
    pub async fn send(&self, request: Request) -> Result<Response> {
        let span = tracing::debug_span!("consul.request", consul.operation = request.operation);
        self.exchange(request).instrument(span).await
    }

    /// Sends a request and decodes its JSON answer.
    ///
    /// # Errors
    ///
    /// As [`Client::send`], and [`Error::Decode`].
    pub async fn read<T: DeserializeOwned>(&self, request: Request) -> Result<Answer<T>> {
        let response = self.send(request).await?;
        let value = response.json()?;
        Ok(Answer::new(value, response.into_meta()))
    }

    /// Tells when the token changes, from now on.
    pub(crate) async fn token_watch(&self) -> TokenWatch {
        TokenWatch::new(Arc::clone(&self.inner.tokens)).await
    }

    /// Sends a request with the token of the moment. One that blocks begins again, without
    /// blocking, when the token changes.
    async fn exchange(&self, request: Request) -> Result<Response> {
        let tokens = &self.inner.tokens;
        let token = tokens.token().await?;
        if request.blocks {
            let fresh = request.clone().unblocked();
            tokio::select! {
                biased;
                // An answer that is there is not thrown away for a token that changed meanwhile.
                answer = self.attempt(request, token.as_ref()) => return answer,
                () = tokens.changed(token.as_ref()) => {}
            }
            // Without blocking: what the new token may see can differ although no index moved.
            tracing::debug!("the token has changed");
            let token = tokens.token().await?;
            return self.attempt(fresh, token.as_ref()).await;
        }
        self.attempt(request, token.as_ref()).await
    }

    async fn attempt(&self, request: Request, token: Option<&SecretString>) -> Result<Response> {
        let operation = request.operation;
        let asked = request.clone();
        let limits = ExchangeLimits::new(
            request::header_limit(request.blocks, request.wait, self.inner.request_timeout),
            self.inner.body_idle,
        );
        let mut message = self.assemble(request, token)?;
        // As an extension, since layers and transports of others have to pass it on unseen.
        if let Some(budget) = &self.inner.budget {
            message.extensions_mut().insert(budget.clone());
        }
        let (_open, started) = (Held::request(asked.blocks), Instant::now());
        let answer = self.inner.transport.exchange(message, limits).await;
        let answer = answer.map_err(|error| self.lost(operation, error));
        // The length of a blocking read says when data changed, and nothing about Consul's speed.
        let took = (!asked.blocks).then(|| started.elapsed());
        telemetry::exchange(operation, &answer, took);
        let answer = answer?;
        let multiplexed = answer.version() == http::Version::HTTP_2;
        // A hint for the next division of connections; nothing else is read along with it.
        self.inner.multiplexed.store(multiplexed, Ordering::Relaxed);
        let status = answer.status();
        tracing::debug!(http.status = status.as_u16(), bytes = answer.body().len(), "answered");
        if asked.accepts(status, answer.body()) {
            return Response::new(operation, answer);
        }
        let mut secrets: Vec<(&str, &SecretString)> = Vec::new();
        secrets.extend(token.map(|token| ("<token>", token)));
        if let Some(auth) = &self.inner.authorization {
            secrets.extend([("<basic auth>", &auth.encoded), ("<password>", &auth.password)]);
        }
        Err(response::refused(operation, &answer, &secrets))
    }

    fn lost(&self, operation: &'static str, error: TransportError) -> Error {
        let address = self.inner.name.clone();
        match error {
            TransportError::Timeout { after } => Error::Timeout { operation, address, after },
            TransportError::Failed { source } => Error::Transport { operation, address, source },
        }
    }

    fn assemble(
        &self,
        request: Request,
        token: Option<&SecretString>,
    ) -> Result<http::Request<bytes::Bytes>> {
        let operation = request.operation;
        let request = self.with_defaults(request);
        let uri = request.target(&self.inner.base)?;
        let mut message = http::Request::builder()
            .method(request.method.clone())
            .uri(uri)
            .body(request.body.clone())
            .map_err(|error| Error::Input { operation, problem: error.to_string() })?;
        let headers = message.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(request.content_type));
        self.authorize(headers, token)?;
        if let Some(value) =
            request.cache_control.as_deref().and_then(|text| HeaderValue::from_str(text).ok())
        {
            headers.insert(header::CACHE_CONTROL, value);
        }
        Ok(message)
    }

    fn with_defaults(&self, mut request: Request) -> Request {
        let defaults = [
            ("ns", &self.inner.namespace),
            ("partition", &self.inner.partition),
            ("dc", &self.inner.datacenter),
        ];
        for (name, value) in defaults {
            if !request.has_param(name) {
                request = request.param_if(name, value.as_ref());
            }
        }
        let consistency = match request.consistency {
            Some(Consistency::Default) => self.inner.consistency,
            Some(other) => other,
            None => Consistency::Default,
        };
        match consistency {
            // An agent may be set to answer from any server unless told not to.
            Consistency::Default | Consistency::Stale
                if self.inner.ordered && request.consistency.is_some() =>
            {
                request.uncached().flag("leader")
            }
            Consistency::Default => request,
            Consistency::Stale => request.flag("stale"),
            // The two exclude each other.
            Consistency::Consistent if self.inner.ordered => request.uncached().flag("consistent"),
            Consistency::Consistent => request.flag("consistent"),
        }
    }

    fn authorize(&self, headers: &mut HeaderMap, token: Option<&SecretString>) -> Result<()> {
        if let Some(token) = token {
            headers.insert(TOKEN, token_header(token)?);
        }
        if let Some(auth) = &self.inner.authorization {
            headers.insert(header::AUTHORIZATION, auth.header.clone());
        }
        Ok(())
    }
}

/// Reads Consul's `true` or `false`; agent calls answer nothing at all.
fn accepted(response: &Response) -> Result<bool> {
    response.json()
}

/// The value of a read whose absence is an answer: KV reads answer 404 then.
fn present<T: DeserializeOwned>(response: &Response) -> Result<Option<T>> {
    if response.status() == StatusCode::NOT_FOUND { Ok(None) } else { response.json().map(Some) }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire;
