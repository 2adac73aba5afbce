//! `Request`: one request to Consul, from its operation and path to headers and body.

use std::{borrow::Cow, fmt, time::Duration};

use bytes::Bytes;
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::{Consistency, Error, QueryOptions, Result, WriteOptions};

/// Characters to encode: all but the unreserved ones of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// A key keeps its slashes.
const KEY: &AsciiSet = &SEGMENT.remove(b'/');

/// A request to Consul's HTTP API, for endpoints that [`Client`](crate::Client) has no method
/// for.
///
/// ```
/// use consul_watch::{QueryOptions, client::Request};
///
/// let request = Request::get("operator.usage", "/v1/operator/usage")
///     .flag("global")
///     .query(&QueryOptions::default());
/// ```
///
/// `Debug` shows neither the body nor the parameters: they may hold secrets.
#[derive(Clone)]
#[must_use]
pub struct Request {
    pub(super) operation: &'static str,
    pub(super) method: Method,
    path: String,
    query: Vec<(Cow<'static, str>, Option<String>)>,
    pub(super) body: Bytes,
    pub(super) content_type: &'static str,
    pub(super) cache_control: Option<String>,
    pub(super) wait: Option<Duration>,
    pub(super) blocks: bool,
    pub(super) consistency: Option<Consistency>,
    pub(super) accepted: Vec<StatusCode>,
    /// Statuses that are an answer when the body is JSON, and an error when it is text.
    accepted_json: Vec<StatusCode>,
    /// Reason why this request cannot be sent.
    problem: Option<String>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("operation", &self.operation)
            .field("method", &self.method)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// A read. `operation` names it in errors; `path` begins with `/v1/`.
    pub fn get(operation: &'static str, path: &str) -> Self {
        Self::new(operation, Method::GET, path)
    }

    /// A write.
    pub fn put(operation: &'static str, path: &str) -> Self {
        Self::new(operation, Method::PUT, path)
    }

    /// A write of the few endpoints that take `POST`.
    pub fn post(operation: &'static str, path: &str) -> Self {
        Self::new(operation, Method::POST, path)
    }

    /// A removal.
    pub fn delete(operation: &'static str, path: &str) -> Self {
        Self::new(operation, Method::DELETE, path)
    }

    fn new(operation: &'static str, method: Method, path: &str) -> Self {
        Self {
            operation,
            method,
            path: path.to_owned(),
            query: Vec::new(),
            body: Bytes::new(),
            content_type: "application/json",
            cache_control: None,
            wait: None,
            blocks: false,
            consistency: None,
            accepted: Vec::new(),
            accepted_json: Vec::new(),
            problem: None,
        }
    }

    /// Appends `/` and a name, percent-encoded.
    pub fn segment(mut self, name: &str) -> Self {
        // The path would end in a slash, and name a list, or another endpoint.
        if name.is_empty() {
            self.problem = Some("a name is empty".to_owned());
        }
        self.append(name, SEGMENT);
        self
    }

    /// Appends `/` and a key whose own slashes stay.
    pub(crate) fn key(mut self, key: &str) -> Self {
        self.append(key, KEY);
        self
    }

    /// Appends a parameter, percent-encoded.
    pub fn param(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((Cow::Borrowed(name), Some(value.into())));
        self
    }

    /// Appends a parameter without a value.
    pub fn flag(mut self, name: &'static str) -> Self {
        self.query.push((Cow::Borrowed(name), None));
        self
    }

    pub(super) fn param_if(self, name: &'static str, value: Option<&String>) -> Self {
        match value {
            Some(value) => self.param(name, value.as_str()),
            None => self,
        }
    }

    pub(super) fn flag_if(self, name: &'static str, set: bool) -> Self {
        if set { self.flag(name) } else { self }
    }

    /// Sends `value` as JSON.
    pub fn json(mut self, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.body = body.into(),
            Err(error) => {
                self.problem = Some(format!("the body cannot be written as JSON: {error}"));
            }
        }
        self
    }

    /// Sends raw bytes.
    pub fn bytes(mut self, body: Bytes) -> Self {
        self.body = body;
        self.content_type = "application/octet-stream";
        self
    }

    /// Takes this status as an answer too, although it is outside 2xx.
    pub fn accept(mut self, status: StatusCode) -> Self {
        self.accepted.push(status);
        self
    }

    /// Takes this status as an answer too if the body is JSON. Consul says some
    /// things with statuses that elsewhere mean a refusal, which is worded in text.
    pub(super) fn accept_json(mut self, status: StatusCode) -> Self {
        self.accepted_json.push(status);
        self
    }

    /// Returns `true` if an answer with this status and body is not an error.
    pub(super) fn accepts(&self, status: StatusCode, body: &[u8]) -> bool {
        let json = || matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
        status.is_success()
            || self.accepted.contains(&status)
            || (self.accepted_json.contains(&status) && json())
    }

