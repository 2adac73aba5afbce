//! `ClientConfig`: settings of a client, also from Consul's environment variables, checked once.

use std::{path::PathBuf, sync::Arc, time::Duration};

use secrecy::{ExposeSecret, SecretString};

use crate::{
    Consistency, Error, Result,
    token::{FileToken, StaticToken, TokenProvider},
};

/// Settings of a client: Consul's address, token, TLS and connections.
///
/// Start from [`ClientConfig::default`], [`ClientConfig::from_env`] or
/// [`ClientConfig::from_vars`] and assign what differs. `Debug` shows no secret.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// `host:port`, `http://host:port[/prefix]`, `https://host:port[/prefix]`
    /// or `unix:///path/to.sock`. Default `127.0.0.1:8500`.
    pub address: String,
    /// ACL token. Default none: the agent's own default token applies.
    pub token: Option<SecretString>,
    /// File that holds the ACL token, read again when it changes. It wins over `token`.
    pub token_file: Option<PathBuf>,
    /// Provider of the ACL token, which may change it. It wins over `token_file`.
    pub token_provider: Option<Arc<dyn TokenProvider>>,
    /// User and password for a proxy in front of Consul.
    pub basic_auth: Option<BasicAuth>,
    /// Enterprise namespace of requests that name none.
    pub namespace: Option<String>,
    /// Enterprise partition of requests that name none.
    pub partition: Option<String>,
    /// Datacenter of requests that name none. No variable sets it.
    pub datacenter: Option<String>,
    /// Consistency of reads that ask for [`Consistency::Default`].
    pub consistency: Consistency,
    /// TLS settings.
    pub tls: TlsConfig,
    /// Longest time to connect. Default 10 s. Over TLS the handshake is part of it, unless
    /// `connections` gives that a time of its own.
    pub connect_timeout: Duration,
    /// Settings of connections.
    pub connections: ConnectionConfig,
    /// Longest time to the response headers of a request that does not block,
    /// and what a blocking one may take beyond its wait. Default 10 s.
    pub request_timeout: Duration,
    /// Longest silence while a body arrives. Default 30 s.
    pub body_idle_timeout: Duration,
    /// Token and token file that the environment named; explicit settings win over both.
    pub(crate) env_token: Option<SecretString>,
    pub(crate) env_token_file: Option<PathBuf>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8500".to_owned(),
            token: None,
            token_file: None,
            token_provider: None,
            basic_auth: None,
            namespace: None,
            partition: None,
            datacenter: None,
            consistency: Consistency::Default,
            tls: TlsConfig::default(),
            connect_timeout: Duration::from_secs(10),
            connections: ConnectionConfig::default(),
            request_timeout: Duration::from_secs(10),
            body_idle_timeout: Duration::from_secs(30),
            env_token: None,
            env_token_file: None,
        }
    }
}

/// Settings of the connections of a [`ClientConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionConfig {
    /// Interval of TCP's probes on a connection that is silent; `None` sends none. Default 30 s.
    pub keep_alive: Option<Duration>,
    /// `true` if a connection serves further requests. Default true; otherwise each request has
    /// one of its own, and asks the server to close it.
    pub reuse: bool,
    /// Time for which an unused connection is kept; `None` sets no limit. Default 90 s.
    pub idle_timeout: Option<Duration>,
    /// Most unused connections that are kept; `None` sets no limit, as is the default. It says
    /// nothing about those in use.
    pub max_idle: Option<usize>,
    /// Time for the TLS handshake, beyond [`ClientConfig::connect_timeout`]: both together bound
    /// what comes before the request. Default none.
    pub tls_handshake_timeout: Option<Duration>,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            keep_alive: Some(Duration::from_secs(30)),
            reuse: true,
            idle_timeout: Some(Duration::from_secs(90)),
            max_idle: None,
            tls_handshake_timeout: None,
        }
    }
}

/// HTTP basic authentication.
#[derive(Debug, Clone)]
pub struct BasicAuth {
    /// The user.
    pub user: String,
    /// The password; `None` sends an empty one.
    pub password: Option<SecretString>,
}

