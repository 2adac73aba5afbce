//! Health checks, their states and definitions.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{JsonObject, go_text, is_false, is_zero, nullable};

/// The state of a check, or of an instance by all of its checks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum HealthStatus {
    /// In order.
    Passing,
    /// Something is wrong, but it still works.
    Warning,
    /// Out of order; what Consul takes when a check has no state yet.
    #[default]
    Critical,
    /// Taken out of service by an operator. Only an instance can be in this state.
    Maintenance,
    /// A word that this crate does not know.
    Other(String),
}

impl HealthStatus {
    /// The word that Consul uses.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Maintenance => "maintenance",
            Self::Other(word) => word,
        }
    }
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<String> for HealthStatus {
    fn from(word: String) -> Self {
        match word.as_str() {
            "passing" => Self::Passing,
            "warning" => Self::Warning,
            "critical" => Self::Critical,
            "maintenance" => Self::Maintenance,
            _ => Self::Other(word),
        }
    }
}

impl From<HealthStatus> for String {
    fn from(status: HealthStatus) -> Self {
        status.as_str().to_owned()
    }
}

/// A check of a node or a service, as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct HealthCheck {
    /// The node that it runs on.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Id, unique on its node.
    #[serde(default, rename = "CheckID", deserialize_with = "nullable")]
    pub check_id: String,
    /// A name for people.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// State of the check.
    #[serde(default, deserialize_with = "nullable")]
    pub status: HealthStatus,
    /// A remark for people.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Output of its last run.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// The instance that it belongs to; empty for a check of the node.
    #[serde(
        default,
        rename = "ServiceID",
        deserialize_with = "nullable",
        skip_serializing_if = "String::is_empty"
    )]
    pub service_id: String,
    /// The service that it belongs to.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub service_name: String,
    /// Tags of the instance.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub service_tags: Vec<String>,
    /// `ttl`, `http`, `tcp`, …; empty for checks that no agent runs.
    #[serde(
        default,
        rename = "Type",
        deserialize_with = "nullable",
        skip_serializing_if = "String::is_empty"
    )]
    pub kind: String,
    /// Definition of the check, as Consul shows it.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "JsonObject::is_empty")]
    pub definition: JsonObject,
    /// Enterprise namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Enterprise partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Index of its registration.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub modify_index: u64,
}

impl HealthCheck {
    /// A check of a service's instance, to be registered in the catalog.
    pub fn of_service(
        service_id: impl Into<String>,
        check_id: impl Into<String>,
        status: HealthStatus,
    ) -> Self {
        let check_id = check_id.into();
        Self {
            service_id: service_id.into(),
            name: check_id.clone(),
            check_id,
            status,
            ..Self::default()
        }
    }

    /// A check of a node, to be registered in the catalog.
    pub fn of_node(check_id: impl Into<String>, status: HealthStatus) -> Self {
        Self::of_service("", check_id, status)
    }
}

/// Definition of a check for an agent to carry out. Set exactly one kind, such as `ttl` or
/// `http`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct CheckSpec {
    /// Id; Consul makes one when it is empty.
    #[serde(rename = "CheckID", skip_serializing_if = "String::is_empty")]
    pub check_id: String,
    /// A name for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A remark for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Something else reports the state, at least this often.
    #[serde(rename = "TTL", skip_serializing_if = "Option::is_none", serialize_with = "go_text")]
    pub ttl: Option<Duration>,
    /// URL to get.
    #[serde(rename = "HTTP", skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// HTTP method; empty is `GET`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub method: String,
    /// HTTP headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub header: BTreeMap<String, Vec<String>>,
    /// HTTP body.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// `host:port` to connect to.
    #[serde(rename = "TCP", skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// `host:port` to send a datagram to (Consul 1.12).
    #[serde(rename = "UDP", skip_serializing_if = "Option::is_none")]
    pub udp: Option<String>,
    /// `host:port[/service]` to ask by the gRPC health protocol.
    #[serde(rename = "GRPC", skip_serializing_if = "Option::is_none")]
    pub grpc: Option<String>,
    /// Use TLS for gRPC.
    #[serde(rename = "GRPCUseTLS", skip_serializing_if = "is_false")]
    pub grpc_use_tls: bool,
    /// `host:port` to ping by HTTP/2 (Consul 1.10).
    #[serde(rename = "H2PING", skip_serializing_if = "Option::is_none")]
    pub h2ping: Option<String>,
    /// Use TLS for that ping; `None` is Consul's default, which is yes.
    #[serde(rename = "H2PingUseTLS", skip_serializing_if = "Option::is_none")]
    pub h2ping_use_tls: Option<bool>,
    /// Name that a certificate must have (Consul 1.9).
    #[serde(rename = "TLSServerName", skip_serializing_if = "String::is_empty")]
    pub tls_server_name: String,
    /// Command line to run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub script_args: Vec<String>,
    /// Node whose service is mirrored by an alias check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias_node: Option<String>,
    /// Id of the service that an alias check mirrors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias_service: Option<String>,
    /// Accept any certificate.
    #[serde(rename = "TLSSkipVerify", skip_serializing_if = "is_false")]
    pub tls_skip_verify: bool,
    /// Time between runs.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "go_text")]
    pub interval: Option<Duration>,
    /// Longest time of a run.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "go_text")]
    pub timeout: Option<Duration>,
    /// State before the first run; `None` is critical.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<HealthStatus>,
    /// Successes in a row before it turns passing.
    #[serde(skip_serializing_if = "is_zero")]
    pub success_before_passing: u64,
    /// Failures in a row before it turns critical.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures_before_critical: u64,
    /// The service is removed after it was critical for so long; at least a minute.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "go_text")]
    pub deregister_critical_service_after: Option<Duration>,
}

impl CheckSpec {
    /// A check that something else reports at least every `ttl`.
    pub fn ttl(check_id: impl Into<String>, ttl: Duration) -> Self {
        let check_id = check_id.into();
        Self { name: check_id.clone(), check_id, ttl: Some(ttl), ..Self::default() }
    }
}

/// A check to register with an agent by itself.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct AgentCheckRegistration {
    /// Id of the service's instance; empty for a check of the node.
    pub service_id: String,
    /// Definition of the check; its name is required.
    pub check: CheckSpec,
    /// Enterprise namespace.
    pub namespace: Option<String>,
}

impl AgentCheckRegistration {
    /// A check of the agent's node.
    pub fn of_node(check: CheckSpec) -> Self {
        Self { check, ..Self::default() }
    }

    /// A check of one of the agent's services.
    pub fn of_service(service_id: impl Into<String>, check: CheckSpec) -> Self {
        Self { service_id: service_id.into(), check, ..Self::default() }
    }
}

impl Serialize for AgentCheckRegistration {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// By itself a check's id is called `ID`; within a service `CheckID`.
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Wire<'a> {
            #[serde(rename = "ID", skip_serializing_if = "str::is_empty")]
            id: &'a str,
            #[serde(rename = "ServiceID", skip_serializing_if = "str::is_empty")]
            service_id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            namespace: Option<&'a str>,
            #[serde(flatten)]
            check: CheckSpec,
        }
        Wire {
            id: &self.check.check_id,
            service_id: &self.service_id,
            namespace: self.namespace.as_deref(),
            check: CheckSpec { check_id: String::new(), ..self.check.clone() },
        }
        .serialize(serializer)
    }
}
