//! Templates in values, and where they may stand.

use std::sync::LazyLock;

use regex::Regex;

use super::{
    decode::Findings,
    registry::Registry,
    value::{ConfigValue, ValueKind},
};

/// The source of a dynamic value in a `terraform_provider` block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dynamic {
    /// `{{ env "NAME" }}`
    Environment,
    /// `{{ key "path" }}`
    ConsulKv,
    /// `{{ with secret "path" }}…{{ end }}`
    Vault,
}

/// Source: Consul-Terraform-Sync 0.9.0 `templates/hcltmpl`.
static TEMPLATE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"\{\{\s*(env|key|with secret)\s+\\?".+\\?"\s*\}\}"#).ok());

impl Dynamic {
    /// Detects a template in `text`; the first one decides which kind it is.
    pub fn detect(text: &str) -> Option<Self> {
        // Nothing else needs the expression.
        if !text.contains("{{") {
            return None;
        }
        let found = TEMPLATE.as_ref()?.captures(text)?;
        Some(match found.get(1)?.as_str() {
            "env" => Self::Environment,
            "key" => Self::ConsulKv,
            _ => Self::Vault,
        })
    }
}

/// Calls `found` for each template among the strings of `value`.
pub(super) fn each(value: &ConfigValue, found: &mut impl FnMut(Dynamic, &ConfigValue)) {
    match &value.kind {
        ValueKind::String(text) => {
            if let Some(dynamic) = Dynamic::detect(text) {
                found(dynamic, value);
            }
        }
        ValueKind::List(items) => items.iter().for_each(|item| each(item, found)),
        ValueKind::Object(entries) => entries.iter().for_each(|entry| each(&entry.value, found)),
        ValueKind::Null | ValueKind::Bool(_) | ValueKind::Number(_) => {}
    }
}

/// Refuses templates outside of `terraform_provider` blocks, the `env` of tasks, and what a
/// driver reads them in.
pub(super) fn check_file(file: &ConfigValue, registry: &Registry, findings: &mut Findings) {
    let mut refuse = |_, value: &ConfigValue| {
        findings.error_help(
            "dynamic configuration using template syntax is only supported for terraform_provider blocks",
            value.place.clone(),
            "write the value itself; env of a task may have templates, too",
        );
    };
    for entry in file.entries().unwrap_or_default() {
        match entry.key.to_ascii_lowercase().as_str() {
            "terraform_provider" => {}
            "driver" => {
                let bodies = entry.value.objects().unwrap_or_default();
                let labelled = bodies.into_iter().filter_map(ConfigValue::entries).flatten();
                for driver in labelled {
                    let kind = registry.find_driver(&driver.key);
                    let allowed = kind.map_or(&[][..], |kind| kind.dynamic_fields());
                    let bodies = driver.value.objects().unwrap_or_default();
                    let fields = bodies.into_iter().filter_map(ConfigValue::entries).flatten();
                    for field in fields.filter(|field| !allowed.contains(&field.key.as_str())) {
                        each(&field.value, &mut refuse);
                    }
                }
            }
            "task" => {
                let bodies = entry.value.objects().unwrap_or_default();
                let fields = bodies.into_iter().filter_map(ConfigValue::entries).flatten();
                for field in fields.filter(|field| !field.key.eq_ignore_ascii_case("env")) {
                    each(&field.value, &mut refuse);
                }
            }
            _ => each(&entry.value, &mut refuse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_told_from_other_braces() {
        assert_eq!(Dynamic::detect(r#"{{ env "A" }}"#), Some(Dynamic::Environment));
        assert_eq!(Dynamic::detect(r#"x-{{key "a/b"}}"#), Some(Dynamic::ConsulKv));
        assert_eq!(Dynamic::detect(r#"{{ key \"a/b\" }}"#), Some(Dynamic::ConsulKv));
        let secret = r#"{{ with secret "a" }}{{ .Data.data.foo }}{{ end }}"#;
        assert_eq!(Dynamic::detect(secret), Some(Dynamic::Vault));
        for text in ["", "{{ }}", "{{ env A }}", "{ env \"A\" }", "{{ other \"A\" }}"] {
            assert_eq!(Dynamic::detect(text), None, "{text}");
        }
    }
}
