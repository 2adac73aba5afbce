//! The `service` object of the configuration, with its checks and its upstreams' passive health
//! checks.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;

/// Service that the task provides.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// Name of the service; empty takes the task's family.
    pub name: String,
    /// Tags.
    pub tags: Vec<String>,
    /// Port that the application listens on; 0 when it listens on nothing.
    pub port: u16,
    /// `true` to keep tags that were changed in the catalog (`EnableTagOverride`).
    pub enable_tag_override: bool,
    /// Free key-value pairs, which win over those that mesh-init sets.
    pub meta: BTreeMap<String, String>,
    /// Weights in DNS answers; `None` leaves them to Consul.
    pub weights: Option<WeightsConfig>,
    /// Checks that the agent carries out (early generation).
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
    /// Weight while the service is passing.
    pub passing: i64,
    /// Weight while the service is warning.
    pub warning: i64,
}

/// Passive health checks of upstreams.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ResilienceConfig {
    /// `true` to set them up. Default `false`.
    pub enabled: bool,
    /// Thresholds of outlier detection; `None` takes all defaults.
    pub outlier_detection: Option<OutlierDetectionConfig>,
}

/// Thresholds at which Envoy ejects an instance from load balancing (outlier detection).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct OutlierDetectionConfig {
    /// Time between two analyses, in nanoseconds.
    pub interval: Option<u64>,
    /// Consecutive failures before an instance is ejected.
    pub max_failures: Option<u32>,
    /// Chance, in percent, that an instance with consecutive 5xx answers is really ejected.
    #[serde(rename = "enforcingConsecutive5xx")]
    pub enforcing_consecutive_5xx: Option<u32>,
    /// Consecutive 5xx answers before an instance is ejected.
    #[serde(rename = "consecutive5xx")]
    pub consecutive_5xx: Option<u32>,
    /// Chance, in percent, that an instance with consecutive gateway failures is really ejected.
    pub enforcing_consecutive_gateway_failure: Option<u32>,
    /// Consecutive gateway failures before an instance is ejected.
    pub consecutive_gateway_failure: Option<u32>,
    /// Percentage of all instances that may be ejected at the same time.
    pub max_ejection_percent: Option<u32>,
}

/// Check that the agent carries out (early generation).
#[derive(Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct CheckConfig {
    /// Id; Consul makes one when it is empty.
    pub check_id: String,
    /// Name for people.
    pub name: String,
    /// Command line to run.
    pub args: Vec<String>,
    /// Time between two runs, as Go writes durations (`10s`).
    pub interval: String,
    /// Longest time of one run, as Go writes durations.
    pub timeout: String,
    /// Longest time between two reports of a check that something else reports.
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
    /// `true` to accept any certificate.
    pub tls_skip_verify: bool,
    /// `host:port[/service]` to ask by the gRPC health protocol.
    pub grpc: String,
    /// `true` to use TLS for gRPC.
    pub grpc_use_tls: bool,
    /// `host:port` to ping by HTTP/2.
    pub h2ping: String,
    /// `true` to use TLS for the ping; `None` keeps Consul's default.
    pub h2ping_use_tls: Option<bool>,
    /// Node whose service an alias check mirrors.
    pub alias_node: String,
    /// Service that an alias check mirrors.
    pub alias_service: String,
    /// Successes in a row before it turns passing.
    pub success_before_passing: u64,
    /// Failures in a row before it turns critical.
    pub failures_before_critical: u64,
    /// Time after which a critical check takes its service out of Consul. Set only by the command
    /// lines of 0.1 and 0.2.
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
