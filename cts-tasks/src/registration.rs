//! The registration of this instance in Consul.

use std::time::Duration;

use consul_watch::{
    AgentApi,
    types::{AgentServiceRegistration, CheckSpec, HealthStatus},
};

use tokio::time::timeout;

use crate::{Config, Retry, Stop};

/// Retries of one registration.
///
/// Source: Consul-Terraform-Sync 0.9, Consul API client.
const RETRY: Retry = Retry::TASK.with_limit(Some(8));

/// Limit of the one attempt to deregister, which holds up the end of the process.
const LEAVE: Duration = Duration::from_secs(3);

/// Builds the registration of this instance with Consul.
///
/// Source: Consul-Terraform-Sync 0.9, `registration`.
fn registration(config: &Config, port: u16, tags: &[String]) -> AgentServiceRegistration {
    let own = &config.consul.service_registration;
    let mut service = AgentServiceRegistration::new(&own.service_name);
    service.id.clone_from(&config.id);
    service.tags = ["cts".to_owned()].into_iter().chain(tags.iter().cloned()).collect();
    service.address.clone_from(&own.address);
    service.port = port.into();
    service.namespace = Some(own.namespace.clone()).filter(|namespace| !namespace.is_empty());
    // A check would find nobody where no API is served.
    if own.default_check_enabled && port != 0 {
        service.checks.push(check(config, port));
    }
    service
}

fn check(config: &Config, port: u16) -> CheckSpec {
    let configured = &config.consul.service_registration.default_check_address;
    let base = match configured.as_str() {
        "" => {
            let scheme = if config.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://localhost:{port}")
        }
        address => address.trim_end_matches('/').to_owned(),
    };
    let mut check = CheckSpec::default();
    check.check_id = format!("{}-health", config.id);
    check.name = "CTS Health Status".into();
    check.notes = "Check created by Consul-Terraform-Sync".into();
    check.http = Some(format!("{base}/v1/health"));
    check.method = "GET".into();
    check.interval = Some(Duration::from_secs(10));
    check.timeout = Some(Duration::from_secs(2));
    check.status = Some(HealthStatus::Critical);
    check.deregister_critical_service_after = Some(Duration::from_mins(30));
    check.tls_skip_verify = true;
    check
}

/// Keeps this instance registered until the stop, and takes it away then.
///
/// A failure is logged and ends nothing.
pub(crate) async fn keep_registered(
    consul: &dyn AgentApi,
    config: &Config,
    port: u16,
    tags: &[String],
    stop: &Stop,
) {
    let service = registration(config, port, tags);
    // One that was under way when the stop came may have reached Consul.
    if !register(consul, &service, stop).await && stop.reason().is_none() {
        return;
    }
    stop.stopped().await;
    let leaving = consul.agent_deregister_service(&service.id, service.namespace.as_deref());
    match timeout(LEAVE, leaving).await {
        Ok(Ok(())) => tracing::debug!(service.id, "deregistered from Consul"),
        Ok(Err(error)) => tracing::warn!(
            service.id,
            error = &error as &dyn std::error::Error,
            "cannot deregister from Consul"
        ),
        Err(_late) => tracing::warn!(service.id, "Consul did not answer the deregistration"),
    }
}

/// Registers the service and returns `true` if Consul knows it now.
async fn register(consul: &dyn AgentApi, service: &AgentServiceRegistration, stop: &Stop) -> bool {
    for attempt in 0.. {
        let registered = tokio::select! {
            registered = consul.agent_register_service(service) => registered,
            _ = stop.stopped() => return false,
        };
        let error = match registered {
            Ok(()) => {
                tracing::debug!(service.id, "registered in Consul");
                return true;
            }
            Err(error) => error,
        };
        let delay = RETRY.delay(attempt, fastrand::f64()).filter(|_| error.is_retryable());
        let Some(delay) = delay else {
            tracing::error!(
                service.id,
                error = &error as &dyn std::error::Error,
                help = error.is_permission_denied().then_some(
                    "the token needs service:write on the name that this instance registers"
                ),
                "CTS will continue without registering itself as a service with Consul"
            );
            return false;
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = stop.stopped() => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The health check's address, for a configuration that is changed so.
    fn checked(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        check(&config, 8558).http.unwrap()
    }

    /// Spec: CTS83
    #[test]
    fn what_is_registered_is_what_upstream_registers() {
        let mut config = Config { id: "cts-01".into(), ..Config::default() };
        let service = registration(&config, 8558, &["cts-cluster:a".to_owned()]);
        let expected = serde_json::json!({
            "ID": "cts-01", "Name": "consul-terraform-sync", "Tags": ["cts", "cts-cluster:a"],
            "Port": 8558,
            "Checks": [{
                "CheckID": "cts-01-health", "Name": "CTS Health Status",
                "Notes": "Check created by Consul-Terraform-Sync", "Status": "critical",
                "HTTP": "http://localhost:8558/v1/health", "Method": "GET", "Interval": "10s",
                "Timeout": "2s", "TLSSkipVerify": true, "DeregisterCriticalServiceAfter": "30m0s",
            }],
        });
        assert_eq!(serde_json::to_value(&service).unwrap(), expected);
        config.consul.service_registration.namespace = "team".into();
        assert_eq!(registration(&config, 8558, &[]).namespace.as_deref(), Some("team"));
    }

    /// Spec: CTS83
    #[test]
    fn the_check_asks_as_the_api_answers() {
        assert_eq!(checked(|_| ()), "http://localhost:8558/v1/health");
        let secured = |config: &mut Config| config.tls = Some(crate::config::ApiTls::default());
        assert_eq!(checked(secured), "https://localhost:8558/v1/health");
        let told = |config: &mut Config| {
            secured(config);
            config.consul.service_registration.default_check_address = "http://proxy/cts/".into();
        };
        assert_eq!(checked(told), "http://proxy/cts/v1/health");
    }
}
