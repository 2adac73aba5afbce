//! Answers in a form that two servers can share, and what differs between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use bytes::Bytes;
use regex::Regex;
use serde_json::{Value, json};

/// Headers of the connection, not of the answer.
/// `Age` and `X-Cache` depend on what was asked before.
const OWN: [&str; 6] =
    ["age", "connection", "content-length", "date", "transfer-encoding", "x-test-server"];

/// What of a body is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum View {
    /// Its values.
    #[default]
    Values,
    /// Its values; lists have no order.
    Unordered,
    /// The types of its values.
    Shape,
}

/// An answer, without what differs between any two servers.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Json(Value),
    Text(String),
}

impl Answer {
    /// Takes an answer in. `known` are values of this server that have names.
    pub(super) fn of(
        answer: &http::Response<Bytes>,
        known: &BTreeMap<String, String>,
        view: View,
    ) -> Self {
        let clean = |text: &str| clean(text, known);
        let mut headers = BTreeMap::new();
        for (name, value) in answer.headers() {
            let (name, value) = (name.as_str(), value.to_str().unwrap_or("<no text>"));
            if OWN.contains(&name) {
                continue;
            }
            let value = match name {
                "x-consul-index" if value != "0" => "<index>".to_owned(),
                "x-consul-contenthash" => "<hash>".to_owned(),
                "x-cache" => "<cache>".to_owned(),
                _ => clean(value),
            };
            headers.insert(name.to_owned(), value);
        }
        let body = serde_json::from_slice::<Value>(answer.body()).map_or_else(
            |_no_json| match view {
                View::Shape => Body::Text("<text>".to_owned()),
                _ => Body::Text(clean(&String::from_utf8_lossy(answer.body()))),
            },
            |value| {
                let value = clean_json("", &value, &clean);
                Body::Json(match view {
                    View::Values => value,
                    View::Unordered => sorted(value),
                    View::Shape => shape_of(&value),
                })
            },
        );
        Self { status: answer.status().as_u16(), headers, body }
    }
}

/// Replaces ids, times, keys and addresses by names for them.
fn clean(text: &str, known: &BTreeMap<String, String>) -> String {
    static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let patterns = [
            (r"-----BEGIN [A-Z ]+-----[^-]*-----END [A-Z ]+-----\n?", "<pem>"),
            (
                r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
                "<uuid>",
            ),
            (r"([0-9a-f]{2}:){7,}[0-9a-f]{2}", "<key>"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
            (r"127\.0\.0\.1:\d+", "<address>"),
            (r"reset index: \d+", "reset index: <index>"),
            (r"current modify index \d+", "current modify index <index>"),
            (r"/[^ ]*/data\b", "<folder>"),
            // Go names the types of its own structures here.
            (r"(json: cannot unmarshal \w+).*", "$1"),
            (r"\A[A-Za-z0-9+/]{43}=\z", "<hash>"),
            (r"\A[0-9a-f]{16}\z", "<hash>"),
            (r"(real|test)-consul", "<node>"),
        ];
        patterns.map(|(pattern, name)| (Regex::new(pattern).expect("a pattern"), name)).into()
    });
    // Names of values first: they tell more than that a value is an id. The zero time and
    // ids that requests bring along are the same everywhere.
    let mut text = text.to_owned();
    for (name, value) in known.iter().filter(|(_, value)| value.len() > 12) {
        text = text.replace(value, &format!("<{name}>"));
    }
    PATTERNS.iter().fold(text, |text, (pattern, name)| {
        if *name == "<time>" && text.contains("0001-01-01T00:00:00Z") {
            return text;
        }
        pattern.replace_all(&text, *name).into_owned()
    })
}

