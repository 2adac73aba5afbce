//! `ServiceEntry`: an instance with its node and checks.

use serde::{Deserialize, Serialize};

use super::{HealthCheck, HealthStatus, Node, Service, nullable};

/// An instance of a service with its node and checks: what health queries answer.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ServiceEntry {
    /// The node that it runs on.
    pub node: Node,
    /// The instance.
    pub service: Service,
    /// The instance's own checks and those of its node.
    #[serde(default, deserialize_with = "nullable")]
    pub checks: Vec<HealthCheck>,
}

impl ServiceEntry {
    /// The state of the instance by all of its checks; see [`aggregated_status`].
    pub fn aggregated_status(&self) -> HealthStatus {
        aggregated_status(&self.checks)
    }

    /// Returns the address of the instance: its own, else its node's.
    pub fn address(&self) -> &str {
        if self.service.address.is_empty() { &self.node.address } else { &self.service.address }
    }
}

/// Returns one state for all checks: maintenance before critical, warning and passing.
///
/// Without checks it is passing. A state that Consul does not define makes the
/// whole an empty [`HealthStatus::Other`].
///
/// Source: Consul 1.21 `api/health.go` (`HealthChecks.AggregatedStatus`).
pub fn aggregated_status(checks: &[HealthCheck]) -> HealthStatus {
    let (mut maintenance, mut critical, mut warning) = (false, false, false);
    for check in checks {
        if check.check_id == "_node_maintenance"
            || check.check_id.starts_with("_service_maintenance:")
        {
            maintenance = true;
            continue;
        }
        match check.status {
            HealthStatus::Passing => {}
            HealthStatus::Warning => warning = true,
            HealthStatus::Critical => critical = true,
            HealthStatus::Maintenance | HealthStatus::Other(_) => {
                return HealthStatus::Other(String::new());
            }
        }
    }
    if maintenance {
        HealthStatus::Maintenance
    } else if critical {
        HealthStatus::Critical
    } else if warning {
        HealthStatus::Warning
    } else {
        HealthStatus::Passing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(checks: &[(&str, &str)]) -> String {
        let checks: Vec<HealthCheck> = checks
            .iter()
            .map(|(id, status)| HealthCheck::of_node(*id, HealthStatus::from((*status).to_owned())))
            .collect();
        aggregated_status(&checks).to_string()
    }

    #[test]
    fn the_worst_check_decides() {
        assert_eq!(status(&[]), "passing");
        assert_eq!(status(&[("a", "passing"), ("b", "warning")]), "warning");
        assert_eq!(status(&[("a", "critical"), ("b", "warning")]), "critical");
        assert_eq!(
            status(&[("_service_maintenance:web", "critical"), ("b", "passing")]),
            "maintenance"
        );
        assert_eq!(status(&[("_node_maintenance", "critical")]), "maintenance");
        assert_eq!(status(&[("a", "unknown"), ("b", "critical")]), "");
    }

    #[test]
    fn an_entry_is_read_as_consul_1_8_and_later_write_it() {
        let entry: ServiceEntry = serde_json::from_str(
            r#"{"Node":{"ID":"6c0f","Node":"n1","Address":"10.0.0.1","Datacenter":"dc1","TaggedAddresses":null,"Meta":null,"CreateIndex":12,"ModifyIndex":14},
                "Service":{"ID":"web-1","Service":"web","Tags":null,"Address":"","Meta":null,"Weights":null,"EnableTagOverride":false,
                "Proxy":{"Mode":"","MeshGateway":{},"Expose":{}},"Connect":{},"PeerName":"","CreateIndex":20,"ModifyIndex":20},"Checks":null}"#,
        )
        .unwrap();
        assert_eq!((entry.address(), entry.service.port), ("10.0.0.1", 0));
        assert_eq!(entry.aggregated_status(), HealthStatus::Passing);
        assert!(serde_json::from_str::<ServiceEntry>(r#"{"Node":{}}"#).is_err());
    }
}
