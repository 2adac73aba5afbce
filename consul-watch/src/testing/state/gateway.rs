//! Which services gateways stand for: what their configuration entries name,
//! and with a wildcard what the catalog has.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Refused, Seen, State,
    tables::{GatewayLink as Link, Mapping},
};
use crate::types::{JsonObject, Service, ServiceEntry, ServiceKind, nullable};

const INGRESS: &str = "ingress-gateway";
const TERMINATING: &str = "terminating-gateway";
const ANY: &str = "*";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Listener {
    #[serde(deserialize_with = "nullable")]
    port: i64,
    #[serde(deserialize_with = "nullable")]
    protocol: String,
    #[serde(deserialize_with = "nullable")]
    services: Vec<Link>,
}

/// The configuration of either kind of gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Configuration {
    #[serde(deserialize_with = "nullable")]
    listeners: Vec<Listener>,
    #[serde(deserialize_with = "nullable")]
    services: Vec<Link>,
}

impl Configuration {
    fn read(fields: &JsonObject) -> Result<Self, Refused> {
        serde_json::from_value(Value::Object(fields.clone()))
            .map_err(|error| Refused::new(400, format!("Request decoding failed: {error}")))
    }

    /// Every service that it names, with the port and protocol of its listener.
    fn links(self, kind: &str) -> Vec<(i64, String, Link)> {
        if kind == TERMINATING {
            return self.services.into_iter().map(|link| (0, String::new(), link)).collect();
        }
        let of = |listener: Listener| {
            let Listener { port, protocol, services } = listener;
            services.into_iter().map(move |link| (port, protocol.clone(), link))
        };
        self.listeners.into_iter().flat_map(of).collect()
    }

    fn problem(&self, kind: &str, old: bool) -> Option<String> {
        if kind == TERMINATING {
            self.problem_of_terminating()
        } else {
            self.problem_of_ingress(old)
        }
    }

    fn problem_of_ingress(&self, old: bool) -> Option<String> {
        for (at, listener) in self.listeners.iter().enumerate() {
            let Listener { port, protocol, services } = listener;
            if self.listeners.iter().take(at).any(|other| other.port == *port) {
                return Some(format!("port {port} declared on two listeners"));
            }
            if !matches!(protocol.as_str(), "tcp" | "http" | "http2" | "grpc") {
                return Some(format!(
                    "protocol must be 'tcp', 'http', 'http2', or 'grpc'. '{protocol}' is an unsupported protocol"
                ));
            }
            let on = format!("(listener on port {port})");
            if services.is_empty() {
                return Some(format!("No service declared for listener with port {port}"));
            }
            for link in services {
                if link.name.is_empty() {
                    return Some(format!("Service name cannot be blank {on}"));
                }
                // The text names one protocol; all but this one are taken.
                if link.name == ANY && protocol == "tcp" {
                    return Some(format!(
                        "Wildcard service name is only valid for protocol = 'http' {on}"
                    ));
                }
                if link.name == ANY && !link.hosts.is_empty() {
                    return Some(format!(
                        "Associating hosts to a wildcard service is not supported {on}"
                    ));
                }
            }
            if services.len() > 1 && protocol == "tcp" {
                let such = if old {
                    "protocol = 'http'"
                } else {
                    "L7 protocols, 'http', 'grpc' and 'http2'"
                };
                return Some(format!(
                    "Multiple services per listener are only supported for {such} {on}"
                ));
            }
        }
        None
    }

    fn problem_of_terminating(&self) -> Option<String> {
        for (at, link) in self.services.iter().enumerate() {
            let Link { name, ca_file, cert_file, key_file, .. } = link;
            if name.is_empty() {
                return Some("Service name cannot be blank.".to_owned());
            }
            if self.services.iter().take(at).any(|other| other.name == *name) {
                return Some(format!(
                    "Service {name:?} was specified more than once within a namespace"
                ));
            }
            let pair = [cert_file, key_file].iter().filter(|file| !file.is_empty()).count();
            if pair == 1 || (pair == 2 && ca_file.is_empty()) {
                return Some(format!(
                    "Service {name:?} must have a CertFile, CAFile, and KeyFile specified for TLS origination"
                ));
            }
        }
        None
    }
}

fn gateway_kind(kind: &str) -> Option<&'static str> {
    [INGRESS, TERMINATING].into_iter().find(|known| *known == kind)
}

