//! The counts and addresses of a plan that Terraform describes in JSON.

use cts_driver_terraform::planned_action;
use cts_tasks::Changes;
use serde_json::Value;

/// Returns the changes in one list of a plan.
///
/// Source: Terraform 1.11, JSON output format of plans.
pub(crate) fn changes(plan: &Value, list: List) -> Changes {
    let name = match list {
        List::Planned => "resource_changes",
        List::Drift => "resource_drift",
    };
    let mut changes = Changes::default();
    for resource in plan.get(name).and_then(Value::as_array).into_iter().flatten() {
        let address = resource.get("address").and_then(Value::as_str);
        // An entry of another form is left out, which a newer Terraform may write.
        let action = resource.get("change").and_then(planned_action);
        if let (Some(address), Some(action)) = (address, action) {
            changes.record(address, action);
        }
    }
    changes
}

/// List of changes in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// Changes that an apply would make.
    Planned,
    /// Changes that happened outside of Terraform.
    Drift,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn actions_are_counted_and_oddities_ignored() {
        let change = |address: &str, actions: Value| json!({"address": address, "change": {"actions": actions}});
        let plan = json!({"resource_changes": [
            change("a", json!(["create"])), change("b", json!(["delete", "create"])),
            change("c", json!(["no-op"])), change("d", json!("odd")), 1, {"address": "e"},
        ], "resource_drift": [change("a", json!(["update"]))]});
        let planned = changes(&plan, List::Planned);
        assert_eq!((planned.add, planned.change, planned.destroy), (2, 0, 1));
        assert_eq!(changes(&plan, List::Drift).change, 1);
        assert!(changes(&json!([]), List::Drift).is_empty());
    }
}
