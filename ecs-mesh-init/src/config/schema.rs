//! A small schema checker: tables of keys, and one walk that collects every violation in the words
//! of upstream's validator.
//!
//! The walk also brings the document into a form that plain decoding accepts: members that are
//! `null` where that is allowed are removed, and whole numbers such as `8080.0` become integers.

mod current;
mod early;
mod parts;

use serde_json::{Map, Number, Value};

use super::Violation;

pub(super) use current::CURRENT;
pub(super) use early::EARLY;

/// Type and range of a value.
#[derive(Debug)]
pub(super) enum Kind {
    Any,
    Bool,
    Text { min: usize, name: bool },
    OneOf(&'static [&'static str]),
    Integer { min: i64, max: i64 },
    List { item: &'static Rule, unique: bool },
    TextMap,
    Opaque,
    Object(&'static Object),
}

/// Meaning of `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Null {
    Refused,
    Absent,
    /// Counts as an object without members, so that its defaults apply.
    Empty,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) kind: Kind,
    pub(super) null: Null,
}

/// An object: its keys in order, the required ones, and whether others are refused.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) keys: &'static [(&'static str, Rule)],
    pub(super) required: &'static [&'static str],
    pub(super) closed: bool,
}

impl Rule {
    pub(super) const fn required(kind: Kind) -> Self {
        Self { kind, null: Null::Refused }
    }

    pub(super) const fn optional(kind: Kind) -> Self {
        Self { kind, null: Null::Absent }
    }
}

/// Pattern of names, spelt as upstream's schema spells it.
const NAME_PATTERN: &str = "(^$)|(^[a-z0-9]([a-z0-9-_]*[a-z0-9])?$)";

/// Checks `document` and returns its violations, normalising it on the way.
pub(super) fn check(object: &Object, document: &mut Value) -> Vec<Violation> {
    let mut walk = Walk { violations: Vec::new() };
    match document {
        Value::Object(members) => walk.object(object, "", members),
        other => walk.wrong_type("", "object", other),
    }
    walk.violations
}

struct Walk {
    violations: Vec<Violation>,
}

impl Walk {
    fn report(&mut self, path: &str, problem: impl Into<String>) {
        let path = if path.is_empty() { "(root)" } else { path };
        self.violations.push(Violation::new(path, problem));
    }

    fn wrong_type(&mut self, path: &str, expected: &str, given: &Value) {
        let given = type_name(given);
        self.report(path, format!("Invalid type. Expected: {expected}, given: {given}"));
    }

    fn object(&mut self, object: &Object, path: &str, members: &mut Map<String, Value>) {
        for name in object.required {
            if !members.contains_key(*name) {
                self.report(path, format!("{name} is required"));
            }
        }
        if object.closed {
            for name in members.keys() {
                if !object.keys.iter().any(|(known, _rule)| known == name) {
                    self.report(path, format!("Additional property {name} is not allowed"));
                }
            }
        }
        for (name, rule) in object.keys {
            let Some(value) = members.get_mut(*name) else { continue };
            let inner = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
            match (value.is_null(), rule.null) {
                (true, Null::Absent) => {
                    members.remove(*name);
                }
                (true, Null::Empty) => *value = Value::Object(Map::new()),
                _ => self.value(rule, &inner, value),
            }
        }
    }

    fn value(&mut self, rule: &Rule, path: &str, value: &mut Value) {
        match (&rule.kind, &mut *value) {
            (Kind::Any, _) | (Kind::Bool, Value::Bool(_)) | (Kind::Opaque, Value::Object(_)) => {}
            (Kind::Text { min, name }, Value::String(text)) => self.text(path, text, *min, *name),
            // A value of another type is wrong too, but the list of words says more than the type.
            (Kind::OneOf(allowed), Value::String(text)) => {
                if !allowed.contains(&text.as_str()) {
                    self.not_one_of(path, allowed, rule.null);
                }
            }
            (Kind::Integer { min, max }, Value::Number(number)) => {
                let Some(whole) = whole(number) else {
                    return self.wrong_type(path, &expected(rule), value);
                };
                // serde refuses `8080.0` for an integer; JSON Schema does not.
                *number = Number::from(whole);
                self.range(path, whole, *min, *max);
            }
            (Kind::List { item, unique }, Value::Array(items)) => {
                self.list(path, items, item, *unique);
            }
            (Kind::TextMap, Value::Object(members)) => {
                for (name, value) in members.iter() {
                    if !value.is_string() {
                        self.wrong_type(&format!("{path}.{name}"), "string", value);
                    }
                }
            }
            (Kind::Object(object), Value::Object(members)) => self.object(object, path, members),
            (_, other) => {
                let other = other.clone();
                self.wrong_type(path, &expected(rule), &other);
            }
        }
    }

