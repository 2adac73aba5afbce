//! Rules that both generations of the schema share.

use super::{Kind, Null, Object, Rule};

pub(super) const PORT: Kind = Kind::Integer { min: 0, max: 65535 };
pub(super) const TEXT: Kind = Kind::Text { min: 0, name: false };
pub(super) const NAME: Kind = Kind::Text { min: 0, name: true };
pub(super) const TEXTS: Kind = Kind::List { item: &Rule::required(TEXT), unique: true };

pub(super) const LOG_LEVEL: Kind = Kind::OneOf(&["TRACE", "DEBUG", "INFO", "WARN", "ERROR"]);

pub(super) const LOGIN: Rule = Rule {
    kind: Kind::Object(&Object {
        keys: &[
            ("enabled", Rule::optional(Kind::Bool)),
            ("method", Rule::optional(TEXT)),
            ("datacenter", Rule::optional(TEXT)),
            ("includeEntity", Rule::optional(Kind::Bool)),
            ("meta", Rule::optional(Kind::TextMap)),
            ("region", Rule::optional(TEXT)),
            ("stsEndpoint", Rule::optional(TEXT)),
            ("serverIdHeaderValue", Rule::optional(TEXT)),
        ],
        required: &[],
        closed: true,
    }),
    null: Null::Empty,
};

pub(super) const WEIGHTS: Rule = Rule::optional(Kind::Object(&Object {
    keys: &[
        ("passing", Rule::required(Kind::Integer { min: i64::MIN, max: i64::MAX })),
        ("warning", Rule::required(Kind::Integer { min: i64::MIN, max: i64::MAX })),
    ],
    required: &["passing", "warning"],
    closed: true,
}));

pub(super) const MESH_GATEWAY: Rule = Rule::optional(Kind::Object(&Object {
    keys: &[("mode", Rule::required(Kind::OneOf(&["none", "local", "remote"])))],
    required: &["mode"],
    closed: false,
}));

pub(super) const UPSTREAM: Rule = Rule::required(Kind::Object(&Object {
    keys: &[
        ("destinationType", Rule::optional(Kind::OneOf(&["service", "prepared_query"]))),
        ("destinationNamespace", Rule::optional(TEXT)),
        ("destinationPartition", Rule::optional(TEXT)),
        ("destinationPeer", Rule::optional(TEXT)),
        ("destinationName", Rule::required(TEXT)),
        ("datacenter", Rule::optional(TEXT)),
        ("localBindAddress", Rule::optional(TEXT)),
        ("localBindPort", Rule::required(PORT)),
        ("config", Rule::optional(Kind::Opaque)),
        ("meshGateway", MESH_GATEWAY),
    ],
    required: &["destinationName", "localBindPort"],
    closed: true,
}));

/// Rule of `proxy`. `expose` stays unchecked: upstream's schema has it in the wrong place, so it
/// accepts any value, and decoding judges it.
pub(super) const PROXY: Rule = Rule::optional(Kind::Object(&Object {
    keys: &[
        ("publicListenerPort", Rule::optional(PORT)),
        ("healthCheckPort", Rule::optional(PORT)),
        ("localServiceAddress", Rule::optional(TEXT)),
        ("config", Rule::optional(Kind::Opaque)),
        ("upstreams", Rule::optional(Kind::List { item: &UPSTREAM, unique: false })),
        ("meshGateway", MESH_GATEWAY),
        ("expose", Rule::optional(Kind::Any)),
    ],
    required: &[],
    closed: false,
}));

const ADDRESS: Rule = Rule::optional(Kind::Object(&Object {
    keys: &[("address", Rule::optional(TEXT)), ("port", Rule::optional(PORT))],
    required: &[],
    closed: true,
}));

/// Builds the rule of `gateway`, whose kinds differ by generation.
macro_rules! gateway {
    ($kinds:expr) => {
        Rule::required(Kind::Object(&Object {
            keys: &[
                ("kind", Rule::required(Kind::OneOf($kinds))),
                ("name", Rule::optional(parts::NAME)),
                ("tags", Rule::optional(parts::TEXTS)),
                ("meta", Rule::optional(Kind::TextMap)),
                ("namespace", Rule::optional(parts::TEXT)),
                ("partition", Rule::optional(parts::TEXT)),
                ("healthCheckPort", Rule::optional(parts::PORT)),
                ("lanAddress", parts::GATEWAY_ADDRESS),
                ("wanAddress", parts::GATEWAY_ADDRESS),
                ("proxy", parts::GATEWAY_PROXY),
            ],
            required: &["kind"],
            closed: true,
        }))
    };
}
pub(super) use gateway;

pub(super) const GATEWAY_ADDRESS: Rule = ADDRESS;
pub(super) const GATEWAY_PROXY: Rule = Rule::optional(Kind::Object(&Object {
    keys: &[("config", Rule::optional(Kind::Opaque))],
    required: &[],
    closed: false,
}));