    /// Asks for an answer at once.
    pub(super) fn unblocked(mut self) -> Self {
        self.query.retain(|(name, _value)| !matches!(&**name, "index" | "hash" | "wait"));
        self.blocks = false;
        self.wait = None;
        self
    }

    /// Sets the consistency of a request that takes no other parameter of a read.
    pub(super) fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = Some(consistency);
        self
    }

    /// Appends the parameters of a read.
    pub fn query(mut self, options: &QueryOptions) -> Self {
        self.consistency = Some(options.consistency);
        self = self
            .param_if("dc", options.datacenter.as_ref())
            .param_if("ns", options.namespace.as_ref())
            .param_if("partition", options.partition.as_ref())
            .param_if("peer", options.peer.as_ref())
            .param_if("sg", options.sameness_group.as_ref())
            .param_if("filter", options.filter.as_ref())
            .param_if("near", options.near.as_ref())
            .flag_if("merge-central-config", options.merge_central_config);
        for (key, value) in &options.node_meta {
            self = self.param("node-meta", format!("{key}:{value}"));
        }
        // An answer out of the agent's cache would not be a consistent one.
        if let Some(cached) =
            options.cached.filter(|_| options.consistency != Consistency::Consistent)
        {
            self = self.flag("cached");
            let limits = [("max-age", cached.max_age), ("stale-if-error", cached.stale_if_error)];
            let limits: Vec<String> = limits
                .into_iter()
                .filter_map(|(name, limit)| {
                    limit.map(|limit| format!("{name}={}", limit.as_secs()))
                })
                .collect();
            self.cache_control = (!limits.is_empty()).then(|| limits.join(", "));
        }
        // Consul reads stale with it, and refuses that together with `consistent` (400).
        if let Some(limit) = options
            .max_stale
            .filter(|limit| !limit.is_zero() && options.consistency != Consistency::Consistent)
        {
            self = self.param("max_stale", millis(limit));
        }
        // Index 0 does not block in Consul, and is what a read without an index says already.
        // Source: Consul docs api-docs/features/blocking.
        if let Some(index) = options.index.filter(|index| *index > 0) {
            self = self.param("index", index.to_string());
        }
        self = self.param_if("hash", options.hash.as_ref().filter(|hash| !hash.is_empty()));
        self.blocks = options.blocks();
        self.wait = options.wait.filter(|wait| !wait.is_zero());
        match self.wait {
            Some(wait) => self.param("wait", millis(wait)),
            None => self,
        }
    }

    /// Appends the parameters of a write.
    pub fn write(self, options: &WriteOptions) -> Self {
        self.param_if("dc", options.datacenter.as_ref())
            .param_if("ns", options.namespace.as_ref())
            .param_if("partition", options.partition.as_ref())
    }

    fn append(&mut self, name: &str, set: &'static AsciiSet) {
        // Names too, although their slashes are encoded: Consul 1.8 cleans the decoded path.
        if let Some(problem) = unaddressable(name) {
            self.problem = Some(problem);
        }
        self.path.push('/');
        self.path.extend(utf8_percent_encode(name, set));
    }

    /// Asks for an answer that is neither from the agent's cache nor from a
    /// follower: `max_stale` allows the latter also beside `leader`.
    pub(super) fn uncached(mut self) -> Self {
        self.query.retain(|(name, _value)| name != "cached" && name != "max_stale");
        self.cache_control = None;
        self
    }

    pub(super) fn has_param(&self, name: &str) -> bool {
        self.query.iter().any(|(known, _value)| known == name)
    }

    /// Path and query, ready for the wire.
    pub(crate) fn target(&self, prefix: &str) -> Result<String> {
        if let Some(problem) = &self.problem {
            return Err(Error::Input { operation: self.operation, problem: problem.clone() });
        }
        let mut target = format!("{prefix}{}", self.path);
        for (at, (name, value)) in self.query.iter().enumerate() {
            target.push(if at == 0 { '?' } else { '&' });
            target.push_str(name);
            if let Some(value) = value {
                target.push('=');
                target.extend(utf8_percent_encode(value, SEGMENT));
            }
        }
        Ok(target)
    }
}

/// Consul answers 301 to paths that are not clean, and URL parsers clean them
/// in silence: either way another key would be meant.
fn unaddressable(name: &str) -> Option<String> {
    let refuse = |what: &str| {
        Some(format!(
            "{name:?} cannot be addressed over HTTP: it {what}; a transaction can address such a key"
        ))
    };
    if name.starts_with('/') {
        return refuse("begins with a slash");
    }
    if name.contains("//") {
        return refuse("contains an empty part");
    }
    let mut parts = name.split('/');
    if parts.any(|part| part == "." || part == "..") {
        return refuse("has a part that is a dot or two");
    }
    None
}

