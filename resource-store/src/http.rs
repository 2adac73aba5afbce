//! The service behind HTTP, in JSON.
//!
//! `GET`, `PUT` and `DELETE` of `/api/<group>/<version>/<kind>/<name>`, and
//! `GET` of `/api/<group>/<version>/<kind>` for lists; the path is in lower
//! case. A `version` in the body of a `PUT`, or in the query, makes it
//! conditional; without one it replaces what is stored. With `?watch` a list is a watch: one JSON object a line, each
//! `{"upsert": …}`, `{"delete": …}` or `{"endOfSnapshot": {}}`, and in the end
//! `{"error": …}`; over HTTP, Consul has none.
//!
//! Nor has it these, which `HttpClient` needs: `?uid=` names one incarnation of a resource;
//! a `PUT` with `?status=<key>` sets that key of the status, whose JSON is the body; a `PUT`
//! with `?dry_run` answers with what it would store; a `GET` of a resource with `?owned`
//! lists what it owns, of all types.
//!
//! Source: `internal/resource/http/http.go`, Consul 1.21.

mod answer;
mod body;
mod request;
mod watch;

use std::{collections::HashMap, sync::Arc};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
    routing::any,
};
use http::{Method, StatusCode};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::request::{Params, Target};
use crate::{
    code::RpcError,
    json::{JsonCodec, JsonError},
    pb::{
        DeleteRequest, Id, ListByOwnerRequest, ListRequest, MutateAndValidateRequest, ReadRequest,
        Resource, Type, WatchListRequest, WriteRequest, WriteStatusRequest,
    },
    registry::Registration,
    service::{self, Parity, RequestContext, ResourceService},
};

/// The largest body that is taken by default.
const MAX_BODY: usize = 50 << 20;

/// The HTTP+JSON API of a service, as routes below `/api`.
#[derive(Debug, Clone)]
pub struct HttpApi {
    service: ResourceService,
    codec: JsonCodec,
    /// By path: `group/version/kind` in lower case.
    types: Arc<HashMap<String, Arc<Registration>>>,
    max_body: usize,
    stop: CancellationToken,
    /// Permits of watches: one for each that may still begin.
    watches: Arc<Semaphore>,
}

impl HttpApi {
    /// The API of the types that the service knows.
    ///
    /// # Errors
    ///
    /// If the descriptors built into this crate are broken, which its tests
    /// rule out.
    pub fn new(service: ResourceService) -> Result<Self, JsonError> {
        let types = service.registry().types().map(|registration| {
            let Type { group, group_version, kind } = registration.resource_type();
            (format!("{group}/{group_version}/{kind}").to_lowercase(), Arc::clone(registration))
        });
        let types = Arc::new(types.collect());
        let stop = CancellationToken::new();
        let watches = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let codec = JsonCodec::new()?;
        Ok(Self { service, codec, types, max_body: MAX_BODY, stop, watches })
    }

    /// Sets the largest body that is taken; 50 MiB if this is not called.
    #[must_use]
    pub fn with_max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Takes a permit for each watch, so that there are only so many; as many as
    /// come if this is not called.
    #[must_use]
    pub fn with_watch_permits(mut self, watches: Arc<Semaphore>) -> Self {
        self.watches = watches;
        self
    }

