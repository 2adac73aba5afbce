//! Reading paths, parameters and bodies.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use http::HeaderMap;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Failure, body};
use crate::{
    backend::Consistency,
    json::JsonCodec,
    pb::{Id, Resource, Status, Tenancy, Type},
    schema::Schema,
    service::RequestContext,
};

/// The target that a path names: a type, and a resource of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// `group/version/kind`.
    pub(super) type_path: String,
    /// The last segment; none means the list.
    pub(super) name: Option<String>,
}

impl Target {
    /// Reads `/api/<group>/<version>/<kind>[/…/<name>]`.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let mut segments = path.strip_prefix("/api/")?.split('/');
        let type_path = [segments.next()?, segments.next()?, segments.next()?].join("/");
        let name = segments.next_back().map(decode);
        Some(Self { type_path, name })
    }
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The parameters of a query, and the two that headers may carry.
#[derive(Debug)]
pub(super) struct Params {
    values: BTreeMap<String, String>,
    require_consistent: String,
}

impl Params {
    /// Reads a query string; of repeated parameters the first counts.
    pub(super) fn parse(query: &str, headers: &HeaderMap) -> Self {
        let mut values = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = |text: &str| decode(&text.replace('+', " "));
            values.entry(plain(key)).or_insert_with(|| plain(value));
        }
        let require_consistent =
            header(headers, "RequireConsistent").unwrap_or_default().into_owned();
        Self { values, require_consistent }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    fn value(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    pub(super) fn version(&self) -> String {
        self.value("version").to_owned()
    }

    /// Returns the key of a status, if the call is about one.
    pub(super) fn status(&self) -> Option<&str> {
        self.values.get("status").map(String::as_str)
    }

    pub(super) fn name_prefix(&self) -> String {
        self.value("name_prefix").to_owned()
    }

    pub(super) fn tenancy(&self) -> Tenancy {
        let namespace = match self.value("namespace") {
            "" => self.value("ns"),
            namespace => namespace,
        };
        Tenancy::new(self.value("partition"), namespace)
    }

    pub(super) fn id(&self, ty: &Type, name: &str) -> Id {
        Id::new(ty.clone(), self.tenancy(), name).with_uid(self.value("uid"))
    }

    /// The token: from its own header, the usual one, or the query.
    pub(super) fn context(&self, headers: &HeaderMap) -> RequestContext {
        let own = header(headers, "X-Consul-Token").map(Cow::into_owned);
        let bearer = || {
            let value = header(headers, "Authorization")?;
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        };
        let token = own.or_else(bearer).or_else(|| self.values.get("token").cloned());
        let context = RequestContext::anonymous();
        match token.filter(|token| !token.is_empty()) {
            Some(token) => context.with_token(token.into()),
            None => context,
        }
    }

    pub(super) fn context_of_read(&self, context: RequestContext) -> RequestContext {
        self.fresh(context, !self.required().is_empty())
    }

    pub(super) fn context_of_list(&self, context: RequestContext) -> RequestContext {
        self.fresh(context, self.required() == "true")
    }

    fn required(&self) -> &str {
        match self.value("RequireConsistent") {
            "" => &self.require_consistent,
            value => value,
        }
    }

    fn fresh(&self, context: RequestContext, required: bool) -> RequestContext {
        if required || self.has("consistent") {
            context.with_consistency(Consistency::Strong)
        } else {
            context
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// Reads what a body says of a resource: metadata, owner, data and version.
pub(super) fn parse_body(
    body: &[u8],
    codec: &JsonCodec,
    schema: &Schema,
) -> Result<Resource, Failure> {
    let parts = body::parts(body).map_err(|e| format_error(e.to_string()))?;
    let metadata = parts.metadata.map_or_else(|| Ok(BTreeMap::new()), metadata)?;
    let version = match parts.version {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(version)) => version,
        Some(_) => return Err(format_error("version is not a string")),
    };
    if let Some(path) = parts.duplicate {
        return Err(schema_error(format!("{path} is given twice")));
    }
    let owner = match parts.owner {
        None | Some(Value::Null) => None,
        Some(owner) => {
            Some(codec.read_id(&owner).map_err(|e| schema_error(format!("owner: {e}")))?)
        }
    };
    let data = parts.data.ok_or_else(|| schema_error("data is missing"))?;
    let data = codec.read_data(&data, schema).map_err(|e| schema_error(format!("data: {e}")))?;
    Ok(Resource { owner, metadata, data: Some(data), version, ..Resource::default() })
}

/// Reads a status.
pub(super) fn parse_status(body: &[u8], codec: &JsonCodec) -> Result<Status, Failure> {
    let value: Value = serde_json::from_slice(body).map_err(format_error)?;
    codec.read_status(&value).map_err(|e| schema_error(format!("status: {e}")))
}

fn format_error(detail: impl fmt::Display) -> Failure {
    Failure::Body(format!("Request body format is invalid: {detail}"))
}

fn schema_error(detail: impl fmt::Display) -> Failure {
    Failure::Body(format!("Request body didn't follow the resource schema: {detail}"))
}

/// Reads a map of texts, in which `null` is an empty one.
fn metadata(value: Value) -> Result<BTreeMap<String, String>, Failure> {
    let Value::Object(fields) = value else {
        let null = value.is_null();
        let none = || format_error("metadata is not an object");
        return null.then(BTreeMap::new).ok_or_else(none);
    };
    let text = |(key, value): (String, Value)| match value {
        Value::String(text) => Ok((key, text)),
        Value::Null => Ok((key, String::new())),
        _ => Err(format_error(format!("metadata.{key} is not a string"))),
    };
    fields.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segment_is_the_name() {
        let target = |path: &str| Target::parse(path).map(|t| (t.type_path, t.name));
        let artist = || "demo/v2/artist".to_owned();
        assert_eq!(target("/api/demo/v2/artist"), Some((artist(), None)));
        assert_eq!(target("/api/demo/v2/artist/korn"), Some((artist(), Some("korn".to_owned()))));
        assert_eq!(target("/api/demo/v2/artist/"), Some((artist(), Some(String::new()))));
        assert_eq!(target("/api/demo/v2/artist/a/b%20c"), Some((artist(), Some("b c".to_owned()))));
        assert_eq!(target("/api/demo/v2"), None);
        assert_eq!(target("/v1/kv"), None);
    }

    #[test]
    fn namespace_wins_over_its_short_name() {
        let tenancy = |query| Params::parse(query, &HeaderMap::new()).tenancy();
        assert_eq!(tenancy("partition=p&ns=a"), Tenancy::new("p", "a"));
        assert_eq!(tenancy("namespace=b&ns=a&ap=x"), Tenancy::new("", "b"));
        assert_eq!(tenancy("namespace=&ns=a%2Db"), Tenancy::new("", "a-b"));
    }
}