impl State {
    /// Refuses a gateway's configuration that makes no sense.
    pub(super) fn check_gateway(
        &self,
        kind: &str,
        name: &str,
        fields: &JsonObject,
    ) -> Result<(), Refused> {
        let Some(kind) = gateway_kind(kind) else { return Ok(()) };
        let configuration = Configuration::read(fields)?;
        let refused = |text: String| Err(Refused::new(500, text));
        if let Some(problem) = configuration.problem(kind, self.is_1_8()) {
            return refused(problem);
        }
        let other = if kind == INGRESS { TERMINATING } else { INGRESS };
        if self.config_get(other, name).0.is_some() {
            return refused(format!(
                "cannot create a {kind:?} config entry with name {name:?}, a {other:?} config entry with that name already exists"
            ));
        }
        for (_, protocol, link) in configuration.links(kind) {
            let own = self.protocol_of(&link.name);
            if kind == INGRESS && protocol != "tcp" && link.name != ANY && protocol != own {
                return refused(format!(
                    "service {:?} has protocol {own:?}, which does not match defined listener protocol {protocol:?}",
                    link.name
                ));
            }
        }
        Ok(())
    }

    /// A gateway's configuration is now this.
    pub(super) fn gateway_written(
        &mut self,
        kind: &str,
        name: &str,
        fields: &JsonObject,
        index: u64,
    ) {
        let (Some(kind), Ok(configuration)) = (gateway_kind(kind), Configuration::read(fields))
        else {
            return;
        };
        self.gateways.all.retain(|(gateway, ..), _| gateway != name);
        self.gateways.index = index;
        for (port, protocol, link) in configuration.links(kind) {
            let service = link.name.clone();
            let mapping = Mapping {
                kind,
                protocol,
                link,
                from_wildcard: false,
                created: index,
                modified: index,
            };
            self.gateways.all.insert((name.to_owned(), service.clone(), port), mapping.clone());
            if service == ANY {
                for service in self.typical_services() {
                    let key = (name.to_owned(), service, port);
                    // What is configured by name is not overridden.
                    let known = self.gateways.all.contains_key(&key);
                    if !known && self.wildcard_takes(kind, &key.1) {
                        self.map_by_wildcard(key, &mapping, index);
                    }
                }
            }
        }
    }

    pub(super) fn gateway_deleted(&mut self, kind: &str, name: &str, index: u64) {
        if gateway_kind(kind).is_some() {
            self.gateways.all.retain(|(gateway, ..), _| gateway != name);
            self.gateways.index = index;
        }
    }

    /// Lets a gateway stand for a service because of its wildcard.
    fn map_by_wildcard(&mut self, key: (String, String, i64), wildcard: &Mapping, index: u64) {
        let old = self.gateways.all.get(&key);
        if old.is_some_and(|old| old.from_wildcard) {
            return;
        }
        let mapping = Mapping {
            from_wildcard: true,
            created: old.map_or(index, |old| old.created),
            modified: index,
            ..wildcard.clone()
        };
        self.gateways.all.insert(key, mapping);
        self.gateways.index = index;
    }

    /// Returns `true` if a wildcard of this kind of gateway takes a service in. Ingress
    /// gateways of current servers take only what the mesh reaches.
    fn wildcard_takes(&self, kind: &str, service: &str) -> bool {
        kind != INGRESS || self.is_1_8() || self.has_mesh_instance(service)
    }

    fn has_mesh_instance(&self, name: &str) -> bool {
        let mut all = self.nodes.values().flat_map(|record| record.services.values());
        all.any(|service| {
            let proxy = service.kind == ServiceKind::ConnectProxy
                && service.proxy.destination_service_name == name;
            proxy || (service.connect.native && service.name == name)
        })
    }

    fn typical_services(&self) -> Vec<String> {
        let all = self.nodes.values().flat_map(|record| record.services.values());
        all.filter(|service| is_typical(service)).map(|service| service.name.clone()).collect()
    }