    fn text(&mut self, path: &str, text: &str, min: usize, name: bool) {
        if text.chars().count() < min {
            self.report(path, format!("String length must be greater than or equal to {min}"));
        }
        if name && !is_name(text) {
            self.report(path, format!("Does not match pattern '{NAME_PATTERN}'"));
        }
    }

    fn not_one_of(&mut self, path: &str, allowed: &[&str], null: Null) {
        let mut list: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
        if null != Null::Refused {
            list.push("null".to_owned());
        }
        self.report(path, format!("{path} must be one of the following: {}", list.join(", ")));
    }

    fn range(&mut self, path: &str, number: i64, min: i64, max: i64) {
        if number < min {
            self.report(path, format!("Must be greater than or equal to {min}"));
        }
        if number > max {
            self.report(path, format!("Must be less than or equal to {max}"));
        }
    }

    fn list(&mut self, path: &str, items: &mut [Value], rule: &Rule, unique: bool) {
        for (at, item) in items.iter_mut().enumerate() {
            self.value(rule, &format!("{path}.{at}"), item);
        }
        // Only the first pair is reported. Quadratic, over lists of a few entries.
        let twins = items.iter().enumerate().find_map(|(second, item)| {
            items
                .iter()
                .take(second)
                .position(|earlier| earlier == item)
                .map(|first| (first, second))
        });
        if let (true, Some((first, second))) = (unique, twins) {
            self.report(path, format!("array items[{first},{second}] must be unique"));
        }
    }
}

/// Returns the checker's name for the type that a rule takes.
fn expected(rule: &Rule) -> String {
    let name = match rule.kind {
        Kind::Any => "any",
        Kind::Bool => "boolean",
        Kind::Text { .. } | Kind::OneOf(_) => "string",
        Kind::Integer { .. } => "integer",
        Kind::List { .. } => "array",
        Kind::TextMap | Kind::Opaque | Kind::Object(_) => "object",
    };
    if rule.null == Null::Refused { name.to_owned() } else { format!("[{name},null]") }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if whole(number).is_some() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the number if it has no fraction and fits; `8080.0` has none.
fn whole(number: &Number) -> Option<i64> {
    if let Some(whole) = number.as_i64() {
        return Some(whole);
    }
    let float = number.as_f64()?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53, so exact")]
    let whole = float as i64;
    (float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0).then_some(whole)
}

/// Returns `true` if `text` matches [`NAME_PATTERN`]: empty, or lower-case letters, digits, `-` and
/// `_`, with a letter or digit at either end.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return true };
    plain(*first)
        && plain(*last)
        && bytes.iter().all(|byte| plain(*byte) || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_numbers_are_integers_however_they_are_written() {
        let number = |text: &str| serde_json::from_str::<Number>(text).unwrap();
        assert_eq!(whole(&number("8080.0")), Some(8080));
        assert_eq!(whole(&number("-3")), Some(-3));
        assert_eq!(whole(&number("1e3")), Some(1000));
        assert_eq!(whole(&number("1.5")), None);
        assert_eq!(whole(&number("1e300")), None);
        assert_eq!(whole(&number("18446744073709551615")), None);
    }

    proptest! {
        #[test]
        fn names_follow_the_pattern(text in "[a-zA-Z0-9_ -]{0,6}") {
            let pattern = regex::Regex::new(NAME_PATTERN).unwrap();
            prop_assert_eq!(is_name(&text), pattern.is_match(&text));
        }
    }
}
