//! The part of Go's `text/template` that bootstrap templates use: fields, `if` with `else`,
//! comments, and the markers that trim white space.

use secrecy::ExposeSecret;

use super::{
    Bootstrap, BootstrapOptions, XdsAddress,
    document::{Parts, admin_log},
};
use crate::{Error, Result, json::Json};

/// Renders the user's template.
///
/// # Errors
///
/// [`Error::Input`] for an unknown action or field, or when the result is not JSON.
///
/// Deviation: texts are escaped for a JSON string, upstream puts them in as they are.
pub(super) fn render(text: &str, options: &BootstrapOptions, parts: &Parts) -> Result<Bootstrap> {
    let pieces = pieces(text)?;
    let mut output = String::new();
    // For each open `if`: whether the present branch is taken, and whether there was an `else`.
    let mut open: Vec<(bool, bool)> = Vec::new();
    for piece in pieces {
        let active = open.iter().all(|(taken, _)| *taken);
        match piece {
            Piece::Text(text) if active => output.push_str(text),
            Piece::Text(_) => {}
            Piece::Field(name) => {
                // Looked up also in a branch that is not taken, so that a misspelt field is an
                // error at once.
                let value = field(name, options, parts)?;
                if active {
                    output.push_str(&value.text);
                }
            }
            Piece::If(name) => open.push((field(name, options, parts)?.is_set, false)),
            Piece::Else => match open.last_mut() {
                Some(last) if !last.1 => *last = (!last.0, true),
                _ => return Err(refuse("{{ else }} without {{ if }}")),
            },
            Piece::End => {
                open.pop().ok_or_else(|| refuse("{{ end }} without {{ if }}"))?;
            }
        }
    }
    if !open.is_empty() {
        return Err(refuse("{{ if }} without {{ end }}"));
    }
    let json = Json::parse(&output)
        .map_err(|error| refuse(&format!("the result is not JSON: {error}")))?;
    Ok(Bootstrap { json })
}

fn refuse(problem: &str) -> Error {
    Error::input(format!("envoy_bootstrap_json_tpl: {problem}"))
}

enum Piece<'a> {
    Text(&'a str),
    Field(&'a str),
    If(&'a str),
    Else,
    End,
}

/// Splits a template into text and actions.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut trims_next = false;
    loop {
        let (before, action) = match rest.split_once("{{") {
            Some((before, after)) => (before, Some(after)),
            None => (rest, None),
        };
        let before = if trims_next { before.trim_start() } else { before };
        let Some(action) = action else {
            pieces.push(Piece::Text(before));
            return Ok(pieces);
        };
        let (inner, after) = action.split_once("}}").ok_or_else(|| refuse("{{ without }}"))?;
        // Go asks for a space beside the marker: `{{-3}}` is a number, not a trim.
        let trimmed = inner.strip_prefix("- ");
        pieces.push(Piece::Text(if trimmed.is_some() { before.trim_end() } else { before }));
        let inner = trimmed.unwrap_or(inner);
        trims_next = inner.ends_with(" -");
        pieces.extend(action_of(inner.strip_suffix(" -").unwrap_or(inner).trim())?);
        rest = after;
    }
}

fn action_of(action: &str) -> Result<Option<Piece<'_>>> {
    if action.starts_with("/*") && action.ends_with("*/") {
        return Ok(None);
    }
    let piece = match action.split_once(char::is_whitespace) {
        None if action == "else" => Piece::Else,
        None if action == "end" => Piece::End,
        None => Piece::Field(name_of(action)?),
        Some(("if", name)) => Piece::If(name_of(name.trim())?),
        Some(_) => return Err(unknown(action)),
    };
    Ok(Some(piece))
}

fn name_of(action: &str) -> Result<&str> {
    let name = action.strip_prefix('.').ok_or_else(|| unknown(action))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(unknown(action));
    }
    Ok(name)
}

fn unknown(action: &str) -> Error {
    refuse(&format!(
        "{{{{ {action} }}}} is not supported: write fields such as {{{{ .ProxyID }}}}, and if, else, end"
    ))
}

struct Field {
    text: String,
    is_set: bool,
}

impl Field {
    /// Creates a text that stands within quotes.
    fn text(text: &str) -> Self {
        // Escaped: a quote in a service's name would otherwise end the string that the template
        // opens.
        let quoted = serde_json::to_string(text).unwrap_or_default();
        let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Self { text: inner.unwrap_or_default().to_owned(), is_set: !text.is_empty() }
    }

    /// Creates a JSON value that stands by itself.
    fn json(json: &Json) -> Self {
        Self { text: json.to_pretty(), is_set: true }
    }

    /// Creates the members of a list, with commas between them.
    fn list(items: &[Json]) -> Self {
        let items: Vec<String> = items.iter().map(Json::to_pretty).collect();
        Self { text: items.join(",\n"), is_set: !items.is_empty() }
    }

    fn flag(flag: bool) -> Self {
        Self { text: flag.to_string(), is_set: flag }
    }
}

