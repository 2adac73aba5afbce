//! As much of Vault's HTTP API as dynamic values need.

mod leases;
mod secret;
mod token;
mod uses;

use std::{fmt, time::Duration};

use bytes::Bytes;
use consul_watch::{
    ClientConfig, Transport as _,
    client::TlsConfig,
    error_chain,
    transport::{ExchangeLimits, SocketTransport},
};
use cts_tasks::config::VaultConfig;
use http::{Method, Request, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value as Json;
use tokio::sync::OnceCell;

use self::{leases::Leases, token::Token};
pub(super) use self::{secret::Secret, uses::Uses};

/// Time limit of one exchange; the caller's is usually shorter.
const EXCHANGE: Duration = Duration::from_secs(30);

/// Characters that are escaped in a segment of a path.
const SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'\\')
    .add(b'^')
    .add(b'|');

/// Why Vault did not give what was asked for; holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) message: String,
    pub(super) retryable: bool,
}

impl Problem {
    fn new(message: impl Into<String>, retryable: bool) -> Self {
        Self { message: message.into(), retryable }
    }
}

type Result<T, E = Problem> = std::result::Result<T, E>;

/// Reads secrets.
pub(super) struct Vault {
    config: VaultConfig,
    transport: OnceCell<SocketTransport>,
    token: Token,
    leases: Leases,
}

impl Vault {
    pub(super) fn new(config: &VaultConfig) -> Self {
        Self {
            config: config.clone(),
            transport: OnceCell::new(),
            token: Token::default(),
            leases: Leases::default(),
        }
    }

    /// Reads a secret, whether there is a lease or not.
    async fn fetch(&self, path: &str) -> Result<Secret> {
        let api_path = self.api_path(path).await?;
        let (status, answer) = self.call(Method::GET, &api_path, None).await?;
        if status == StatusCode::NOT_FOUND {
            return Err(Problem::new("there is no such secret", true));
        }
        Secret::of_answer(success(status, answer)?)
    }

    /// The path of the API: secrets of the second version of the KV engine
    /// stand below `data/` of their mount, which templates may leave out.
    ///
    /// Source: hcat 0.2, the function `secret`.
    async fn api_path(&self, path: &str) -> Result<String> {
        let (status, answer) =
            self.call(Method::GET, &format!("sys/internal/ui/mounts/{path}"), None).await?;
        if !status.is_success() {
            // An old Vault, or a token that may not ask: the path is taken as it is.
            return Ok(path.to_owned());
        }
        let data = answer.get("data");
        let version = data.and_then(|data| data.pointer("/options/version")).and_then(Json::as_str);
        let mount = data.and_then(|data| data.get("path")).and_then(Json::as_str);
        Ok(match (version, mount) {
            (Some("2"), Some(mount)) => below_data(path, mount),
            _ => path.to_owned(),
        })
    }

    /// Makes one exchange with the token; the answer is `null` where it is no JSON.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Json>,
    ) -> Result<(StatusCode, Json)> {
        let token = self.current_token().await?;
        self.call_with(method, path, body, token.as_ref()).await
    }

    async fn call_with(
        &self,
        method: Method,
        path: &str,
        body: Option<Json>,
        token: Option<&SecretString>,
    ) -> Result<(StatusCode, Json)> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/v1/{}", self.base(), encoded(path)))
            .header("X-Vault-Request", "true");
        if let Some(token) = token {
            request = request.header("X-Vault-Token", token.expose_secret());
        }
        if !self.config.namespace.is_empty() {
            request = request.header("X-Vault-Namespace", &self.config.namespace);
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(body).map_err(|_not_shown| {
            Problem::new(
                "the address, token or namespace of Vault holds a character that no request can",
                false,
            )
        })?;
        let transport = self.transport().await?;
        let answer = transport
            .exchange(request, ExchangeLimits::new(EXCHANGE, EXCHANGE))
            .await
            .map_err(|error| {
                let address = &self.config.address;
                Problem::new(format!("Vault at {address}: {}", error_chain(&error)), true)
            })?;
        let json = serde_json::from_slice(answer.body()).unwrap_or(Json::Null);
        Ok((answer.status(), json))
    }

    async fn transport(&self) -> Result<&SocketTransport> {
        self.transport
            .get_or_try_init(|| async {
                SocketTransport::new(&client(&self.config)).map_err(|error| {
                    Problem::new(format!("the vault block: {}", error_chain(&error)), false)
                })
            })
            .await
    }

    /// Returns the beginning of each URL. The name that TLS verifies stands in it; the
    /// transport connects to the configured host.
    fn base(&self) -> String {
        let address = self.config.address.trim_end_matches('/');
        let name = self.config.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
        match (address.strip_prefix("https://"), name) {
            (Some(rest), Some(name)) if !name.is_empty() => {
                let (host, prefix) = rest
                    .split_once('/')
                    .map_or((rest, String::new()), |(host, prefix)| (host, format!("/{prefix}")));
                let port = host.rsplit_once(':').map(|(_, port)| port);
                let port = port.filter(|port| port.bytes().all(|b| b.is_ascii_digit()));
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                format!("https://{name}{port}{prefix}")
            }
            _ if address.contains("://") => address.to_owned(),
            _ => format!("http://{address}"),
        }
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("address", &self.config.address).finish_non_exhaustive()
    }
}

