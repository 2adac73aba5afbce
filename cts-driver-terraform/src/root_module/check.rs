//! Names that Terraform refuses, found before it is started.

use super::{RootModule, selection};
use crate::{Error, Result, language::is_identifier};

/// Arguments of a provider block that mean something else to Terraform.
pub(crate) const RESERVED_ARGUMENTS: [&str; 5] =
    ["count", "depends_on", "for_each", "source", "version"];

/// Names that Terraform keeps for itself inside module blocks.
const RESERVED_VARIABLES: [&str; 8] =
    ["source", "version", "providers", "count", "for_each", "lifecycle", "depends_on", "locals"];

pub(super) fn check(root: &RootModule) -> Result<()> {
    let mut problems: Vec<String> = Vec::new();
    let mut own = vec!["services"];
    own.extend(selection::extra_variables(&root.task));
    for provider in &root.providers {
        problems.extend(provider_name(&provider.name));
        let arguments = provider.arguments.keys();
        problems.extend(arguments.filter_map(|name| provider_argument(&provider.name, name)));
        if own.contains(&provider.name.as_str()) || root.task.variables.contains_key(&provider.name)
        {
            problems.push(format!(
                "provider {:?} and a variable of the task have the same name, and both would be \
                 declared as variables",
                provider.name
            ));
        }
    }
    problems.extend(root.task.variables.keys().filter_map(|name| variable(name, &own)));
    Error::unless_empty(problems)
}

/// Returns the mistake in a provider's name, if there is one.
pub(crate) fn provider_name(name: &str) -> Option<String> {
    if !is_identifier(name) {
        return Some(format!("provider name {name:?} is not an identifier"));
    }
    (name.to_lowercase() != name).then(|| {
        format!(
            "provider name {name:?} must be lower case: Terraform accepts no other local name; \
             write {:?}",
            name.to_lowercase()
        )
    })
}

/// Returns the mistake in the name of a provider's argument, if there is one.
pub(crate) fn provider_argument(provider: &str, name: &str) -> Option<String> {
    if RESERVED_ARGUMENTS.contains(&name) {
        return Some(format!(
            "argument {name:?} of provider {provider:?} is reserved by Terraform in provider blocks"
        ));
    }
    (!is_identifier(name))
        .then(|| format!("argument {name:?} of provider {provider:?} is not an identifier"))
}

/// Returns the mistake in the name of a task's variable, if there is one.
fn variable(name: &str, own: &[&str]) -> Option<String> {
    if RESERVED_VARIABLES.contains(&name) {
        return Some(format!(
            "variable {name:?} cannot be set: Terraform reserves that name inside module blocks"
        ));
    }
    if own.contains(&name) {
        return Some(format!("variable {name:?} cannot be set: its value comes from Consul"));
    }
    (!is_variable_name(name)).then(|| format!("variable {name:?} is not an identifier"))
}

/// Variables may have letters of any script; what passes here and is none for
/// Terraform, Terraform reports.
fn is_variable_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first == '_' || first.is_alphabetic())
        && characters.all(|c| c == '_' || c == '-' || c.is_alphanumeric())
}
