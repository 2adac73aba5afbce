//! `variables.tf`, and the files of the operator's own variables.

use cts_tasks::Literal;

use super::{RootModule, providers, selection};
use crate::language::{Text, format, type_of};

const SERVICES: &str = r#"# Service definition protocol v0
variable "services" {
  description = "Consul services monitored by Consul-Terraform-Sync"
  type = map(
    object({
      id        = string
      name      = string
      kind      = string
      address   = string
      port      = number
      meta      = map(string)
      tags      = list(string)
      namespace = string
      status    = string

      node                  = string
      node_id               = string
      node_address          = string
      node_datacenter       = string
      node_tagged_addresses = map(string)
      node_meta             = map(string)

      cts_user_defined_meta = map(string)
    })
  )
}
"#;

const CATALOG_SERVICES: &str = r#"
# Catalog Services definition protocol v0
variable "catalog_services" {
  description = "Consul catalog service names and list of all known tags for a given service"
  type        = map(list(string))
}
"#;

const CONSUL_KV: &str = r#"
# Consul KV definition protocol v0
variable "consul_kv" {
  description = "Consul KV pair"
  type        = map(string)
}
"#;

/// `variables.tf`: what the module gets from Consul, and the providers' variables.
pub(super) fn render(root: &RootModule) -> String {
    let mut text = format!("{}\n{SERVICES}", root.header());
    for variable in selection::extra_variables(&root.task) {
        text += if variable == "consul_kv" { CONSUL_KV } else { CATALOG_SERVICES };
    }
    for provider in &root.providers {
        text.push('\n');
        text += &providers::variable(root, provider);
    }
    text
}

/// `variables.module.tf`: declarations of the operator's variables.
pub(super) fn render_module(root: &RootModule) -> String {
    let declare = |(name, value): (&String, &Literal)| {
        format(&format!("variable \"{name}\" {{\ndefault = null\ntype = {}\n}}\n", type_of(value)))
    };
    let declarations: Vec<_> = root.task.variables.iter().map(declare).collect();
    format!("{}\n{}", root.header(), declarations.join("\n"))
}

/// `variables.auto.tfvars`: values of the operator's variables.
pub(super) fn values(root: &RootModule) -> String {
    let mut values = Text::new();
    for (name, value) in &root.task.variables {
        values.attribute(name, value);
    }
    format!("{}\n{}\n", root.header(), format(values.as_str()))
}
