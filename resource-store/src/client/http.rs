//! The client of a service behind HTTP.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use reqwest::{
    Certificate, Identity, Method, RequestBuilder, Response, StatusCode, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header::{HeaderValue, InvalidHeaderValue},
    redirect,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::ResourceClient;
use crate::{
    backend::{Consistency, WatchEvent},
    code::{Code, RpcError},
    error_chain::error_chain,
    json::{JsonCodec, JsonError},
    pb::{
        Any, DeleteRequest, Id, ListRequest, Resource, Tenancy, Type, WatchListRequest,
        WriteStatusRequest,
    },
    registry::Registry,
    schema::Schema,
    service::{EventStream, RequestContext},
};

const CALL_TIMEOUT: Duration = Duration::from_mins(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the line of the largest resource that a server takes.
const LONGEST_LINE: usize = 256 << 20;
/// The header that carries the token.
const TOKEN: &str = "x-consul-token";

/// Connection settings of a client: address, time limits and TLS.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct HttpClientConfig {
    /// Address of the server: `http://host:port`, or `https://host:port` for TLS. A path in
    /// it stands before `/api`.
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
    /// Time limit of a call, and of a watch until it begins; one minute if not set.
    pub call_timeout: Option<Duration>,
    /// Interval of questions to the server whether it is there still, while nothing else
    /// comes from it, also between calls; 20 seconds if not set.
    pub keepalive_interval: Option<Duration>,
    /// Time limit of the answer to that, before the connection counts as dead
    /// and every call and watch on it fails; 10 seconds if not set.
    pub keepalive_timeout: Option<Duration>,
    /// Speaks HTTP/1.1 with what stands before the server and knows nothing else. Then TCP
    /// asks whether that is there still, and nobody whether the server behind it is.
    pub http1_only: bool,
}

impl HttpClientConfig {
    /// Reaches the server of a URL.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }
}

/// Uses a service behind HTTP, in JSON.
///
/// Its JSON names data by the fields of their type, so the client has a registry of the
/// types that it reads and writes. In a list of what a resource owns, data of other types
/// are left out.
///
/// It speaks to servers of this crate. Consul's own has the paths to read, write, list and
/// delete, and answers the rest as if it were one of these.
///
/// One connection of HTTP/2 serves all clones and calls, unless
/// [`HttpClientConfig::http1_only`] is set, and is made again when it breaks.
///
/// No call is repeated, no redirect followed, and no proxy of the environment used. A change
/// fails with [`Code::Unavailable`] if nothing was sent, and with [`Code::Unknown`] or
/// [`Code::DeadlineExceeded`] if it may have taken effect. A watch ends with an error;
/// [`resuming_watch`](crate::resuming_watch) goes on. The status in a written resource is not
/// sent: what is stored stays.
#[derive(Debug, Clone)]
pub struct HttpClient {
    inner: reqwest::Client,
    base: Url,
    registry: Arc<Registry>,
    codec: JsonCodec,
    context: RequestContext,
    call_timeout: Duration,
}

