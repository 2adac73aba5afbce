//! Settings in a proxy's opaque `Config` (keys `envoy_…`) that shape the bootstrap document,
//! decoded as leniently as upstream's `mapstructure` does.

use consul_watch::types::JsonObject;
use serde_json::Value;

use crate::{Error, Result, json::Json};

/// Settings of the bootstrap document from a proxy's opaque `Config`.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ProxySettings {
    /// `envoy_bootstrap_json_tpl`: a template that replaces the whole document.
    pub bootstrap_template: Option<String>,
    /// `envoy_statsd_url`.
    pub statsd_url: Option<String>,
    /// `envoy_dogstatsd_url`.
    pub dogstatsd_url: Option<String>,
    /// `envoy_stats_tags`: each `name=value`, or a name alone for the value `1`.
    pub stats_tags: Vec<String>,
    /// `envoy_stats_flush_interval`, such as `10s`.
    pub stats_flush_interval: Option<String>,
    /// `envoy_prometheus_bind_addr`.
    pub prometheus_bind_addr: Option<String>,
    /// `envoy_stats_bind_addr`.
    pub stats_bind_addr: Option<String>,
    /// `envoy_telemetry_collector_bind_socket_dir`.
    pub telemetry_socket_dir: Option<String>,
    pub(super) extra_sinks: Vec<Json>,
    pub(super) extra_clusters: Vec<Json>,
    pub(super) extra_listeners: Vec<Json>,
    pub(super) stats_config: Option<Json>,
    pub(super) tracing: Option<Json>,
}

impl ProxySettings {
    /// Reads a proxy's `Config`. Numbers and flags count as text, a single value as a list of one.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] names the key and what is wrong with its value.
    pub fn from_config(config: &JsonObject) -> Result<Self> {
        let reader = Reader { config };
        Ok(Self {
            bootstrap_template: reader.text("envoy_bootstrap_json_tpl")?,
            statsd_url: reader.text("envoy_statsd_url")?,
            dogstatsd_url: reader.text("envoy_dogstatsd_url")?,
            stats_tags: reader.texts("envoy_stats_tags")?,
            stats_flush_interval: reader.text("envoy_stats_flush_interval")?,
            prometheus_bind_addr: reader.text("envoy_prometheus_bind_addr")?,
            stats_bind_addr: reader.text("envoy_stats_bind_addr")?,
            telemetry_socket_dir: reader.text("envoy_telemetry_collector_bind_socket_dir")?,
            extra_sinks: reader.objects("envoy_extra_stats_sinks_json")?,
            extra_clusters: reader.objects("envoy_extra_static_clusters_json")?,
            extra_listeners: reader.objects("envoy_extra_static_listeners_json")?,
            stats_config: reader.json("envoy_stats_config_json")?,
            tracing: reader.json("envoy_tracing_json")?,
        })
    }
}

struct Reader<'a> {
    config: &'a JsonObject,
}

impl Reader<'_> {
    /// Returns a text that is not empty.
    fn text(&self, key: &str) -> Result<Option<String>> {
        let text = self.config.get(key).map(|value| weak_text(key, value)).transpose()?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    fn texts(&self, key: &str) -> Result<Vec<String>> {
        match self.config.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(|item| weak_text(key, item)).collect(),
            Some(Value::String(text)) if text.is_empty() => Ok(Vec::new()),
            Some(one) => Ok(vec![weak_text(key, one)?]),
        }
    }

    fn json(&self, key: &str) -> Result<Option<Json>> {
        let Some(text) = self.text(key)?.filter(|text| !text.trim().is_empty()) else {
            return Ok(None);
        };
        Json::parse(&text).map(Some).map_err(|error| not_json(key, &error))
    }

    /// Parses JSON objects that are separated by commas; a trailing comma is allowed.
    fn objects(&self, key: &str) -> Result<Vec<Json>> {
        let Some(text) = self.text(key)? else { return Ok(Vec::new()) };
        let text = text.trim().trim_end_matches(',');
        match Json::parse(&format!("[{text}]")) {
            Ok(Json::Array(items)) => Ok(items),
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(not_json(key, &error)),
        }
    }
}

fn weak_text(key: &str, value: &Value) -> Result<String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        // Go's weak decoding writes flags as `1` and `0`, not as `true` and `false`.
        Value::Bool(flag) => Ok(if *flag { "1" } else { "0" }.to_owned()),
        Value::Array(_) | Value::Object(_) => Err(Error::input(format!(
            "failed parsing Proxy.Config: {key}: a text is expected, not a list or an object"
        ))),
    }
}

fn not_json(key: &str, error: &serde_json::Error) -> Error {
    Error::input(format!("failed parsing Proxy.Config: {key}: not JSON: {error}"))
}
