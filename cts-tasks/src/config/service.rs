//! The deprecated `service` blocks.

use super::{
    client::non_empty,
    decode::{Findings, Spanned, StringMap},
    raw::RawService,
};
use crate::NamedService;

/// The service that an entry of `services` means: a `service` block by its id, or a name.
pub(super) fn named(id: &str, services: &[RawService]) -> NamedService {
    let block = services.iter().find(|service| {
        let name = service.id.as_ref().or(service.name.as_ref());
        name.is_some_and(|name| name.value == id)
    });
    let text = |field: Option<&Option<Spanned<String>>>| {
        field.and_then(|field| non_empty(field.as_ref())).unwrap_or_default()
    };
    NamedService {
        name: block
            .and_then(|block| non_empty(block.name.as_ref()))
            .unwrap_or_else(|| id.to_owned()),
        datacenter: text(block.map(|block| &block.datacenter)),
        namespace: text(block.map(|block| &block.namespace)),
        filter: text(block.map(|block| &block.filter)),
        cts_user_defined_meta: block
            .and_then(|block| block.cts_user_defined_meta.as_ref())
            .map(StringMap::to_map)
            .unwrap_or_default(),
    }
}

/// Checks the deprecated `service` blocks.
///
/// Source: Consul-Terraform-Sync 0.9.0 `config/service.go`.
pub(super) fn check(services: &[RawService], findings: &mut Findings) {
    let mut ids: Vec<&str> = Vec::new();
    for service in services {
        findings.deprecated(
            "service blocks are deprecated since 0.5",
            service.place.clone(),
            "write what they select into condition \"services\" of the tasks",
        );
        let Some(name) = service.name.as_ref().filter(|name| !name.value.is_empty()) else {
            if !service.invalid.contains(&"name") {
                findings.error_help(
                    "logical name for the Consul service is required",
                    service.place.clone(),
                    "add name = \"…\" to the service",
                );
            }
            continue;
        };
        let id = service.id.as_ref().unwrap_or(name);
        if ids.contains(&id.value.as_str()) {
            findings.error_help(
                format!("unique service IDs are required: {}", id.value),
                id.place.clone(),
                "give each service block an id of its own",
            );
        }
        ids.push(&id.value);
    }
}