impl HttpClient {
    /// A client of these types that connects when it is first used.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidArgument`] if the URL or a certificate is malformed.
    pub fn new(config: &HttpClientConfig, registry: Registry) -> Result<Self, RpcError> {
        let mut base = Url::parse(&config.url)
            .map_err(|e| RpcError::invalid(format!("{:?} is no URL: {e}", config.url)))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            let text = format!("{:?} is no URL of HTTP: http://host:port is expected", config.url);
            return Err(RpcError::invalid(text));
        }
        let inner = connection(config, &mut base)?;
        let codec = JsonCodec::new().map_err(|e| RpcError::internal(e.to_string()))?;
        let call_timeout = config.call_timeout.unwrap_or(CALL_TIMEOUT);
        let (registry, context) = (Arc::new(registry), RequestContext::default());
        Ok(Self { inner, base, registry, codec, context, call_timeout })
    }

    /// The same client with another token or consistency.
    #[must_use]
    pub fn with_context(mut self, context: RequestContext) -> Self {
        self.context = context;
        self
    }

    /// Starts a request about a type, or about one resource of it.
    fn request(
        &self,
        method: Method,
        ty: Option<&Type>,
        name: Option<&str>,
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, RpcError> {
        let ty = ty.ok_or_else(|| RpcError::invalid("type is required"))?;
        let mut url = self.base.clone();
        let parts = [&ty.group, &ty.group_version, &ty.kind].map(|part| part.to_lowercase());
        let segments = parts.iter().map(String::as_str).chain(name);
        // The first two are no segments of a path: they would lead elsewhere.
        if let Some(bad) = segments.clone().find(|text| matches!(*text, "." | "..")) {
            return Err(RpcError::invalid(format!("{bad:?} is no name")));
        }
        let cannot = |()| RpcError::invalid("the URL has no path");
        url.path_segments_mut().map_err(cannot)?.pop_if_empty().push("api").extend(segments);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.inner.request(method, url);
        if let Some(token) = &self.context.token {
            let malformed =
                |_: InvalidHeaderValue| RpcError::invalid("the token is not printable ASCII");
            let mut value = HeaderValue::from_str(token.expose_secret()).map_err(malformed)?;
            value.set_sensitive(true);
            request = request.header(TOKEN, value);
        }
        Ok(request)
    }

    fn request_of_id(
        &self,
        method: Method,
        id: &Id,
        more: &[(&str, &str)],
    ) -> Result<RequestBuilder, RpcError> {
        let mut query = tenancy_query(id.tenancy.as_ref());
        if !id.uid.is_empty() {
            query.push(("uid", &id.uid));
        }
        query.extend(more.iter().filter(|(key, value)| *key != "version" || !value.is_empty()));
        self.request(method, id.r#type.as_ref(), Some(&id.name), &query)
    }

    /// Sends a request and takes the whole answer, in the time that a call may take.
    async fn call(&self, kind: Kind, request: RequestBuilder) -> Result<Vec<u8>, RpcError> {
        let answer = async {
            let response = accepted(kind, request.send().await).await?;
            response.bytes().await.map(Vec::from).map_err(|error| kind.failure(&error))
        };
        self.within(answer).await
    }

    async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, RpcError>> + Send,
    ) -> Result<T, RpcError> {
        tokio::time::timeout(self.call_timeout, answer).await.unwrap_or_else(|_elapsed| {
            let text = format!("no answer within {} ms", self.call_timeout.as_millis());
            Err(RpcError::new(Code::DeadlineExceeded, text))
        })
    }

    async fn get(&self, id: &Id, consistency: Consistency) -> Result<Resource, RpcError> {
        let fresh: &[_] =
            if consistency == Consistency::Strong { &[("consistent", "")] } else { &[] };
        let request = self.request_of_id(Method::GET, id, fresh)?;
        self.resource(&self.call(Kind::Question, request).await?)
    }

    async fn put(&self, kind: Kind, resource: Resource, dry: bool) -> Result<Resource, RpcError> {
        let id = resource.id.clone().ok_or_else(|| RpcError::invalid("resource.id is required"))?;
        let ty = id.r#type.clone().unwrap_or_default();
        let schema = self.schema(&ty).ok_or_else(|| unknown_type(&ty))?;
        let version = resource.version.clone();
        let body = Resource {
            owner: resource.owner,
            metadata: resource.metadata,
            // None is the default message, and a body without data is refused.
            data: Some(
                resource
                    .data
                    .unwrap_or_else(|| Any { type_url: schema.type_url(), value: Vec::new() }),
            ),
            ..Resource::default()
        };
        let body = self.codec.resource(&body, &schema).map_err(|e| not_sent(&e))?;
        let mut query = vec![("version", version.as_str())];
        if dry {
            query.push(("dry_run", ""));
        }
        let request = self.request_of_id(Method::PUT, &id, &query)?.body(body.to_string());
        self.resource(&self.call(kind, request).await?)
    }

    fn schema(&self, ty: &Type) -> Option<Schema> {
        self.registry.resolve(ty).map(|registration| registration.schema().clone())
    }

    fn resource(&self, answer: &[u8]) -> Result<Resource, RpcError> {
        self.read(parsed(answer)?)
    }

    /// Reads a resource; one of a type that is not known here without its data.
    fn read(&self, mut value: Value) -> Result<Resource, RpcError> {
        let ty = value.pointer("/id/type").and_then(|ty| {
            let part = |name| ty.get(name).and_then(Value::as_str);
            Some(Type::new(part("group")?, part("groupVersion")?, part("kind")?))
        });
        if ty.is_none_or(|ty| self.registry.resolve(&ty).is_none())
            && let Some(fields) = value.as_object_mut()
        {
            fields.remove("data");
        }
        let read = self.codec.read_resource(&value, |ty| self.schema(ty));
        read.map_err(|error| malformed(&error))
    }

    async fn resources(&self, request: RequestBuilder) -> Result<Vec<Resource>, RpcError> {
        let mut answer = parsed(&self.call(Kind::Question, request).await?)?;
        match answer.get_mut("resources").map(Value::take) {
            Some(Value::Array(found)) => found.into_iter().map(|value| self.read(value)).collect(),
            _ => Err(malformed(&"a list of resources is expected")),
        }
    }

    fn event(&self, line: &[u8]) -> Result<WatchEvent, RpcError> {
        let mut value = parsed(line)?;
        let mut resource = |key| Some(value.get_mut(key)?.get_mut("resource")?.take());
        if let Some(resource) = resource("upsert") {
            return Ok(WatchEvent::Upsert(Arc::new(self.read(resource)?)));
        }
        if let Some(resource) = resource("delete") {
            return Ok(WatchEvent::Delete(Arc::new(self.read(resource)?)));
        }
        if value.get("endOfSnapshot").is_some() {
            return Ok(WatchEvent::EndOfSnapshot);
        }
        let text = |key| value.pointer(key).and_then(Value::as_str).unwrap_or_default();
        Err(match text("/error/code") {
            "" => malformed(&"an event is expected"),
            code => RpcError::new(Code::from_name(code), text("/error/message")),
        })
    }
}

