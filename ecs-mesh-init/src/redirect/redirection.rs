//! The redirection of one task: what its configuration and its registered sidecar ask for.

use consul_watch::types::{JsonObject, Service, ServiceKind};
use serde_json::Value;

use crate::{
    Config, Error, Result, bootstrap::HostPort, config::TransparentProxyConfig, dataplane::DNS_PORT,
};

/// UID that consul-dataplane runs as.
pub const PROXY_UID: u32 = 5995;
/// UID that health-sync runs as.
pub const HEALTH_SYNC_UID: u32 = 5996;
const OUTBOUND_PORT: u16 = 15001;

/// Ports, networks and users of a redirection.
///
/// Source: consul-ecs 0.10 `internal/redirecttraffic/redirecttraffic.go`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redirection {
    /// UID of the proxy, whose traffic is not redirected.
    pub proxy_uid: u32,
    /// Port that incoming traffic is redirected to.
    pub inbound_port: u16,
    /// Port that outgoing traffic is redirected to.
    pub outbound_port: u16,
    /// Ports whose incoming traffic is not redirected.
    pub exclude_inbound_ports: Vec<u16>,
    /// Destination ports whose traffic is not redirected.
    pub exclude_outbound_ports: Vec<u16>,
    /// Destination networks whose traffic is not redirected.
    pub exclude_outbound_cidrs: Vec<String>,
    /// UIDs whose outgoing traffic is not redirected.
    pub exclude_uids: Vec<String>,
    /// Port on 127.0.0.1 that DNS queries are redirected to; `None` leaves them alone.
    pub dns_port: Option<u16>,
}

impl Redirection {
    /// Computes the redirection of a task whose sidecar is registered as `sidecar`.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the service is no proxy, or a port or bind address is unusable.
    pub fn new(config: &Config, sidecar: &Service) -> Result<Self> {
        let proxy = &sidecar.proxy;
        if sidecar.kind == ServiceKind::Typical {
            return Err(Error::input(format!("service {} is not a proxy", sidecar.id)));
        }
        let user: &TransparentProxyConfig = &config.transparent_proxy;
        let mut exclude_inbound_ports = user.exclude_inbound_ports.clone();
        // Probes and scrapes come from outside the mesh, without its TLS.
        exclude_inbound_ports.push(config.health_check_port());
        for key in ["envoy_prometheus_bind_addr", "envoy_stats_bind_addr"] {
            exclude_inbound_ports.extend(bound_port(&proxy.config, key)?);
        }
        let paths = proxy.expose.get("Paths").and_then(Value::as_array);
        let ports = paths.into_iter().flatten().filter_map(|path| port(path.get("ListenerPort")?));
        exclude_inbound_ports.extend(ports);
        let mut exclude_uids = user.exclude_uids.clone();
        // health-sync talks to Consul's servers, which must work while the proxy starts and stops.
        exclude_uids.push(HEALTH_SYNC_UID.to_string());
        // The proxy's own setting wins over its registration: that is where Envoy really listens.
        let inbound_port = match proxy.config.get("bind_port").and_then(port) {
            Some(port) => port,
            None => sidecar_port(sidecar)?,
        };
        Ok(Self {
            proxy_uid: PROXY_UID,
            inbound_port,
            outbound_port: outbound_port(sidecar)?,
            exclude_inbound_ports,
            exclude_outbound_ports: user.exclude_outbound_ports.clone(),
            exclude_outbound_cidrs: user.exclude_outbound_cidrs.clone(),
            exclude_uids,
            dns_port: config.uses_consul_dns().then_some(DNS_PORT),
        })
    }
}

/// Returns the port that the sidecar is registered with, which Consul does not limit.
fn sidecar_port(sidecar: &Service) -> Result<u16> {
    registered_port(sidecar, "port", sidecar.port)
}

/// Returns the port that outgoing traffic is redirected to: the registered one, or Consul's
/// default.
fn outbound_port(sidecar: &Service) -> Result<u16> {
    match sidecar.proxy.transparent_proxy.outbound_listener_port {
        0 => Ok(OUTBOUND_PORT),
        port => registered_port(sidecar, "OutboundListenerPort", port),
    }
}

