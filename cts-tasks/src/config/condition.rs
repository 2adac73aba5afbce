//! The blocks `condition` and `module_input`, with the checks of each kind.

use std::collections::BTreeMap;

use regex::Regex;

use super::{
    decode::{Findings, Spanned, StringMap, Strings, TypedBlock},
    raw::{RawCatalogCondition, RawKvCondition, RawSchedule, RawServicesCondition, decode_typed},
};
use crate::{
    CatalogServicesSelection, Condition, Cron, KvSelection, MatchingServices, ModuleInput,
    NamedService, Place, ServiceSelection,
};

/// The role of a block, condition or module input; they differ in the keys they may
/// hold and in how errors begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Condition,
    ModuleInput,
}

/// Checks `condition "<type>" { … }`.
///
/// Source: Consul-Terraform-Sync 0.9.0 `config/condition*.go`.
pub(super) fn condition(block: &TypedBlock, findings: &mut Findings) -> Option<Condition> {
    match block.label.as_str() {
        "services" => {
            let raw: RawServicesCondition = decode_typed(&block.body, findings)?;
            let use_as_module_input =
                used(raw.use_as_module_input.as_ref(), raw.source_includes_var.as_ref(), findings);
            let services = services(&raw, Role::Condition, block, findings)?;
            Some(Condition::Services { services, use_as_module_input })
        }
        "catalog-services" => {
            let raw: RawCatalogCondition = decode_typed(&block.body, findings)?;
            let use_as_module_input =
                used(raw.use_as_module_input.as_ref(), raw.source_includes_var.as_ref(), findings);
            let services = catalog_services(&raw, block, findings)?;
            Some(Condition::CatalogServices { services, use_as_module_input })
        }
        "consul-kv" => {
            let raw: RawKvCondition = decode_typed(&block.body, findings)?;
            let use_as_module_input =
                used(raw.use_as_module_input.as_ref(), raw.source_includes_var.as_ref(), findings);
            let keys = consul_kv(&raw, Role::Condition, block, findings)?;
            Some(Condition::ConsulKv { keys, use_as_module_input })
        }
        "schedule" => schedule(block, findings),
        other => {
            findings.error_help(
                format!("unsupported condition type: {other}"),
                block.place.clone(),
                "use services, catalog-services, consul-kv or schedule",
            );
            None
        }
    }
}

/// Checks `module_input "<type>" { … }`.
///
/// Deviation: upstream finds a bad expression or a missing path only when the
/// task runs.
pub(super) fn module_input(block: &TypedBlock, findings: &mut Findings) -> Option<ModuleInput> {
    match block.label.as_str() {
        "services" => {
            let raw: RawServicesCondition = decode_typed(&block.body, findings)?;
            refuse_use(
                raw.use_as_module_input.as_ref(),
                raw.source_includes_var.as_ref(),
                findings,
            );
            services(&raw, Role::ModuleInput, block, findings).map(ModuleInput::Services)
        }
        "consul-kv" => {
            let raw: RawKvCondition = decode_typed(&block.body, findings)?;
            refuse_use(
                raw.use_as_module_input.as_ref(),
                raw.source_includes_var.as_ref(),
                findings,
            );
            consul_kv(&raw, Role::ModuleInput, block, findings).map(ModuleInput::ConsulKv)
        }
        other => {
            findings.error_help(
                format!("unsupported module_input type: {other}"),
                block.place.clone(),
                "use services or consul-kv",
            );
            None
        }
    }
}

/// `use_as_module_input`, or its old name.
fn used(new: Option<&Spanned<bool>>, old: Option<&Spanned<bool>>, findings: &mut Findings) -> bool {
    if let Some(old) = old {
        findings.deprecated(
            "source_includes_var is deprecated since 0.5",
            old.place.clone(),
            if new.is_some() {
                "use_as_module_input is set as well and counts; remove source_includes_var"
            } else {
                "rename it to use_as_module_input"
            },
        );
    }
    new.or(old).is_none_or(|used| used.value)
}

fn refuse_use(new: Option<&Spanned<bool>>, old: Option<&Spanned<bool>>, findings: &mut Findings) {
    for (key, found) in [("use_as_module_input", new), ("source_includes_var", old)] {
        if let Some(found) = found {
            findings.error_help(
                format!("invalid keys: {key}"),
                found.place.clone(),
                "it belongs to a condition; a module_input is always used",
            );
        }
    }
}

fn text(configured: Option<&Spanned<String>>) -> String {
    configured.map(|text| text.value.clone()).unwrap_or_default()
}

