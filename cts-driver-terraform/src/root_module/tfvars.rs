use std::collections::BTreeMap;

use cts_tasks::{KvEntry, Literal, ServiceInstance, TaskInputs};

use super::{
    RootModule,
    selection::{self, Watched},
};
use crate::{
    Error, Result,
    language::{Text, format, literal, quote},
};

/// What stands for no instances at all.
pub(super) const NO_SERVICES: &str = "\nservices = {\n}\n";

pub(super) fn render(root: &RootModule, inputs: &TaskInputs) -> Result<String> {
    let mut text = root.header();
    for watched in selection::watched(&root.task) {
        match watched {
            Watched::Services(_, true) => text += &services(inputs),
            Watched::CatalogServices(_, true) => text += &catalog_services(inputs),
            Watched::ConsulKv(_, true) => text += &consul_kv(inputs)?,
            Watched::Services(..) | Watched::CatalogServices(..) | Watched::ConsulKv(..) => {}
        }
    }
    if !selection::renders_services(&root.task) {
        text += NO_SERVICES;
    }
    Ok(text)
}

/// The same values one by one: each variable with its expression.
pub(super) fn expressions(
    root: &RootModule,
    inputs: &TaskInputs,
) -> Result<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    if !selection::renders_services(&root.task) {
        found.push(("services", NO_SERVICES.to_owned()));
    }
    for watched in selection::watched(&root.task) {
        found.push(match watched {
            Watched::Services(_, true) => ("services", services(inputs)),
            Watched::CatalogServices(_, true) => ("catalog_services", catalog_services(inputs)),
            Watched::ConsulKv(_, true) => ("consul_kv", consul_kv(inputs)?),
            Watched::Services(..) | Watched::CatalogServices(..) | Watched::ConsulKv(..) => {
                continue;
            }
        });
    }
    let expression = |(name, text): (&'static str, String)| {
        let assigned = text.trim().strip_prefix(name).map(str::trim_start);
        let value = assigned.and_then(|rest| rest.strip_prefix('=')).map(str::trim);
        (name, value.unwrap_or_default().to_owned())
    };
    Ok(found.into_iter().map(expression).collect())
}

fn services(inputs: &TaskInputs) -> String {
    let mut text = Text::new();
    text.add(format_args!("\nservices = {{\n"));
    for instance in inputs.services.iter().flatten() {
        text.add(format_args!("  {} = {{\n", quote(&map_key(instance))));
        for line in format(&body(instance)).lines() {
            text.add(format_args!("    {line}\n"));
        }
        text.add(format_args!("  }},\n"));
    }
    text.add(format_args!("}}\n"));
    text.into_string()
}

/// Tells instances apart: the non-empty ones of id, node, namespace and datacenter.
fn map_key(instance: &ServiceInstance) -> String {
    let parts = [&instance.id, &instance.node, &instance.namespace, &instance.node_datacenter];
    let parts: Vec<_> =
        parts.into_iter().filter(|part| !part.is_empty()).map(String::as_str).collect();
    parts.join(".")
}

fn body(instance: &ServiceInstance) -> String {
    let map = |entries: &BTreeMap<String, String>| {
        let entries = entries.iter().map(|(key, value)| (key.clone(), value.as_str().into()));
        Literal::Map(entries.collect())
    };
    let attributes: [(&str, Literal); 16] = [
        ("id", instance.id.as_str().into()),
        ("name", instance.name.as_str().into()),
        ("kind", instance.kind.as_str().into()),
        ("address", instance.address.as_str().into()),
        ("port", Literal::Number(instance.port.into())),
        ("meta", map(&instance.meta)),
        ("tags", strings(&instance.tags)),
        ("namespace", instance.namespace.as_str().into()),
        ("status", instance.status.as_str().into()),
        ("node", instance.node.as_str().into()),
        ("node_id", instance.node_id.as_str().into()),
        ("node_address", instance.node_address.as_str().into()),
        ("node_datacenter", instance.node_datacenter.as_str().into()),
        ("node_tagged_addresses", map(&instance.node_tagged_addresses)),
        ("node_meta", map(&instance.node_meta)),
        ("cts_user_defined_meta", map(&instance.cts_user_defined_meta)),
    ];
    let mut text = Text::new();
    for (name, value) in &attributes {
        text.attribute(name, value);
    }
    text.into_string()
}

fn strings(items: &[String]) -> Literal {
    Literal::List(items.iter().map(|item| item.as_str().into()).collect())
}

fn catalog_services(inputs: &TaskInputs) -> String {
    let mut text = Text::new();
    text.add(format_args!("\ncatalog_services = {{\n"));
    for (name, tags) in inputs.catalog_services.iter().flatten() {
        text.add(format_args!("  {} = {}\n", quote(name), literal(&strings(tags))));
    }
    text.add(format_args!("}}\n"));
    text.into_string()
}

fn consul_kv(inputs: &TaskInputs) -> Result<String> {
    let mut text = Text::new();
    text.add(format_args!("\nconsul_kv = {{\n"));
    for KvEntry { path, value } in inputs.consul_kv.iter().flatten() {
        let value = std::str::from_utf8(value)
            .map_err(|source| Error::NotText { key: path.clone(), source })?;
        text.add(format_args!("  {} = {}\n", quote(path), quote(value)));
    }
    text.add(format_args!("}}\n"));
    Ok(text.into_string())
}
