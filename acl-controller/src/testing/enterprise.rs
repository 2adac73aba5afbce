//! A double of Consul Enterprise's partitions and namespaces, composed of one community double for
//! each.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Transport,
    testing::{DefaultPolicy, TestConsul},
    transport::{ExchangeLimits, TransportError},
};
use http::{Method, Request, Response, StatusCode, Uri};
use serde_json::{Map, Value, json};

const DEFAULT: &str = "default";

/// Consul with partitions and namespaces, with ACLs enabled and denied by default.
///
/// There is one [`TestConsul`] for each namespace of each partition; requests go to the one that
/// their parameters `partition` and `ns` name. Partitions and namespaces are created over its API.
///
/// Its answers follow the documentation and the source of Consul's client; it was not compared with
/// an Enterprise server.
///
/// Cheap to clone; clones are the same Consul.
#[derive(Clone)]
pub struct EnterpriseConsul {
    inner: Arc<Inner>,
}

struct Inner {
    secret: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Scopes by partition and namespace.
    scopes: BTreeMap<(String, String), Scope>,
    /// All requests, as method, path and parameters.
    requests: Vec<String>,
}

struct Scope {
    consul: TestConsul,
    /// Namespace as the API shows it.
    namespace: Value,
    /// Namespace rules by the auth method's name.
    namespace_rules: BTreeMap<String, Value>,
}

impl fmt::Debug for EnterpriseConsul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnterpriseConsul").finish_non_exhaustive()
    }
}

impl EnterpriseConsul {
    /// Creates the partition `default` with its namespace `default`, and a management token with
    /// this secret id that is known everywhere.
    pub fn new(secret: impl Into<String>) -> Self {
        let consul =
            Self { inner: Arc::new(Inner { secret: secret.into(), state: Mutex::default() }) };
        consul.add(DEFAULT, json!({ "Name": DEFAULT }));
        consul
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, partition: &str, namespace: Value) {
        let name = text(&namespace, "Name");
        let consul = TestConsul::builder()
            .acls(DefaultPolicy::Deny)
            .management_token(self.inner.secret.clone())
            // Seeds differ, so that ids do not repeat between scopes.
            .seed(self.state().scopes.len() as u64 + 1)
            .build();
        let scope = Scope { consul, namespace, namespace_rules: BTreeMap::new() };
        self.state().scopes.insert((partition.to_owned(), name), scope);
    }

    /// Creates a partition with its namespace `default`.
    pub fn create_partition(&self, name: &str) {
        self.add(name, json!({ "Name": DEFAULT }));
    }

    /// Removes a partition with everything in it.
    pub fn delete_partition(&self, name: &str) {
        self.state().scopes.retain(|(partition, _), _| partition != name);
    }

    /// Creates a namespace.
    pub fn create_namespace(&self, partition: &str, name: &str) {
        self.add(partition, json!({ "Name": name }));
    }

    /// Returns the double behind a namespace.
    pub fn scope(&self, partition: &str, namespace: &str) -> Option<TestConsul> {
        let key = (partition.to_owned(), namespace.to_owned());
        self.state().scopes.get(&key).map(|scope| scope.consul.clone())
    }

    /// Lists the namespaces of a partition as the API shows them.
    pub fn namespaces(&self, partition: &str) -> Vec<Value> {
        let state = self.state();
        let found = state.scopes.iter().filter(|((name, _), _)| name == partition);
        found.map(|(_, scope)| scope.namespace.clone()).collect()
    }

    /// Lists all requests so far, as method, path and parameters.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Creates a client with the management token.
    ///
    /// # Panics
    ///
    /// If the secret id cannot stand in a header.
    #[expect(clippy::expect_used, reason = "a test double tells a wrong test at once")]
    pub fn client(&self) -> Client {
        let mut config = ClientConfig::default();
        config.token = Some(self.inner.secret.clone().into());
        Client::with_transport(config, Arc::new(self.clone())).expect("the secret can be used")
    }

