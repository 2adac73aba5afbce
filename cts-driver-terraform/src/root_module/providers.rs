//! Variables and values of the task's providers.

use super::RootModule;
use crate::{
    language::{format, literal, type_of},
    provider::Provider,
};

/// `providers.auto.tfvars`: the values of all provider arguments.
pub(super) fn values(root: &RootModule) -> String {
    let value =
        |provider: &Provider| format!("{} = {}\n", provider.name, literal(&provider.value()));
    let values: Vec<_> = root.providers.iter().map(value).collect();
    format!("{}\n{}", root.header(), format(&values.join("\n")))
}

/// The declaration of a provider's variable.
pub(super) fn variable(root: &RootModule, provider: &Provider) -> String {
    let name = &provider.name;
    let sensitive = if knows_sensitive(root) { "sensitive = true\n" } else { "" };
    let declaration = format!(
        "variable \"{name}\" {{\n\
         default = null\n\
         description = \"Configuration object for {name}\"\n\
         {sensitive}\
         type = {}\n\
         }}\n",
        type_of(&provider.value()),
    );
    format(&declaration)
}

/// Returns `true` if variables can be sensitive: since Terraform 0.14.
fn knows_sensitive(root: &RootModule) -> bool {
    root.terraform_version.as_ref().is_none_or(|version| version.at_least(0, 14))
}
