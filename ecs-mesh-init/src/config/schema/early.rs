//! Schema of the early generation (consul-ecs 0.3 to 0.6).

use super::{
    Kind, Object, Rule,
    parts::{self, PORT, TEXT, TEXTS},
};

/// Root object of the early generation: the union of what 0.3 to 0.6 accept.
///
/// Source: consul-ecs 0.3 to 0.6 `config/schema.json`.
///
/// Deviation: `consulLogin.extraLoginFlags` of 0.5 is refused, as in 0.6, because no `consul login`
/// command is run that could take them. A name in upper case, which 0.3 and 0.4 took, is refused as
/// from 0.5 on.
pub(in crate::config) static EARLY: Object = Object {
    keys: &[
        ("bootstrapDir", Rule::required(Kind::Text { min: 1, name: false })),
        ("logLevel", Rule::optional(parts::LOG_LEVEL)),
        ("healthSyncContainers", Rule::optional(TEXTS)),
        ("consulHTTPAddr", Rule::optional(TEXT)),
        ("consulCACertFile", Rule::optional(TEXT)),
        ("consulLogin", parts::LOGIN),
        ("service", Rule::required(Kind::Object(&SERVICE))),
        ("proxy", parts::PROXY),
        ("gateway", parts::gateway!(&["mesh-gateway"])),
    ],
    required: &["bootstrapDir"],
    closed: true,
};

static SERVICE: Object = Object {
    keys: &[
        ("name", Rule::optional(parts::NAME)),
        ("tags", Rule::optional(TEXTS)),
        ("port", Rule::required(PORT)),
        ("enableTagOverride", Rule::optional(Kind::Bool)),
        ("meta", Rule::optional(Kind::TextMap)),
        ("weights", parts::WEIGHTS),
        ("checks", Rule::optional(Kind::List { item: &CHECK, unique: false })),
        ("namespace", Rule::optional(TEXT)),
        ("partition", Rule::optional(TEXT)),
    ],
    required: &["port"],
    closed: true,
};

static CHECK: Rule = Rule::required(Kind::Object(&Object {
    keys: &[
        ("checkId", Rule::optional(TEXT)),
        ("name", Rule::optional(TEXT)),
        ("args", Rule::optional(Kind::List { item: &Rule::required(TEXT), unique: false })),
        ("interval", Rule::optional(TEXT)),
        ("timeout", Rule::optional(TEXT)),
        ("ttl", Rule::optional(TEXT)),
        ("http", Rule::optional(TEXT)),
        ("header", Rule::optional(Kind::Opaque)),
        ("method", Rule::optional(TEXT)),
        ("body", Rule::optional(TEXT)),
        ("tcp", Rule::optional(TEXT)),
        ("udp", Rule::optional(TEXT)),
        ("status", Rule::optional(Kind::OneOf(&["passing", "warning", "critical", "maintenance"]))),
        ("notes", Rule::optional(TEXT)),
        ("tlsServerName", Rule::optional(TEXT)),
        ("tlsSkipVerify", Rule::optional(Kind::Bool)),
        ("grpc", Rule::optional(TEXT)),
        ("grpcUseTls", Rule::optional(Kind::Bool)),
        ("h2ping", Rule::optional(TEXT)),
        ("h2pingUseTls", Rule::optional(Kind::Bool)),
        ("aliasNode", Rule::optional(TEXT)),
        ("aliasService", Rule::optional(TEXT)),
        ("successBeforePassing", Rule::optional(COUNT)),
        ("failuresBeforeCritical", Rule::optional(COUNT)),
    ],
    required: &[],
    closed: true,
}));

const COUNT: Kind = Kind::Integer { min: 0, max: u32::MAX as i64 };
