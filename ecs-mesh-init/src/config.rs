//! The configuration of a task, `CONSUL_ECS_CONFIG_JSON`, in both generations of the format, and
//! the command lines of the first releases.

mod default_value;
mod flags;
mod gateway;
mod generation;
mod login;
mod proxy;
mod schema;
mod servers;
mod service;
mod transparent_proxy;

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use crate::{Error, Result};

use default_value::or_default;

pub use crate::violation::{Violation, Violations};
pub use gateway::{GatewayAddress, GatewayConfig, GatewayKind, GatewayProxyConfig};
pub use generation::Generation;
pub use login::LoginConfig;
pub use proxy::{ExposeConfig, ExposePath, MeshGatewayConfig, ProxyConfig, UpstreamConfig};
pub use servers::{GrpcConfig, HttpConfig, ServersConfig, TlsDefaults, TlsSettings};
pub use service::{
    CheckConfig, OutlierDetectionConfig, ResilienceConfig, ServiceConfig, WeightsConfig,
};
pub use transparent_proxy::{ConsulDnsConfig, TransparentProxyConfig};

/// Name of the variable that holds the configuration.
pub const CONFIG_VARIABLE: &str = "CONSUL_ECS_CONFIG_JSON";

/// A validated configuration.
///
/// ```
/// use ecs_mesh_init::config::{Config, Generation};
///
/// let config = Config::parse(r#"{"bootstrapDir":"/consul","service":{"port":8080}}"#)?;
/// assert_eq!(config.generation, Generation::Early);
/// assert_eq!(config.proxy.public_listener_port, 20000);
///
/// let error = Config::parse(r#"{"bootstrapDir":"","service":{}}"#).unwrap_err().to_string();
/// assert!(error.contains("bootstrapDir: String length must be greater than or equal to 1"));
/// assert!(error.contains("service: port is required"));
///
/// // Without a key of the early generation it counts as the current one, which needs servers.
/// let error = Config::parse(r#"{"bootstrapDir":"/consul"}"#).unwrap_err().to_string();
/// assert!(error.contains("(root): consulServers is required"));
/// # Ok::<(), ecs_mesh_init::Error>(())
/// ```
///
/// Source: consul-ecs 0.10 and 0.6 `config/types.go`, `config/schema.json`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Config {
    /// Generation that it was read in.
    #[serde(skip)]
    pub generation: Generation,
    /// Directory of the volume that the task's containers share.
    pub bootstrap_dir: PathBuf,
    /// Path of Envoy's bootstrap file. Set only by the command line of 0.1, which has no shared
    /// volume for a copy of the program.
    #[serde(skip)]
    pub bootstrap_file: Option<PathBuf>,
    /// `true` to take the name of a service from the task's family without lowering its case. Set
    /// only by the command lines of 0.1 and 0.2.
    #[serde(skip)]
    pub keeps_family_case: bool,
    /// Most detailed level that is logged. Default `INFO`.
    pub log_level: LogLevel,
    /// Containers whose ECS health is copied to Consul.
    pub health_sync_containers: Vec<String>,
    /// HTTP address of a server for the login (early generation).
    #[serde(rename = "consulHTTPAddr")]
    pub consul_http_addr: String,
    /// PEM file of the authority of `consul_http_addr` (early generation).
    #[serde(rename = "consulCACertFile")]
    pub consul_ca_cert_file: String,
    /// Login that obtains the task's token; `None` when the object is missing.
    pub consul_login: Option<LoginConfig>,
    /// Addresses of the servers (current generation).
    pub consul_servers: Option<ServersConfig>,
    /// Settings of the ACL controller.
    pub controller: Option<ControllerConfig>,
    /// Service of the task. Exactly one of this and `gateway` is needed to join the mesh.
    pub service: Option<ServiceConfig>,
    /// Gateway that the task runs.
    pub gateway: Option<GatewayConfig>,
    /// Sidecar proxy. A missing object counts as an empty one.
    ///
    /// Deviation: upstream crashes without it.
    pub proxy: ProxyConfig,
    /// Redirection of the task's traffic through the proxy.
    pub transparent_proxy: TransparentProxyConfig,
}

/// Settings of the ACL controller, which this crate only validates.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ControllerConfig {
    /// Path of the IAM roles that are trusted. Default `/consul-ecs/`, also when it is empty.
    #[serde(deserialize_with = "role_path")]
    pub iam_role_path: String,
    /// `true` if Enterprise partitions are used.
    pub partitions_enabled: bool,
    /// Partition that the controller works in.
    pub partition: String,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            iam_role_path: "/consul-ecs/".to_owned(),
            partitions_enabled: false,
            partition: String::new(),
        }
    }
}

fn role_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    or_default(deserializer, |path: &String| path.is_empty(), || "/consul-ecs/".to_owned())
}

/// Most detailed level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LogLevel {
    /// Payloads and every smaller step.
    Trace,
    /// Each step.
    Debug,
    /// State changes.
    #[default]
    Info,
    /// Conditions that may be wrong.
    Warn,
    /// Failures.
    Error,
}

