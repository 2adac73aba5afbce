//! `main.tf`: versions, backend, providers and the task's module.

use std::path::{Component, Path, PathBuf};

use cts_tasks::Literal;

use super::{RootModule, comment, selection};
use crate::{
    language::{Text, format, is_identifier, quote},
    provider::Provider,
};

pub(super) fn render(root: &RootModule) -> String {
    let providers: Vec<_> = root.providers.iter().map(provider_block).collect();
    let body =
        format!("\n{}\n{}\n{}", terraform_block(root), providers.join("\n"), module_block(root));
    root.header() + &format(&body)
}

fn terraform_block(root: &RootModule) -> String {
    let mut block = Text::new();
    block.add(format_args!("terraform {{\nrequired_version = {}\n", quote(&root.required_version)));
    let mut required = Text::new();
    for (name, value) in &root.required_providers {
        if root.providers.iter().any(|provider| provider.name == *name) {
            required.attribute(name, value);
        }
    }
    if !required.as_str().is_empty() {
        block.add(format_args!("required_providers {{\n{}}}\n", required.as_str()));
    }
    if let Some(backend) = &root.backend {
        block.add(format_args!("backend {} {{\n", quote(backend.label())));
        for (name, value) in backend.attributes() {
            block.attribute(name, value);
        }
        block.add(format_args!("}}\n"));
    }
    block.add(format_args!("}}\n"));
    block.into_string()
}

/// Arguments are references to the provider's variable, so that no value of
/// theirs stands in the file.
///
/// Deviation: a map with a key that is no identifier cannot be a block, so it
/// is an attribute.
fn provider_block(provider: &Provider) -> String {
    let name = &provider.name;
    let mut block = Text::new();
    block.add(format_args!("provider {} {{\n", quote(name)));
    for (argument, value) in &provider.arguments {
        match value {
            Literal::Map(entries) if entries.keys().all(|key| is_identifier(key)) => {
                block.add(format_args!("{argument} {{\n"));
                for entry in entries.keys() {
                    block.add(format_args!("{entry} = var.{name}.{argument}.{entry}\n"));
                }
                block.add(format_args!("}}\n"));
            }
            _ => block.add(format_args!("{argument} = var.{name}.{argument}\n")),
        }
    }
    block.add(format_args!("}}\n"));
    block.into_string()
}

fn module_block(root: &RootModule) -> String {
    let task = &root.task;
    let mut block = Text::new();
    let description = comment(&task.description);
    if !description.is_empty() {
        block.add(format_args!("# {description}\n"));
    }
    block.add(format_args!("module {} {{\n", quote(task.name.as_str())));
    block.add(format_args!("source = {}\n", quote(&source(&task.module, &root.base_dir))));
    if let Some(version) = task.version.as_deref().filter(|version| !version.is_empty()) {
        block.add(format_args!("version = {}\n", quote(version)));
    }
    block.add(format_args!("services = var.services\n"));
    for variable in selection::extra_variables(task) {
        block.add(format_args!("{variable} = var.{variable}\n"));
    }
    if !task.variables.is_empty() {
        block.add(format_args!("\n"));
    }
    for variable in task.variables.keys() {
        block.add(format_args!("{variable} = var.{variable}\n"));
    }
    block.add(format_args!("}}\n"));
    block.into_string()
}

/// A local source is made absolute, because Terraform runs in another directory.
fn source(module: &str, base_dir: &Path) -> String {
    let local = module.starts_with("./") || module.starts_with("../");
    if !local || base_dir.as_os_str().is_empty() {
        return module.to_owned();
    }
    let mut path = PathBuf::new();
    for component in base_dir.join(module).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::source;

    #[test]
    fn local_sources_are_made_absolute_and_others_are_left() {
        for (module, expected) in [
            ("./modules/a", "/srv/cts/modules/a"),
            ("../a", "/srv/a"),
            ("./../../../a/./b", "/a/b"),
            ("./", "/srv/cts"),
            ("org/lb/cts", "org/lb/cts"),
            (".hidden", ".hidden"),
            ("/abs/../x", "/abs/../x"),
            ("git::https://host/x.git//sub?ref=1", "git::https://host/x.git//sub?ref=1"),
        ] {
            assert_eq!(source(module, Path::new("/srv/cts")), expected, "{module}");
        }
    }
}