    async fn forward(
        &self,
        call: &Call,
        scope: (&str, &str),
        request: &Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<Response<Bytes>, TransportError> {
        let Some(consul) = self.scope(scope.0, scope.1) else {
            let text = format!("partition {:?} or namespace {:?} does not exist", scope.0, scope.1);
            return Ok(answer(StatusCode::INTERNAL_SERVER_ERROR, text));
        };
        let mut inner = Request::builder()
            .method(request.method().clone())
            .uri(call.inner_uri())
            .body(Bytes::new())
            .map_err(|error| TransportError::Failed { source: error.into() })?;
        inner.headers_mut().clone_from(request.headers());
        let mut body: Value = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        // The community double refuses these members, as the community server does.
        if let Some(fields) = body.as_object_mut() {
            fields.remove("Namespace");
            fields.remove("Partition");
            if let Some(service) = fields.get_mut("Service").and_then(Value::as_object_mut) {
                service.remove("Namespace");
                service.remove("Partition");
            }
            let rules = fields.remove("NamespaceRules");
            if call.path.starts_with("/v1/acl/auth-method") && call.method == Method::PUT {
                let name = fields.get("Name").and_then(Value::as_str).unwrap_or_default();
                self.keep_rules(scope, name, rules);
            }
            *inner.body_mut() = body.to_string().into();
        } else {
            inner.body_mut().clone_from(request.body());
        }
        let mut response = consul.transport().exchange(inner, limits).await?;
        if call.path.starts_with("/v1/acl/")
            && let Ok(mut value) = serde_json::from_slice::<Value>(response.body())
        {
            self.place(scope, call, &mut value);
            *response.body_mut() = value.to_string().into();
        }
        Ok(response)
    }

    fn keep_rules(&self, scope: (&str, &str), method: &str, rules: Option<Value>) {
        let mut state = self.state();
        if let Some(scope) = state.scopes.get_mut(&(scope.0.to_owned(), scope.1.to_owned())) {
            match rules {
                Some(rules) => drop(scope.namespace_rules.insert(method.to_owned(), rules)),
                None => drop(scope.namespace_rules.remove(method)),
            }
        }
    }

    /// Adds partition and namespace to the objects of an answer.
    fn place(&self, scope: (&str, &str), call: &Call, value: &mut Value) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(|item| self.place(scope, call, item)),
            Value::Object(fields) => {
                fields.insert("Namespace".to_owned(), json!(scope.1));
                fields.insert("Partition".to_owned(), json!(scope.0));
                let name = fields.get("Name").and_then(Value::as_str).unwrap_or_default();
                let state = self.state();
                let found = state.scopes.get(&(scope.0.to_owned(), scope.1.to_owned()));
                let rules = found.and_then(|scope| scope.namespace_rules.get(name));
                if let Some(rules) = rules.filter(|_| call.path.contains("auth-method")) {
                    fields.insert("NamespaceRules".to_owned(), rules.clone());
                }
            }
            _ => {}
        }
    }

    /// Answers calls about partitions and namespaces themselves; `None` for other calls.
    fn tenancy(&self, call: &Call, body: &Bytes) -> Option<Response<Bytes>> {
        let partition = call.partition();
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let name = text(&body, "Name");
        let found = match (call.method.as_str(), call.path.as_str()) {
            ("GET", "/v1/partitions") => {
                let mut names: Vec<String> =
                    self.state().scopes.keys().map(|(partition, _)| partition.clone()).collect();
                names.dedup();
                json!(names.iter().map(|name| json!({ "Name": name })).collect::<Vec<_>>())
            }
            ("PUT", "/v1/partition") => {
                if self.scope(&name, DEFAULT).is_some() {
                    let text = format!("partition {name:?} already exists");
                    return Some(answer(StatusCode::INTERNAL_SERVER_ERROR, text));
                }
                self.create_partition(&name);
                json!({ "Name": name })
            }
            ("GET", "/v1/namespaces") if self.scope(&partition, DEFAULT).is_none() => {
                let text = format!("partition {partition:?} does not exist");
                return Some(answer(StatusCode::INTERNAL_SERVER_ERROR, text));
            }
            ("GET", "/v1/namespaces") => Value::Array(self.namespaces(&partition)),
            ("PUT", "/v1/namespace") => {
                if self.scope(&partition, &name).is_some() {
                    let text = format!("Namespace {name:?} already exists");
                    return Some(answer(StatusCode::INTERNAL_SERVER_ERROR, text));
                }
                self.add(&partition, body.clone());
                body
            }
            (method, path) => {
                let name = path.strip_prefix("/v1/namespace/")?;
                let mut state = self.state();
                let key = (partition, name.to_owned());
                let Some(scope) = state.scopes.get_mut(&key) else {
                    return Some(answer(StatusCode::NOT_FOUND, String::new()));
                };
                if method == "PUT" {
                    scope.namespace = body;
                }
                scope.namespace.clone()
            }
        };
        Some(answer(StatusCode::OK, found.to_string()))
    }

    /// Lists the services of a node in all namespaces of its partition.
    async fn node_services(
        &self,
        call: &Call,
        request: &Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<Response<Bytes>, TransportError> {
        let partition = call.partition();
        let (mut node, mut services) = (Value::Null, Vec::new());
        for namespace in self.namespaces(&partition) {
            let name = text(&namespace, "Name");
            let found = self.forward(call, (&partition, &name), request, limits).await?;
            let found: Value = serde_json::from_slice(found.body()).unwrap_or_default();
            if !found.get("Node").is_none_or(Value::is_null) {
                node = found.get("Node").cloned().unwrap_or_default();
            }
            let list = found.get("Services").and_then(Value::as_array).cloned();
            for mut service in list.unwrap_or_default() {
                if let Some(fields) = service.as_object_mut() {
                    fields.insert("Namespace".to_owned(), json!(name));
                }
                services.push(service);
            }
        }
        let value = json!({ "Node": node, "Services": services });
        Ok(answer(StatusCode::OK, value.to_string()))
    }
}

