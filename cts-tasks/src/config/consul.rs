//! The block `consul`, with defaults and environment.

use std::path::PathBuf;

use consul_watch::{Client, ClientConfig, Error, client::FileToken, error_chain};
use secrecy::SecretString;

use super::{
    client::{
        ConsulTls, ConsulTransport, finalize_tls, finalize_transport, is_tls_enabled, non_empty,
        set,
    },
    decode::{Findings, Spanned},
    environment::Environment,
    raw::{RawAuth, RawConsul, RawRegistration, RawTls},
};

/// Connection settings for Consul: address, token, TLS and transport.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConsulConfig {
    /// As Consul's `CONSUL_HTTP_ADDR`; default `localhost:8500`.
    pub address: String,
    /// The ACL token.
    pub token: Option<SecretString>,
    /// File that holds the ACL token instead, and is read again when it changes; watches go on
    /// with the new one.
    ///
    /// Deviation: upstream has no such setting.
    pub token_file: Option<PathBuf>,
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
    /// Most connections that all watches use together, 12 to 65,535; `None` is the default of
    /// `consul_watch::WatcherBuilder::connections` (160). Consul itself serves 200 for each client
    /// address (`limits.http_max_conns_per_client`); with more watches than connections they share
    /// broad queries.
    ///
    /// Deviation: upstream has no such setting, and refuses to watch what exceeds Consul's limit.
    pub watch_connections: Option<u16>,
    /// This instance's own registration.
    pub service_registration: ServiceRegistration,
}

impl Default for ConsulConfig {
    /// As if the block were empty.
    fn default() -> Self {
        Self {
            address: "localhost:8500".to_owned(),
            token: None,
            token_file: None,
            auth: None,
            kv_path: DEFAULT_KV_PATH.to_owned(),
            kv_namespace: String::new(),
            tls: None,
            transport: ConsulTransport::default(),
            watch_connections: None,
            service_registration: ServiceRegistration::default(),
        }
    }
}

impl ConsulConfig {
    /// The path in Consul KV below which Terraform keeps state: `terraform`
    /// below [`ConsulConfig::kv_path`], which may end in `/terraform` already.
    ///
    /// An empty `kv_path` is the default. The rule is upstream's to the letter,
    /// also where it surprises: `terraform` gives `terraform/terraform`, and a
    /// slash at the end of `foo/terraform/` gives `foo/terraform/terraform`. A
    /// state that is looked for elsewhere than upstream wrote it is lost.
    ///
    /// Source: Consul-Terraform-Sync 0.9.0 `config/terraform.go`.
    pub fn state_path(&self) -> String {
        let configured = match self.kv_path.as_str() {
            "" => DEFAULT_KV_PATH,
            configured => configured,
        };
        if configured.ends_with("/terraform") {
            return cleaned(configured);
        }
        cleaned(&format!("{configured}/terraform"))
    }
}

/// A watcher takes fewer for as many.
const FEWEST_CONNECTIONS: u16 = 12;

/// The base of the state's path in Consul KV, unless configured.
const DEFAULT_KV_PATH: &str = "consul-terraform-sync/";

/// A path as Go's `path.Join` leaves it: no empty segments, `.` or `..`. A slash at the
/// front stays.
fn cleaned(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." if segments.last().is_some_and(|last| *last != "..") => {
                segments.pop();
            }
            ".." if rooted => {}
            segment => segments.push(segment),
        }
    }
    format!("{}{}", if rooted { "/" } else { "" }, segments.join("/"))
}

/// This instance's own registration in Consul.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceRegistration {
    /// `true` if it registers itself; default true.
    pub enabled: bool,
    /// The service's name; default `consul-terraform-sync`.
    pub service_name: String,
    /// The service's address; empty is the agent's.
    pub address: String,
    /// Enterprise namespace; empty is the default.
    pub namespace: String,
    /// `true` if it brings a health check; default true.
    pub default_check_enabled: bool,
    /// Address at which the check finds the HTTP API; empty is `localhost` with the
    /// API's port.
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

