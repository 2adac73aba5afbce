//! Plans without secrets, in the form that Terraform's own commands read from the platform.
//!
//! Where two secrets differ, their marks differ, so that a change of one is still seen.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Returns a plan of `show -json` without secrets, with the schemas that showing it needs.
pub(super) fn plan(plan: &Value, schemas: &Value) -> Value {
    let list = |name: &str| {
        let all = plan.get(name).and_then(Value::as_array).into_iter().flatten();
        all.map(|resource| {
            let mut resource = resource.clone();
            if let Some(change) = resource.get_mut("change") {
                redact_change(change);
            }
            resource
        })
        .collect::<Vec<_>>()
    };
    let outputs = plan.get("output_changes").and_then(Value::as_object).into_iter().flatten();
    let outputs: Map<String, Value> = outputs
        .map(|(name, change)| {
            let mut change = change.clone();
            redact_change(&mut change);
            (name.clone(), change)
        })
        .collect();
    json!({
        "plan_format_version": plan.get("format_version"),
        "output_changes": outputs,
        "resource_changes": list("resource_changes"),
        "resource_drift": list("resource_drift"),
        "relevant_attributes": plan.get("relevant_attributes").cloned().unwrap_or_else(|| json!([])),
        "provider_format_version": schemas.get("format_version"),
        "provider_schemas": schemas.get("provider_schemas").cloned().unwrap_or_else(|| json!({})),
    })
}

fn redact_change(change: &mut Value) {
    for side in ["before", "after"] {
        let marks = change.get(format!("{side}_sensitive")).cloned().unwrap_or_default();
        if let Some(value) = change.get_mut(side) {
            redact(value, &marks);
        }
    }
}

/// Replaces what `marks` says is sensitive.
fn redact(value: &mut Value, marks: &Value) {
    match (marks, &mut *value) {
        (Value::Bool(true), Value::Null) => {}
        (Value::Bool(true), _) => {
            *value = Value::String(format!("redacted {}", mark(value)));
        }
        (Value::Object(marks), Value::Object(fields)) => {
            for (name, marks) in marks {
                if let Some(field) = fields.get_mut(name) {
                    redact(field, marks);
                }
            }
        }
        (Value::Array(marks), Value::Array(items)) => {
            for (item, marks) in items.iter_mut().zip(marks) {
                redact(item, marks);
            }
        }
        _ => {}
    }
}

/// Returns a mark that is the same for equal secrets, and tells nothing about them.
fn mark(secret: &Value) -> String {
    // Of this process alone, so that a short secret cannot be found by trying.
    static SALT: LazyLock<Uuid> = LazyLock::new(Uuid::new_v4);
    let digest = Sha256::new().chain_update(*SALT).chain_update(secret.to_string()).finalize();
    let half = digest.iter().take(8);
    half.fold(String::new(), |mark, byte| mark + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_at_every_depth_and_a_change_stays_one() {
        let shown = plan(
            &json!({
                "format_version": "1.2",
                "resource_changes": [{"address": "a.b", "change": {
                    "before": {"keys": [{"secret": "one", "name": "n"}]},
                    "before_sensitive": {"keys": [{"secret": true}]},
                    "after": {"keys": [{"secret": "two", "name": "n"}]},
                    "after_sensitive": {"keys": [{"secret": true}]},
                }}],
                "output_changes": {"token": {"after": "three", "after_sensitive": true}},
            }),
            &json!({}),
        );
        let text = shown.to_string();
        for secret in ["one", "two", "three"] {
            assert!(!text.contains(&format!("\"{secret}\"")), "{secret} in {text}");
        }
        let side = |side: &str| shown.pointer(&format!("/resource_changes/0/change/{side}/keys/0"));
        assert_ne!(side("before"), side("after"));
        assert_eq!(side("after").and_then(|key| key.get("name")), Some(&json!("n")));
    }
}
