//! `terraform.tfvars.tmpl`, which upstream renders, and nothing of ours reads.

use std::{collections::BTreeMap, fmt::Write as _};

use cts_tasks::{CatalogServicesSelection, KvSelection, NamedService, ServiceSelection};

use super::{
    RootModule,
    selection::{self, Watched},
    tfvars::NO_SERVICES,
};

/// `terraform.tfvars.tmpl`: tells other tools what the task watches.
///
/// Nothing of ours reads it.
pub(super) fn render(root: &RootModule) -> String {
    let mut text = root.header().replace("{{", "{{ \"{{\" }}");
    for watched in selection::watched(&root.task) {
        text += &match watched {
            Watched::Services(services, rendered) => services_block(services, rendered),
            Watched::CatalogServices(services, rendered) => catalog_block(services, rendered),
            Watched::ConsulKv(keys, rendered) => kv_block(keys, rendered),
        };
    }
    if !selection::renders_services(&root.task) {
        text += NO_SERVICES;
    }
    text
}

fn services_block(services: &ServiceSelection, rendered: bool) -> String {
    let calls = match services {
        ServiceSelection::Named(named) => {
            let mut named: Vec<&NamedService> = named.iter().collect();
            named.sort_by(|a, b| a.name.cmp(&b.name));
            named.into_iter().map(service_call).collect()
        }
        ServiceSelection::Matching(matching) => {
            let mut call = Call::new("servicesRegex").option("regexp", &matching.regexp);
            call = call.scope(&matching.datacenter, &matching.namespace);
            vec![call.filter(&matching.filter).0]
        }
        _ => Vec::new(),
    };
    let bodies: Vec<_> = calls.iter().map(|call| service_body(call, rendered)).collect();
    let bodies = bodies.concat();
    if rendered { format!("\nservices = {{\n{bodies}}}\n") } else { format!("\n{bodies}") }
}

fn service_call(service: &NamedService) -> String {
    let call = Call::new("service").argument(&service.name);
    call.scope(&service.datacenter, &service.namespace).filter(&service.filter).0
}

fn service_body(call: &str, rendered: bool) -> String {
    let body = if rendered {
        "  \"{{ joinStrings \".\" .ID .Node .Namespace .NodeDatacenter }}\" = {\n\
         {{ HCLService $s | indent 4 }}\n  },\n"
    } else {
        "  {{- /* Empty template. Detects changes in Services */ -}}\n"
    };
    format!(
        "{{{{- with $srv := {call} }}}}\n  {{{{- range $s := $srv}}}}\n{body}  {{{{- end}}}}\n{{{{- end}}}}\n"
    )
}

fn catalog_block(services: &CatalogServicesSelection, rendered: bool) -> String {
    let call = Call::new("catalogServicesRegistration")
        .option("regexp", &services.regexp)
        .scope(&services.datacenter, &services.namespace)
        .node_meta(&services.node_meta)
        .0;
    let body = if rendered {
        "  \"{{ $cs.Name }}\" = {{ HCLServiceTags $cs.Tags }}\n"
    } else {
        "    {{- /* Empty template. Detects changes in catalog-services */ -}}\n"
    };
    let block = format!(
        "{{{{- with $catalogServices := {call} }}}}\n  {{{{- range $cs := $catalogServices }}}}\n\
         {body}{{{{- end}}}}{{{{- end}}}}\n"
    );
    if rendered { format!("\ncatalog_services = {{\n{block}}}\n") } else { format!("\n{block}") }
}

fn kv_block(keys: &KvSelection, rendered: bool) -> String {
    let function = if keys.recurse { "keys" } else { "keyExistsGet" };
    let call = Call::new(function).argument(&keys.path).scope(&keys.datacenter, &keys.namespace).0;
    let empty = "  {{- /* Empty template. Detects changes in Consul KV */ -}}\n";
    let entry = "  \"{{ .Path }}\" = \"{{ .Value }}\"\n";
    let body = match (keys.recurse, rendered) {
        (false, true) => format!("  {{{{- if .Exists }}}}\n{entry}  {{{{- end}}}}\n"),
        (true, true) => format!("  {{{{- range $k := $kv }}}}\n{entry}  {{{{- end}}}}\n"),
        (false, false) => empty.to_owned(),
        (true, false) => format!("  {{{{- range $k, $v := $kv }}}}\n{empty}  {{{{- end}}}}\n"),
    };
    let block = format!("{{{{- with $kv := {call} }}}}\n{body}{{{{- end}}}}\n");
    if rendered { format!("\nconsul_kv = {{\n{block}}}\n") } else { format!("\n{block}") }
}

/// A call of a template function, argument by argument.
struct Call(String);

impl Call {
    fn new(function: &str) -> Self {
        Self(function.to_owned())
    }

    fn argument(mut self, text: &str) -> Self {
        self.0.push(' ');
        self.0 += &go_quote(text);
        self
    }

    fn option(self, name: &str, value: &str) -> Self {
        self.argument(&format!("{name}={value}"))
    }

    fn scope(mut self, datacenter: &str, namespace: &str) -> Self {
        for (name, value) in [("dc", datacenter), ("ns", namespace)] {
            if !value.is_empty() {
                self = self.option(name, value);
            }
        }
        self
    }

    fn node_meta(mut self, pairs: &BTreeMap<String, String>) -> Self {
        for (key, value) in pairs {
            self = self.option("node-meta", &format!("{key}:{value}"));
        }
        self
    }

    fn filter(self, filter: &str) -> Self {
        let filter = filter.trim_matches('\n');
        if filter.is_empty() { self } else { self.argument(filter) }
    }
}

/// The text as a quoted string of Go's templates.
///
/// Deviation: backslashes and line breaks are escaped too, without which a
/// template engine would refuse or change them.
fn go_quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ if character.is_control() => {
                let written = write!(quoted, "\\u{:04x}", u32::from(character));
                debug_assert!(written.is_ok(), "writing to a string cannot fail");
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::go_quote;

    #[test]
    fn arguments_are_strings_of_go_templates() {
        assert_eq!(go_quote("\"tag\" in Service.Tags"), r#""\"tag\" in Service.Tags""#);
        assert_eq!(go_quote("a\\.b\nc\0"), r#""a\\.b\nc\u0000""#);
    }
}
