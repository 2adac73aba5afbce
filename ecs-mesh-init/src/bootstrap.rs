//! Builds the configuration with which an Envoy finds its Consul.
//!
//! [`BootstrapOptions::render`] is pure: the options hold all that it needs. [`BootstrapRequest`]
//! fetches what a running Consul knows of a proxy.
//!
//! Source: Consul 1.20 `command/connect/envoy` (`bootstrap_tpl.go`, `bootstrap_config.go`).

mod access_logs;
mod address;
mod authority;
mod document;
mod envoy_json;
mod envoy_version;
mod listeners;
mod lookup;
mod options;
mod prometheus_tls;
mod render;
mod request;
mod settings;
mod sha1;
mod sinks;
mod stats_tags;
mod telemetry;
mod template;

pub use access_logs::{AccessLogSink, AccessLogs};
pub use address::{GrpcAddress, HostPort, gateway_address};
pub use authority::authority_pem;
pub use document::Bootstrap;
pub use envoy_version::{EnvoyVersion, SupportedEnvoys};
pub use options::{BootstrapOptions, XdsAddress, XdsOptions};
pub use prometheus_tls::{PrometheusCa, PrometheusTls};
pub use request::{BootstrapRequest, Fetched};
pub use settings::ProxySettings;
