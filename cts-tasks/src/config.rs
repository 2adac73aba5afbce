//! The configuration of a deployment: read from files, merged, checked.

mod consul_client;
mod value;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use secrecy::SecretString;

pub use value::{ConfigValue, Entry, ValueKind};

use crate::{BufferPeriod, Diagnostic, Literal, Place, Task};

/// A checked configuration.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// How much is logged.
    pub log_level: LogLevel,
    /// Port of the HTTP API, on all interfaces.
    pub port: u16,
    /// This instance's id, and the id of its service in Consul.
    pub id: String,
    /// Parent of the tasks' working directories.
    pub working_dir: PathBuf,
    /// For tasks without one of their own.
    pub buffer_period: BufferPeriod,
    /// How to reach Consul.
    pub consul: ConsulConfig,
    /// Which driver runs the tasks.
    pub driver: DriverBlock,
    /// Providers of the Terraform language.
    pub providers: Vec<ProviderBlock>,
    /// The tasks, in the order of the files.
    pub tasks: Vec<Task>,
    /// What the operator should know: deprecated names, ignored settings.
    pub warnings: Vec<Diagnostic>,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// What a developer needs.
    Debug,
    /// What an operator needs.
    Info,
    /// What is out of the ordinary.
    Warn,
    /// What failed.
    Error,
}

/// `driver "<label>" { … }`: its body belongs to the driver.
#[derive(Debug, Clone)]
pub struct DriverBlock {
    /// The label; `terraform` when there is no block.
    pub label: String,
    /// The body, unchecked; `None` when there is no block.
    pub body: Option<ConfigValue>,
}

/// How to reach Consul.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConsulConfig {
    /// As Consul's `CONSUL_HTTP_ADDR`.
    pub address: String,
    /// The ACL token.
    pub token: Option<SecretString>,
    /// User and password of HTTP basic authentication.
    pub auth: Option<(String, SecretString)>,
    /// Base of the Terraform state's path in Consul KV.
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

/// TLS towards Consul.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ConsulTls {
    /// Whether the server's certificate is checked.
    pub verify: bool,
    /// Bundle of certificate authorities.
    pub ca_cert: Option<PathBuf>,
    /// Directory of certificate authorities.
    pub ca_path: Option<PathBuf>,
    /// Client certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Name to check the server's certificate against.
    pub server_name: Option<String>,
}

/// Timeouts and connection limits towards Consul.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsulTransport {
    /// Interval of TCP keep-alive probes.
    pub dial_keep_alive: Duration,
    /// Limit for one connection attempt.
    pub dial_timeout: Duration,
    /// One connection for each request.
    pub disable_keep_alives: bool,
    /// How long an idle connection is kept.
    pub idle_conn_timeout: Duration,
    /// Idle connections in all; 0 is unlimited.
    pub max_idle_conns: u32,
    /// Idle connections for each host.
    pub max_idle_conns_per_host: u32,
    /// Limit for one TLS handshake.
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
    /// Whether it registers itself.
    pub enabled: bool,
    /// The service's name.
    pub service_name: String,
    /// The service's address; empty is the agent's.
    pub address: String,
    /// Enterprise namespace; empty is the default.
    pub namespace: String,
    /// Whether it brings a health check.
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

/// `terraform_provider "<name>" { … }`.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProviderBlock {
    /// The provider's local name.
    pub name: String,
    /// Tells instances of one provider apart.
    pub alias: Option<String>,
    /// Its arguments, without the meta arguments; they may hold secrets.
    pub arguments: BTreeMap<String, Literal>,
    /// Environment of the tool's process, for tasks that use this provider.
    pub task_env: BTreeMap<String, SecretString>,
    /// `auto_commit`, for providers with a handler that knows it.
    pub auto_commit: bool,
    /// Where the block begins.
    pub place: Option<Place>,
}

impl ProviderBlock {
    /// A provider without arguments.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            alias: None,
            arguments: BTreeMap::new(),
            task_env: BTreeMap::new(),
            auto_commit: false,
            place: None,
        }
    }

    /// `name`, or `name.alias`.
    pub fn id(&self) -> String {
        match &self.alias {
            Some(alias) => format!("{}.{alias}", self.name),
            None => self.name.clone(),
        }
    }
}

impl std::fmt::Debug for ProviderBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderBlock")
            .field("id", &self.id())
            .field("arguments", &"[redacted]")
            .finish_non_exhaustive()
    }
}
