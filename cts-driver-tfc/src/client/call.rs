//! A call of the API before it is sent: method, path, query, body, and how it may be treated.

use bytes::Bytes;
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::Hostname;

/// Characters other than letters and digits that need no encoding in paths and queries.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Limits that a call counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Budget {
    Plain,
    Poll,
    RunList,
    /// Another host, which has no limits and must not see the token.
    Archive,
}

/// Call of the API.
#[derive(Clone)]
pub(super) struct Call {
    /// Name in messages, such as `create run`.
    pub(super) operation: &'static str,
    pub(super) method: Method,
    /// Path below `/api/v2`, or an absolute address of an archive.
    target: String,
    query: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
    pub(super) content_type: Option<&'static str>,
    /// `true` if sending it twice does no harm.
    pub(super) repeatable: bool,
    pub(super) budget: Budget,
}

impl Call {
    pub(super) fn get(operation: &'static str, path: impl Into<String>) -> Self {
        Self::new(operation, Method::GET, path)
    }

    pub(super) fn delete(operation: &'static str, path: impl Into<String>) -> Self {
        Self::new(operation, Method::DELETE, path)
    }

    pub(super) fn patch(operation: &'static str, path: impl Into<String>, body: &Value) -> Self {
        Self::new(operation, Method::PATCH, path).json(body)
    }

    /// Creates a call that must not be sent twice, unless [`Call::repeatable`] allows it.
    pub(super) fn post(operation: &'static str, path: impl Into<String>) -> Self {
        Self { repeatable: false, ..Self::new(operation, Method::POST, path) }
    }

    /// Creates a call to the host of archives, whose address is a secret.
    pub(super) fn archive(operation: &'static str, method: Method, address: &str) -> Self {
        Self { budget: Budget::Archive, ..Self::new(operation, method, address) }
    }

    fn new(operation: &'static str, method: Method, target: impl Into<String>) -> Self {
        Self {
            operation,
            method,
            target: target.into(),
            query: Vec::new(),
            body: Bytes::new(),
            content_type: None,
            repeatable: true,
            budget: Budget::Plain,
        }
    }

    pub(super) fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into();
        self
    }

    pub(super) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(super) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    pub(super) fn within(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Returns the absolute address, which for an archive is a secret.
    pub(super) fn address(&self, host: &Hostname) -> String {
        let mut address = match self.budget {
            Budget::Archive => self.target.clone(),
            Budget::Plain | Budget::Poll | Budget::RunList => {
                format!("{host}/api/v2{}", self.target)
            }
        };
        // Addresses of archives already have a query, which is their signature.
        let mut first = !address.contains('?');
        for (name, value) in &self.query {
            address.push(if first { '?' } else { '&' });
            first = false;
            address.extend(utf8_percent_encode(name, PLAIN));
            address.push('=');
            address.extend(utf8_percent_encode(value, PLAIN));
        }
        address
    }
}

/// Encodes a name that a person chose as one segment of a path.
pub(super) fn segment(name: &str) -> String {
    utf8_percent_encode(name, PLAIN).to_string()
}