/// TLS settings of a [`ClientConfig`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TlsConfig {
    /// Use https although the address says http or nothing. Default false.
    pub enabled: bool,
    /// PEM text of accepted authorities, instead of the system's. It wins over `ca_file`; no
    /// variable sets it.
    pub ca_pem: Option<String>,
    /// PEM bundle of accepted authorities, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Folder of such files, used when `ca_file` is not set.
    pub ca_path: Option<PathBuf>,
    /// PEM certificate that this client shows; needs `client_key`.
    pub client_cert: Option<PathBuf>,
    /// PEM key of `client_cert`.
    pub client_key: Option<PathBuf>,
    /// DNS name that the server's certificate must have, instead of the
    /// address's host. It is also sent as the host.
    pub server_name: Option<String>,
    /// `true` if the server's certificate is checked. Default true.
    pub verify: bool,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            ca_pem: None,
            ca_file: None,
            ca_path: None,
            client_cert: None,
            client_key: None,
            server_name: None,
            verify: true,
        }
    }
}

impl ClientConfig {
    /// The default, changed by the process's `CONSUL_*` variables.
    ///
    /// # Errors
    ///
    /// As [`ClientConfig::from_vars`].
    pub fn from_env() -> Result<Self> {
        let broken = std::env::vars_os().find_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with("CONSUL_"))?;
            value.into_string().is_err().then_some(name)
        });
        if let Some(setting) = broken {
            return Err(Error::Config { setting, problem: "its value is not UTF-8".to_owned() });
        }
        Self::from_vars(|name| std::env::var(name).ok())
    }

    /// The default, changed by the variables that `lookup` gives.
    ///
    /// Read are `CONSUL_HTTP_ADDR`, `CONSUL_HTTP_TOKEN`, `CONSUL_HTTP_TOKEN_FILE`,
    /// `CONSUL_HTTP_AUTH`, `CONSUL_HTTP_SSL`, `CONSUL_HTTP_SSL_VERIFY`,
    /// `CONSUL_CACERT`, `CONSUL_CAPATH`, `CONSUL_CLIENT_CERT`,
    /// `CONSUL_CLIENT_KEY`, `CONSUL_TLS_SERVER_NAME`, `CONSUL_NAMESPACE` and
    /// `CONSUL_PARTITION`. An empty one counts as not set.
    ///
    /// Deviation: a `CONSUL_HTTP_SSL_VERIFY` that is not a boolean is an
    /// error; upstream warns and turns verification off.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names the variable.
    ///
    /// Source: Consul 1.21 `api/api.go` (`defaultConfig`).
    ///
    /// ```
    /// use consul_watch::ClientConfig;
    ///
    /// let config = ClientConfig::from_vars(|name| match name {
    ///     "CONSUL_HTTP_ADDR" => Some("https://consul.example.com:8501".into()),
    ///     _ => None,
    /// })?;
    /// assert_eq!(config.address, "https://consul.example.com:8501");
    /// # Ok::<(), consul_watch::Error>(())
    /// ```
    pub fn from_vars(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let var = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let mut config = Self::default();
        if let Some(address) = var("CONSUL_HTTP_ADDR") {
            config.address = address;
        }
        config.env_token = var("CONSUL_HTTP_TOKEN").map(SecretString::from);
        config.env_token_file = var("CONSUL_HTTP_TOKEN_FILE").map(PathBuf::from);
        config.basic_auth = var("CONSUL_HTTP_AUTH").map(|text| BasicAuth::parse(&text));
        config.namespace = var("CONSUL_NAMESPACE");
        config.partition = var("CONSUL_PARTITION");
        if let Some(text) = var("CONSUL_HTTP_SSL") {
            if let Some(enabled) = go_bool(&text) {
                config.tls.enabled = enabled;
            } else {
                tracing::warn!(variable = "CONSUL_HTTP_SSL", "not a boolean; ignored");
            }
        }
        if let Some(text) = var("CONSUL_HTTP_SSL_VERIFY") {
            config.tls.verify = go_bool(&text).ok_or_else(|| {
                Error::config(
                    "CONSUL_HTTP_SSL_VERIFY",
                    format!("{text:?} is not a boolean; write true or false"),
                )
            })?;
        }
        config.tls.ca_file = var("CONSUL_CACERT").map(PathBuf::from);
        config.tls.ca_path = var("CONSUL_CAPATH").map(PathBuf::from);
        config.tls.client_cert = var("CONSUL_CLIENT_CERT").map(PathBuf::from);
        config.tls.client_key = var("CONSUL_CLIENT_KEY").map(PathBuf::from);
        config.tls.server_name =
            var("CONSUL_TLS_SERVER_NAME").map(|name| without_port(&name).to_owned());
        Ok(config)
    }

    /// Returns the source of the token: explicit provider, file or token, the environment's file
    /// or token. A file that is empty leaves it to the next of them until it holds a token.
    pub(crate) fn tokens(&self) -> Result<Arc<dyn TokenProvider>> {
        if let Some(provider) = &self.token_provider {
            return Ok(Arc::clone(provider));
        }
        let env_token = self.env_token.as_ref().and_then(non_empty);
        let env_file = match &self.env_token_file {
            Some(path) if self.token.is_none() => {
                Some(FileToken::open_or(path, env_token.clone())?)
            }
            _ => None,
        };
        if let Some(path) = &self.token_file {
            let next = match (&self.token, &env_file) {
                (Some(token), _) => non_empty(token),
                (None, Some(file)) => file.current(),
                (None, None) => env_token,
            };
            return Ok(Arc::new(FileToken::open_or(path, next)?));
        }
        if let Some(file) = env_file {
            return Ok(Arc::new(file));
        }
        let token = self.token.as_ref().map_or(env_token, non_empty);
        Ok(Arc::new(StaticToken::new(token)?))
    }
}

