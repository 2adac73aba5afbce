use std::{collections::BTreeMap, fmt};

use serde::Deserialize;

/// The service of the task.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// Name; empty is the task's family.
    pub name: String,
    /// Tags.
    pub tags: Vec<String>,
    /// Port; 0 when the application listens on nothing.
    pub port: u16,
    /// Whether tags changed in the catalog survive.
    pub enable_tag_override: bool,
    /// Free key-value pairs, over those that say which task it is.
    pub meta: BTreeMap<String, String>,
    /// Weights in DNS answers; `None` leaves them to Consul.
    pub weights: Option<WeightsConfig>,
    /// Early generation: checks for the agent to carry out.
    pub checks: Vec<CheckConfig>,
    /// Enterprise namespace.
    pub namespace: String,
    /// Enterprise partition.
    pub partition: String,
    /// Passive health checks of its upstreams (current generation).
    pub network_resilience_config: Option<ResilienceConfig>,
}

/// Weights in DNS answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct WeightsConfig {
    /// While it is passing.
    pub passing: i64,
    /// While it is warning.
    pub warning: i64,
}

/// Passive health checks of upstreams.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ResilienceConfig {
    /// Whether they are set up. Default false.
    pub enabled: bool,
    /// How an instance is found bad; `None` takes all defaults.
    pub outlier_detection: Option<OutlierDetectionConfig>,
}

/// How an instance is found bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct OutlierDetectionConfig {
    /// Time between looks, in nanoseconds.
    pub interval: Option<u64>,
    /// Failures in a row before an instance is left out.
    pub max_failures: Option<u32>,
    /// Percent of the instances found bad by 5xx answers that are left out.
    #[serde(rename = "enforcingConsecutive5xx")]
    pub enforcing_consecutive_5xx: Option<u32>,
    /// 5xx answers in a row.
    #[serde(rename = "consecutive5xx")]
    pub consecutive_5xx: Option<u32>,
    /// Percent of the instances found bad by gateway failures that are left out.
    pub enforcing_consecutive_gateway_failure: Option<u32>,
    /// Gateway failures in a row.
    pub consecutive_gateway_failure: Option<u32>,
    /// Percent of the instances that may be left out at once.
    pub max_ejection_percent: Option<u32>,
}

/// A check for the agent to carry out (early generation).
#[derive(Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct CheckConfig {
    /// Id; Consul makes one when it is empty.
    pub check_id: String,
    /// A name for people.
    pub name: String,
    /// Command line to run.
    pub args: Vec<String>,
    /// Time between runs, as Go writes it (`10s`).
    pub interval: String,
    /// Longest time of a run.
    pub timeout: String,
    /// Something else reports the state, at least this often.
    pub ttl: String,
    /// URL to get.
    pub http: String,
    /// HTTP headers, which may be secret: `Debug` leaves them out.
    pub header: BTreeMap<String, Vec<String>>,
    /// HTTP method.
    pub method: String,
    /// HTTP body.
    pub body: String,
    /// `host:port` to connect to.
    pub tcp: String,
    /// `host:port` to send a datagram to.
    pub udp: String,
    /// State before the first run.
    pub status: Option<String>,
    /// A remark for people.
    pub notes: String,
    /// Name that a TLS certificate must have.
    pub tls_server_name: String,
    /// Accept any certificate.
    pub tls_skip_verify: bool,
    /// `host:port[/service]` to ask by the gRPC health protocol.
    pub grpc: String,
    /// Use TLS for gRPC.
    pub grpc_use_tls: bool,
    /// `host:port` to ping by HTTP/2.
    pub h2ping: String,
    /// Use TLS for the ping; Consul's default holds when it is missing.
    pub h2ping_use_tls: Option<bool>,
    /// Node whose service an alias check mirrors.
    pub alias_node: String,
    /// Service that an alias check mirrors.
    pub alias_service: String,
    /// Successes in a row before it turns passing.
    pub success_before_passing: u64,
    /// Failures in a row before it turns critical.
    pub failures_before_critical: u64,
    /// Time after which a critical check takes its service out of Consul: by the command lines of
    /// 0.1 and 0.2 only.
    #[serde(skip)]
    pub deregister_critical_service_after: String,
}

impl fmt::Debug for CheckConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckConfig")
            .field("check_id", &self.check_id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