/// Converts a registered port, which Consul keeps as any integer, to one that the kernel takes.
fn registered_port(sidecar: &Service, field: &str, port: i64) -> Result<u16> {
    u16::try_from(port).map_err(|_range| {
        let id = &sidecar.id;
        Error::input(format!("service {id} is registered with {field} {port}; expected 0 to 65535"))
    })
}

fn port(value: &Value) -> Option<u16> {
    let port = match value {
        Value::String(text) => text.parse().ok(),
        // A number that passed through Go may have become a float.
        other => other.as_f64().filter(|port| (1.0..=65535.0).contains(port)).map(whole),
    };
    port.filter(|port| *port > 0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller has checked the range"
)]
fn whole(number: f64) -> u16 {
    number as u16
}

fn bound_port(config: &JsonObject, key: &str) -> Result<Option<u16>> {
    let Some(text) = config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let address: HostPort = text.parse().map_err(|error| {
        Error::input(format!("failed parsing host and port from {key}: {error}"))
    })?;
    Ok(Some(address.port))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(extra: &str) -> Config {
        Config::parse(&format!(
            r#"{{"bootstrapDir":"/c","consulServers":{{"hosts":"h"}},"service":{{"port":1}}{extra}}}"#
        ))
        .unwrap()
    }

    fn sidecar(proxy: &Value) -> Service {
        serde_json::from_value(json!({"Kind": "connect-proxy", "ID": "p", "Service": "p", "Port": 20000, "Proxy": proxy}))
            .unwrap()
    }

    /// Case MI27: a redirection has default ports, overrides, and every excluded port; a service
    /// without a proxy is an error.
    #[test]
    fn ports_and_users_of_a_redirection() {
        let config = config("");
        let plain = Service::new("web", "web-1");
        assert_eq!(
            Redirection::new(&config, &plain).unwrap_err().to_string(),
            "service web-1 is not a proxy"
        );
        let defaults = Redirection::new(&config, &sidecar(&json!({}))).unwrap();
        assert_eq!(
            (defaults.inbound_port, defaults.outbound_port, defaults.proxy_uid),
            (20000, 15001, 5995)
        );
        assert_eq!(
            (defaults.exclude_inbound_ports, defaults.exclude_uids),
            (vec![22000], vec!["5996".to_owned()])
        );
        assert_eq!(defaults.dns_port, None);
        for bind_port in [json!(21000), json!("21000"), json!(21000.0)] {
            let bound =
                Redirection::new(&config, &sidecar(&json!({"Config": {"bind_port": bind_port}})))
                    .unwrap();
            assert_eq!(bound.inbound_port, 21000);
        }
        let outbound = json!({"TransparentProxy": {"OutboundListenerPort": 15002}});
        let outbound = Redirection::new(&config, &sidecar(&outbound)).unwrap();
        assert_eq!((outbound.inbound_port, outbound.outbound_port), (20000, 15002));
    }

    /// Case MI27: a redirection has default ports, overrides, and every excluded port; a service
    /// without a proxy is an error.
    #[test]
    fn everything_that_is_excluded_is_listed() {
        let config = config(
            r#","transparentProxy":{"excludeInboundPorts":[1,2],"excludeOutboundPorts":[3],
            "excludeOutboundCIDRs":["10.0.0.0/8"],"excludeUIDs":["7"],"consulDNS":{"enabled":true}}"#,
        );
        let proxy = json!({
            "Config": {"envoy_prometheus_bind_addr": "0.0.0.0:9090", "envoy_stats_bind_addr": "0.0.0.0:9091"},
            "Expose": {"Paths": [{"ListenerPort": 23000}, {"ListenerPort": 23001}]},
        });
        let redirection = Redirection::new(&config, &sidecar(&proxy)).unwrap();
        assert_eq!(redirection.exclude_inbound_ports, [1, 2, 22000, 9090, 9091, 23000, 23001]);
        assert_eq!(redirection.exclude_outbound_ports, [3]);
        assert_eq!(redirection.exclude_outbound_cidrs, ["10.0.0.0/8"]);
        assert_eq!(redirection.exclude_uids, ["7", "5996"]);
        assert_eq!(redirection.dns_port, Some(8600));
        let wrong = sidecar(&json!({"Config": {"envoy_prometheus_bind_addr": "9090"}}));
        let error = Redirection::new(&config, &wrong).unwrap_err().to_string();
        assert!(
            error.starts_with("failed parsing host and port from envoy_prometheus_bind_addr: "),
            "{error}"
        );
    }
}