fn services(
    raw: &RawServicesCondition,
    role: Role,
    block: &TypedBlock,
    findings: &mut Findings,
) -> Option<ServiceSelection> {
    let fail = |message: &str, place: Option<Place>, help: &str, findings: &mut Findings| {
        let block = match role {
            Role::Condition => "`condition \"services\"` block",
            Role::ModuleInput => "`module_input \"services\"`",
        };
        findings.error_help(format!("error validating {block}: {message}"), place, help);
    };
    if !raw.invalid.is_empty() {
        return None;
    }
    let names = raw.names.as_ref().filter(|names| !names.items.is_empty());
    match (names, &raw.regexp) {
        (Some(names), None) => {
            if let Some(empty) = names.items.iter().find(|name| name.value.is_empty()) {
                fail(
                    "names field includes empty string(s). services names cannot be empty",
                    empty.place.clone(),
                    "remove it, or use regexp = \"\" for all services",
                    findings,
                );
                return None;
            }
            Some(ServiceSelection::Named(named(names, raw)))
        }
        (None, Some(regexp)) => {
            if let Err(error) = Regex::new(&regexp.value) {
                let message = format!("unable to compile services regexp: {}", brief(&error));
                fail(&message, regexp.place.clone(), EXPRESSION_HELP, findings);
                return None;
            }
            Some(ServiceSelection::Matching(MatchingServices {
                regexp: regexp.value.clone(),
                datacenter: text(raw.datacenter.as_ref()),
                namespace: text(raw.namespace.as_ref()),
                filter: text(raw.filter.as_ref()),
                cts_user_defined_meta: meta(raw),
            }))
        }
        (Some(_), Some(regexp)) => {
            fail(
                "regexp and names fields cannot both be unconfigured. If both are needed, \
                 write the names into the regexp, or make two tasks",
                regexp.place.clone(),
                "keep one of regexp and names",
                findings,
            );
            None
        }
        (None, None) => {
            fail(
                "either the regexp or names field must be configured",
                raw.names.as_ref().map_or(block.place.clone(), |names| names.place.clone()),
                "name the services, or set regexp (\"\" is all services)",
                findings,
            );
            None
        }
    }
}

const EXPRESSION_HELP: &str = "the syntax is RE2's: no look-around, no back references";

/// The last line of the error, which says what is wrong.
fn brief(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

fn meta(raw: &RawServicesCondition) -> BTreeMap<String, String> {
    raw.cts_user_defined_meta.as_ref().map(StringMap::to_map).unwrap_or_default()
}

fn named(names: &Strings, raw: &RawServicesCondition) -> Vec<NamedService> {
    let mut named: Vec<NamedService> = Vec::new();
    for name in names.to_vec() {
        if named.iter().all(|known| known.name != name) {
            named.push(NamedService {
                name,
                datacenter: text(raw.datacenter.as_ref()),
                namespace: text(raw.namespace.as_ref()),
                filter: text(raw.filter.as_ref()),
                cts_user_defined_meta: meta(raw),
            });
        }
    }
    named
}

fn catalog_services(
    raw: &RawCatalogCondition,
    block: &TypedBlock,
    findings: &mut Findings,
) -> Option<CatalogServicesSelection> {
    if !raw.invalid.is_empty() {
        return None;
    }
    let Some(regexp) = &raw.regexp else {
        findings.error_help(
            "catalog-services 'regexp' field must be set",
            block.place.clone(),
            "\"\" is all services",
        );
        return None;
    };
    if let Err(error) = Regex::new(&regexp.value) {
        findings.error_help(
            format!("unable to compile catalog-services 'regexp': {}", brief(&error)),
            regexp.place.clone(),
            EXPRESSION_HELP,
        );
        return None;
    }
    Some(CatalogServicesSelection {
        regexp: regexp.value.clone(),
        datacenter: text(raw.datacenter.as_ref()),
        namespace: text(raw.namespace.as_ref()),
        node_meta: raw.node_meta.as_ref().map(StringMap::to_map).unwrap_or_default(),
    })
}

fn consul_kv(
    raw: &RawKvCondition,
    role: Role,
    block: &TypedBlock,
    findings: &mut Findings,
) -> Option<KvSelection> {
    if !raw.invalid.is_empty() {
        return None;
    }
    let Some(path) = raw.path.as_ref().filter(|path| !path.value.is_empty()) else {
        let message = match role {
            Role::Condition => "path is required for consul-kv condition",
            Role::ModuleInput => {
                "error validating `module_input \"consul-kv\"`: path is required for consul-kv module_input"
            }
        };
        findings.error_help(
            message,
            raw.path.as_ref().map_or(block.place.clone(), |path| path.place.clone()),
            "set path to a key, or to a prefix with recurse = true",
        );
        return None;
    };
    Some(KvSelection {
        path: path.value.clone(),
        recurse: raw.recurse.as_ref().is_some_and(|recurse| recurse.value),
        datacenter: text(raw.datacenter.as_ref()),
        namespace: text(raw.namespace.as_ref()),
    })
}

/// Advice on the syntax of cron expressions.
pub(super) const CRON_HELP: &str =
    "five fields: minute hour day-of-month month day-of-week, such as \"0 3 * * *\"";

fn schedule(block: &TypedBlock, findings: &mut Findings) -> Option<Condition> {
    let raw: RawSchedule = decode_typed(&block.body, findings)?;
    if !raw.invalid.is_empty() {
        return None;
    }
    let Some(cron) = raw.cron.as_ref().filter(|cron| !cron.value.is_empty()) else {
        findings.error_help(
            "cron config is required for schedule condition",
            raw.cron.as_ref().map_or(block.place.clone(), |cron| cron.place.clone()),
            CRON_HELP,
        );
        return None;
    };
    if let Err(error) = cron.value.parse::<Cron>() {
        findings.error_help(
            format!("unable to parse schedule condition's cron config {:?}: {error}", cron.value),
            cron.place.clone(),
            CRON_HELP,
        );
        return None;
    }
    Some(Condition::Schedule { cron: cron.value.clone() })
}