/// The connections of a client. Where the server's certificate has another name than its
/// host, `base` gets that name, and the name leads to the host.
fn connection(config: &HttpClientConfig, base: &mut Url) -> Result<reqwest::Client, RpcError> {
    let invalid = |error: reqwest::Error| RpcError::invalid(error_chain(&error));
    let mut builder = reqwest::Client::builder()
        .connect_timeout(config.connect_timeout.unwrap_or(CONNECT_TIMEOUT))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .tcp_nodelay(true);
    let interval = config.keepalive_interval.unwrap_or(KEEPALIVE_INTERVAL);
    let patience = config.keepalive_timeout.unwrap_or(KEEPALIVE_TIMEOUT);
    builder = if config.http1_only {
        let asked = builder.http1_only().tcp_keepalive(interval);
        asked.tcp_keepalive_interval(patience).tcp_keepalive_retries(1)
    } else {
        let asked = builder.http2_prior_knowledge().http2_keep_alive_interval(interval);
        asked.http2_keep_alive_timeout(patience).http2_keep_alive_while_idle(true)
    };
    if base.scheme() == "https" {
        let authorities = match &config.ca_pem {
            Some(pem) => Certificate::from_pem_bundle(pem.as_bytes()).map_err(invalid)?,
            None => Vec::new(),
        };
        builder = builder.tls_certs_only(authorities);
        if let Some((certificate, key)) = &config.identity_pem {
            // Zeroed where it is dropped, as the key is.
            let pem = SecretString::from(format!("{}\n{certificate}", key.expose_secret()));
            let identity = Identity::from_pem(pem.expose_secret().as_bytes()).map_err(invalid)?;
            builder = builder.identity(identity);
        }
        if let Some(name) = &config.server_name {
            let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            base.set_host(Some(name))
                .map_err(|e| RpcError::invalid(format!("{name:?} is no name of a server: {e}")))?;
            if base.domain().is_none() {
                let text = format!("{name:?} is an address; the name in a certificate is expected");
                return Err(RpcError::invalid(text));
            }
            builder = builder.dns_resolver(Arc::new(OneHost(host)));
        }
    }
    builder.build().map_err(invalid)
}

