//! `Call`: a request to the double with its parameters and body, checked as Consul checks them.

use std::{collections::HashMap, fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    GoDuration,
    testing::{
        answer::Reply,
        filter::{Filter, Schema},
        go_json,
        state::Refused,
    },
};

const LONGEST_WAIT: Duration = Duration::from_mins(10);
const DEFAULT_WAIT: Duration = Duration::from_mins(5);

/// A request, taken apart.
pub(in crate::testing) struct Call {
    pub(in crate::testing) method: Method,
    /// The decoded path, without the leading slash.
    pub(in crate::testing) path: String,
    /// The path that a client is sent to, if this one is not in its plain form.
    pub(super) clean: Option<String>,
    /// The same for the path as it was sent, which current servers look at.
    pub(super) clean_raw: Option<String>,
    params: HashMap<String, Vec<String>>,
    pub(in crate::testing) body: Bytes,
    /// 0 does not block.
    pub(in crate::testing) index: u64,
    pub(in crate::testing) hash: Option<String>,
    pub(in crate::testing) wait: Duration,
    pub(in crate::testing) stale: bool,
    /// The secret of the request's token; empty without one.
    pub(super) token: String,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Call {
    /// Takes a request apart, or answers it at once.
    pub(in crate::testing) fn parse(request: http::Request<Bytes>) -> Result<Self, Box<Reply>> {
        let (parts, body) = request.into_parts();
        let raw = parts.uri.path();
        let Ok(path) = percent_decode_str(raw).decode_utf8() else {
            return Err(Box::new(Reply::empty(400)));
        };
        if path.chars().any(char::is_control) {
            return Err(Box::new(Reply::empty(400)));
        }
        let clean = Some(clean_path(&path)).filter(|clean| *clean != path);
        let clean_raw = Some(clean_path(raw)).filter(|clean| clean != raw);
        let mut params = HashMap::<String, Vec<String>>::new();
        for pair in parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty())
        {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| {
                percent_decode_str(&text.replace('+', "%20")).decode_utf8_lossy().into_owned()
            };
            params.entry(decode(name)).or_default().push(decode(value));
        }
        let mut call = Self {
            method: parts.method,
            path: path.trim_start_matches('/').to_owned(),
            clean,
            clean_raw,
            params,
            body,
            index: 0,
            hash: None,
            wait: DEFAULT_WAIT,
            stale: false,
            token: String::new(),
        };
        call.token = call.read_token(&parts.headers);
        Ok(call)
    }

    fn read_token(&self, headers: &HeaderMap) -> String {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = || {
            let (scheme, token) = header("authorization")?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        };
        let found = self.param("token").or_else(|| header("x-consul-token")).or_else(bearer);
        found.unwrap_or_default().to_owned()
    }

    /// Reads what all endpoints share: how to read, how long to wait, where.
    pub(in crate::testing) fn read_options(&mut self, old: bool) -> Result<(), Refused> {
        if let Some(text) = self.param("index") {
            self.index = text.parse().map_err(|_bad| Refused::new(400, "Invalid index"))?;
        }
        if let Some(text) = self.param("wait") {
            // A wait below zero is none.
            let wait = text
                .strip_prefix('-')
                .map_or(text, |_below| "0s")
                .parse::<GoDuration>()
                .map_err(|_bad| Refused::new(400, "Invalid wait time"))?
                .get();
            self.wait = if wait.is_zero() { DEFAULT_WAIT } else { wait.min(LONGEST_WAIT) };
        }
        self.hash = self.param("hash").filter(|hash| !hash.is_empty()).map(str::to_owned);
        self.stale = self.has("stale");
        if self.stale && self.has("consistent") {
            let text = "Cannot specify ?stale with ?consistent, conflicting semantics.";
            return Err(Refused::new(400, text));
        }
        // Nodes have no namespace, and servers before 1.11 no partitions.
        for (name, feature) in [("ns", "Namespaces are"), ("partition", "Partitions are")] {
            if (name == "ns" && self.path == "v1/catalog/nodes") || (name == "partition" && old) {
                continue;
            }
            if self.param(name).is_some_and(|value| !value.is_empty()) {
                let text = format!(
                    "Invalid query parameter: {name:?} - {feature} a Consul Enterprise feature"
                );
                return Err(Refused::new(400, text));
            }
        }
        if let Some(text) = self.param("max_stale")
            && text.parse::<GoDuration>().is_err()
        {
            return Err(Refused::new(400, format!("Invalid max_stale value {text:?}")));
        }
        if self.param("dc").is_some_and(|name| !name.is_empty() && name != "dc1") {
            return Err(Refused::new(500, "No path to datacenter"));
        }
        Ok(())
    }

