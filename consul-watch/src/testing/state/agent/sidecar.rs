//! Sidecar services that the agent adds to a registration.

use std::{ops::RangeInclusive, time::Duration};

use super::registration::{NewCheck, NewService};
use crate::{
    testing::{
        refused::{Refused, listed},
        state::LocalAgent,
    },
    types::{Service, ServiceKind},
};

/// Ports that an agent gives to sidecars by itself.
const PORTS: RangeInclusive<i64> = 21_000..=21_255;

/// Makes a service's sidecar out of its `Connect.SidecarService`: what it
/// leaves open is taken from the service.
///
/// Source: Consul docs connect/registration/sidecar-service; compared with Consul 1.8.7.
pub(super) fn expand(
    parent: &Service,
    sidecar: NewService,
    agent: &LocalAgent,
) -> Result<(Service, Vec<NewCheck>), Refused> {
    let invalid = |text: &str| Err(Refused::new(400, listed(&[text.to_owned()])));
    if !sidecar.id.is_empty() {
        return invalid("A SidecarService cannot specify an ID as this is managed by the agent");
    }
    if sidecar.connect.as_ref().is_some_and(|connect| connect.sidecar_service.is_some()) {
        return invalid("A SidecarService cannot have a nested SidecarService");
    }
    let own = sidecar.service();
    let checks: Vec<NewCheck> = sidecar.check.into_iter().chain(sidecar.checks).collect();
    let mut service = Service {
        id: format!("{}-sidecar-proxy", parent.id),
        kind: ServiceKind::ConnectProxy,
        ..own
    };
    if service.name.is_empty() {
        service.name = format!("{}-sidecar-proxy", parent.name);
    }
    if service.tags.is_empty() {
        service.tags.clone_from(&parent.tags);
        service.enable_tag_override = parent.enable_tag_override;
    }
    if service.meta.is_empty() {
        service.meta.clone_from(&parent.meta);
    }
    if service.address.is_empty() {
        service.address.clone_from(&parent.address);
    }
    let proxy = &mut service.proxy;
    if proxy.destination_service_name.is_empty() {
        proxy.destination_service_name.clone_from(&parent.name);
        proxy.destination_service_id.clone_from(&parent.id);
    }
    if proxy.local_service_address.is_empty() {
        "127.0.0.1".clone_into(&mut proxy.local_service_address);
    }
    if proxy.local_service_port == 0 {
        proxy.local_service_port = parent.port;
    }
    for upstream in &mut proxy.upstreams {
        if upstream.destination_type.is_empty() {
            "service".clone_into(&mut upstream.destination_type);
        }
    }
    if service.port == 0 {
        service.port = free_port(&service.id, agent)?;
    }
    let checks = if checks.is_empty() { default_checks(parent, &service) } else { checks };
    Ok((service, checks))
}

/// The port that the sidecar had, or the first one that no service has.
fn free_port(id: &str, agent: &LocalAgent) -> Result<i64, Refused> {
    let old = agent.services().find(|service| service.id == id).map(|service| service.port);
    if let Some(old) = old.filter(|old| PORTS.contains(old)) {
        return Ok(old);
    }
    let taken = |port: i64| agent.services().any(|service| service.port == port);
    PORTS.clone().find(|port| !taken(*port)).ok_or_else(|| {
        let text = format!(
            "no port provided for sidecar_service and none left in the configured range [{}, {}]",
            PORTS.start(),
            PORTS.end()
        );
        Refused::new(400, listed(&[text]))
    })
}

fn default_checks(parent: &Service, sidecar: &Service) -> Vec<NewCheck> {
    let address = if sidecar.address.is_empty() { "127.0.0.1" } else { &sidecar.address };
    let listening = NewCheck {
        name: "Connect Sidecar Listening".to_owned(),
        tcp: format!("{address}:{}", sidecar.port),
        interval: Some(Duration::from_secs(10)),
        ..NewCheck::default()
    };
    let alias = NewCheck {
        name: format!("Connect Sidecar Aliasing {}", parent.id),
        alias_service: parent.id.clone(),
        ..NewCheck::default()
    };
    vec![listening, alias]
}
