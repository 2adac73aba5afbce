//! Maps ECS health to Consul's states, and sums it up for the proxy.

use consul_watch::types::HealthStatus;

use crate::metadata::Task;

/// Name of the container that runs the proxy in the current generation.
pub const DATAPLANE: &str = "consul-dataplane";

const HEALTHY: &str = "HEALTHY";

/// Maps an ECS status to Consul's: only `HEALTHY` passes.
pub fn health_status(ecs: &str) -> HealthStatus {
    if ecs == HEALTHY { HealthStatus::Passing } else { HealthStatus::Critical }
}

/// Returns the status of the proxy: `HEALTHY` only if its container and all of `containers` are.
pub fn dataplane_status(task: &Task, containers: &[String]) -> &'static str {
    let healthy = |name: &str| {
        task.container(name).is_some_and(|container| container.health.status == HEALTHY)
    };
    if healthy(DATAPLANE) && containers.iter().all(|name| healthy(name)) {
        HEALTHY
    } else {
        "UNHEALTHY"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Case MI28: `HEALTHY` is passing; `UNHEALTHY`, `UNKNOWN` and an empty status are critical.
    #[test]
    fn only_healthy_passes() {
        assert_eq!(health_status("HEALTHY"), HealthStatus::Passing);
        for other in ["UNHEALTHY", "UNKNOWN", "", "healthy"] {
            assert_eq!(health_status(other), HealthStatus::Critical, "{other}");
        }
    }

    /// Case MI29: the dataplane is healthy only if it and every tracked container are.
    #[test]
    fn the_proxy_is_healthy_when_all_are() {
        let status = |containers: &[(&str, &str)], tracked: &[&str]| {
            let containers: Vec<_> = containers
                .iter()
                .map(|(name, status)| json!({"Name": name, "Health": {"status": status}}))
                .collect();
            let task =
                Task::parse(json!({"Containers": containers}).to_string().as_bytes()).unwrap();
            let tracked: Vec<String> = tracked.iter().map(|name| (*name).to_owned()).collect();
            dataplane_status(&task, &tracked)
        };
        let healthy = ("consul-dataplane", "HEALTHY");
        assert_eq!(status(&[], &[]), "UNHEALTHY");
        assert_eq!(status(&[("consul-dataplane", "UNHEALTHY")], &[]), "UNHEALTHY");
        assert_eq!(
            status(&[("consul-dataplane", "UNKNOWN"), ("a", "HEALTHY")], &["a"]),
            "UNHEALTHY"
        );
        assert_eq!(status(&[healthy], &[]), "HEALTHY");
        assert_eq!(status(&[healthy, ("a", "HEALTHY"), ("b", "HEALTHY")], &["a", "b"]), "HEALTHY");
        for other in ["UNHEALTHY", "UNKNOWN", ""] {
            assert_eq!(
                status(&[healthy, ("a", other), ("b", "HEALTHY")], &["a", "b"]),
                "UNHEALTHY"
            );
        }
        assert_eq!(status(&[healthy, ("b", "HEALTHY")], &["a", "b"]), "UNHEALTHY");
    }
}
