//! What can be selected of each kind of item.

use std::collections::BTreeMap;

/// The shape of what an expression looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::testing) enum Schema {
    Text,
    Number,
    Flag,
    List(Box<Self>),
    /// Any keys.
    Map(Box<Self>),
    /// A record of exactly these fields.
    Record(BTreeMap<String, Self>),
}

impl Schema {
    pub(in crate::testing) fn record<'a>(
        fields: impl IntoIterator<Item = (&'a str, Self)>,
    ) -> Self {
        Self::Record(fields.into_iter().map(|(name, kind)| (name.to_owned(), kind)).collect())
    }

    pub(in crate::testing) fn texts(names: &[&str]) -> Self {
        Self::record(names.iter().map(|name| (*name, Self::Text)))
    }

    pub(in crate::testing) fn map(inner: Self) -> Self {
        Self::Map(Box::new(inner))
    }

    pub(in crate::testing) fn list(inner: Self) -> Self {
        Self::List(Box::new(inner))
    }

    /// The same with further fields.
    fn and<'a>(self, fields: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let Self::Record(mut all) = self else { return self };
        all.extend(fields.into_iter().map(|(name, kind)| (name.to_owned(), kind)));
        Self::Record(all)
    }

    /// The kind of what a selector leads to.
    pub(super) fn at(&self, selector: &[String]) -> Result<&Self, String> {
        let mut kind = self;
        for (at, part) in selector.iter().enumerate() {
            while let Self::List(inner) = kind {
                kind = inner;
            }
            let found = match kind {
                Self::Record(fields) => fields.get(part),
                Self::Map(inner) => Some(&**inner),
                _ => None,
            };
            kind = found.ok_or_else(|| {
                let path = selector.get(..=at).unwrap_or_default().join(".");
                format!("Selector {path:?} is not valid")
            })?;
        }
        Ok(kind)
    }
}

/// Of `catalog/nodes`.
pub(in crate::testing) fn node() -> Schema {
    Schema::texts(&["ID", "Node", "Address", "Datacenter"])
        .and([("TaggedAddresses", Schema::map(Schema::Text)), ("Meta", Schema::map(Schema::Text))])
}

fn addresses() -> Schema {
    Schema::map(Schema::record([("Address", Schema::Text), ("Port", Schema::Number)]))
}

fn weights() -> Schema {
    Schema::record([("Passing", Schema::Number), ("Warning", Schema::Number)])
}

fn proxy() -> Schema {
    let gateway = || Schema::texts(&["Mode"]);
    let upstream = Schema::texts(&[
        "DestinationType",
        "DestinationNamespace",
        "DestinationName",
        "Datacenter",
        "LocalBindAddress",
    ])
    .and([("LocalBindPort", Schema::Number), ("MeshGateway", gateway())]);
    let path = Schema::texts(&["Path", "Protocol"]).and([
        ("LocalPathPort", Schema::Number),
        ("ListenerPort", Schema::Number),
        ("ParsedFromCheck", Schema::Flag),
    ]);
    Schema::texts(&["DestinationServiceName", "DestinationServiceID", "LocalServiceAddress"]).and([
        ("LocalServicePort", Schema::Number),
        ("Upstreams", Schema::list(upstream)),
        ("MeshGateway", gateway()),
        ("Expose", Schema::record([("Checks", Schema::Flag), ("Paths", Schema::list(path))])),
    ])
}

fn connect() -> Schema {
    Schema::record([("Native", Schema::Flag)])
}

/// Of `catalog/node` and `agent/services`.
pub(in crate::testing) fn service() -> Schema {
    Schema::texts(&["Kind", "ID", "Service", "Address"]).and([
        ("Tags", Schema::list(Schema::Text)),
        ("TaggedAddresses", addresses()),
        ("Meta", Schema::map(Schema::Text)),
        ("Port", Schema::Number),
        ("Weights", weights()),
        ("EnableTagOverride", Schema::Flag),
        ("Proxy", proxy()),
        ("Connect", connect()),
    ])
}

/// Of `catalog/service`, and of `catalog/services` where servers filter it (Consul 1.14).
pub(in crate::testing) fn catalog_service() -> Schema {
    Schema::texts(&[
        "ID",
        "Node",
        "Address",
        "Datacenter",
        "ServiceKind",
        "ServiceID",
        "ServiceName",
        "ServiceAddress",
    ])
    .and([
        ("TaggedAddresses", Schema::map(Schema::Text)),
        ("NodeMeta", Schema::map(Schema::Text)),
        ("ServiceTags", Schema::list(Schema::Text)),
        ("ServiceTaggedAddresses", addresses()),
        ("ServiceWeights", weights()),
        ("ServiceMeta", Schema::map(Schema::Text)),
        ("ServicePort", Schema::Number),
        ("ServiceEnableTagOverride", Schema::Flag),
        ("ServiceProxy", proxy()),
        ("ServiceConnect", connect()),
    ])
}

/// Of intentions.
pub(in crate::testing) fn intention() -> Schema {
    Schema::texts(&[
        "ID",
        "Description",
        "SourceNS",
        "SourceName",
        "DestinationNS",
        "DestinationName",
        "SourceType",
        "Action",
    ])
    .and([("Meta", Schema::map(Schema::Text)), ("Precedence", Schema::Number)])
}

/// Of health checks.
pub(in crate::testing) fn check() -> Schema {
    Schema::texts(&[
        "Node",
        "CheckID",
        "Name",
        "Status",
        "Notes",
        "Output",
        "ServiceID",
        "ServiceName",
        "Type",
    ])
    .and([("ServiceTags", Schema::list(Schema::Text))])
}

/// Of `health/service`.
pub(in crate::testing) fn instance() -> Schema {
    Schema::record([("Node", node()), ("Service", service()), ("Checks", Schema::list(check()))])
}

/// Of members of the cluster.
pub(in crate::testing) fn member() -> Schema {
    Schema::texts(&["Name", "Addr"])
}
