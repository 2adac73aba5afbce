//! Which part of the state a request reads or writes, and the JSON of it.

mod json;
mod kv;

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use http::Method;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    answer::Reply,
    state::{CheckUpdate, Refused, State},
};
use crate::{GoDuration, types::HealthStatus};

const LONGEST_WAIT: Duration = Duration::from_mins(10);
const DEFAULT_WAIT: Duration = Duration::from_mins(5);

/// A request, taken apart.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    /// The decoded path, without the leading slash.
    pub(super) path: String,
    params: HashMap<String, Vec<String>>,
    pub(super) body: Bytes,
    /// 0 does not block.
    pub(super) index: u64,
    pub(super) hash: Option<String>,
    pub(super) wait: Duration,
    pub(super) stale: bool,
}

impl Call {
    /// Takes a request apart, or answers it at once.
    pub(super) fn parse(request: http::Request<Bytes>) -> Result<Self, Reply> {
        let (parts, body) = request.into_parts();
        let raw = parts.uri.path();
        let Ok(path) = percent_decode_str(raw).decode_utf8() else {
            return Err(Reply::empty(400));
        };
        if path.chars().any(char::is_control) {
            return Err(Reply::empty(400));
        }
        let clean = clean_path(&path);
        if clean != path {
            return Err(Reply::empty(301).header("location", clean));
        }
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
            params,
            body,
            index: 0,
            hash: None,
            wait: DEFAULT_WAIT,
            stale: false,
        };
        call.read_options()?;
        Ok(call)
    }

    fn read_options(&mut self) -> Result<(), Reply> {
        if let Some(text) = self.param("index") {
            self.index = text.parse().map_err(|_bad| Reply::text(400, "Invalid index"))?;
        }
        if let Some(text) = self.param("wait") {
            let wait = text
                .parse::<GoDuration>()
                .map_err(|_bad| Reply::text(400, "Invalid wait time"))?
                .get();
            self.wait = if wait.is_zero() { DEFAULT_WAIT } else { wait.min(LONGEST_WAIT) };
        }
        self.hash = self.param("hash").filter(|hash| !hash.is_empty()).map(str::to_owned);
        self.stale = self.has("stale");
        if self.stale && self.has("consistent") {
            let text = "Cannot specify ?stale with ?consistent, conflicting semantics.";
            return Err(Reply::text(400, text));
        }
        for (name, feature) in [("ns", "Namespaces are"), ("partition", "Partitions are")] {
            if self.param(name).is_some_and(|value| !value.is_empty()) {
                let text = format!(
                    "Invalid query parameter: {name:?} - {feature} a Consul Enterprise feature"
                );
                return Err(Reply::text(400, text));
            }
        }
        Ok(())
    }

    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).and_then(|values| values.first()).map(String::as_str)
    }

    pub(super) fn all(&self, name: &str) -> &[String] {
        self.params.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.params.contains_key(name)
    }

    fn json<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        serde_json::from_slice(body)
            .map_err(|error| Refused::new(400, format!("Request decode failed: {error}")))
    }

    /// Whether the answer depends on the leader.
    pub(super) fn needs_leader(&self) -> bool {
        !self.stale && !self.path.starts_with("v1/agent/") && !self.path.starts_with("v1/status/")
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

/// Carries a call out. A read may be carried out again and again while it blocks.
pub(super) fn answer(state: &mut State, call: &Call, now: Instant) -> Reply {
    let path = call.path.strip_prefix("v1/").unwrap_or_default();
    if let Some(key) = path.strip_prefix("kv/").or_else(|| (path == "kv").then_some("")) {
        return kv::answer(state, call, key, now);
    }
    if path == "txn" && call.method == Method::PUT {
        return kv::transact(state, call, now);
    }
    let (area, rest) = path.split_once('/').unwrap_or((path, ""));
    let reply = match area {
        "catalog" => catalog(state, call, rest, now),
        "health" => json::health(state, call, rest),
        "agent" => agent(state, call, rest, now),
        "session" => session(state, call, rest, now),
        "status" => status(state, rest),
        "acl" => Some(Reply::text(401, "ACL support disabled")),
        _ => None,
    };
    reply.unwrap_or_else(|| Reply::text(404, "404 page not found"))
}

fn catalog(state: &mut State, call: &Call, rest: &str, now: Instant) -> Option<Reply> {
    let reply = match (call.method.as_str(), rest.split_once('/').unwrap_or((rest, ""))) {
        ("PUT", ("register", "")) => {
            let done = call.json().and_then(|body| state.register(body, now));
            done.map(|()| Value::Bool(true)).into()
        }
        ("PUT", ("deregister", "")) => {
            let done = call.json().map(|body| state.deregister(&body, now));
            done.map(|()| Value::Bool(true)).into()
        }
        ("GET", ("datacenters", "")) => Reply::json(&json!(["dc1"])),
        ("GET", ("nodes", "")) => json::nodes(state, call),
        ("GET", ("services", "")) => json::services(state, call),
        ("GET", ("service", name)) => json::catalog_service(state, call, name, false),
        ("GET", ("connect", name)) => json::catalog_service(state, call, name, true),
        ("GET", ("node", name)) => json::node(state, name),
        _ => return None,
    };
    Some(reply)
}

fn agent(state: &mut State, call: &Call, rest: &str, now: Instant) -> Option<Reply> {
    let parts: Vec<&str> = rest.splitn(3, '/').collect();
    let reply = match (call.method.as_str(), parts.as_slice()) {
        ("GET", ["self"]) => Reply::json(&json::agent_self(state)),
        ("GET", ["members"]) => Reply::json(&json::members()),
        ("GET", ["services"]) => Reply::json(&json::agent_services(state)),
        ("GET", ["checks"]) => Reply::json(&json::agent_checks(state)),
        ("GET", ["service", id]) => json::agent_service(state, id),
        ("PUT", ["service", "register"]) => {
            call.json().and_then(|body| state.agent_register_service(body, now)).into()
        }
        ("PUT", ["service", "deregister", id]) => state.agent_deregister_service(id, now).into(),
        ("PUT", ["service", "maintenance", id]) => maintenance(state, call, Some(id), now),
        ("PUT", ["maintenance"]) => maintenance(state, call, None, now),
        ("PUT", ["check", "register"]) => {
            call.json().and_then(|body| state.agent_register_check(body, now)).into()
        }
        ("PUT", ["check", "deregister", id]) => state.agent_deregister_check(id, now).into(),
        ("PUT", ["check", verb, id]) => check_update(call, verb)
            .and_then(|update| state.agent_update_check(id, update, now))
            .into(),
        _ => return None,
    };
    Some(reply)
}

fn maintenance(state: &mut State, call: &Call, service: Option<&str>, now: Instant) -> Reply {
    let enable = match call.param("enable") {
        Some("true") => true,
        Some("false") => false,
        _ => return Reply::text(400, "Missing value for enable"),
    };
    state.agent_maintenance(service, enable, call.param("reason").unwrap_or_default(), now).into()
}

fn check_update(call: &Call, verb: &str) -> Result<CheckUpdate, Refused> {
    let note = || call.param("note").unwrap_or_default().to_owned();
    let status = match verb {
        "pass" => HealthStatus::Passing,
        "warn" => HealthStatus::Warning,
        "fail" => HealthStatus::Critical,
        "update" => {
            #[derive(serde::Deserialize)]
            #[serde(rename_all = "PascalCase", default)]
            #[derive(Default)]
            struct Body {
                status: String,
                output: String,
            }
            let body: Body = call.json()?;
            return match HealthStatus::from(body.status) {
                status @ (HealthStatus::Passing
                | HealthStatus::Warning
                | HealthStatus::Critical) => Ok(CheckUpdate { status, output: body.output }),
                other => Err(Refused::new(400, format!("Invalid check status: '{other}'"))),
            };
        }
        _ => return Err(Refused::new(404, "404 page not found")),
    };
    Ok(CheckUpdate { status, output: note() })
}

fn session(state: &mut State, call: &Call, rest: &str, now: Instant) -> Option<Reply> {
    let reply = match (call.method.as_str(), rest.split_once('/').unwrap_or((rest, ""))) {
        ("PUT", ("create", "")) => {
            let made = call.json().and_then(|body| state.session_create(&body, now));
            made.map(|id| json!({ "ID": id })).into()
        }
        ("PUT", ("destroy", id)) => {
            state.session_destroy(id, now);
            Reply::json(&Value::Bool(true))
        }
        ("PUT", ("renew", id)) => match state.session_renew(id, now) {
            Some(found) => Reply::json(&json::sessions(&[found])),
            None => Reply::text(404, format!("Session id '{id}' not found")),
        },
        ("GET", ("info", id)) => {
            let (found, seen) = state.session_info(id);
            Reply::json(&json::sessions(found.as_slice())).at(seen)
        }
        ("GET", ("list", "")) => {
            let (found, seen) = state.session_list(|_| true);
            Reply::json(&json::sessions(&found)).at(seen)
        }
        ("GET", ("node", node)) => {
            let (found, seen) =
                state.session_list(|session| session.node.eq_ignore_ascii_case(node));
            Reply::json(&json::sessions(&found)).at(seen)
        }
        _ => return None,
    };
    Some(reply)
}

fn status(state: &State, rest: &str) -> Option<Reply> {
    match rest {
        "leader" => Some(Reply::json(&json!(if state.leader { "127.0.0.1:8300" } else { "" }))),
        "peers" => Some(Reply::json(&json!(["127.0.0.1:8300"]))),
        _ => None,
    }
}
