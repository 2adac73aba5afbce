//! One request of the client and its answer, over TCP or a unix socket.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use consul_watch::{
    Transport, error_chain,
    transport::{ExchangeLimits, SocketTransport},
};
use http::{HeaderValue, Method, Request, Response, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{ClientConfig, Error, Result, TlsConfig};
use crate::{PLAIN_TO_TLS, REQUEST_ID, wire::ErrorDocument};

/// Everything but the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The longest silence while an answer arrives.
const BODY_IDLE: Duration = Duration::from_secs(30);

const TLS_EXPECTED: &str = "the server may serve https: use https:// in the address";

/// An answer, and the request's name in the server's log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answered<T> {
    /// The body of the answer.
    pub value: T,
    /// Names the request in the server's log; upstream does not always tell it.
    pub request_id: Option<String>,
}

impl<T> Answered<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Answered<U> {
        Answered { value: change(self.value), request_id: self.request_id }
    }

    pub(super) fn try_map<U>(self, change: impl FnOnce(T) -> Result<U>) -> Result<Answered<U>> {
        Ok(Answered { value: change(self.value)?, request_id: self.request_id })
    }
}

/// A request to the API: method, path, query and body.
#[derive(Debug)]
pub(super) struct Call {
    operation: &'static str,
    method: Method,
    target: String,
    parameters: Vec<String>,
    body: Option<Bytes>,
}

impl Call {
    pub(super) fn new(operation: &'static str, method: Method, path: &str) -> Self {
        Self { operation, method, target: path.to_owned(), parameters: Vec::new(), body: None }
    }

    pub(super) fn segment(mut self, text: &str) -> Self {
        self.target.push('/');
        // A segment of dots alone would be taken for a way up.
        match text {
            "." => self.target.push_str("%2E"),
            ".." => self.target.push_str("%2E%2E"),
            _ => self.target.extend(utf8_percent_encode(text, SEGMENT)),
        }
        self
    }

    pub(super) fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.push(format!("{name}={}", utf8_percent_encode(value, SEGMENT)));
        self
    }

    pub(super) fn body(mut self, value: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(value)
            .map_err(|error| Error::answer(self.operation, error.to_string()))?;
        self.body = Some(body.into());
        Ok(self)
    }
}

/// Carries out calls.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    base: String,
    transport: Arc<dyn Transport>,
    authorization: Option<HeaderValue>,
    limits: ExchangeLimits,
}

impl Exchange {
    pub(super) fn new(config: &ClientConfig) -> Result<Self> {
        let address = config.address.as_str();
        let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
        let rest = rest.trim_end_matches('/');
        if !["http", "https", "unix"].contains(&scheme) {
            return Err(Error::config("address", format!("unknown protocol scheme: {scheme}")));
        }
        if rest.is_empty() || rest.starts_with(':') {
            return Err(Error::config("address", "invalid address, host value is empty"));
        }
        check_pair(&config.tls)?;
        let mut settings = consul_watch::ClientConfig::default();
        settings.address = format!("{scheme}://{rest}");
        settings.connect_timeout = config.connect_timeout;
        settings.tls.ca_file.clone_from(&config.tls.ca_file);
        settings.tls.ca_path.clone_from(&config.tls.ca_path);
        settings.tls.client_cert.clone_from(&config.tls.client_cert);
        settings.tls.client_key.clone_from(&config.tls.client_key);
        settings.tls.server_name.clone_from(&config.tls.server_name);
        settings.tls.verify = config.tls.verify;
        let transport = SocketTransport::new(&settings).map_err(unusable)?;
        Ok(Self {
            base: base(scheme, rest, config.tls.server_name.as_deref()),
            transport: Arc::new(transport),
            authorization: authorization(config)?,
            limits: ExchangeLimits::new(config.request_timeout.unwrap_or(Duration::MAX), BODY_IDLE),
        })
    }

    pub(super) async fn send<T: DeserializeOwned>(&self, call: Call) -> Result<Answered<T>> {
        let operation = call.operation;
        let answer = self.answer(call).await?;
        let value = serde_json::from_slice(answer.body())
            .map_err(|error| Error::answer(operation, error.to_string()))?;
        Ok(Answered { value, request_id: request_id(&answer) })
    }