/// The settings of the transport, which Consul's client shares.
fn client(vault: &VaultConfig) -> ClientConfig {
    let mut client = ClientConfig::default();
    client.address.clone_from(&vault.address);
    vault.transport.apply_to(&mut client);
    client.tls = TlsConfig::default();
    if let Some(tls) = &vault.tls {
        client.tls.verify = tls.verify;
        client.tls.ca_file.clone_from(&tls.ca_cert);
        client.tls.ca_path.clone_from(&tls.ca_path);
        client.tls.client_cert.clone_from(&tls.cert);
        // A certificate without a key holds both in one file.
        client.tls.client_key = tls.key.clone().or_else(|| tls.cert.clone());
        client.tls.server_name.clone_from(&tls.server_name);
    }
    client
}

fn below_data(path: &str, mount: &str) -> String {
    let mount = mount.trim_matches('/');
    let below = path.strip_prefix(mount).unwrap_or(path).trim_start_matches('/');
    if below == "data" || below.starts_with("data/") {
        return path.to_owned();
    }
    format!("{mount}/data/{below}")
}

fn encoded(path: &str) -> String {
    let segments = path.split('/').map(|segment| percent_encode(segment.as_bytes(), SEGMENT));
    segments.map(|segment| segment.to_string()).collect::<Vec<_>>().join("/")
}

/// The answer, or why Vault refused.
fn success(status: StatusCode, answer: Json) -> Result<Json> {
    if status.is_success() {
        return Ok(answer);
    }
    let errors = answer.get("errors").and_then(Json::as_array);
    let errors: Vec<_> = errors.into_iter().flatten().filter_map(Json::as_str).collect();
    let reason = if errors.is_empty() { String::new() } else { format!(": {}", errors.join("; ")) };
    let retryable = status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::PRECONDITION_FAILED;
    Err(Problem::new(format!("Vault answered {status}{reason}"), retryable))
}

#[cfg(test)]
mod tests {
    use cts_tasks::config::VaultConfig;
    use serde_json::json;
    use wiremock::{
        Mock, MockServer, ResponseTemplate,
        matchers::{header, method, path},
    };

    use super::{StatusCode, Vault, below_data, encoded, success};

    /// Each read of such a secret would make another one.
    #[tokio::test]
    async fn a_secret_with_a_lease_is_read_once() {
        let server = MockServer::start().await;
        let answer = json!({"lease_id": "l", "lease_duration": 3600, "data": {"user": "u"}});
        Mock::given(method("GET"))
            .and(path("/v1/sys/internal/ui/mounts/database/creds/a"))
            .respond_with(ResponseTemplate::new(403))
            .mount(&server)
            .await;
        Mock::given(method("GET"))
            .and(path("/v1/database/creds/a"))
            .and(header("X-Vault-Token", "t"))
            .and(header("X-Vault-Namespace", "team"))
            .and(header("X-Vault-Request", "true"))
            .respond_with(ResponseTemplate::new(200).set_body_json(answer))
            .expect(1)
            .mount(&server)
            .await;
        let mut config = VaultConfig::new(server.uri());
        config.token = Some("t".into());
        config.namespace = "team".into();
        let vault = Vault::new(&config);
        for _ in 0..2 {
            let (secret, _) = vault.read("database/creds/a").await.unwrap();
            assert!(secret.field(&["user".into()]).is_ok());
        }
    }

    #[test]
    fn the_name_that_tls_verifies_stands_in_the_url() {
        let base = |address: &str, name: Option<&str>| {
            let mut config = VaultConfig::new(address);
            config.tls.as_mut().unwrap().server_name = name.map(str::to_owned);
            Vault::new(&config).base()
        };
        assert_eq!(base("https://10.0.0.1:8200/x/", Some("v.io")), "https://v.io:8200/x");
        assert_eq!(base("https://a", Some("v.io")), "https://v.io");
        assert_eq!(base("http://a:1", Some("v.io")), "http://a:1");
        assert_eq!(base("a:1", None), "http://a:1");
    }

    #[test]
    fn secrets_of_the_second_version_stand_below_data() {
        for (path, mount, expected) in [
            ("secret/my/path", "secret/", "secret/data/my/path"),
            ("secret/data/my/path", "secret/", "secret/data/my/path"),
            ("team/kv/a", "team/kv/", "team/kv/data/a"),
            ("secret/database", "secret/", "secret/data/database"),
        ] {
            assert_eq!(below_data(path, mount), expected);
        }
    }

    #[test]
    fn a_path_stays_a_path() {
        assert_eq!(encoded("a b/c?d/é#"), "a%20b/c%3Fd/%C3%A9%23");
    }

    #[test]
    fn a_refusal_says_why_and_whether_later_helps() {
        let denied = serde_json::json!({"errors": ["permission denied"]});
        let problem = success(StatusCode::FORBIDDEN, denied).unwrap_err();
        assert_eq!(problem.message, "Vault answered 403 Forbidden: permission denied");
        assert!(!problem.retryable);
        let sealed = success(StatusCode::SERVICE_UNAVAILABLE, serde_json::Value::Null);
        assert!(sealed.unwrap_err().retryable);
    }
}