fn clean_json(key: &str, value: &Value, clean: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::Number(number) => clean_number(key, number),
        Value::String(_) if key == "ContentHash" => json!("<hash>"),
        Value::String(_) if matches!(key, "port" | "SerialNumber") => json!("<number>"),
        // A member of the cluster: its ports are its own.
        Value::Object(fields) if key != "<member>" && fields.contains_key("ProtocolMin") => {
            let mut fields = fields.clone();
            fields.insert("Port".to_owned(), json!("<number>"));
            clean_json("<member>", &Value::Object(fields), clean)
        }
        Value::String(text) => json!(clean(text)),
        Value::Array(list) => list.iter().map(|item| clean_json(key, item, clean)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (clean(name), clean_json(name, value, clean)))
            .collect(),
        other => other.clone(),
    }
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Array(list) => {
            let mut list: Vec<Value> = list.into_iter().map(sorted).collect();
            list.sort_by_key(ToString::to_string);
            Value::Array(list)
        }
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, sorted(value))).collect()
        }
        other => other,
    }
}

/// A number, unless it is one that each server counts for itself.
#[expect(
    clippy::float_cmp,
    clippy::cast_possible_truncation,
    reason = "whole numbers below 1e15, which a float holds exactly"
)]
fn clean_number(key: &str, number: &serde_json::Number) -> Value {
    let value = number.as_f64().unwrap_or_default();
    let counted = key.ends_with("Index") && key != "LockIndex";
    match key {
        _ if counted && value > 0.0 => json!("<index>"),
        "SerialNumber" | "LTime" | "LastTerm" | "Hash" => json!("<number>"),
        "HTTPPort" | "SerfPortLAN" | "ServerPort" => json!("<port>"),
        // Ports of the server itself.
        "Port" | "ServicePort" if (22_000.0..32_000.0).contains(&value) || value == 8300.0 => {
            json!("<port>")
        }
        // Go writes whole numbers without a point.
        _ if value.fract() == 0.0 && value.abs() < 1e15 => json!(value as i64),
        _ => json!(number),
    }
}

/// The types of a value's parts; a list is one of all its items.
fn shape_of(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("bool"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("string"),
        Value::Array(list) => {
            let shapes: BTreeSet<String> =
                list.iter().map(|item| shape_of(item).to_string()).collect();
            json!(shapes)
        }
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), shape_of(value))).collect()
        }
    }
}

/// What differs, a line each: status, headers, parts of the body.
pub(super) fn differences(expected: &Answer, actual: &Answer) -> Vec<String> {
    let mut found = Vec::new();
    if expected.status != actual.status {
        found.push(format!("status: {} instead of {}", actual.status, expected.status));
    }
    let names: BTreeSet<&String> = expected.headers.keys().chain(actual.headers.keys()).collect();
    for name in names {
        let (want, have) = (expected.headers.get(name), actual.headers.get(name));
        if want != have {
            let what = if expected.status >= 400 { "refusal's header" } else { "header" };
            found.push(format!("{what} {name}: {} instead of {}", shown(have), shown(want)));
        }
    }
    match (&expected.body, &actual.body) {
        (Body::Text(want), Body::Text(have)) if want.trim_end() == have.trim_end() => {}
        (Body::Json(want), Body::Json(have)) => compare("", want, have, &mut found),
        (want, have) => {
            let text = |body: &Body| match body {
                Body::Text(text) => format!("text {text:?}"),
                Body::Json(value) => format!("JSON {value}"),
            };
            found.push(format!("body: {} instead of {}", text(have), text(want)));
        }
    }
    found
}

fn shown(value: Option<&String>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| format!("{value:?}"))
}

fn compare(path: &str, want: &Value, have: &Value, found: &mut Vec<String>) {
    match (want, have) {
        (Value::Object(want), Value::Object(have)) => {
            let names: BTreeSet<&String> = want.keys().chain(have.keys()).collect();
            for name in names {
                let path = format!("{path}/{name}");
                match (want.get(name), have.get(name)) {
                    (Some(want), Some(have)) => compare(&path, want, have, found),
                    (Some(want), None) => found.push(format!("body {path}: lacks {want}")),
                    (None, have) => {
                        let have = have.cloned().unwrap_or_default();
                        found.push(format!("body {path}: has {have}"));
                    }
                }
            }
        }
        (Value::Array(want), Value::Array(have)) if want.len() == have.len() => {
            for (at, (want, have)) in want.iter().zip(have).enumerate() {
                compare(&format!("{path}/{at}"), want, have, found);
            }
        }
        (want, have) if want == have => {}
        (want, have) => found.push(format!("body {path}: {have} instead of {want}")),
    }
}
