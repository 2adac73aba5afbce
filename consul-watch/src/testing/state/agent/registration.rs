//! Bodies that register services and checks with the agent.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use crate::{
    GoDuration,
    testing::refused::Refused,
    types::{Locality, Service, ServiceAddress, ServiceKind, ServiceProxy, Weights},
};

/// The body of a service's registration, as it comes over the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct NewService {
    pub(in crate::testing) kind: ServiceKind,
    #[serde(rename = "ID")]
    pub(in crate::testing) id: String,
    pub(in crate::testing) name: String,
    pub(in crate::testing) tags: Vec<String>,
    pub(in crate::testing) address: String,
    #[serde(alias = "tagged_addresses")]
    pub(in crate::testing) tagged_addresses: BTreeMap<String, ServiceAddress>,
    pub(in crate::testing) socket_path: String,
    pub(in crate::testing) meta: BTreeMap<String, String>,
    pub(in crate::testing) port: i64,
    pub(in crate::testing) check: Option<NewCheck>,
    pub(in crate::testing) checks: Vec<NewCheck>,
    pub(in crate::testing) weights: Option<Weights>,
    #[serde(alias = "enable_tag_override")]
    pub(in crate::testing) enable_tag_override: bool,
    pub(in crate::testing) proxy: Option<ServiceProxy>,
    pub(in crate::testing) connect: Option<NewConnect>,
    pub(in crate::testing) locality: Option<Locality>,
    pub(in crate::testing) namespace: Option<String>,
    pub(in crate::testing) partition: Option<String>,
    #[serde(rename = "Token")]
    pub(in crate::testing) _token: String,
}

