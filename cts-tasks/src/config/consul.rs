use std::{path::PathBuf, time::Duration};

use secrecy::SecretString;

use super::{
    decode::{Findings, SignedDuration, Spanned},
    environment::Surroundings,
    raw::{RawAuth, RawConsul, RawRegistration, RawTls, RawTransport},
};

/// How to reach Consul.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConsulConfig {
    /// As Consul's `CONSUL_HTTP_ADDR`; default `localhost:8500`.
    pub address: String,
    /// The ACL token.
    pub token: Option<SecretString>,
    /// User and password of HTTP basic authentication.
    pub auth: Option<(String, SecretString)>,
    /// Base of the Terraform state's path in Consul KV; default `consul-terraform-sync/`.
    pub kv_path: String,
    /// Namespace of that path; empty is the default.
    pub kv_namespace: String,
    /// TLS towards Consul; `None` is plain HTTP unless the address says `https`.
    pub tls: Option<ConsulTls>,
    /// Timeouts and connection limits.
    pub transport: ConsulTransport,
    /// This instance's own registration.
    pub service_registration: ServiceRegistration,
}

impl Default for ConsulConfig {
    /// As if the block were empty.
    fn default() -> Self {
        Self {
            address: "localhost:8500".to_owned(),
            token: None,
            auth: None,
            kv_path: "consul-terraform-sync/".to_owned(),
            kv_namespace: String::new(),
            tls: None,
            transport: ConsulTransport::default(),
            service_registration: ServiceRegistration::default(),
        }
    }
}

impl ConsulConfig {
    /// The path in Consul KV below which Terraform keeps state: `terraform`
    /// below [`ConsulConfig::kv_path`], which may end in it already.
    ///
    /// Source: Consul-Terraform-Sync 0.9.0 `config/driver_terraform.go`.
    pub fn state_path(&self) -> String {
        let base = self.kv_path.trim_end_matches('/');
        if base == "terraform" || base.ends_with("/terraform") {
            return base.to_owned();
        }
        if base.is_empty() { "terraform".to_owned() } else { format!("{base}/terraform") }
    }
}

/// TLS towards Consul, or towards Vault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsulTls {
    /// Whether the server's certificate is checked; default true.
    pub verify: bool,
    /// Bundle of certificate authorities.
    pub ca_cert: Option<PathBuf>,
    /// Directory of certificate authorities.
    pub ca_path: Option<PathBuf>,
    /// Client certificate; without a `key` the file holds both.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Name to check the server's certificate against.
    pub server_name: Option<String>,
}

impl Default for ConsulTls {
    fn default() -> Self {
        Self {
            verify: true,
            ca_cert: None,
            ca_path: None,
            cert: None,
            key: None,
            server_name: None,
        }
    }
}

/// Timeouts and connection limits towards Consul, or towards Vault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsulTransport {
    /// Interval of TCP keep-alive probes; default 30 s.
    pub dial_keep_alive: Duration,
    /// Limit for one connection attempt; default 30 s.
    pub dial_timeout: Duration,
    /// One connection for each request; default false.
    pub disable_keep_alives: bool,
    /// How long an idle connection is kept; default 5 s.
    pub idle_conn_timeout: Duration,
    /// Idle connections in all; 0, the default, is unlimited.
    pub max_idle_conns: u32,
    /// Idle connections for each host; default 100.
    pub max_idle_conns_per_host: u32,
    /// Limit for one TLS handshake; default 10 s.
    pub tls_handshake_timeout: Duration,
}