    /// The body of an answer, whatever it is.
    pub(super) async fn fetch(&self, call: Call) -> Result<Bytes> {
        Ok(self.answer(call).await?.into_body())
    }

    async fn answer(&self, call: Call) -> Result<Response<Bytes>> {
        let operation = call.operation;
        let request = self.request(call)?;
        let answer = self.transport.exchange(request, self.limits).await;
        let answer = answer.map_err(|source| {
            // A server that expects TLS hangs up on plain text.
            let text = error_chain(&source);
            let cut = text.contains("connection closed") || text.contains("reset by peer");
            let plain = self.base.starts_with("http://");
            Error::Transport {
                operation,
                address: self.base.clone(),
                hint: (plain && cut).then_some(TLS_EXPECTED),
                source: source.into(),
            }
        })?;
        if !answer.status().is_success() {
            return Err(self.refused(operation, &answer));
        }
        Ok(answer)
    }

    fn request(&self, call: Call) -> Result<Request<Bytes>> {
        let mut target = format!("{}{}", self.base, call.target);
        if !call.parameters.is_empty() {
            target.push('?');
            target.push_str(&call.parameters.join("&"));
        }
        let mut request = Request::builder().method(call.method).uri(target);
        if call.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request
            .body(call.body.unwrap_or_default())
            .map_err(|error| Error::config("address", error.to_string()))
    }

    fn refused(&self, operation: &'static str, answer: &Response<Bytes>) -> Error {
        let document: Option<ErrorDocument> = serde_json::from_slice(answer.body()).ok();
        let text = String::from_utf8_lossy(answer.body());
        let message = document.map_or_else(
            || text.trim().chars().take(500).collect::<String>(),
            |document| document.error.message,
        );
        if message.starts_with(PLAIN_TO_TLS) {
            return Error::Transport {
                operation,
                address: self.base.clone(),
                hint: Some(TLS_EXPECTED),
                source: message.into(),
            };
        }
        let (status, request_id) = (answer.status(), request_id(answer));
        Error::Refused { operation, status, message, request_id }
    }
}

/// Returns the beginning of every target. Over TLS the name that the server's
/// certificate must have stands for the host, as the transport expects it.
fn base(scheme: &str, rest: &str, server_name: Option<&str>) -> String {
    match (scheme, server_name) {
        ("unix", _) => "http://localhost".to_owned(),
        ("https", Some(name)) => {
            let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
            let port = host.rsplit_once(':').map(|(_, port)| port);
            let port = port.filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
            let port = port.map_or_else(String::new, |port| format!(":{port}"));
            let path = if path.is_empty() { String::new() } else { format!("/{path}") };
            format!("https://{name}{port}{path}")
        }
        _ => format!("{scheme}://{rest}"),
    }
}

fn authorization(config: &ClientConfig) -> Result<Option<HeaderValue>> {
    let Some(token) = &config.token else { return Ok(None) };
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).map_err(
        |_invalid| Error::config("token", "the token holds what no header can: a line break, say"),
    )?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn check_pair(tls: &TlsConfig) -> Result<()> {
    if tls.client_cert.is_some() == tls.client_key.is_some() {
        return Ok(());
    }
    Err(Error::config("client_cert", "both client cert and client key must be provided"))
}

/// The transport names its settings as Consul's variables.
fn unusable(error: consul_watch::Error) -> Error {
    let consul_watch::Error::Config { setting, problem } = error else {
        return Error::config("address", error_chain(&error));
    };
    let setting = match setting.as_str() {
        "CONSUL_CACERT" => "ca_file",
        "CONSUL_CAPATH" => "ca_path",
        "CONSUL_CLIENT_CERT" => "client_cert",
        "CONSUL_CLIENT_KEY" => "client_key",
        "tls server name" => "server_name",
        "tls" => "tls",
        _ => "address",
    };
    Error::config(setting, format!("{setting}: {problem}"))
}

/// Upstream tells it in the body, if at all.
fn request_id(answer: &Response<Bytes>) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        request_id: Option<String>,
    }
    let header = answer.headers().get(REQUEST_ID).and_then(|value| value.to_str().ok());
    header.map(str::to_owned).or_else(|| {
        serde_json::from_slice(answer.body()).ok().and_then(|named: Named| named.request_id)
    })
}