/// Applies defaults and the environment, and checks the block.
pub(super) fn finalize(
    raw: &RawConsul,
    environment: &Environment,
    findings: &mut Findings,
) -> ConsulConfig {
    let mut consul = ConsulConfig::default();
    let address = match &raw.address {
        Some(configured) => non_empty(Some(configured)),
        None => environment.variable("CONSUL_HTTP_ADDR"),
    };
    consul.address = address.unwrap_or(consul.address);
    let token = match &raw.token {
        Some(configured) => non_empty(Some(configured)),
        // A file that is named takes the place of what the process inherits.
        None if raw.token_file.is_some() => None,
        None => environment.first_variable(&["CONSUL_TOKEN", "CONSUL_HTTP_TOKEN"]),
    };
    let may_inherit = raw.token.is_none() && token.is_none();
    consul.token = token.map(SecretString::from);
    consul.token_file = match &raw.token_file {
        Some(configured) => token_file(raw, configured, environment, findings),
        None if may_inherit => inherited_token_file(environment, findings),
        None => None,
    };
    consul.auth = raw.auth.as_ref().and_then(auth);
    set(&mut consul.kv_path, raw.kv_path.as_ref());
    set(&mut consul.kv_namespace, raw.kv_namespace.as_ref());
    if let Some(namespace) = raw.kv_namespace.as_ref().filter(|name| !name.value.is_empty()) {
        findings.warn(
            format!(
                "consul.kv_namespace: a state in Consul is kept in the namespace {:?}",
                namespace.value
            ),
            namespace.place.clone(),
            "upstream ignores it: a state that it has kept is in the default namespace; move it \
             there, or remove the setting",
        );
    }
    consul.tls = raw
        .tls
        .as_ref()
        .filter(|tls| is_tls_enabled(tls))
        .map(|tls| finalize_tls(tls, "CONSUL_", environment));
    if let Some(transport) = &raw.transport {
        consul.transport = finalize_transport(transport, "consul.transport", findings);
    }
    if let Some(configured) = &raw.watch_connections {
        consul.watch_connections =
            u16::try_from(configured.value).ok().filter(|count| *count >= FEWEST_CONNECTIONS);
        if consul.watch_connections.is_none() {
            findings.error(
                format!(
                    "consul.watch_connections: expected a number from {FEWEST_CONNECTIONS} to {}",
                    u16::MAX
                ),
                configured.place.clone(),
            );
        }
    }
    if let Some(registration) = &raw.service_registration {
        consul.service_registration = finalize_registration(registration, findings);
    }
    if check_consul_address(raw, findings)
        && let Some(tls) = raw.tls.as_ref().filter(|tls| is_tls_enabled(tls))
    {
        check_tls(&consul, tls, findings);
    }
    consul
}

/// Checks `token_file`: its token has to be readable now, and may be another one later.
fn token_file(
    raw: &RawConsul,
    configured: &Spanned<String>,
    environment: &Environment,
    findings: &mut Findings,
) -> Option<PathBuf> {
    if configured.value.is_empty() {
        findings.error_help(
            "consul.token_file: the name of the file is empty",
            configured.place.clone(),
            "name the file that holds the token, or remove the setting",
        );
        return None;
    }
    if raw.token.as_ref().is_some_and(|token| !token.value.is_empty()) {
        findings.error_help(
            "consul.token_file: token is set as well",
            configured.place.clone(),
            "keep one of them",
        );
    }
    let path = environment.resolve(&configured.value);
    if let Err(error) = FileToken::open(&path) {
        findings.error_help(
            format!("consul.token_file: {}", error_chain(&error)),
            configured.place.clone(),
            "it has to be readable at the start; relative paths start at the working directory of \
             this process",
        );
    }
    Some(path)
}

/// The file that Consul's own programs take the token from, where no other token is set.
fn inherited_token_file(environment: &Environment, findings: &mut Findings) -> Option<PathBuf> {
    let path = environment.resolve(&environment.variable("CONSUL_HTTP_TOKEN_FILE")?);
    if let Err(error) = FileToken::open(&path) {
        findings.error_help(
            format!("CONSUL_HTTP_TOKEN_FILE: {}", error_chain(&error)),
            None,
            "let the variable name a file that can be read, or unset it",
        );
    }
    Some(path)
}

/// That the address is one. What the environment says has no place, and is
/// checked when the client is made.
fn check_consul_address(raw: &RawConsul, findings: &mut Findings) -> bool {
    let Some(address) = raw.address.as_ref().filter(|address| !address.value.is_empty()) else {
        return true;
    };
    let mut config = ClientConfig::default();
    config.address.clone_from(&address.value);
    let Err(error) = Client::new(config) else { return true };
    findings.error_help(
        format!("consul.address: {}", error_chain(&error)),
        address.place.clone(),
        "write it like localhost:8500, https://consul.example.com or unix:///run/consul.sock",
    );
    false
}

/// That the files which the block names make a client. One that the environment
/// names has no place, and is checked when the client is made.
fn check_tls(consul: &ConsulConfig, raw: &RawTls, findings: &mut Findings) {
    let Err(Error::Config { setting, problem }) = Client::new(consul.client_config()) else {
        return;
    };
    let named = |key, configured: &Option<Spanned<String>>| {
        configured.as_ref().map(|configured| (key, configured.place.clone()))
    };
    let found = match setting.as_str() {
        "CONSUL_CACERT" => named("ca_cert", &raw.ca_cert),
        "CONSUL_CAPATH" => named("ca_path", &raw.ca_path),
        "CONSUL_CLIENT_CERT" => named("cert", &raw.cert),
        // Without a key the certificate's file holds both.
        "CONSUL_CLIENT_KEY" => named("key", &raw.key).or_else(|| named("cert", &raw.cert)),
        "tls" => named("cert", &raw.cert).or_else(|| named("key", &raw.key)),
        _ => named("server_name", &raw.server_name),
    };
    let Some((key, place)) = found else { return };
    findings.error_help(
        format!("consul.tls.{key}: {problem}"),
        place,
        if key == "server_name" {
            "it is the name that the server's certificate is for"
        } else {
            "the certificates and the key towards Consul must be readable, in PEM"
        },
    );
}

fn auth(raw: &RawAuth) -> Option<(String, SecretString)> {
    let username = non_empty(raw.username.as_ref());
    let password = non_empty(raw.password.as_ref());
    let given = username.is_some() || password.is_some();
    let enabled = raw.enabled.as_ref().map_or(given, |enabled| enabled.value);
    enabled
        .then(|| (username.unwrap_or_default(), SecretString::from(password.unwrap_or_default())))
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
