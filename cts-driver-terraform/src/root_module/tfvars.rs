//! `terraform.tfvars`: the values that come from Consul.

use std::collections::BTreeMap;

use cts_tasks::{KvEntry, Literal, ServiceInstance, TaskInputs};

use super::{
    RootModule,
    selection::{self, Watched},
};
use crate::{
    Error, Result,
    language::{Text, key, literal, push_quoted, quote},
};

/// Text of the variable `services` without instances.
pub(super) const NO_SERVICES: &str = "\nservices = {\n}\n";

/// Bytes of a piece of the file, about. With thousands of instances the whole is megabytes.
const PIECE: usize = 64 * 1024;

/// Renders the file, and gives it to `take` piece by piece.
///
/// # Errors
///
/// [`Error::NotText`] for a value of Consul's KV store, and those of `take`.
pub(super) fn render(
    root: &RootModule,
    inputs: &TaskInputs,
    mut take: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut text = root.header();
    for watched in selection::watched(&root.task) {
        match watched {
            Watched::Services(_, true) => add_services(inputs, &mut text, &mut take)?,
            Watched::CatalogServices(_, true) => text += &catalog_services(inputs),
            Watched::ConsulKv(_, true) => text += &consul_kv(inputs)?,
            Watched::Services(..) | Watched::CatalogServices(..) | Watched::ConsulKv(..) => {}
        }
    }
    if !selection::renders_services(&root.task) {
        text += NO_SERVICES;
    }
    take(&text)
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
            Watched::Services(_, true) => {
                let (mut all, mut last) = (String::new(), String::new());
                add_services(inputs, &mut last, &mut |piece| {
                    all.push_str(piece);
                    Ok(())
                })?;
                ("services", all + &last)
            }
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

/// Adds all instances; `take` gets what is before the last piece.
fn add_services(
    inputs: &TaskInputs,
    text: &mut String,
    take: &mut impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    text.push_str("\nservices = {\n");
    for instance in inputs.services.iter().flatten() {
        add_entry(instance, text);
        if text.len() >= PIECE {
            take(text)?;
            text.clear();
        }
    }
    text.push_str("}\n");
    Ok(())
}

/// Tells instances apart: the non-empty ones of id, node, namespace and datacenter.
fn map_key(instance: &ServiceInstance) -> String {
    let parts = [&instance.id, &instance.node, &instance.namespace, &instance.node_datacenter];
    let parts: Vec<_> =
        parts.into_iter().filter(|part| !part.is_empty()).map(String::as_str).collect();
    parts.join(".")
}

/// The value of an instance's attribute.
enum Value<'a> {
    Text(&'a str),
    Number(i64),
    Texts(&'a [String]),
    Map(&'a BTreeMap<String, String>),
}

impl Value<'_> {
    /// Returns `true` if it takes lines of its own, which ends a run of aligned attributes.
    fn is_block(&self) -> bool {
        matches!(self, Self::Map(map) if !map.is_empty())
    }
}

/// Adds the entry of an instance, laid out as [`crate::language::format`] would: that costs
/// ten times as much, which counts with thousands of instances.
fn add_entry(instance: &ServiceInstance, text: &mut String) {
    let attributes: [(&str, Value<'_>); 16] = [
        ("id", Value::Text(&instance.id)),
        ("name", Value::Text(&instance.name)),
        ("kind", Value::Text(&instance.kind)),
        ("address", Value::Text(&instance.address)),
        ("port", Value::Number(instance.port)),
        ("meta", Value::Map(&instance.meta)),
        ("tags", Value::Texts(&instance.tags)),
        ("namespace", Value::Text(&instance.namespace)),
        ("status", Value::Text(&instance.status)),
        ("node", Value::Text(&instance.node)),
        ("node_id", Value::Text(&instance.node_id)),
        ("node_address", Value::Text(&instance.node_address)),
        ("node_datacenter", Value::Text(&instance.node_datacenter)),
        ("node_tagged_addresses", Value::Map(&instance.node_tagged_addresses)),
        ("node_meta", Value::Map(&instance.node_meta)),
        ("cts_user_defined_meta", Value::Map(&instance.cts_user_defined_meta)),
    ];
    text.push_str("  ");
    push_quoted(text, &map_key(instance));
    text.push_str(" = {\n");
    for run in attributes.chunk_by(|(_, one), (_, next)| one.is_block() == next.is_block()) {
        let longest = run.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in run {
            text.push_str("    ");
            text.push_str(name);
            if !value.is_block() {
                pad(text, longest - name.len());
            }
            text.push_str(" = ");
            add_value(value, text);
            text.push('\n');
        }
    }
    text.push_str("  },\n");
}

fn add_value(value: &Value<'_>, text: &mut String) {
    match value {
        Value::Text(value) => push_quoted(text, value),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::Texts(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                push_quoted(text, item);
            }
            text.push(']');
        }
        Value::Map(map) if map.is_empty() => text.push_str("{}"),
        Value::Map(map) => {
            let keys: Vec<(String, usize)> = map
                .keys()
                .map(|name| {
                    let key = key(name);
                    let width = key.chars().count();
                    (key, width)
                })
                .collect();
            let longest = keys.iter().map(|(_, width)| *width).max().unwrap_or(0);
            text.push_str("{\n");
            for ((key, width), value) in keys.iter().zip(map.values()) {
                text.push_str("      ");
                text.push_str(key);
                pad(text, longest - width);
                text.push_str(" = ");
                push_quoted(text, value);
                text.push('\n');
            }
            text.push_str("    }");
        }
    }
}

fn pad(text: &mut String, spaces: usize) {
    const SPACES: &str = "                        ";
    match SPACES.get(..spaces) {
        Some(spaces) => text.push_str(spaces),
        None => text.extend(std::iter::repeat_n(' ', spaces)),
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cts_tasks::{Literal, ServiceInstance};
    use proptest::prelude::*;

    use super::{add_entry, map_key, strings};
    use crate::language::{Text, format, quote};

    /// The entry by the way of values and the general layout.
    fn laid_out(instance: &ServiceInstance) -> String {
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
        let mut body = Text::new();
        for (name, value) in &attributes {
            body.attribute(name, value);
        }
        let mut text = Text::new();
        text.add(format_args!("  {} = {{\n", quote(&map_key(instance))));
        for line in format(body.as_str()).lines() {
            text.add(format_args!("    {line}\n"));
        }
        text.add(format_args!("  }},\n"));
        text.into_string()
    }

    fn words() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z][a-z0-9-]{0,8}",
            "[ -~]{0,8}",
            any::<String>(),
            prop::sample::select(vec!["for", "é 語", "${a}", "%{b", "a=\"{[", "\n\t\\", "#", ""])
                .prop_map(str::to_owned),
        ]
    }

    fn maps() -> impl Strategy<Value = BTreeMap<String, String>> {
        proptest::collection::btree_map(words(), words(), 0..3)
    }

    fn instances() -> impl Strategy<Value = ServiceInstance> {
        let texts = proptest::collection::vec(words(), 10);
        let tags = proptest::collection::vec(words(), 0..3);
        (texts, any::<i64>(), tags, [maps(), maps(), maps(), maps()]).prop_map(
            |(texts, port, tags, [meta, node_tagged_addresses, node_meta, user_meta])| {
                let text = |at: usize| texts[at].clone();
                ServiceInstance {
                    id: text(0),
                    name: text(1),
                    kind: text(2),
                    address: text(3),
                    port,
                    meta,
                    tags,
                    namespace: text(4),
                    status: text(5),
                    node: text(6),
                    node_id: text(7),
                    node_address: text(8),
                    node_datacenter: text(9),
                    node_tagged_addresses,
                    node_meta,
                    cts_user_defined_meta: user_meta,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn an_entry_is_laid_out_as_everything_else(instance in instances()) {
            let mut entry = String::new();
            add_entry(&instance, &mut entry);
            prop_assert_eq!(entry, laid_out(&instance));
        }
    }
}
