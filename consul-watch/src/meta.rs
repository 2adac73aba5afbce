//! `Answer` and `QueryMeta`: a value with the meaning of its answer's headers.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

/// A decoded answer and what its headers say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer<T> {
    /// The decoded body.
    pub value: T,
    /// The headers.
    pub meta: QueryMeta,
}

impl<T> Answer<T> {
    /// Pairs a value with its headers.
    pub fn new(value: T, meta: QueryMeta) -> Self {
        Self { value, meta }
    }

    /// Keeps the headers and replaces the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        Answer { value: change(self.value), meta: self.meta }
    }
}

/// Metadata of an answer, from Consul's response headers.
///
/// Everything is optional on the wire; see each field for what absence means.
///
/// Source: Consul 1.21 `api/api.go` (`parseQueryMeta`), API documentation "Blocking queries".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueryMeta {
    /// `X-Consul-Index`; `None` on endpoints that do not block by index. Never `Some(0)`.
    pub index: Option<u64>,
    /// `X-Consul-ContentHash`, on endpoints that block by hash.
    pub content_hash: Option<String>,
    /// `X-Consul-LastContact`: how long ago the answering server heard from
    /// the leader; zero when the header is missing.
    pub last_contact: Duration,
    /// `X-Consul-KnownLeader`; `None` when the header is missing.
    pub known_leader: Option<bool>,
    /// `X-Cache: HIT`, with the `Age` header: how old the agent's copy is.
    pub cache_age: Option<Duration>,
    /// `X-Consul-Results-Filtered-By-ACLs`: the token may not see everything.
    pub filtered_by_acls: bool,
    /// `X-Consul-Translate-Addresses`: the agent puts WAN addresses into answers.
    pub translated_addresses: bool,
    /// `X-Consul-Query-Backend`, such as `streaming`.
    pub query_backend: Option<String>,
}

const INDEX: HeaderName = HeaderName::from_static("x-consul-index");
const CONTENT_HASH: HeaderName = HeaderName::from_static("x-consul-contenthash");
const LAST_CONTACT: HeaderName = HeaderName::from_static("x-consul-lastcontact");
const KNOWN_LEADER: HeaderName = HeaderName::from_static("x-consul-knownleader");
const CACHE: HeaderName = HeaderName::from_static("x-cache");
const FILTERED: HeaderName = HeaderName::from_static("x-consul-results-filtered-by-acls");
const TRANSLATED: HeaderName = HeaderName::from_static("x-consul-translate-addresses");
const BACKEND: HeaderName = HeaderName::from_static("x-consul-query-backend");

impl QueryMeta {
    /// Reads the headers. Only an index that is not a number is an error;
    /// other headers that make no sense count as missing.
    ///
    /// # Errors
    ///
    /// A text that says what the index header holds.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, String> {
        let index = match text(headers, &INDEX) {
            None => None,
            // Asking with 0 would not block: Consul's first index is 1.
            Some(digits) => match digits.parse::<u64>() {
                Ok(index) => Some(index.max(1)),
                Err(_) => {
                    return Err(format!("the header X-Consul-Index is not a number: {digits:?}"));
                }
            },
        };
        let hit = text(headers, &CACHE).is_some_and(|value| value.eq_ignore_ascii_case("hit"));
        let age =
            text(headers, &http::header::AGE).and_then(|value| value.parse().ok()).unwrap_or(0);
        let millis = text(headers, &LAST_CONTACT).and_then(|value| value.parse().ok()).unwrap_or(0);
        Ok(Self {
            index,
            content_hash: text(headers, &CONTENT_HASH)
                .filter(|hash| !hash.is_empty())
                .map(str::to_owned),
            last_contact: Duration::from_millis(millis),
            known_leader: flag(headers, &KNOWN_LEADER),
            cache_age: hit.then(|| Duration::from_secs(age)),
            filtered_by_acls: flag(headers, &FILTERED).unwrap_or(false),
            translated_addresses: flag(headers, &TRANSLATED).unwrap_or(false),
            query_backend: text(headers, &BACKEND).map(str::to_owned),
        })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

fn flag(headers: &HeaderMap, name: &HeaderName) -> Option<bool> {
    match text(headers, name)? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(headers: &[(&'static str, &str)]) -> Result<QueryMeta, String> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        QueryMeta::from_headers(&headers)
    }

    /// Spec: CW19
    #[test]
    fn every_header_is_read() {
        let meta = parse(&[
            ("x-consul-index", "12345"),
            ("x-consul-lastcontact", "80"),
            ("x-consul-knownleader", "true"),
            ("x-consul-translate-addresses", "true"),
            ("x-consul-results-filtered-by-acls", "true"),
            ("x-cache", "HIT"),
            ("age", "123"),
            ("x-consul-contenthash", "abcdef"),
            ("x-consul-query-backend", "streaming"),
        ])
        .unwrap();
        assert_eq!(
            meta,
            QueryMeta {
                index: Some(12345),
                content_hash: Some("abcdef".into()),
                last_contact: Duration::from_millis(80),
                known_leader: Some(true),
                cache_age: Some(Duration::from_secs(123)),
                filtered_by_acls: true,
                translated_addresses: true,
                query_backend: Some("streaming".into()),
            }
        );
        assert_eq!(parse(&[]).unwrap(), QueryMeta::default());
    }

    /// Spec: CW3
    #[test]
    fn an_index_of_zero_counts_as_one() {
        assert_eq!(parse(&[("x-consul-index", "0")]).unwrap().index, Some(1));
    }

    #[test]
    fn only_a_bad_index_is_an_error() {
        assert!(parse(&[("x-consul-index", "-1")]).is_err());
        let meta = parse(&[("x-consul-lastcontact", "never"), ("x-consul-knownleader", "perhaps")])
            .unwrap();
        assert_eq!((meta.last_contact, meta.known_leader), (Duration::ZERO, None));
        assert_eq!(parse(&[("x-cache", "MISS"), ("age", "5")]).unwrap().cache_age, None);
    }
}