/// A positive wait of less than a millisecond must not become 0, which asks
/// for the server's default of five minutes.
fn millis(wait: Duration) -> String {
    format!("{}ms", wait.as_millis().max(1))
}

/// The limit to the response headers of a read that blocks for `wait`.
///
/// Consul adds up to a sixteenth to spread the herd, then holds a request
/// for some seconds while there is no leader: `slack` covers that.
pub(super) fn header_limit(blocks: bool, wait: Option<Duration>, slack: Duration) -> Duration {
    if !blocks {
        return slack;
    }
    // Without a wait Consul takes 5 min, and cuts longer ones to 10 min.
    // Source: Consul docs api-docs/features/blocking.
    let wait = wait.unwrap_or(Duration::from_mins(5)).min(Duration::from_mins(10));
    (wait + wait / 16).saturating_add(slack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(request: &Request) -> String {
        request.target("").unwrap()
    }

    /// Spec: CW18
    #[test]
    fn waits_are_sent_in_milliseconds_and_never_as_zero() {
        for (wait, sent) in [
            (Duration::ZERO, "/v1/x"),
            (Duration::from_micros(1), "/v1/x?wait=1ms"),
            (Duration::from_millis(100), "/v1/x?wait=100ms"),
            (Duration::from_mins(1), "/v1/x?wait=60000ms"),
        ] {
            let options = QueryOptions { wait: Some(wait), ..QueryOptions::default() };
            assert_eq!(target(&Request::get("x", "/v1/x").query(&options)), sent);
        }
    }

    #[test]
    fn every_read_option_is_sent() {
        let options = QueryOptions {
            datacenter: Some("dc2".into()),
            namespace: Some("n".into()),
            partition: Some("p".into()),
            peer: Some("peer".into()),
            cached: Some(crate::Cached {
                max_age: Some(Duration::from_secs(5)),
                stale_if_error: None,
            }),
            filter: Some("\"v1\" in Service.Tags".into()),
            node_meta: vec![("rack".into(), "a b".into()), ("x".into(), String::new())],
            near: Some("_agent".into()),
            merge_central_config: true,
            max_stale: Some(Duration::from_secs(2)),
            index: Some(7),
            wait: Some(Duration::from_secs(1)),
            ..QueryOptions::default()
        };
        let request = Request::get("x", "/v1/x").query(&options);
        assert_eq!(
            target(&request),
            "/v1/x?dc=dc2&ns=n&partition=p&peer=peer&filter=%22v1%22%20in%20Service.Tags&near=_agent\
             &merge-central-config&node-meta=rack%3Aa%20b&node-meta=x%3A&cached&max_stale=2000ms&index=7&wait=1000ms"
        );
        assert_eq!(request.cache_control.as_deref(), Some("max-age=5"));
        assert!(request.blocks);
        let zero =
            QueryOptions { index: Some(0), hash: Some(String::new()), ..QueryOptions::default() };
        let request = Request::get("x", "/v1/x").query(&zero);
        assert_eq!((target(&request).as_str(), request.blocks), ("/v1/x", false));
    }

    #[test]
    fn names_and_keys_are_percent_encoded() {
        let request = Request::get("x", "/v1/catalog/service").segment("a/b c?#%+\u{fc}");
        assert_eq!(target(&request), "/v1/catalog/service/a%2Fb%20c%3F%23%25%2B%C3%BC");
        let request = Request::get("x", "/v1/kv").key("a/b c~.-_/");
        assert_eq!(target(&request), "/v1/kv/a/b%20c~.-_/");
    }

    #[test]
    fn keys_that_a_url_cannot_hold_are_refused() {
        for key in ["/a", "a//b", "a/./b", "a/..", "."] {
            assert!(Request::get("x", "/v1/kv").key(key).target("").is_err(), "{key}");
        }
        assert!(Request::get("x", "/v1/x").segment("..").target("").is_err());
        assert!(Request::get("x", "/v1/x").segment("").target("").is_err());
        assert!(Request::get("x", "/v1/kv").key("").target("").is_ok());
        assert!(Request::get("x", "/v1/kv").key("a/...b/").target("").is_ok());
    }

    #[test]
    fn limits_leave_room_for_the_servers_jitter_and_its_hold_time() {
        let slack = Duration::from_secs(10);
        assert_eq!(header_limit(false, Some(Duration::from_mins(1)), slack), slack);
        assert_eq!(
            header_limit(true, Some(Duration::from_secs(160)), slack),
            Duration::from_mins(3)
        );
        assert_eq!(header_limit(true, None, slack), Duration::from_millis(328_750));
        assert_eq!(header_limit(true, Some(Duration::MAX), slack), Duration::from_millis(647_500));
    }
}