#[async_trait]
impl Transport for EnterpriseConsul {
    async fn exchange(
        &self,
        request: Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<Response<Bytes>, TransportError> {
        let call = Call::read(&request);
        self.state().requests.push(call.shown());
        if let Some(answer) = self.tenancy(&call, request.body()) {
            return Ok(answer);
        }
        if call.path.starts_with("/v1/catalog/node-services/")
            && call.params.get("ns").is_some_and(|ns| ns == "*")
        {
            return self.node_services(&call, &request, limits).await;
        }
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let in_body = |name: &str| {
            let place = body.get(name).or_else(|| body.get("Service")?.get(name));
            place.and_then(Value::as_str).filter(|_| call.path.starts_with("/v1/catalog/"))
        };
        let partition = in_body("Partition").map_or_else(|| call.partition(), str::to_owned);
        let namespace = in_body("Namespace").map_or_else(|| call.namespace(), str::to_owned);
        // A node exists once for all namespaces.
        let is_node = body.get("ServiceID").is_none() && call.path == "/v1/catalog/deregister";
        if is_node {
            for other in self.namespaces(&partition) {
                self.forward(&call, (&partition, &text(&other, "Name")), &request, limits).await?;
            }
        }
        self.forward(&call, (&partition, &namespace), &request, limits).await
    }
}

/// Request, taken apart.
struct Call {
    method: Method,
    path: String,
    params: Map<String, Value>,
}

impl Call {
    fn read(request: &Request<Bytes>) -> Self {
        let uri: &Uri = request.uri();
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let params = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), json!(value.replace("%2A", "*")))
        });
        Self {
            method: request.method().clone(),
            path: uri.path().to_owned(),
            params: params.collect(),
        }
    }

    fn param(&self, name: &str) -> String {
        let found = self.params.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
        found.unwrap_or(DEFAULT).to_owned()
    }

    fn partition(&self) -> String {
        self.param("partition")
    }

    fn namespace(&self) -> String {
        self.param("ns")
    }

    fn shown(&self) -> String {
        let params: Vec<String> = self
            .params
            .iter()
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
            .collect();
        let mark = if params.is_empty() { "" } else { "?" };
        format!("{} {}{mark}{}", self.method, self.path, params.join("&"))
    }

    /// Returns the URI without partition and namespace.
    fn inner_uri(&self) -> String {
        let params: Vec<String> = self
            .params
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "ns" | "partition"))
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
            .collect();
        format!("http://consul{}?{}", self.path, params.join("&"))
    }
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn answer(status: StatusCode, text: String) -> Response<Bytes> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
}
