//! Resource changes out of a plan that Terraform describes in JSON, with sensitive values masked.

use cts_tasks::{Action, PlannedResources, ResourceChange, SensitiveMarks};
use serde_json::Value;

/// Text in the place of a value that only the apply tells, as Terraform prints it.
const UNKNOWN: &str = "(known after apply)";

/// Returns the resources that a plan would change, out of the document of `show -json PLANFILE`
/// or of the platform's JSON output.
///
/// Values that `before_sensitive` or `after_sensitive` mark are masked. A change without one of
/// them shows no values at all, nor does a plan of a format before 1.0, in which tools may mark
/// only a part of the secrets.
///
/// Source: Terraform 1.11, JSON output format of plans.
pub fn planned_resources(plan: &Value) -> PlannedResources {
    let listed = plan.get("resource_changes").and_then(Value::as_array);
    let format = plan.get("format_version").and_then(Value::as_str).unwrap_or_default();
    let read = |resource: &Value| {
        let text = |name: &str| resource.get(name).and_then(Value::as_str);
        planned_resource(format, text("address")?, text("deposed"), resource.get("change")?)
    };
    // An entry of another form is left out, which a newer Terraform may write.
    listed.into_iter().flatten().filter_map(read).collect()
}

/// Returns the change of one resource; `None` if nothing is to be done, or if it is only read.
pub(crate) fn planned_resource(
    format: &str,
    address: &str,
    deposed: Option<&str>,
    change: &Value,
) -> Option<ResourceChange> {
    let action = planned_action(change)?;
    let side = |name: &str| change.get(name).cloned().unwrap_or_default();
    let (before, mut after) = (side("before"), side("after"));
    if let Some(unknown) = change.get("after_unknown") {
        note_unknown(&mut after, unknown);
    }
    let all = Value::Bool(true);
    let marked = !format.starts_with("0.");
    let marks = ["before_sensitive", "after_sensitive"]
        .map(|name| SensitiveMarks(change.get(name).filter(|_| marked).unwrap_or(&all)));
    Some(ResourceChange::new(planned_address(address, deposed), action, before, after, &marks))
}

/// Returns the address by which a resource is named to people.
pub(crate) fn planned_address(address: &str, deposed: Option<&str>) -> String {
    match deposed {
        Some(key) => format!("{address} (deposed {key})"),
        None => address.to_owned(),
    }
}

/// Returns the kind of the `change` of a resource; `None` if nothing is to be done, or if it is
/// only read.
pub fn planned_action(change: &Value) -> Option<Action> {
    let actions = change.get("actions")?.as_array()?;
    match actions.iter().filter_map(Value::as_str).collect::<Vec<_>>().as_slice() {
        ["create"] => Some(Action::Create),
        ["update"] => Some(Action::Update),
        ["delete"] => Some(Action::Delete),
        // In the order of `create_before_destroy` or not.
        ["delete", "create"] | ["create", "delete"] => Some(Action::Replace),
        _ => None,
    }
}

/// Writes [`UNKNOWN`] where the marks say that the value is not known yet; it is missing or null
/// there.
fn note_unknown(value: &mut Value, marks: &Value) {
    match (&mut *value, marks) {
        (_, Value::Bool(true)) => *value = UNKNOWN.into(),
        (Value::Object(members), Value::Object(marks)) => {
            for (name, mark) in marks {
                match members.get_mut(name) {
                    Some(member) => note_unknown(member, mark),
                    None if *mark == Value::Bool(true) => {
                        members.insert(name.clone(), UNKNOWN.into());
                    }
                    None => {}
                }
            }
        }
        (Value::Array(items), Value::Array(marks)) => {
            items.iter_mut().zip(marks).for_each(|(item, mark)| note_unknown(item, mark));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_and_unknown_values_named() {
        let plan = json!({"resource_changes": [
            {"address": "a.new", "change": {"actions": ["create"], "before": null,
                "after": {"name": "n", "key": "s3cret", "list": [{}]},
                "after_unknown": {"id": true, "list": [{"x": true}]},
                "before_sensitive": false, "after_sensitive": {"key": true}}},
            {"address": "a.old", "deposed": "k", "change": {"actions": ["delete"],
                "before": {"key": "s3cret"}, "after": null, "after_unknown": {},
                "before_sensitive": {"key": true}, "after_sensitive": false}},
            {"address": "a.same", "change": {"actions": ["no-op"], "before": {"key": "s3cret"}}},
            {"address": "a.odd", "change": 1}, 1]});
        let planned = planned_resources(&plan);
        let [new, old] = planned.resources.as_slice() else { panic!("{planned:?}") };
        assert_eq!((new.address.as_str(), new.action), ("a.new", Action::Create));
        assert_eq!(new.before, Value::Null);
        let after = json!({"name": "n", "key": ResourceChange::MASKED, "id": UNKNOWN,
            "list": [{"x": UNKNOWN}]});
        assert_eq!(new.after, after);
        assert_eq!((old.address.as_str(), old.action), ("a.old (deposed k)", Action::Delete));
        assert_eq!(old.before, json!({"key": ResourceChange::MASKED}));
        assert!(!serde_json::to_string(&planned).unwrap().contains("s3cret"));
    }

    #[test]
    fn without_marks_no_value_is_shown() {
        let bare =
            json!({"actions": ["update"], "before": {"x": "s3cret"}, "after": {"x": "other"}});
        let mut old = bare.clone();
        old["before_sensitive"] = json!({});
        old["after_sensitive"] = json!({});
        for (format, change) in [("1.2", bare), ("0.2", old)] {
            let changes = [json!({"address": "a.b", "change": change})];
            let plan = json!({"format_version": format, "resource_changes": changes});
            let planned = planned_resources(&plan);
            assert_eq!(planned.resources[0].after, json!(ResourceChange::MASKED), "{format}");
            assert!(!serde_json::to_string(&planned).unwrap().contains("s3cret"), "{format}");
        }
    }
}