    /// An instance was registered: wildcards take its service in, even where
    /// it was configured by name.
    pub(super) fn service_appeared(&mut self, service: &Service, index: u64) {
        if !is_typical(service) {
            return;
        }
        let wildcards: Vec<_> = self
            .gateways
            .all
            .iter()
            .filter(|((_, name, _), _)| name == ANY)
            .map(|((gateway, _, port), mapping)| (gateway.clone(), *port, mapping.clone()))
            .collect();
        for (gateway, port, mapping) in wildcards {
            if !self.wildcard_takes(mapping.kind, &service.name) {
                continue;
            }
            self.map_by_wildcard((gateway, service.name.clone(), port), &mapping, index);
        }
    }

    /// A service has lost its last instance: what stands for it by a wildcard goes.
    pub(super) fn service_vanished(&mut self, service: &str, index: u64) {
        let before = self.gateways.all.len();
        self.gateways.all.retain(|(_, name, _), mapping| name != service || !mapping.from_wildcard);
        if self.gateways.all.len() < before {
            self.gateways.index = index;
        }
    }

    /// Returns the services that a gateway stands for, with their names. An ingress
    /// gateway's wildcard leaves out services that speak another protocol than its
    /// listener.
    pub(in crate::testing) fn gateway_services(
        &self,
        gateway: &str,
    ) -> (Vec<(String, Value)>, Seen) {
        let found: Vec<_> = self
            .gateways
            .all
            .iter()
            .filter(|((name, service, _), _)| name == gateway && service != ANY)
            .filter(|((_, service, _), mapping)| {
                let checked = mapping.kind == INGRESS && mapping.from_wildcard;
                !checked || mapping.protocol == self.protocol_of(service)
            })
            .map(|((_, service, port), mapping)| {
                (service.clone(), mapping.json(gateway, service, *port))
            })
            .collect();
        let content: Vec<String> = found.iter().map(|(_, json)| json.to_string()).collect();
        let seen = Seen::by_content(self.gateways.index, &content);
        (found, seen)
    }

    /// The gateways of a kind that stand for a service, and since which index.
    fn gateways_of(&self, service: &str, kind: &str) -> Vec<(String, u64)> {
        let all = self.gateways.all.iter();
        all.filter(|((_, name, _), mapping)| name == service && mapping.kind == kind)
            .map(|((gateway, ..), mapping)| (gateway.clone(), mapping.modified))
            .collect()
    }

    /// The instances of the ingress gateways that lead to a service.
    pub(in crate::testing) fn ingress_instances(&self, service: &str) -> (Vec<ServiceEntry>, Seen) {
        self.gateway_instances(service, INGRESS)
    }

    /// The instances of the gateways that lead out of the mesh to a service.
    pub(super) fn terminating_instances(&self, service: &str) -> (Vec<ServiceEntry>, Seen) {
        let (mut found, seen) = self.gateway_instances(service, TERMINATING);
        found.retain(|entry| entry.service.kind == ServiceKind::TerminatingGateway);
        (found, seen)
    }

    fn gateway_instances(&self, service: &str, kind: &str) -> (Vec<ServiceEntry>, Seen) {
        let (mut entries, mut index) = (Vec::new(), 0);
        let mut gateways = self.gateways_of(service, kind);
        // Several listeners may lead to it.
        gateways.sort_unstable();
        gateways.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            earlier.1 = if same { earlier.1.max(later.1) } else { earlier.1 };
            same
        });
        for (gateway, modified) in gateways {
            let (found, seen) = self.instances(&gateway, false, true);
            index = index.max(modified).max(seen.index);
            entries.extend(found);
        }
        (entries, Seen::by_index(index))
    }

    /// The protocol of a service: its own defaults', else that of all proxies, else `tcp`.
    pub(super) fn protocol_of(&self, service: &str) -> String {
        let text = |value: Option<&Value>| {
            value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let own = self.config_get("service-defaults", service).0;
        let all = self.config_get("proxy-defaults", "global").0;
        text(own.as_ref().and_then(|entry| entry.get("Protocol")))
            .or_else(|| text(all.as_ref().and_then(|entry| entry.pointer("/Config/protocol"))))
            .unwrap_or_else(|| "tcp".to_owned())
    }

    pub(super) fn lower_gateways(&mut self, lower: impl Fn(&mut u64)) {
        lower(&mut self.gateways.index);
        for mapping in self.gateways.all.values_mut() {
            lower(&mut mapping.created);
            lower(&mut mapping.modified);
        }
    }
}

fn is_typical(service: &Service) -> bool {
    service.kind == ServiceKind::Typical && service.name != "consul"
}
