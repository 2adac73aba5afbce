//! Resource changes of a plan as data, masked and bounded before they are kept.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Action;

/// The resources that a plan would change, at most [`PlannedResources::MAX_RESOURCES`] of them.
///
/// Stores keep them with the plan that waits and the HTTP API shows them, so they hold no
/// sensitive values: [`ResourceChange::new`] masks them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedResources {
    /// In the order in which they were added.
    pub resources: Vec<ResourceChange>,
    /// Number of resources that were left out.
    #[serde(default)]
    pub more: u64,
}

impl PlannedResources {
    /// The most resources that are kept; the rest is a number.
    pub const MAX_RESOURCES: usize = 100;

    /// The most bytes of values, as JSON, that all resources together may have. Those that come
    /// when it is used up are kept without their values.
    pub const MAX_BYTES: usize = 128 * 1024;

    /// Adds a resource if there is room, and else counts it.
    pub fn add(&mut self, resource: ResourceChange) {
        let used = self.resources.iter().map(ResourceChange::bytes).sum();
        self.add_to(used, resource);
    }

    /// Adds a resource to those that use so many bytes; returns how many they use then.
    fn add_to(&mut self, used: usize, mut resource: ResourceChange) -> usize {
        if self.resources.len() >= Self::MAX_RESOURCES {
            self.more += 1;
            return used;
        }
        if used + resource.bytes() > Self::MAX_BYTES {
            resource.leave_out_values();
        }
        let used = used + resource.bytes();
        self.resources.push(resource);
        used
    }

    /// Masks texts of every resource besides, as [`ResourceChange::hiding`] does.
    #[must_use]
    pub fn hiding(self, hide: impl Fn(&str) -> String) -> Self {
        let hidden: Self =
            self.resources.into_iter().map(|resource| resource.hiding(&hide)).collect();
        Self { more: self.more + hidden.more, ..hidden }
    }
}

impl FromIterator<ResourceChange> for PlannedResources {
    fn from_iter<I: IntoIterator<Item = ResourceChange>>(resources: I) -> Self {
        let mut planned = Self::default();
        resources.into_iter().fold(0, |used, resource| planned.add_to(used, resource));
        planned
    }
}

/// The planned change of one resource.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResourceChange {
    /// Names the resource, at most [`ResourceChange::MAX_ADDRESS`] characters.
    pub address: String,
    /// The kind of change.
    pub action: Action,
    /// Values before; `null` of a resource that is created.
    #[serde(default)]
    pub before: Value,
    /// Values after; `null` of a resource that is destroyed.
    #[serde(default)]
    pub after: Value,
    /// `true` if both were left out, because they are too large.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub values_left_out: bool,
}

/// Without the values: what is sensitive to a reader of logs may be no secret to the tool.
impl fmt::Debug for ResourceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceChange")
            .field("address", &self.address)
            .field("action", &self.action)
            .finish_non_exhaustive()
    }
}

/// The marks of the sensitive values on one side of a change, in the form of Terraform's
/// `before_sensitive` and `after_sensitive`: `true` for a whole value, or an object or array
/// with the marks of its members. `false`, and a member that is missing, mark nothing.
#[derive(Debug, Clone, Copy)]
pub struct SensitiveMarks<'a>(pub &'a Value);

impl ResourceChange {
    /// Text in the place of a sensitive value.
    pub const MASKED: &'static str = "(sensitive value)";

    /// The most bytes of both sides together, as JSON; larger ones are left out.
    pub const MAX_BYTES: usize = 8 * 1024;

    /// The most characters of an address; the rest is cut off.
    pub const MAX_ADDRESS: usize = 500;