/// Looks up a field by its name in upstream's templates.
///
/// Source: Consul 1.20 `command/connect/envoy/bootstrap_tpl.go` (`BootstrapTplArgs`).
fn field(name: &str, options: &BootstrapOptions, parts: &Parts) -> Result<Field> {
    let xds = &options.xds;
    let (address, port, socket) = match &xds.address {
        XdsAddress::Tcp(address) => {
            (address.ip().to_string(), address.port().to_string(), String::new())
        }
        XdsAddress::Unix(path) => {
            (String::new(), String::new(), path.to_string_lossy().into_owned())
        }
    };
    let token = xds.token.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default();
    Ok(match name {
        "ProxyCluster" => Field::text(&options.cluster),
        "ProxyID" => Field::text(&options.proxy_id),
        "NodeName" => Field::text(options.node_name.as_deref().unwrap_or_default()),
        "ProxySourceService" => Field::text(options.source_service()),
        // Both spellings work upstream.
        "GRPC.AgentAddress" | "AgentAddress" => Field::text(&address),
        "GRPC.AgentPort" | "AgentPort" => Field::text(&port),
        "GRPC.AgentSocket" | "AgentSocket" => Field::text(&socket),
        "GRPC.AgentTLS" | "AgentTLS" => Field::flag(xds.tls),
        "AgentCAPEM" => Field::text(&xds.ca_pem),
        "AdminAccessLogConfig" => Field::list(&admin_log(options)),
        "AdminAccessLogPath" => Field::text(&options.admin_access_log_path),
        "AdminBindAddress" => Field::text(&options.admin.ip().to_string()),
        "AdminBindPort" => Field::text(&options.admin.port().to_string()),
        "LocalAgentClusterName" => Field::text(&xds.cluster_name),
        "Token" => Field::text(token),
        "Namespace" => Field::text(options.namespace()),
        "Partition" => Field::text(options.partition()),
        "Datacenter" => Field::text(options.datacenter.as_deref().unwrap_or_default()),
        "StaticClustersJSON" => Field::list(&parts.clusters),
        "StaticListenersJSON" => Field::list(&parts.listeners),
        "StaticSecretsJSON" => Field::list(&parts.secrets),
        "StatsSinksJSON" => Field::list(&parts.sinks),
        "StatsConfigJSON" => Field::json(&parts.stats_config),
        "StatsFlushInterval" => Field::text(parts.flush_interval.as_deref().unwrap_or_default()),
        "TracingConfigJSON" => match &parts.tracing {
            Some(tracing) => Field::json(tracing),
            None => Field::text(""),
        },
        "PrometheusBackendPort" => Field::text(
            &options.prometheus_backend_port.map(|port| port.to_string()).unwrap_or_default(),
        ),
        "PrometheusScrapePath" => Field::text(&options.prometheus_scrape_path),
        other => return Err(unknown(&format!(".{other}"))),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(
        template: &str,
        change: impl FnOnce(&mut BootstrapOptions),
    ) -> Result<serde_json::Value> {
        let mut options = BootstrapOptions::new("web\"1", "web");
        options.settings.bootstrap_template = Some(template.to_owned());
        change(&mut options);
        options
            .render(&|_| None)
            .map(|bootstrap| serde_json::from_str(&bootstrap.to_text()).unwrap())
    }

    #[test]
    fn fields_are_filled_in_and_escaped() {
        let json = rendered(
            r#"{"id": "{{ .ProxyID }}", "port": {{.AdminBindPort}}, "stats": {{ .StatsConfigJSON }}, "tls": {{ .GRPC.AgentTLS }}}"#,
            |_| (),
        )
        .unwrap();
        assert_eq!((&json["id"], &json["port"]), (&"web\"1".into(), &19000.into()));
        assert_eq!(
            (&json["stats"]["use_all_default_tags"], &json["tls"]),
            (&true.into(), &false.into())
        );
    }

    #[test]
    fn branches_follow_whether_a_field_is_set() {
        let template = r#"{ {{- if .NodeName }}"node": "{{ .NodeName }}"{{ else -}} {{/* none */}} "none": 1 {{- end }} }"#;
        assert_eq!(rendered(template, |_| ()).unwrap(), serde_json::json!({"none": 1}));
        let named = rendered(template, |options| options.node_name = Some("n".into())).unwrap();
        assert_eq!(named, serde_json::json!({"node": "n"}));
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (template, problem) in [
            ("{{ range .X }}{{ end }}", "range .X"),
            ("{{ .Nothing }}", ".Nothing"),
            ("{{ if .Token }}", "without {{ end }}"),
            ("{{ end }}", "{{ end }} without"),
            ("{{ else }}", "{{ else }} without"),
            ("{{ .Token", "{{ without }}"),
            ("{", "not JSON"),
        ] {
            let error = rendered(template, |_| ()).unwrap_err().to_string();
            assert!(
                error.starts_with("envoy_bootstrap_json_tpl: ") && error.contains(problem),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_template_makes_it_panic(template in "(\\PC|\\{\\{|\\}\\}| if | end | else |- | -|\\.Token){0,20}") {
            let _result = rendered(&template, |_| ());
        }
    }
}