impl NewService {
    /// The service itself.
    pub(in crate::testing) fn service(&self) -> Service {
        let mut service = Service::new(self.name.clone(), self.id.clone());
        service.kind = self.kind.clone();
        service.tags.clone_from(&self.tags);
        service.address.clone_from(&self.address);
        service.tagged_addresses.clone_from(&self.tagged_addresses);
        service.socket_path.clone_from(&self.socket_path);
        service.meta.clone_from(&self.meta);
        service.port = self.port;
        service.weights = self.weights.unwrap_or_default();
        service.enable_tag_override = self.enable_tag_override;
        service.proxy = self.proxy.clone().unwrap_or_default();
        service.connect.native = self.connect.as_ref().is_some_and(|connect| connect.native);
        service.locality.clone_from(&self.locality);
        service.namespace.clone_from(&self.namespace);
        service.partition.clone_from(&self.partition);
        service
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct NewConnect {
    pub(in crate::testing) native: bool,
    #[serde(alias = "sidecar_service")]
    pub(in crate::testing) sidecar_service: Option<Box<NewService>>,
}

/// The body of a check's registration.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct NewCheck {
    #[serde(rename = "ID")]
    pub(in crate::testing) id: String,
    #[serde(rename = "CheckID")]
    pub(in crate::testing) check_id: String,
    pub(in crate::testing) name: String,
    pub(in crate::testing) notes: String,
    #[serde(rename = "ServiceID", alias = "service_id")]
    pub(in crate::testing) service_id: String,
    #[serde(alias = "alias_service")]
    pub(in crate::testing) alias_service: String,
    #[serde(alias = "alias_node")]
    pub(in crate::testing) alias_node: String,
    #[serde(deserialize_with = "duration")]
    pub(in crate::testing) interval: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    pub(in crate::testing) timeout: Option<Duration>,
    #[serde(rename = "TTL", deserialize_with = "duration")]
    pub(in crate::testing) ttl: Option<Duration>,
    pub(in crate::testing) status: String,
    #[serde(rename = "HTTP")]
    pub(in crate::testing) http: String,
    #[serde(rename = "TCP")]
    pub(in crate::testing) tcp: String,
    #[serde(rename = "GRPC")]
    pub(in crate::testing) grpc: String,
    #[serde(rename = "UDP")]
    pub(in crate::testing) udp: String,
    #[serde(rename = "H2PING")]
    pub(in crate::testing) h2ping: String,
    #[serde(rename = "ScriptArgs", alias = "Args", alias = "script_args")]
    pub(in crate::testing) args: Vec<String>,
    #[serde(alias = "deregister_critical_service_after", deserialize_with = "duration")]
    pub(in crate::testing) deregister_critical_service_after: Option<Duration>,
    // What a check may say that the double does not carry out.
    #[serde(rename = "Header")]
    pub(in crate::testing) _header: IgnoredAny,
    #[serde(rename = "Method")]
    pub(in crate::testing) _method: IgnoredAny,
    #[serde(rename = "Body")]
    pub(in crate::testing) _body: IgnoredAny,
    #[serde(rename = "DisableRedirects")]
    pub(in crate::testing) _disable_redirects: IgnoredAny,
    #[serde(rename = "TCPUseTLS")]
    pub(in crate::testing) _tcp_usetls: IgnoredAny,
    #[serde(rename = "H2PingUseTLS")]
    pub(in crate::testing) _h2_ping_usetls: IgnoredAny,
    #[serde(rename = "DockerContainerID", alias = "docker_container_id")]
    pub(in crate::testing) _docker_containerid: IgnoredAny,
    #[serde(rename = "Shell")]
    pub(in crate::testing) _shell: IgnoredAny,
    #[serde(rename = "GRPCUseTLS", alias = "grpc_use_tls")]
    pub(in crate::testing) _grpc_usetls: IgnoredAny,
    #[serde(rename = "TLSServerName", alias = "tls_server_name")]
    pub(in crate::testing) _tls_server_name: IgnoredAny,
    #[serde(rename = "TLSSkipVerify", alias = "tls_skip_verify")]
    pub(in crate::testing) _tls_skip_verify: IgnoredAny,
    #[serde(rename = "OSService")]
    pub(in crate::testing) _os_service: IgnoredAny,
    #[serde(rename = "SuccessBeforePassing", alias = "success_before_passing")]
    pub(in crate::testing) _success_before_passing: IgnoredAny,
    #[serde(rename = "FailuresBeforeWarning", alias = "failures_before_warning")]
    pub(in crate::testing) _failures_before_warning: IgnoredAny,
    #[serde(rename = "FailuresBeforeCritical", alias = "failures_before_critical")]
    pub(in crate::testing) _failures_before_critical: IgnoredAny,
    #[serde(rename = "OutputMaxSize", alias = "output_max_size")]
    pub(in crate::testing) _output_max_size: IgnoredAny,
    #[serde(rename = "Token")]
    pub(in crate::testing) _token: IgnoredAny,
    #[serde(rename = "Namespace")]
    pub(in crate::testing) _namespace: IgnoredAny,
    #[serde(rename = "Partition")]
    pub(in crate::testing) _partition: IgnoredAny,
}

/// A duration as text, or as a number of nanoseconds.
pub(in crate::testing) fn duration<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    use serde::de::Error as _;
    match Value::deserialize(deserializer)? {
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) => {
            let read = text
                .parse::<GoDuration>()
                .map_err(|_bad| D::Error::custom(format!("time: invalid duration {text:?}")))?;
            Ok(Some(read.get()).filter(|read| !read.is_zero()))
        }
        Value::Number(number) => {
            let nanoseconds = number.as_f64().unwrap_or_default().max(0.0);
            let read = Duration::try_from_secs_f64(nanoseconds / 1e9).unwrap_or_default();
            Ok(Some(read).filter(|read| !read.is_zero()))
        }
        _ => Ok(None),
    }
}

impl NewCheck {
    /// Refuses a check that could not be carried out.
    pub(in crate::testing) fn validate(
        &self,
        with_service: bool,
        old: bool,
    ) -> Result<(), Refused> {
        let bad = |text: &str| Err(Refused::new(400, text));
        let probes = [&self.http, &self.tcp, &self.grpc, &self.udp, &self.h2ping];
        let probes = probes.into_iter().any(|target| !target.is_empty()) || !self.args.is_empty();
        let interval = self.interval.is_some();
        if !self.alias_service.is_empty() || !self.alias_node.is_empty() {
        } else if probes && self.ttl.is_some() {
            return bad("Invalid check: Interval and TTL cannot both be specified");
        } else if probes && !interval {
            let kinds = if old {
                "Script, HTTP, or TCP"
            } else {
                "Script, HTTP, H2PING, TCP, UDP or OSService"
            };
            return bad(&format!("Invalid check: Interval must be > 0 for {kinds} checks"));
        } else if !probes && self.ttl.is_none() {
            return bad("Invalid check: TTL must be > 0 for TTL checks");
        }
        if matches!(self.status.as_str(), "" | "passing" | "warning" | "critical") {
            return Ok(());
        }
        bad(if with_service {
            "Status for checks must 'passing', 'warning', 'critical'"
        } else {
            "Bad check status"
        })
    }
}