impl BasicAuth {
    fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some((user, password)) => {
                Self { user: user.to_owned(), password: Some(SecretString::from(password)) }
            }
            None => Self { user: text.to_owned(), password: None },
        }
    }
}

fn non_empty(token: &SecretString) -> Option<SecretString> {
    (!token.expose_secret().is_empty()).then(|| token.clone())
}

/// Go's `strconv.ParseBool`.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

fn without_port(name: &str) -> &str {
    if let Some(inner) = name.strip_prefix('[') {
        return inner.split_once(']').map_or(name, |(host, _port)| host);
    }
    match name.split_once(':') {
        // More than one colon is an address of IPv6 without a port.
        Some((host, rest)) if !rest.contains(':') => host,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fs};

    use proptest::prelude::*;

    use super::*;

    fn from(vars: &[(&str, &str)]) -> Result<ClientConfig> {
        let vars: HashMap<String, String> =
            vars.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        ClientConfig::from_vars(|name| vars.get(name).cloned())
    }

    async fn token(config: &ClientConfig) -> Option<String> {
        let token = config.tokens().unwrap().token().await.unwrap();
        token.map(|token| token.expose_secret().to_owned())
    }

    /// Spec: CW16
    #[tokio::test]
    async fn every_variable_is_read() {
        let config = from(&[
            ("CONSUL_HTTP_ADDR", "https://1.2.3.4:5678/prefix"),
            ("CONSUL_HTTP_TOKEN", "abcd1234"),
            ("CONSUL_HTTP_AUTH", "user:pass:word"),
            ("CONSUL_HTTP_SSL", "T"),
            ("CONSUL_HTTP_SSL_VERIFY", "0"),
            ("CONSUL_CACERT", "ca.pem"),
            ("CONSUL_CAPATH", "certs/"),
            ("CONSUL_CLIENT_CERT", "client.crt"),
            ("CONSUL_CLIENT_KEY", "client.key"),
            ("CONSUL_TLS_SERVER_NAME", "consul.test:8501"),
            ("CONSUL_NAMESPACE", "team"),
            ("CONSUL_PARTITION", "part"),
            ("CONSUL_DATACENTER", "ignored"),
        ])
        .unwrap();
        assert_eq!(config.address, "https://1.2.3.4:5678/prefix");
        assert_eq!(token(&config).await.as_deref(), Some("abcd1234"));
        let auth = config.basic_auth.unwrap();
        assert_eq!(
            (auth.user.as_str(), auth.password.unwrap().expose_secret()),
            ("user", "pass:word")
        );
        assert!(config.tls.enabled && !config.tls.verify);
        assert_eq!(config.tls.ca_file, Some("ca.pem".into()));
        assert_eq!(config.tls.ca_path, Some("certs/".into()));
        assert_eq!(config.tls.client_cert, Some("client.crt".into()));
        assert_eq!(config.tls.client_key, Some("client.key".into()));
        assert_eq!(config.tls.server_name.as_deref(), Some("consul.test"));
        assert_eq!(config.namespace.as_deref(), Some("team"));
        assert_eq!(config.partition.as_deref(), Some("part"));
        assert_eq!(config.datacenter, None);
    }

    #[test]
    fn empty_variables_count_as_not_set() {
        let config = from(&[("CONSUL_HTTP_ADDR", ""), ("CONSUL_HTTP_SSL_VERIFY", "")]).unwrap();
        assert_eq!(config.address, "127.0.0.1:8500");
        assert!(config.tls.verify);
    }

    #[test]
    fn a_verify_that_is_not_a_boolean_is_refused() {
        let error = from(&[("CONSUL_HTTP_SSL_VERIFY", "yes")]).unwrap_err().to_string();
        assert!(error.contains("CONSUL_HTTP_SSL_VERIFY"), "{error}");
        assert!(!from(&[("CONSUL_HTTP_SSL", "yes")]).unwrap().tls.enabled);
    }

    #[tokio::test]
    async fn explicit_tokens_win_over_the_environment_and_files_over_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let env_file = file("env", " from-env-file\n");
        let mut config = from(&[
            ("CONSUL_HTTP_TOKEN", "from-env"),
            ("CONSUL_HTTP_TOKEN_FILE", env_file.to_str().unwrap()),
        ])
        .unwrap();
        assert_eq!(token(&config).await.as_deref(), Some("from-env-file"));
        config.token = Some("explicit".into());
        assert_eq!(token(&config).await.as_deref(), Some("explicit"));
        config.token_file = Some(file("explicit", "explicit-file"));
        assert_eq!(token(&config).await.as_deref(), Some("explicit-file"));
        config.token_file = Some(file("empty", "\n"));
        assert_eq!(token(&config).await.as_deref(), Some("explicit"));
        config.token_file = Some(folder.path().join("missing"));
        let error = config.tokens().unwrap_err().to_string();
        assert!(error.contains("Error loading token file"), "{error}");
    }

    #[test]
    fn server_names_lose_their_port() {
        for (name, host) in
            [("a:1", "a"), ("a", "a"), ("[::1]:1", "::1"), ("::1", "::1"), ("[::1", "[::1")]
        {
            assert_eq!(without_port(name), host);
        }
    }

    proptest! {
        #[test]
        fn no_environment_makes_the_parser_panic(values in proptest::collection::vec("\\PC{0,30}", 13)) {
            let names = [
                "CONSUL_HTTP_ADDR", "CONSUL_HTTP_TOKEN", "CONSUL_HTTP_AUTH", "CONSUL_HTTP_SSL",
                "CONSUL_HTTP_SSL_VERIFY", "CONSUL_CACERT", "CONSUL_CAPATH", "CONSUL_CLIENT_CERT",
                "CONSUL_CLIENT_KEY", "CONSUL_TLS_SERVER_NAME", "CONSUL_NAMESPACE", "CONSUL_PARTITION",
                "CONSUL_HTTP_TOKEN_FILE",
            ];
            let pairs: Vec<(&str, &str)> = names.into_iter().zip(values.iter().map(String::as_str)).collect();
            if let Ok(config) = from(&pairs) {
                let _parsed = crate::endpoint::Endpoint::parse(&config);
            }
        }
    }
}
