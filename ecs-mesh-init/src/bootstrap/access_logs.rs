//! Access logs of Envoy's admin interface and listeners, read from the config entry
//! `proxy-defaults` and written in the form that Envoy takes.

use consul_watch::types::JsonObject;
use serde_json::Value;

use crate::{
    Error, Result,
    json::{Json, object},
};

/// Sink and format of Envoy's access logs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AccessLogs {
    /// Sink that the logs are written to.
    pub sink: AccessLogSink,
    format: Format,
}

/// Sink that access logs are written to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AccessLogSink {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// File with this path.
    File(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Format {
    Json(Json),
    Text(String),
}

/// Consul's default format: names in order, and Envoy's command operator for each.
const DEFAULT_FORMAT: &[(&str, &str)] = &[
    ("authority", "%REQ(:AUTHORITY)%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("connection_termination_details", "%CONNECTION_TERMINATION_DETAILS%"),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("duration", "%DURATION%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("route_name", "%ROUTE_NAME%"),
    ("start_time", "%START_TIME%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    ("upstream_service_time", "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%"),
    ("upstream_transport_failure_reason", "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
];

impl Default for AccessLogs {
    fn default() -> Self {
        let members =
            DEFAULT_FORMAT.iter().map(|(name, value)| ((*name).into(), Json::from(*value)));
        Self {
            sink: AccessLogSink::default(),
            format: Format::Json(Json::Object(members.collect())),
        }
    }
}

impl AccessLogs {
    /// Returns logs in the default format.
    pub fn to_sink(sink: AccessLogSink) -> Self {
        Self { sink, ..Self::default() }
    }

    /// Sets a text format, and adds the newline at its end where it is missing.
    #[must_use]
    pub fn with_text_format(mut self, format: &str) -> Self {
        // Envoy writes the format as it is: without a newline all requests would share one line.
        let newline = if format.ends_with('\n') { "" } else { "\n" };
        self.format = Format::Text(format!("{format}{newline}"));
        self
    }

    /// Sets a JSON format: an object of names and Envoy's command operators.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] when `format` is not a JSON object.
    pub fn with_json_format(mut self, format: &str) -> Result<Self> {
        match Json::parse(format) {
            Ok(json @ Json::Object(_)) => {
                self.format = Format::Json(json);
                Ok(self)
            }
            Ok(_) => Err(Error::input("AccessLogs.JSONFormat is not a JSON object")),
            Err(error) => Err(Error::input(format!("AccessLogs.JSONFormat is not JSON: {error}"))),
        }
    }

    /// Reads the member `AccessLogs` of the config entry `proxy-defaults`; `None` when logs are
    /// off.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for an unknown sink type, or a format that is not a JSON object.
    pub fn from_config_entry(entry: &JsonObject) -> Result<Option<Self>> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        if entry.get("Enabled").and_then(Value::as_bool) != Some(true) {
            return Ok(None);
        }
        let sink = match text("Type") {
            "" | "stdout" => AccessLogSink::Stdout,
            "stderr" => AccessLogSink::Stderr,
            "file" => AccessLogSink::File(text("Path").to_owned()),
            other => return Err(Error::input(format!("AccessLogs.Type {other:?} is not known"))),
        };
        let logs = Self::to_sink(sink);
        match (text("TextFormat"), text("JSONFormat")) {
            ("", "") => Ok(Some(logs)),
            ("", json) => logs.with_json_format(json).map(Some),
            // Consul refuses an entry that has both formats, so the order of these arms decides
            // nothing.
            (plain, _) => Ok(Some(logs.with_text_format(plain))),
        }
    }

    pub(super) fn to_json(&self) -> Json {
        const PREFIX: &str = "type.googleapis.com/envoy.extensions.access_loggers";
        let (kind, path) = match &self.sink {
            AccessLogSink::Stdout => ("stream.v3.StdoutAccessLog", None),
            AccessLogSink::Stderr => ("stream.v3.StderrAccessLog", None),
            AccessLogSink::File(path) => ("file.v3.FileAccessLog", Some(path.as_str())),
        };
        let format = match &self.format {
            Format::Json(json) => object! { "jsonFormat" => json.clone() },
            Format::Text(text) => {
                object! { "textFormatSource" => object! { "inlineString" => text.as_str() } }
            }
        };
        object! {
            "name" => "Consul Listener Filter Log",
            "typedConfig" => object! { "@type" => format!("{PREFIX}.{kind}") }
                .with("path", path)
                .with("logFormat", Some(format)),
        }
    }
}