    /// A change with the values of both sides, in which everything is masked that either of
    /// the marks calls sensitive: a value that is about to become public was a secret so far.
    ///
    /// ```
    /// use cts_tasks::{Action, ResourceChange, SensitiveMarks};
    /// use serde_json::json;
    ///
    /// let (before, after) = (json!({"port": 80, "key": "a"}), json!({"port": 81, "key": "b"}));
    /// let marks = json!({"key": true});
    /// let change = ResourceChange::new("lb.web", Action::Update, before, after, &[SensitiveMarks(&marks)]);
    /// assert_eq!(change.after, json!({"port": 81, "key": "(sensitive value)"}));
    /// assert_eq!(change.before, json!({"port": 80, "key": "(sensitive value)"}));
    /// ```
    pub fn new(
        address: impl Into<String>,
        action: Action,
        mut before: Value,
        mut after: Value,
        marks: &[SensitiveMarks<'_>],
    ) -> Self {
        for SensitiveMarks(marks) in marks {
            mask(&mut before, marks);
            mask(&mut after, marks);
        }
        let address: String = address.into();
        let address = address.chars().take(Self::MAX_ADDRESS).collect();
        let mut change = Self { address, action, before, after, values_left_out: false };
        if change.bytes() > Self::MAX_BYTES {
            change.leave_out_values();
        }
        change
    }

    /// Masks texts besides: `hide` returns a text as it may be shown, for a driver that knows
    /// secrets which its tool does not mark. Keys of objects are shown as they are.
    #[must_use]
    pub fn hiding(mut self, hide: impl Fn(&str) -> String) -> Self {
        rewrite(&mut self.before, &hide);
        rewrite(&mut self.after, &hide);
        if self.bytes() > Self::MAX_BYTES {
            self.leave_out_values();
        }
        self
    }

    /// Returns the names of the attributes that differ, in the order of the alphabet; none of
    /// a resource that is created or destroyed. Two sensitive values look the same, and
    /// are named if `before` and `after` both have one.
    pub fn differing(&self) -> Vec<&str> {
        let (Value::Object(before), Value::Object(after)) = (&self.before, &self.after) else {
            return Vec::new();
        };
        let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
        let mut names: Vec<&str> = names
            .filter(|name| {
                let (before, after) = (before.get(*name), after.get(*name));
                before != after || after.is_some_and(|value| value == Self::MASKED)
            })
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names
    }

    fn leave_out_values(&mut self) {
        self.values_left_out = true;
        (self.before, self.after) = (Value::Null, Value::Null);
    }

    fn bytes(&self) -> usize {
        self.before.to_string().len() + self.after.to_string().len()
    }
}

/// Replaces what is marked. Marks of another form than the value's hide the whole value: they
/// say that something in it is sensitive, not where.
fn mask(value: &mut Value, marks: &Value) {
    match (&mut *value, marks) {
        // Nothing is there to hide, and that nothing is there tells a creation.
        (Value::Null, _) | (_, Value::Bool(false) | Value::Null) => {}
        (Value::Object(members), Value::Object(marks)) => {
            for (name, mark) in marks {
                if let Some(member) = members.get_mut(name) {
                    mask(member, mark);
                }
            }
        }
        (Value::Array(items), Value::Array(marks)) => {
            items.iter_mut().zip(marks).for_each(|(item, mark)| mask(item, mark));
        }
        (_, Value::Object(_) | Value::Array(_)) if !marks_any(marks) => {}
        _ => *value = ResourceChange::MASKED.into(),
    }
}

/// Returns `true` if anything is marked.
fn marks_any(marks: &Value) -> bool {
    match marks {
        Value::Object(marks) => marks.values().any(marks_any),
        Value::Array(marks) => marks.iter().any(marks_any),
        Value::Bool(false) | Value::Null => false,
        _ => true,
    }
}

fn rewrite(value: &mut Value, hide: &impl Fn(&str) -> String) {
    match value {
        Value::Object(members) => members.values_mut().for_each(|member| rewrite(member, hide)),
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, hide)),
        Value::Null | Value::Bool(_) => {}
        Value::String(_) | Value::Number(_) => {
            let text = match &*value {
                Value::String(text) => Cow::Borrowed(text.as_str()),
                other => Cow::Owned(other.to_string()),
            };
            let shown = hide(&text);
            if shown != text {
                *value = shown.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Changes, Plan, PlanId};

    fn update(before: Value, after: Value, marks: &Value) -> ResourceChange {
        ResourceChange::new("a.b", Action::Update, before, after, &[SensitiveMarks(marks)])
    }

    #[test]
    fn what_is_marked_is_masked_at_any_depth_and_on_both_sides() {
        let before =
            json!({"keys": [{"name": "n", "secret": "s3cret"}], "open": "o", "gone": null});
        let after = json!({"keys": [{"name": "m", "secret": {"deep": "s3cret"}}], "open": "p"});
        let marks = json!({"keys": [{"secret": true}], "gone": true, "absent": true});
        let change = update(before, after, &marks);
        assert_eq!(change.before["keys"], json!([{"name": "n", "secret": "(sensitive value)"}]));
        assert_eq!(change.after["keys"], json!([{"name": "m", "secret": "(sensitive value)"}]));
        assert_eq!((&change.before["gone"], &change.after["open"]), (&Value::Null, &json!("p")));
        assert_eq!(change.differing(), ["gone", "keys", "open"]);
    }

    #[test]
    fn marks_that_do_not_fit_hide_everything() {
        for marks in [json!(true), json!({"0": true}), json!("odd")] {
            let change = update(json!(["s3cret"]), json!("s3cret"), &marks);
            assert!(!serde_json::to_string(&change).unwrap().contains("s3cret"), "{marks}");
        }
        let plain = update(json!(["plain"]), Value::Null, &json!({}));
        assert_eq!((plain.before, plain.after), (json!(["plain"]), Value::Null));
    }

    #[test]
    fn a_driver_can_hide_further_texts() {
        let change = update(json!({"a": ["my pass"], "n": 4711}), Value::Null, &json!({}));
        let hidden = change.hiding(|text| text.replace("pass", "*").replace("4711", "*"));
        assert_eq!(hidden.before, json!({"a": ["my *"], "n": "*"}));
    }

    #[test]
    fn sizes_are_bounded() {
        let large = "x".repeat(ResourceChange::MAX_BYTES);
        let change = update(json!(large), Value::Null, &json!(false));
        assert!(change.values_left_out && change.before.is_null());
        // Measured after masking, so that a large secret leaves the rest readable.
        let change = update(json!({"s": large, "o": 1}), Value::Null, &json!({"s": true}));
        assert!(!change.values_left_out);

        let half = json!("x".repeat(ResourceChange::MAX_BYTES - 100));
        let planned: PlannedResources =
            (0..130).map(|_| update(half.clone(), Value::Null, &json!(false))).collect();
        assert_eq!((planned.resources.len(), planned.more), (100, 30));
        let whole = planned.resources.iter().filter(|resource| !resource.values_left_out);
        assert_eq!(whole.count(), 16);
        let bytes: usize = planned.resources.iter().map(ResourceChange::bytes).sum();
        assert!(bytes <= PlannedResources::MAX_BYTES + 100 * "nullnull".len());
    }

    /// Stores keep whole plans, also those of a version that had no list.
    #[test]
    fn a_stored_plan_without_a_list_is_read() {
        let plan = Plan::new(PlanId::new("digest"), Changes::default(), "text");
        let mut stored = serde_json::to_value(&plan).unwrap();
        assert!(stored.get("resources").is_none(), "{stored}");
        assert_eq!(serde_json::from_value::<Plan>(stored.clone()).unwrap(), plan);
        stored["resources"] = json!({"resources": [{"address": "a.b", "action": "create"}]});
        let read = serde_json::from_value::<Plan>(stored).unwrap().resources.unwrap();
        assert_eq!((read.resources[0].address.as_str(), read.more), ("a.b", 0));
    }

    #[test]
    fn debug_shows_no_values() {
        let change = update(json!({"a": "hush"}), Value::Null, &json!({}));
        assert!(!format!("{change:?}").contains("hush"));
    }
}