    pub(in crate::testing) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).and_then(|values| values.first()).map(String::as_str)
    }

    pub(in crate::testing) fn all(&self, name: &str) -> &[String] {
        self.params.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The query string as Go writes it again: in order of the names.
    pub(super) fn query(&self) -> String {
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
                .to_string()
                .replace("%2D", "-")
                .replace("%5F", "_")
                .replace("%2E", ".")
                .replace("%20", "+")
        };
        let mut names: Vec<&String> = self.params.keys().collect();
        names.sort();
        let pairs = names.into_iter().flat_map(|name| {
            self.all(name).iter().map(move |value| format!("{}={}", encode(name), encode(value)))
        });
        pairs.collect::<Vec<String>>().join("&")
    }

    pub(in crate::testing) fn has(&self, name: &str) -> bool {
        self.params.contains_key(name)
    }

    /// The body, with Consul's words when it cannot be read.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        go_json::from_slice(&self.body)
            .map_err(|error| Refused::new(400, format!("Request decode failed: {error}")))
    }

    /// The body, where it may be left out.
    pub(super) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, Refused> {
        if self.body.is_empty() { Ok(T::default()) } else { self.json() }
    }

    /// Leaves of a list what the request's filter expression says.
    pub(super) fn narrow(
        &self,
        mut list: Vec<Value>,
        schema: fn() -> Schema,
    ) -> Result<Vec<Value>, Refused> {
        if let Some(filter) = self.filter(schema)? {
            list.retain(|item| filter.matches(item));
        }
        Ok(list)
    }

    /// The request's filter expression.
    pub(super) fn filter(&self, schema: fn() -> Schema) -> Result<Option<Filter>, Refused> {
        let Some(text) = self.param("filter").filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        Filter::new(text, &schema()).map(Some).map_err(|error| {
            let text = format!("Failed to create boolean expression evaluator: {error}");
            Refused::new(500, text)
        })
    }

    /// `true` for reads whose answer says how consistent it is.
    pub(in crate::testing) fn tells_consistency(&self, old: bool) -> bool {
        const READS: [&str; 4] = ["v1/catalog/", "v1/health/", "v1/discovery-chain/", "v1/query"];
        let writes = self.method == Method::PUT || self.method == Method::DELETE;
        let creates = self.path == "v1/query" && self.method == Method::POST;
        let newer = ["v1/operator/usage", "v1/connect/intentions/match"];
        if writes || creates || self.path == "v1/catalog/datacenters" {
            return false;
        }
        READS.iter().any(|start| self.path.starts_with(start))
            || (!old && newer.contains(&self.path.as_str()))
    }

    pub(in crate::testing) fn consistency(&self) -> &'static str {
        match (self.stale, self.has("consistent")) {
            (true, _) => "stale",
            (_, true) => "consistent",
            _ => "leader",
        }
    }

    /// Returns `true` if the answer depends on the leader.
    pub(in crate::testing) fn needs_leader(&self) -> bool {
        const OWN: [&str; 3] = ["v1/agent/", "v1/event/", "v1/status/"];
        !self.stale && !OWN.iter().any(|own| self.path.starts_with(own))
    }
}

fn clean_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut clean = format!("/{}", parts.join("/"));
    if path.ends_with('/') && clean.len() > 1 {
        clean.push('/');
    }
    clean
}

/// A refusal of what was sent; servers before 1.9 put words in front of it.
pub(super) fn bad_request(old: bool, text: &str) -> Refused {
    Refused::new(400, format!("{}{text}", if old { "Bad request: " } else { "" }))
}

pub(super) fn number(text: &str) -> Result<u64, Refused> {
    text.parse().map_err(|_bad| {
        Refused::new(500, format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))
    })
}
