//! The configuration of a deployment: read from files, merged, checked.
//!
//! [`Loader`] reads HCL and JSON as upstream does, and gives a checked
//! [`Config`] or every mistake with its place. What belongs to a driver, or to
//! a cluster, is claimed by name in a [`Registry`].
//!
//! Source: Consul-Terraform-Sync 0.9.0 `config/*.go`.

mod api;
mod api_tls;
mod buffer_period;
mod client;
mod condition;
mod consul;
mod consul_client;
mod cursor;
mod decode;
mod deserialize;
mod dynamic;
mod environment;
mod files;
mod finalize;
mod hcl;
mod json;
mod limits;
mod load;
mod mask;
mod provider;
mod raw;
mod redact;
mod registry;
mod rules;
mod service;
mod storage;
mod syslog;
mod tasks;
mod triggers;
mod unknown;
mod value;
mod variables;
mod vault;

use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr, time::Duration};

pub use api_tls::ApiTls;
pub use client::{ConsulTls, ConsulTransport};
pub use consul::{ConsulConfig, ServiceRegistration};
#[cfg(feature = "api")]
pub(crate) use decode::read_flag;
pub use dynamic::Dynamic;
pub use load::{Loaded, Loader};
pub(crate) use mask::masked;
pub use provider::find_provider;
pub use registry::{BlockKind, Registry};
pub use rules::TaskRules;
pub use storage::Storage;
pub use syslog::{InvalidSyslogFacility, SyslogConfig, SyslogFacility};
pub use tasks::TaskBlock;
pub(crate) use tasks::{shared_auto_commit, shared_working_dir};
pub use value::{ConfigValue, Entry, ValueKind};
pub use vault::VaultConfig;

use crate::{BufferPeriod, Diagnostic, ProviderBlock, Task, task::DEFAULT_WORKING_DIR};

/// The driver when no block names one.
const DEFAULT_DRIVER: &str = "terraform";
/// The API's port when nothing says so.
const DEFAULT_PORT: u16 = 8558;

/// Time that running work has to end after a stop, when nothing says so.
const DEFAULT_SHUTDOWN_TIMEOUT: Duration = Duration::from_mins(5);

/// A checked configuration. Its `Debug` form is [`Config::to_redacted_json`].
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// Lowest level that is logged; default [`LogLevel::Info`].
    pub log_level: LogLevel,
    /// Port of the HTTP API, on all interfaces; default 8558, and 0 is any that is free.
    pub port: u16,
    /// This instance's id, and the id of its service in Consul; default `cts-<hostname>`.
    pub id: String,
    /// Parent of the tasks' working directories; default `sync-tasks`.
    pub working_dir: PathBuf,
    /// Syslog as a second destination of log lines; `None` if it is off.
    pub syslog: Option<SyslogConfig>,
    /// For tasks without one of their own; default 5 s of quiet, at most 20 s.
    pub buffer_period: BufferPeriod,
    /// Connection settings for Consul.
    pub consul: ConsulConfig,
    /// Connection settings for Vault; `None` if it is not configured.
    pub vault: Option<VaultConfig>,
    /// TLS of the HTTP API; `None` if it is plain HTTP.
    pub tls: Option<ApiTls>,
    /// File with the bearer token that the API then asks for; `None`, the
    /// default, is an API without authentication, as upstream's.
    pub api_token_file: Option<PathBuf>,
    /// Names besides the machine's own by which the API is addressed; none by
    /// default. See [`crate::ApiServer::with_hosts`].
    pub api_hosts: Vec<String>,
    /// Origins whose web pages may use the API; none by default. See
    /// [`crate::ApiServer::with_cors_origins`].
    pub api_cors_origins: Vec<String>,
    /// Time that a running apply has to end after the first signal to stop, before it
    /// is killed; 5 minutes by default. Without running work a stop takes no longer
    /// than upstream's 10 s.
    pub shutdown_timeout: Duration,
    /// `true` if the API serves the metrics of the process; default false.
    pub api_metrics: bool,
    /// Storage of a single instance, which outlives the process; `None`, the default, is
    /// none. [`crate::DaemonOptions::of`] makes the store.
    pub storage: Option<Storage>,
    /// The driver that runs the tasks, with its block.
    pub driver: DriverBlock,
    /// Providers of the Terraform language.
    pub providers: Vec<ProviderBlock>,
    /// The tasks, in the order of the files.
    pub tasks: Vec<Task>,
    /// Blocks that a [`BlockKind`] claims and has checked, by name.
    pub blocks: BTreeMap<String, ClaimedBlock>,
    /// Warnings for the operator: deprecated names, ignored settings.
    pub warnings: Vec<Diagnostic>,
}

impl Default for Config {
    /// As if every block were empty, without tasks; the id is `cts`, because
    /// the hostname is asked only where a configuration is loaded.
    fn default() -> Self {
        Self {
            log_level: LogLevel::Info,
            port: DEFAULT_PORT,
            id: "cts".to_owned(),
            working_dir: DEFAULT_WORKING_DIR.into(),
            syslog: None,
            buffer_period: BufferPeriod::default(),
            consul: ConsulConfig::default(),
            vault: None,
            tls: None,
            api_token_file: None,
            api_hosts: Vec::new(),
            api_cors_origins: Vec::new(),
            shutdown_timeout: DEFAULT_SHUTDOWN_TIMEOUT,
            api_metrics: false,
            storage: None,
            driver: DriverBlock::default(),
            providers: Vec::new(),
            tasks: Vec::new(),
            blocks: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }
}

/// The lowest level of lines that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// Details for developers.
    Debug,
    /// State changes that matter to operators.
    Info,
    /// Degraded operation, and whatever else is out of the ordinary.
    Warn,
    /// Failures only.
    Error,
}

/// A text that names no [`LogLevel`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a log level: {0:?}")]
pub struct InvalidLogLevel(String);

impl FromStr for LogLevel {
    type Err = InvalidLogLevel;

    /// Reads a level in upper or lower case.
    ///
    /// Deviation: upstream takes `ERR` and then logs as for `INFO`, and
    /// refuses `ERROR`; both mean [`LogLevel::Error`] here.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_uppercase().as_str() {
            "TRACE" => Ok(Self::Trace),
            "DEBUG" => Ok(Self::Debug),
            "INFO" => Ok(Self::Info),
            "WARN" => Ok(Self::Warn),
            "ERR" | "ERROR" => Ok(Self::Error),
            _ => Err(InvalidLogLevel(text.to_owned())),
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERR",
        })
    }
}

/// `driver "<label>" { … }`: its body belongs to the driver.
#[derive(Clone)]
#[non_exhaustive]
pub struct DriverBlock {
    /// The label; `terraform` when there is no block.
    pub label: String,
    /// The body as the driver got it; `None` when there is no block.
    pub body: Option<ConfigValue>,
    /// Keys of the body whose values must never be shown; see
    /// [`crate::DriverKind::secret_fields`].
    pub(crate) secret_fields: &'static [&'static str],
}

impl Default for DriverBlock {
    /// As if there were no block.
    fn default() -> Self {
        Self { label: DEFAULT_DRIVER.to_owned(), body: None, secret_fields: &[] }
    }
}

/// A block at the top of the configuration that a [`BlockKind`] has checked.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClaimedBlock {
    /// The body.
    pub body: ConfigValue,
    /// Keys of the body whose values must never be shown; see
    /// [`BlockKind::secret_fields`].
    pub(crate) secret_fields: &'static [&'static str],
}