impl Default for ConsulTransport {
    fn default() -> Self {
        Self {
            dial_keep_alive: Duration::from_secs(30),
            dial_timeout: Duration::from_secs(30),
            disable_keep_alives: false,
            idle_conn_timeout: Duration::from_secs(5),
            max_idle_conns: 0,
            max_idle_conns_per_host: 100,
            tls_handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// This instance's own registration in Consul.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceRegistration {
    /// Whether it registers itself; default true.
    pub enabled: bool,
    /// The service's name; default `consul-terraform-sync`.
    pub service_name: String,
    /// The service's address; empty is the agent's.
    pub address: String,
    /// Enterprise namespace; empty is the default.
    pub namespace: String,
    /// Whether it brings a health check; default true.
    pub default_check_enabled: bool,
    /// Where the check finds the HTTP API; empty is `localhost` with the API's port.
    pub default_check_address: String,
}

impl Default for ServiceRegistration {
    fn default() -> Self {
        Self {
            enabled: true,
            service_name: "consul-terraform-sync".to_owned(),
            address: String::new(),
            namespace: String::new(),
            default_check_enabled: true,
            default_check_address: String::new(),
        }
    }
}

/// Overwrites a default with what is configured.
pub(super) fn set<T: Clone>(target: &mut T, configured: Option<&Spanned<T>>) {
    if let Some(configured) = configured {
        target.clone_from(&configured.value);
    }
}

/// A string that is configured and not empty.
pub(super) fn non_empty(configured: Option<&Spanned<String>>) -> Option<String> {
    configured.map(|text| text.value.clone()).filter(|text| !text.is_empty())
}

/// Applies defaults and the environment, and checks the block.
pub(super) fn finalize(
    raw: &RawConsul,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> ConsulConfig {
    let mut consul = ConsulConfig::default();
    let address = match &raw.address {
        Some(configured) => non_empty(Some(configured)),
        None => surroundings.variable("CONSUL_HTTP_ADDR"),
    };
    consul.address = address.unwrap_or(consul.address);
    let token = match &raw.token {
        Some(configured) => non_empty(Some(configured)),
        None => surroundings.first_variable(&["CONSUL_TOKEN", "CONSUL_HTTP_TOKEN"]),
    };
    consul.token = token.map(SecretString::from);
    consul.auth = raw.auth.as_ref().and_then(auth);
    set(&mut consul.kv_path, raw.kv_path.as_ref());
    set(&mut consul.kv_namespace, raw.kv_namespace.as_ref());
    consul.tls = raw
        .tls
        .as_ref()
        .filter(|tls| is_enabled(tls))
        .map(|tls| finalize_tls(tls, "CONSUL_", &CONSUL_TLS_VARIABLES, surroundings));
    if let Some(transport) = &raw.transport {
        consul.transport = finalize_transport(transport, "consul.transport", findings);
    }
    if let Some(registration) = &raw.service_registration {
        consul.service_registration = finalize_registration(registration, findings);
    }
    consul
}

fn auth(raw: &RawAuth) -> Option<(String, SecretString)> {
    let username = non_empty(raw.username.as_ref());
    let password = non_empty(raw.password.as_ref());
    let given = username.is_some() || password.is_some();
    let enabled = raw.enabled.as_ref().map_or(given, |enabled| enabled.value);
    enabled
        .then(|| (username.unwrap_or_default(), SecretString::from(password.unwrap_or_default())))
}

/// Names of the variables, after the product's prefix: bundle, directory,
/// certificate, key, server name.
const CONSUL_TLS_VARIABLES: [&str; 5] =
    ["CACERT", "CAPATH", "CLIENT_CERT", "CLIENT_KEY", "TLS_SERVER_NAME"];

/// Whether the block turns TLS on: any key in it does, the environment does not.
fn is_enabled(raw: &RawTls) -> bool {
    let given = raw.verify.is_some()
        || [&raw.ca_cert, &raw.ca_path, &raw.cert, &raw.key, &raw.server_name]
            .into_iter()
            .any(Option::is_some);
    raw.enabled.as_ref().map_or(given, |enabled| enabled.value)
}

/// Fills a client's TLS settings from the block and the environment.
pub(super) fn finalize_tls(
    raw: &RawTls,
    prefix: &str,
    variables: &[&str; 5],
    surroundings: &Surroundings,
) -> ConsulTls {
    let [bundle, directory, cert, key, name] =
        variables.map(|variable| surroundings.variable(&format!("{prefix}{variable}")));
    let choose = |configured: &Option<Spanned<String>>, variable: Option<String>| match configured {
        Some(configured) => non_empty(Some(configured)),
        None => variable,
    };
    ConsulTls {
        verify: raw.verify.as_ref().is_none_or(|verify| verify.value),
        ca_cert: choose(&raw.ca_cert, bundle).map(PathBuf::from),
        ca_path: choose(&raw.ca_path, directory).map(PathBuf::from),
        cert: choose(&raw.cert, cert).map(PathBuf::from),
        key: choose(&raw.key, key).map(PathBuf::from),
        server_name: choose(&raw.server_name, name),
    }
}

/// Checks timeouts and limits.
pub(super) fn finalize_transport(
    raw: &RawTransport,
    path: &str,
    findings: &mut Findings,
) -> ConsulTransport {
    let mut transport = ConsulTransport::default();
    for (key, target, configured) in [
        ("dial_keep_alive", &mut transport.dial_keep_alive, &raw.dial_keep_alive),
        ("dial_timeout", &mut transport.dial_timeout, &raw.dial_timeout),
        ("idle_conn_timeout", &mut transport.idle_conn_timeout, &raw.idle_conn_timeout),
        ("tls_handshake_timeout", &mut transport.tls_handshake_timeout, &raw.tls_handshake_timeout),
    ] {
        match configured.as_ref().map(|configured| (configured.value, &configured.place)) {
            Some((SignedDuration::Positive(length), _)) => *target = length,
            Some((SignedDuration::Negative, place)) => {
                findings.error(format!("{path}.{key}: cannot be negative"), place.clone());
            }
            None => {}
        }
    }
    for (key, target, configured) in [
        ("max_idle_conns", &mut transport.max_idle_conns, &raw.max_idle_conns),
        (
            "max_idle_conns_per_host",
            &mut transport.max_idle_conns_per_host,
            &raw.max_idle_conns_per_host,
        ),
    ] {
        let Some(configured) = configured else { continue };
        match u32::try_from(configured.value) {
            Ok(limit) => *target = limit,
            Err(_out_of_range) => findings.error(
                format!("{path}.{key}: expected a number from 0 to {}", u32::MAX),
                configured.place.clone(),
            ),
        }
    }
    set(&mut transport.disable_keep_alives, raw.disable_keep_alives.as_ref());
    transport
}

fn finalize_registration(raw: &RawRegistration, findings: &mut Findings) -> ServiceRegistration {
    let mut registration = ServiceRegistration::default();
    set(&mut registration.enabled, raw.enabled.as_ref());
    set(&mut registration.service_name, raw.service_name.as_ref());
    set(&mut registration.address, raw.address.as_ref());
    set(&mut registration.namespace, raw.namespace.as_ref());
    let Some(check) = &raw.default_check else { return registration };
    set(&mut registration.default_check_enabled, check.enabled.as_ref());
    set(&mut registration.default_check_address, check.address.as_ref());
    if let Some(address) = check.address.as_ref().filter(|address| !address.value.is_empty()) {
        check_address(address, findings);
    }
    registration
}

fn check_address(address: &Spanned<String>, findings: &mut Findings) {
    let text = address.value.as_str();
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let readable = |host: &str| {
        !host.is_empty()
            && !host.starts_with('/')
            && !host.chars().any(|c| c.is_whitespace() || c.is_control())
    };
    if !text.starts_with("http") {
        findings.error_help(
            "default check address must include scheme (http or https)",
            address.place.clone(),
            format!("write http://{text}"),
        );
    } else if !host.is_some_and(readable) {
        findings.error_help(
            "default check address is not a URL",
            address.place.clone(),
            "write it like http://172.22.0.2:8558",
        );
    }
}
