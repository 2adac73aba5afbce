//! Identity of a read, by which watches share it, and the names of its log lines.

use std::fmt;

/// Identifies the upstream read that subscribers may share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryKey(String);

impl QueryKey {
    /// A key made of a kind, such as `health.service`, and everything that changes the result.
    ///
    /// ```
    /// use consul_watch::query::QueryKey;
    ///
    /// let key = QueryKey::new("health.service", &("web", Some("dc2")));
    /// assert_eq!(key.as_str(), r#"health.service("web", Some("dc2"))"#);
    /// ```
    pub fn new(kind: &str, parameters: &dyn fmt::Debug) -> Self {
        Self(format!("{kind}{parameters:?}"))
    }

    /// The key as text, for logs.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind that the key was made with, such as `health.service`.
    pub fn operation(&self) -> &str {
        self.0.split_once('(').map_or(&self.0, |(kind, _parameters)| kind)
    }
}

impl fmt::Display for QueryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names of what a query reads: the fields of its watch's log lines besides the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Subject<'a> {
    /// Name of the service, as `service.name`.
    pub service: Option<&'a str>,
    /// Key or prefix of the KV store, as `kv.path`.
    pub path: Option<&'a str>,
    /// Name of another object, such as a node or a configuration entry, as `consul.object`.
    pub object: Option<&'a str>,
    /// The datacenter that is asked, if not the client's own, as `consul.datacenter`.
    pub datacenter: Option<&'a str>,
}

impl<'a> Subject<'a> {
    /// A service with this name.
    #[must_use]
    pub fn service(name: &'a str) -> Self {
        Self { service: Some(name), ..Self::default() }
    }

    /// A key or prefix of the KV store.
    #[must_use]
    pub fn path(path: &'a str) -> Self {
        Self { path: Some(path), ..Self::default() }
    }

    /// Another object with this name.
    #[must_use]
    pub fn object(name: &'a str) -> Self {
        Self { object: Some(name), ..Self::default() }
    }

    /// The same in this datacenter; `None` is the client's own.
    #[must_use]
    pub fn within(mut self, datacenter: Option<&'a str>) -> Self {
        self.datacenter = datacenter;
        self
    }

    /// The span of a watch, so that each of its log lines says which watch it is about.
    pub(crate) fn span(self, key: &QueryKey) -> tracing::Span {
        // Of the highest level: a filter that lets only errors pass must not lose it.
        tracing::error_span!(
            parent: None,
            "consul.watch",
            watch.key = %key,
            consul.operation = key.operation(),
            service.name = self.service,
            kv.path = self.path,
            consul.object = self.object,
            consul.datacenter = self.datacenter,
        )
    }
}
