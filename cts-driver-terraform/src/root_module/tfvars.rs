use std::{collections::BTreeMap, sync::Arc};
#[cfg(feature = "cli")]
use std::{collections::HashMap, ops::Range};

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

/// The last file, with the places of its instances' entries: a change of one instance among
/// thousands leaves those of all others as they are.
///
/// An instance is known by its place in memory, which is its own as long as it is kept here.
#[cfg(feature = "cli")]
#[derive(Default)]
pub(crate) struct Entries {
    text: String,
    places: HashMap<usize, (Arc<ServiceInstance>, Range<usize>)>,
}

#[cfg(feature = "cli")]
impl Entries {
    /// Renders a file, and keeps it instead of the last one.
    pub(super) fn render(&mut self, root: &RootModule, inputs: &TaskInputs) -> Result<String> {
        let mut places = HashMap::with_capacity(inputs.services.as_ref().map_or(0, Vec::len));
        // One more instance among many makes no longer text of it.
        let length = self.text.len() + self.text.len() / 64;
        let text = render(root, inputs, length, |instance, text| {
            let (begin, place) = (text.len(), Arc::as_ptr(instance).addr());
            let known = self.places.get(&place);
            match known.and_then(|(_, range)| self.text.get(range.clone())) {
                Some(known) => text.push_str(known),
                None => add_entry(instance, text),
            }
            places.insert(place, (Arc::clone(instance), begin..text.len()));
        })?;
        self.text.clone_from(&text);
        self.places = places;
        Ok(text)
    }
}

/// Values can be secret.
#[cfg(feature = "cli")]
impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("instances", &self.places.len()).finish_non_exhaustive()
    }
}

/// Adds the entry of an instance.
pub(super) fn add_entry(instance: &Arc<ServiceInstance>, text: &mut String) {
    text.push_str(&entry(instance));
}

/// Renders a file of about this length, with entries of instances as `add` adds them.
pub(super) fn render(
    root: &RootModule,
    inputs: &TaskInputs,
    length: usize,
    mut add: impl FnMut(&Arc<ServiceInstance>, &mut String),
) -> Result<String> {
    let mut text = root.header();
    text.reserve(length);
    for watched in selection::watched(&root.task) {
        match watched {
            Watched::Services(_, true) => add_services(inputs, &mut text, &mut add),
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
            Watched::Services(_, true) => {
                let mut text = String::new();
                add_services(inputs, &mut text, add_entry);
                ("services", text)
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

fn add_services(
    inputs: &TaskInputs,
    text: &mut String,
    mut add: impl FnMut(&Arc<ServiceInstance>, &mut String),
) {
    text.push_str("\nservices = {\n");
    for instance in inputs.services.iter().flatten() {
        add(instance, text);
    }
    text.push_str("}\n");
}

fn entry(instance: &ServiceInstance) -> String {
    let mut text = Text::new();
    text.add(format_args!("  {} = {{\n", quote(&map_key(instance))));
    for line in format(&body(instance)).lines() {
        text.add(format_args!("    {line}\n"));
    }
    text.add(format_args!("  }},\n"));
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

#[cfg(test)]
#[cfg(feature = "cli")]
mod tests {
    use std::sync::Arc;

    use cts_tasks::{ServiceInstance, Task, TaskInputs};
    use proptest::prelude::*;
    use serde_json::json;

    use super::{super::RootModule, Entries};

    fn root() -> RootModule {
        let task: Task = serde_json::from_value(json!({
            "name": "t", "description": "", "enabled": true, "module": "./m", "version": null,
            "providers": [], "variables": {}, "buffer_period": "Disabled",
            "working_dir": "w", "module_inputs": [], "driver_blocks": {},
            "condition": {"Services": {"use_as_module_input": true, "services": {"Matching": {
                "regexp": "", "datacenter": "", "namespace": "", "filter": "",
                "cts_user_defined_meta": {},
            }}}},
        }))
        .unwrap();
        RootModule::builder(&task).build()
    }

    fn instance(id: u8, port: u8) -> Arc<ServiceInstance> {
        let meta = [("a\"${b".to_owned(), "{{".to_owned())];
        Arc::new(ServiceInstance {
            id: format!("é-{id}"),
            port: port.into(),
            meta: meta.into_iter().take(usize::from(id % 2)).collect(),
            ..ServiceInstance::default()
        })
    }

    proptest! {
        /// Whatever came, changed, moved or went since: the bytes are those of a first file.
        #[test]
        fn what_was_rendered_before_makes_no_difference(
            steps in proptest::collection::vec(
                proptest::collection::vec((0..6u8, 0..3u8), 0..8), 1..6,
            ),
        ) {
            let (root, mut entries) = (root(), Entries::default());
            let mut made = std::collections::BTreeMap::new();
            for step in steps {
                // An instance that is as before is the very same one, most of the time.
                if step.len() == 3 {
                    made.clear();
                }
                let services = step.iter().map(|(id, port)| {
                    Arc::clone(made.entry((*id, *port)).or_insert_with(|| instance(*id, *port)))
                });
                let mut inputs = TaskInputs::default();
                inputs.services = Some(services.collect());
                let again = entries.render(&root, &inputs).unwrap();
                prop_assert_eq!(again, root.tfvars(&inputs).unwrap().content);
                made.retain(|(id, _), _| step.iter().any(|(known, _)| known == id));
            }
        }
    }

    #[test]
    fn what_was_rendered_is_taken_from_the_last_file_and_shown_nowhere() {
        let (root, mut entries) = (root(), Entries::default());
        let mut inputs = TaskInputs::default();
        inputs.services = Some(vec![instance(1, 1), instance(2, 2)]);
        entries.render(&root, &inputs).unwrap();
        assert!(!format!("{entries:?}").contains("é-1"));
        // A mark shows where an entry comes from.
        entries.text = entries.text.replace("port", "PORT");
        inputs.services.as_mut().unwrap()[1] = instance(2, 3);
        let text = entries.render(&root, &inputs).unwrap();
        assert_eq!((text.matches("PORT").count(), text.matches("port").count()), (1, 1), "{text}");
        assert_eq!(entries.places.len(), 2, "what has gone is forgotten");
    }
}
