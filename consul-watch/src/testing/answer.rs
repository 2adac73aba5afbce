//! `Reply`: an answer of the double before it becomes one of HTTP.

use bytes::Bytes;
use serde_json::Value;

use super::{
    acl::Authorizer,
    state::{Refused, Seen},
};

/// An answer of the double, before it is known whether it blocks first.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
    pub(super) headers: Vec<(&'static str, String)>,
    /// Position of the read, if it can block.
    pub(super) seen: Option<Seen>,
    /// The hash of the content, for reads that block by it.
    pub(super) hash: Option<String>,
    /// The number of what was read, for reads that block while it is the one they name.
    pub(super) number: Option<u64>,
    /// A read that blocked keeps what it found first when there is nothing any more.
    pub(super) clings: bool,
    /// The headers do not say that there is a leader, although there is.
    pub(super) quiet_leader: bool,
    /// The headers tell the index and nothing else.
    pub(super) only_index: bool,
}

impl Reply {
    pub(super) fn json(value: &Value) -> Self {
        Self {
            status: 200,
            body: value.to_string().into(),
            headers: vec![("content-type", "application/json".to_owned())],
            seen: None,
            hash: None,
            number: None,
            clings: false,
            quiet_leader: false,
            only_index: false,
        }
    }

    pub(super) fn text(status: u16, text: impl Into<String>) -> Self {
        let headers = vec![("content-type", "text/plain; charset=utf-8".to_owned())];
        Self {
            status,
            body: text.into().into(),
            headers,
            seen: None,
            hash: None,
            number: None,
            clings: false,
            quiet_leader: false,
            only_index: false,
        }
    }

    /// Text without a charset, as endpoints have it that write by themselves.
    pub(super) fn plain(status: u16, text: impl Into<String>) -> Self {
        let headers = vec![("content-type", "text/plain".to_owned())];
        Self { headers, ..Self::text(status, text) }
    }

    pub(super) fn empty(status: u16) -> Self {
        Self { headers: Vec::new(), ..Self::text(status, "") }
    }

    /// A read that can block on its index.
    pub(super) fn at(mut self, seen: Seen) -> Self {
        self.headers.push(("x-consul-index", seen.index.to_string()));
        self.seen = Some(seen);
        self
    }

    /// A read that, once it blocks, keeps what it found first when there is nothing any more.
    pub(super) fn clinging(mut self, clings: bool) -> Self {
        self.clings = clings;
        self
    }

    /// A read that blocks while its number is the one that was named.
    pub(super) fn numbered(mut self, number: u64) -> Self {
        self.headers.push(("x-consul-index", number.to_string()));
        self.number = Some(number);
        self
    }

    /// A read that can block on its content's hash.
    pub(super) fn hashed(mut self, hash: String) -> Self {
        self.headers.push(("x-consul-contenthash", hash.clone()));
        self.hash = Some(hash);
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Says that something was left out because the token may not see it.
    /// Who has no token is not told. Servers say so since 1.11.
    pub(super) fn filtered(self, who: &Authorizer, something: bool) -> Self {
        if something && who.says_filtered() {
            return self.header("x-consul-results-filtered-by-acls", "true");
        }
        self
    }

    /// Writes JSON with an indent of four spaces, as `?pretty` asks for.
    pub(super) fn indent(&mut self) {
        use serde::Serialize as _;
        let Ok(value) = serde_json::from_slice::<Value>(&self.body) else { return };
        let mut text = Vec::new();
        let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut writer = serde_json::Serializer::with_formatter(&mut text, format);
        if value.serialize(&mut writer).is_ok() {
            self.body = text.into();
        }
    }

    pub(super) fn into_http(self) -> http::Response<Bytes> {
        let mut response = http::Response::new(self.body);
        *response.status_mut() = http::StatusCode::from_u16(self.status).unwrap_or_default();
        for (name, value) in self.headers {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

impl From<Result<Value, Refused>> for Reply {
    fn from(result: Result<Value, Refused>) -> Self {
        match result {
            Ok(value) => Self::json(&value),
            Err(refused) => Self::text(refused.status, refused.text),
        }
    }
}

impl From<Result<(), Refused>> for Reply {
    fn from(result: Result<(), Refused>) -> Self {
        match result {
            Ok(()) => Self::empty(200),
            Err(refused) => Self::text(refused.status, refused.text),
        }
    }
}

impl From<Refused> for Reply {
    fn from(refused: Refused) -> Self {
        if refused.text.is_empty() {
            return Self::empty(refused.status);
        }
        Self::text(refused.status, refused.text)
    }
}

impl From<Result<Self, Refused>> for Reply {
    fn from(result: Result<Self, Refused>) -> Self {
        result.unwrap_or_else(Self::from)
    }
}