impl LogLevel {
    /// Returns the word that the configuration uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Config {
    /// Reads [`CONFIG_VARIABLE`] through `lookup` and parses it.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] when it is unset or empty, [`Error::Config`] with every violation.
    pub fn from_vars(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        Self::parse(&populated(lookup)?)
    }

    /// Parses a configuration and tells its generation from its keys.
    ///
    /// `consulServers`, or another key that only the current generation has, makes it current; so
    /// does the lack of any key of the early one, such as `service`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with every violation.
    pub fn parse(text: &str) -> Result<Self> {
        let document = document(text)?;
        Self::check(generation::of(&document), document)
    }

    /// Parses a configuration of one generation.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with every violation.
    pub fn parse_as(generation: Generation, text: &str) -> Result<Self> {
        Self::check(generation, document(text)?)
    }

    /// Reads [`CONFIG_VARIABLE`] through `lookup` as [`ControlPlane`](crate::ControlPlane) takes
    /// it: of the current generation, with traffic redirected only if `transparentProxy` says so.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] when it is unset or empty, [`Error::Config`] with every violation.
    ///
    /// Source: consul-ecs 0.7 `config/schema.json`, which knows no `transparentProxy`.
    pub fn of_control_plane(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let text = populated(lookup)?;
        let mut document = document(&text)?;
        // In 0.8 and later a missing object means "enabled"; in 0.7 there was no such feature.
        if let Some(members) = document.as_object_mut()
            && members.get("transparentProxy").is_none_or(Value::is_null)
        {
            members.insert("transparentProxy".to_owned(), serde_json::json!({"enabled": false}));
        }
        Self::check(Generation::Current, document)
    }

    fn check(generation: Generation, mut document: Value) -> Result<Self> {
        let schema = match generation {
            Generation::Early => &schema::EARLY,
            Generation::Current => &schema::CURRENT,
        };
        let mut violations = schema::check(schema, &mut document);
        // The current generation also serves the controller, whose configuration has neither.
        let says_what = ["service", "gateway"].iter().any(|key| document.get(key).is_some());
        if generation == Generation::Early && document.is_object() && !says_what {
            violations.push(Violation::new("(root)", "one of service and gateway is required"));
        }
        if !violations.is_empty() {
            return Err(invalid(violations));
        }
        // After the schema, which still has to see the nulls.
        loosen(&mut document);
        let mut config: Self = decode("(root)", document)?;
        config.generation = generation;
        config.check_checks()?;
        Ok(config)
    }

    /// Refuses checks of the service together with copied health.
    fn check_checks(&self) -> Result<()> {
        let has_checks = self.service.as_ref().is_some_and(|service| !service.checks.is_empty());
        if has_checks && !self.health_sync_containers.is_empty() {
            return Err(Error::input(
                "only one of service.checks or healthSyncContainers should be set",
            ));
        }
        Ok(())
    }

    /// Returns `true` if the task's traffic is redirected through the proxy: never for gateways.
    pub fn redirects_traffic(&self) -> bool {
        self.generation == Generation::Current
            && self.gateway.is_none()
            && self.transparent_proxy.enabled
    }

    /// Returns `true` if the task resolves names through Consul, which needs redirected traffic.
    pub fn uses_consul_dns(&self) -> bool {
        self.redirects_traffic() && self.transparent_proxy.consul_dns.enabled
    }

    /// Returns the login settings if the login is enabled.
    pub fn login(&self) -> Option<&LoginConfig> {
        self.consul_login.as_ref().filter(|login| login.enabled)
    }

    /// Returns the port on which Envoy reports readiness.
    pub fn health_check_port(&self) -> u16 {
        self.gateway.as_ref().map_or(self.proxy.health_check_port, |it| it.health_check_port)
    }
}

fn populated(lookup: impl Fn(&str) -> Option<String>) -> Result<String> {
    lookup(CONFIG_VARIABLE).filter(|text| !text.is_empty()).ok_or_else(|| {
        Error::input(format!("invalid config: \"{CONFIG_VARIABLE}\" isn't populated"))
    })
}

fn invalid(violations: Vec<Violation>) -> Error {
    Error::Config { violations: Violations::new(violations) }
}

fn document(text: &str) -> Result<Value> {
    serde_json::from_str(text)
        .map_err(|error| invalid(vec![Violation::new("(root)", format!("Invalid JSON: {error}"))]))
}

fn decode<T: DeserializeOwned>(path: &str, value: Value) -> Result<T> {
    serde_json::from_value(value)
        .map_err(|error| invalid(vec![Violation::new(path, format!("Invalid value: {error}"))]))
}

/// Accepts what upstream's schema leaves unchecked: `proxy.expose` may hold nulls.
fn loosen(document: &mut Value) {
    // Upstream's schema has `expose` beside `proxy.properties` by mistake, so that nothing of it is
    // validated; configurations with nulls in it work there.
    if let Some(expose) = document.get_mut("proxy").and_then(|proxy| proxy.get_mut("expose")) {
        drop_nulls(expose);
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_name, value| !value.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