/// Resolves every name to the addresses of one host.
#[derive(Debug)]
struct OneHost(String);

impl Resolve for OneHost {
    fn resolve(&self, _name: Name) -> Resolving {
        let host = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Gives the parameters that name a tenancy.
fn tenancy_query(tenancy: Option<&Tenancy>) -> Vec<(&str, &str)> {
    let Some(tenancy) = tenancy else { return Vec::new() };
    let units = [("partition", &*tenancy.partition), ("namespace", &*tenancy.namespace)];
    units.into_iter().filter(|(_, unit)| !unit.is_empty()).collect()
}

/// The kind of a call, which says what a failure leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Question,
    Change,
}

impl Kind {
    /// Says why there is no answer.
    fn failure(self, error: &reqwest::Error) -> RpcError {
        // With the address, which the text of the error has without a secret.
        let text = error_chain(error);
        if error.is_builder() {
            return RpcError::invalid(text);
        }
        if error.is_connect() {
            return RpcError::new(Code::Unavailable, text);
        }
        self.lost(&text)
    }

    /// Says what is known where an answer was lost on its way.
    fn lost(self, cause: &str) -> RpcError {
        match self {
            Self::Question => RpcError::new(Code::Unavailable, cause),
            Self::Change => {
                let text = format!(
                    "the outcome is unknown, because the connection failed: {cause}; read the \
                     resource again before repeating it"
                );
                RpcError::new(Code::Unknown, text)
            }
        }
    }
}

/// Gives the answer of a server that did what it was asked for.
async fn accepted(
    kind: Kind,
    sent: Result<Response, reqwest::Error>,
) -> Result<Response, RpcError> {
    let response = sent.map_err(|error| kind.failure(&error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.map_err(|error| kind.failure(&error))?;
    let text = text.trim_end_matches('\n');
    Err(RpcError::parse(text).unwrap_or_else(|| refusal(kind, status, text)))
}

/// Reads the status of an answer that is none of the service.
fn refusal(kind: Kind, status: StatusCode, text: &str) -> RpcError {
    let code = match status {
        // Without the service's word for it, not that a resource is not there: it is the path.
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Code::InvalidArgument,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Code::Unimplemented,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        // Of a proxy that had no answer of the server, either.
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
            return kind.lost(&format!("{status}: {text}"));
        }
        _ => Code::Internal,
    };
    RpcError::new(code, format!("{status}: {text}"))
}

fn parsed(answer: &[u8]) -> Result<Value, RpcError> {
    serde_json::from_slice(answer).map_err(|error| malformed(&error))
}

fn malformed(error: &dyn std::fmt::Display) -> RpcError {
    RpcError::internal(format!("the server's answer is not understood: {error}"))
}

fn not_sent(error: &JsonError) -> RpcError {
    RpcError::invalid(format!("resource.data: {error}"))
}

fn unknown_type(ty: &Type) -> RpcError {
    RpcError::invalid(format!("resource type {ty} not registered with this client"))
}

/// Splits what comes in into lines.
struct Lines<S> {
    pieces: S,
    /// The bytes after the last whole line.
    rest: Vec<u8>,
    /// As much of `rest` was searched.
    searched: usize,
}

impl<S, B> Lines<S>
where
    S: futures::Stream<Item = Result<B, reqwest::Error>> + Unpin,
    B: AsRef<[u8]>,
{
    /// Gives the next line; `None` at the end of what comes in.
    async fn next(&mut self) -> Option<Result<Vec<u8>, RpcError>> {
        loop {
            let found = self.rest.get(self.searched..).and_then(|new| {
                let end = new.iter().position(|byte| *byte == b'\n')?;
                Some(self.searched + end)
            });
            if let Some(end) = found {
                let after = self.rest.split_off(end + 1);
                self.searched = 0;
                return Some(Ok(std::mem::replace(&mut self.rest, after)));
            }
            self.searched = self.rest.len();
            if self.searched > LONGEST_LINE {
                return Some(Err(malformed(&format!("a line of more than {LONGEST_LINE} bytes"))));
            }
            match self.pieces.next().await? {
                Ok(piece) => self.rest.extend_from_slice(piece.as_ref()),
                Err(error) => return Some(Err(Kind::Question.failure(&error))),
            }
        }
    }
}

#[async_trait]
impl ResourceClient for HttpClient {
    async fn read(&self, id: Id) -> Result<Resource, RpcError> {
        self.get(&id, self.context.consistency).await
    }

    async fn read_strong(&self, id: Id) -> Result<Resource, RpcError> {
        self.get(&id, Consistency::Strong).await
    }

    async fn write(&self, resource: Resource) -> Result<Resource, RpcError> {
        self.put(Kind::Change, resource, false).await
    }

    async fn write_status(&self, request: WriteStatusRequest) -> Result<Resource, RpcError> {
        let id = request.id.unwrap_or_default();
        let status = request.status.ok_or_else(|| RpcError::invalid("status is required"))?;
        let body = self.codec.status(&status).map_err(|e| not_sent(&e))?;
        let query = [("status", &*request.key), ("version", &*request.version)];
        let request = self.request_of_id(Method::PUT, &id, &query)?.body(body.to_string());
        self.resource(&self.call(Kind::Change, request).await?)
    }

    async fn list(&self, request: ListRequest) -> Result<Vec<Resource>, RpcError> {
        let tenancy = request.tenancy.ok_or_else(|| RpcError::invalid("tenancy is required"))?;
        let mut query = tenancy_query(Some(&tenancy));
        if !request.name_prefix.is_empty() {
            query.push(("name_prefix", &request.name_prefix));
        }
        if self.context.consistency == Consistency::Strong {
            query.push(("consistent", ""));
        }
        self.resources(self.request(Method::GET, request.r#type.as_ref(), None, &query)?).await
    }

    async fn list_by_owner(&self, owner: Id) -> Result<Vec<Resource>, RpcError> {
        self.resources(self.request_of_id(Method::GET, &owner, &[("owned", "")])?).await
    }

    async fn delete(&self, request: DeleteRequest) -> Result<(), RpcError> {
        let id = request.id.unwrap_or_default();
        let request = self.request_of_id(Method::DELETE, &id, &[("version", &*request.version)])?;
        self.call(Kind::Change, request).await.map(drop)
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<EventStream, RpcError> {
        let mut query = tenancy_query(request.tenancy.as_ref());
        query.push(("watch", ""));
        if !request.name_prefix.is_empty() {
            query.push(("name_prefix", &request.name_prefix));
        }
        let request = self.request(Method::GET, request.r#type.as_ref(), None, &query)?;
        // The time of a watch is not limited, only that until it begins.
        let begun = async { accepted(Kind::Question, request.send().await).await };
        let pieces = self.within(begun).await?.bytes_stream().boxed();
        let lines = Lines { pieces, rest: Vec::new(), searched: 0 };
        // Ends with the first error: what comes after it could be of any time.
        let watch = Some((lines, self.clone()));
        let events = stream::unfold(watch, |watch| async move {
            let (mut lines, client) = watch?;
            match lines.next().await?.and_then(|line| client.event(&line)) {
                Ok(event) => Some((Ok(event), Some((lines, client)))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(events.boxed())
    }

    async fn mutate_and_validate(&self, resource: Resource) -> Result<Resource, RpcError> {
        self.put(Kind::Question, resource, true).await
    }
}
