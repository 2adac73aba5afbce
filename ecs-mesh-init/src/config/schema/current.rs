//! Schema of the current generation (consul-ecs 0.7 and later).

use super::{
    Kind, Null, Object, Rule,
    parts::{self, PORT, TEXT, TEXTS},
};

const WHOLE: Kind = Kind::Integer { min: 0, max: i64::MAX };
const PERCENT: Kind = Kind::Integer { min: 0, max: 100 };

/// Root object of the current generation.
///
/// Source: consul-ecs 0.10 `config/schema.json`.
///
/// Deviation: ports above 65535 are refused here rather than by Consul.
pub(in crate::config) static CURRENT: Object = Object {
    keys: &[
        ("bootstrapDir", Rule::required(Kind::Text { min: 1, name: false })),
        ("logLevel", Rule::optional(parts::LOG_LEVEL)),
        ("healthSyncContainers", Rule::optional(TEXTS)),
        ("consulLogin", parts::LOGIN),
        ("consulServers", Rule::required(Kind::Object(&SERVERS))),
        ("controller", CONTROLLER),
        ("service", Rule::required(Kind::Object(&SERVICE))),
        ("proxy", parts::PROXY),
        ("gateway", parts::gateway!(&["mesh-gateway", "terminating-gateway", "api-gateway"])),
        ("transparentProxy", Rule::optional(Kind::Object(&TRANSPARENT_PROXY))),
    ],
    required: &["bootstrapDir", "consulServers"],
    closed: true,
};

static SERVERS: Object = Object {
    keys: &[
        ("hosts", Rule::required(TEXT)),
        ("skipServerWatch", Rule::optional(Kind::Bool)),
        ("defaults", Rule::optional(Kind::Object(&TLS))),
        ("grpc", Rule::optional(Kind::Object(&GRPC))),
        ("http", Rule::optional(Kind::Object(&HTTP))),
    ],
    required: &["hosts"],
    closed: true,
};

static TLS: Object = Object {
    keys: &[
        ("caCertFile", Rule::optional(TEXT)),
        ("tls", Rule::optional(Kind::Bool)),
        ("tlsServerName", Rule::optional(TEXT)),
    ],
    required: &[],
    closed: false,
};

static GRPC: Object = Object {
    keys: &[
        ("port", Rule::optional(PORT)),
        ("caCertFile", Rule::optional(TEXT)),
        ("tls", Rule::optional(Kind::Bool)),
        ("tlsServerName", Rule::optional(TEXT)),
    ],
    required: &[],
    closed: false,
};

static HTTP: Object = Object {
    keys: &[
        ("port", Rule::optional(PORT)),
        ("https", Rule::optional(Kind::Bool)),
        ("caCertFile", Rule::optional(TEXT)),
        ("tls", Rule::optional(Kind::Bool)),
        ("tlsServerName", Rule::optional(TEXT)),
    ],
    required: &[],
    closed: false,
};

const CONTROLLER: Rule = Rule {
    kind: Kind::Object(&Object {
        keys: &[
            ("iamRolePath", Rule::optional(TEXT)),
            ("partitionsEnabled", Rule::optional(Kind::Bool)),
            ("partition", Rule::optional(TEXT)),
        ],
        required: &[],
        closed: true,
    }),
    null: Null::Empty,
};

static SERVICE: Object = Object {
    keys: &[
        ("name", Rule::optional(parts::NAME)),
        ("tags", Rule::optional(TEXTS)),
        ("port", Rule::required(PORT)),
        ("enableTagOverride", Rule::optional(Kind::Bool)),
        ("meta", Rule::optional(Kind::TextMap)),
        ("weights", parts::WEIGHTS),
        ("namespace", Rule::optional(TEXT)),
        ("partition", Rule::optional(TEXT)),
        ("networkResilienceConfig", Rule::optional(Kind::Object(&RESILIENCE))),
    ],
    required: &["port"],
    closed: true,
};

static RESILIENCE: Object = Object {
    keys: &[
        ("enabled", Rule::optional(Kind::Bool)),
        ("outlierDetection", Rule::optional(Kind::Object(&OUTLIERS))),
    ],
    required: &[],
    closed: true,
};

static OUTLIERS: Object = Object {
    keys: &[
        ("interval", Rule::optional(WHOLE)),
        ("maxFailures", Rule::optional(Kind::Integer { min: 1, max: u32::MAX as i64 })),
        ("enforcingConsecutive5xx", Rule::optional(PERCENT)),
        ("consecutive5xx", Rule::optional(Kind::Integer { min: 0, max: u32::MAX as i64 })),
        ("enforcingConsecutiveGatewayFailure", Rule::optional(PERCENT)),
        (
            "consecutiveGatewayFailure",
            Rule::optional(Kind::Integer { min: 0, max: u32::MAX as i64 }),
        ),
        ("maxEjectionPercent", Rule::optional(PERCENT)),
    ],
    required: &[],
    closed: true,
};

static TRANSPARENT_PROXY: Object = Object {
    keys: &[
        ("enabled", Rule::optional(Kind::Bool)),
        (
            "excludeInboundPorts",
            Rule::optional(Kind::List { item: &Rule::required(PORT), unique: true }),
        ),
        (
            "excludeOutboundPorts",
            Rule::optional(Kind::List { item: &Rule::required(PORT), unique: true }),
        ),
        ("excludeOutboundCIDRs", Rule::optional(TEXTS)),
        ("excludeUIDs", Rule::optional(TEXTS)),
        (
            "consulDNS",
            Rule::required(Kind::Object(&Object {
                keys: &[("enabled", Rule::optional(Kind::Bool))],
                required: &[],
                closed: true,
            })),
        ),
    ],
    required: &[],
    closed: true,
};