    /// Ends watches when `stop` is cancelled, so that a server can drain.
    #[must_use]
    pub fn with_stop(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// Builds the routes. What is not below `/api` is answered with 404 and a
    /// text, or, to clients of gRPC, with `UNIMPLEMENTED`.
    pub fn into_router(self) -> Router {
        Router::new()
            .route("/api", any(|| async { answer::redirect("/api/") }))
            .route("/api/{*path}", any(handle))
            .fallback(answer::no_such_path)
            .with_state(self)
    }

    async fn one(
        &self,
        at: &Place<'_>,
        name: &str,
        method: &Method,
        body: Body,
    ) -> Result<Response, Failure> {
        let id = at.params.id(at.registration.resource_type(), name);
        match *method {
            Method::GET if at.params.has("owned") => {
                let request = ListByOwnerRequest { owner: Some(id) };
                let found = self.service.list_by_owner(&at.context, request).await?;
                let registry = self.service.registry();
                let of = |found: &Resource| registry.resolve(found.resource_type()?).cloned();
                answer::list(&self.codec, &found, of).await
            }
            Method::GET => {
                let context = at.params.context_of_read(at.context.clone());
                let found = self.service.read(&context, ReadRequest { id: Some(id) }).await?;
                answer::resource(&self.codec, &found, at.registration)
            }
            Method::PUT => {
                let body = to_bytes(body, self.max_body).await.map_err(|e| refused(&e))?;
                let stored = match at.params.status() {
                    Some(key) => self.put_status(at, id, key, &body).await?,
                    None => self.put(at, id, &body).await?,
                };
                answer::resource(&self.codec, &stored, at.registration)
            }
            Method::DELETE => {
                let request = DeleteRequest { id: Some(id), version: at.params.version() };
                self.service.delete(&at.context, request).await?;
                Ok(answer::empty(StatusCode::NO_CONTENT))
            }
            _ => Ok(answer::empty(StatusCode::METHOD_NOT_ALLOWED)),
        }
    }

    /// Writes a resource, or says what a write would store.
    async fn put(&self, at: &Place<'_>, id: Id, body: &[u8]) -> Result<Arc<Resource>, Failure> {
        let content = request::parse_body(body, &self.codec, at.registration.schema())?;
        let version = self.version_of_write(at.params.version(), &content.version)?;
        let resource = Some(Resource { id: Some(id), version, ..content });
        if at.params.has("dry_run") {
            let request = MutateAndValidateRequest { resource };
            let made = self.service.mutate_and_validate(&at.context, request).await?;
            return Ok(Arc::new(made));
        }
        Ok(self.service.write(&at.context, WriteRequest { resource }).await?)
    }

    async fn put_status(
        &self,
        at: &Place<'_>,
        id: Id,
        key: &str,
        body: &[u8],
    ) -> Result<Arc<Resource>, Failure> {
        let request = WriteStatusRequest {
            id: Some(id),
            version: at.params.version(),
            key: key.to_owned(),
            status: Some(request::parse_status(body, &self.codec)?),
        };
        Ok(self.service.write_status(&at.context, request).await?)
    }

    async fn audit(
        &self,
        at: &Place<'_>,
        target: &Target,
        method: &Method,
        failure: Option<&Failure>,
    ) {
        let call = match (&target.name, method) {
            (Some(_), &Method::GET) if at.params.has("owned") => "ListByOwner",
            (Some(_), &Method::GET) => "Read",
            (Some(_), &Method::PUT) if at.params.status().is_some() => "WriteStatus",
            (Some(_), &Method::PUT) if at.params.has("dry_run") => "MutateAndValidate",
            (Some(_), &Method::PUT) => "Write",
            (Some(_), &Method::DELETE) => "Delete",
            (None, &Method::GET) if at.params.has("watch") => "WatchList",
            (None, &Method::GET) => "List",
            _ => return,
        };
        let ty = at.registration.resource_type();
        let about = match &target.name {
            Some(name) => at.params.id(ty, name).to_string(),
            None => ty.to_string(),
        };
        let invalid = RpcError::invalid("");
        let failure = failure.map(|failure| match failure {
            Failure::Rpc(error) => error,
            Failure::Body(_) | Failure::TooLarge => &invalid,
        });
        self.service.audit(&at.context, call, &about, failure).await;
    }

    /// Gives the version to compare: that of the query, or of the body.
    ///
    /// Deviation: upstream does not read the one in the body, so that of two
    /// who read, change and write back the first one's change is lost.
    fn version_of_write(&self, query: String, body: &str) -> Result<String, Failure> {
        if body.is_empty() || self.service.parity() == Parity::Upstream {
            return Ok(query);
        }
        if !query.is_empty() && query != body {
            let text = format!("version is {query:?} in the query and {body:?} in the body");
            return Err(Failure::Body(text));
        }
        Ok(body.to_owned())
    }

    async fn many(&self, at: &Place<'_>, method: &Method) -> Result<Response, Failure> {
        if *method != Method::GET {
            return Ok(answer::empty(StatusCode::METHOD_NOT_ALLOWED));
        }
        let r#type = Some(at.registration.resource_type().clone());
        let (tenancy, name_prefix) = (Some(at.params.tenancy()), at.params.name_prefix());
        if at.params.has("watch") {
            let request = WatchListRequest { r#type, tenancy, name_prefix };
            let place = service::watch_permit(&self.watches)?;
            let events = self.service.watch_list(&at.context, request).await?;
            let registration = Arc::clone(at.registration);
            let (codec, stop) = (self.codec.clone(), self.stop.clone());
            return Ok(watch::lines(events, codec, registration, stop, place));
        }
        let context = at.params.context_of_list(at.context.clone());
        let found =
            self.service.list(&context, ListRequest { r#type, tenancy, name_prefix }).await?;
        answer::list(&self.codec, &found, |_| Some(Arc::clone(at.registration))).await
    }
}

/// Why a body is not taken.
fn refused(error: &axum::Error) -> Failure {
    #[cfg(feature = "grpc")]
    {
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = cause {
            if let Some(status) = error.downcast_ref::<tonic::Status>()
                && status.code() == tonic::Code::ResourceExhausted
            {
                return RpcError::new(crate::Code::ResourceExhausted, status.message()).into();
            }
            cause = error.source();
        }
    }
    #[cfg(not(feature = "grpc"))]
    let _ = error;
    Failure::TooLarge
}

/// The subject of a request: its type, its parameters and its caller.
struct Place<'a> {
    registration: &'a Arc<Registration>,
    params: Params,
    context: RequestContext,
}

/// Why there is no answer of the usual form.
#[derive(Debug)]
enum Failure {
    /// The service refused.
    Rpc(RpcError),
    /// The body is malformed.
    Body(String),
    /// The body is larger than is taken.
    TooLarge,
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

async fn handle(State(api): State<HttpApi>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Some(target) = Target::parse(parts.uri.path()) else {
        return answer::not_found("the path is /api/<group>/<version>/<kind>, or that and a name");
    };
    let Some(registration) = api.types.get(&target.type_path) else {
        let text = format!(
            "resource type {} not registered; group, version and kind are in lower case",
            target.type_path
        );
        return answer::not_found(&text);
    };
    let params = Params::parse(parts.uri.query().unwrap_or_default(), &parts.headers);
    #[cfg_attr(not(feature = "grpc"), expect(unused_mut, reason = "only servers know the peer"))]
    let mut context = params.context(&parts.headers);
    #[cfg(feature = "grpc")]
    {
        let info = parts.extensions.get::<tonic::transport::server::TcpConnectInfo>();
        context.peer = info.and_then(tonic::transport::server::TcpConnectInfo::remote_addr);
    }
    let at = Place { registration, params, context };
    let result = match &target.name {
        Some(name) => api.one(&at, name, &parts.method, body).await,
        None => api.many(&at, &parts.method).await,
    };
    api.audit(&at, &target, &parts.method, result.as_ref().err()).await;
    result.unwrap_or_else(|failure| answer::failure(&failure))
}
