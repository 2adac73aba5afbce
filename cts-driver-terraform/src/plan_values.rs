//! Resource changes out of a plan that Terraform describes in JSON, with sensitive values masked.

use cts_tasks::{Action, PlannedResources, ResourceChange, SensitiveMarks};
use serde_json::Value;

/// Text in the place of a value that only the apply tells, as Terraform prints it.
const UNKNOWN: &str = "(known after apply)";

/// Returns the resources that a plan would change, out of the document of `show -json PLANFILE`
/// or of the platform's JSON output.
///
/// Values that `before_sensitive` or `after_sensitive` mark are masked, and so are their texts
/// wherever else they stand in the plan: an attribute that a provider computes from a sensitive
/// one has no mark (Terraform 1.11 and `OpenTofu` 1.6, `output` of `terraform_data`). A change
/// without one of the marks shows no values at all, nor does a plan of a format before 1.0, in which tools may mark
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
    let listed = listed.into_iter().flatten();
    let secrets = SensitiveTexts::of(listed.clone().filter_map(|it| it.get("change")));
    // An entry of another form is left out, which a newer Terraform may write.
    let planned: PlannedResources = listed.filter_map(read).collect();
    planned.hiding(|text| secrets.hide(text))
}

/// The texts of sensitive values in a plan.
pub(crate) struct SensitiveTexts(Vec<String>);

impl SensitiveTexts {
    /// The fewest characters of a text that is looked for elsewhere: a shorter one would be found
    /// in half of all values, and protects nothing.
    const SHORTEST: usize = 4;

    /// Collects what the marks of these changes call sensitive.
    pub(crate) fn of<'a>(changes: impl Iterator<Item = &'a Value>) -> Self {
        let mut texts = Vec::new();
        for change in changes {
            for (side, marks) in [("before", "before_sensitive"), ("after", "after_sensitive")] {
                if let (Some(value), Some(marks)) = (change.get(side), change.get(marks)) {
                    collect_marked(value, marks, &mut texts);
                }
            }
        }
        texts.retain(|text| text.chars().count() >= Self::SHORTEST);
        // A text that holds another one goes first, or a part of it would stay.
        texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        texts.dedup();
        Self(texts)
    }

    /// The texts, the longest first.
    #[cfg(feature = "cli")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &String> {
        self.0.iter()
    }

    /// Returns a text with the secrets masked.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut shown = text.to_owned();
        for secret in self.0.iter().filter(|secret| text.contains(secret.as_str())) {
            shown = shown.replace(secret.as_str(), ResourceChange::MASKED);
        }
        shown
    }
}

/// Adds every text and number below a mark.
fn collect_marked(value: &Value, marks: &Value, texts: &mut Vec<String>) {
    match (value, marks) {
        (Value::Null | Value::Bool(_), _) | (_, Value::Null | Value::Bool(false)) => {}
        (Value::Object(members), Value::Object(marks)) => {
            for (name, member) in members {
                collect_marked(member, marks.get(name).unwrap_or(&Value::Null), texts);
            }
        }
        (Value::Array(items), Value::Array(marks)) => {
            items.iter().zip(marks).for_each(|(item, mark)| collect_marked(item, mark, texts));
        }
        // Marks of another form than the value's count for all of it, as where it is masked.
        (Value::Object(members), _) => {
            for member in members.values() {
                collect_marked(member, marks, texts);
            }
        }
        (Value::Array(items), _) => {
            for item in items {
                collect_marked(item, marks, texts);
            }
        }
        (Value::String(text), _) => texts.push(text.clone()),
        (Value::Number(number), _) => texts.push(number.to_string()),
    }
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

    /// A provider may compute an attribute from a sensitive one, and the tool marks the latter.
    #[test]
    fn a_secret_is_masked_where_it_has_no_mark_too() {
        let change = |before: Value, after: Value| {
            json!({"address": "a.b", "change": {"actions": ["update"], "before": before,
                "after": after, "before_sensitive": {"key": true, "pin": true},
                "after_sensitive": {"key": {"deep": true}}}})
        };
        let plan = json!({"format_version": "1.2", "resource_changes": [
            change(json!({"key": "s3cret", "pin": 7, "url": "https://u:s3cret@h", "n": 7}),
                json!({"key": {"deep": "s3cret-longer"}, "url": "https://u:s3cret-longer@h"})),
            change(json!({"copy": ["s3cret"]}), json!({"copy": ["other"]}))]});
        let planned = planned_resources(&plan);
        let [first, second] = planned.resources.as_slice() else { panic!("{planned:?}") };
        assert_eq!(first.before["url"], "https://u:(sensitive value)@h");
        assert_eq!(first.after["url"], "https://u:(sensitive value)@h");
        assert_eq!(first.before["n"], 7, "too short to be looked for");
        assert_eq!(
            (&second.before["copy"][0], &second.after["copy"][0]),
            (&json!(ResourceChange::MASKED), &json!("other"))
        );
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
