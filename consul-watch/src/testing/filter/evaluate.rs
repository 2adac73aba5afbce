//! Evaluation of filter expressions on the JSON of an answer.

use regex::Regex;
use serde_json::Value;

use super::{
    Schema,
    expression::{Expression, Operator, Selector},
};

/// An [`Expression`] whose selectors and values fit a schema.
#[derive(Debug)]
pub(super) enum Check {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Match { selector: Selector, schema: Schema, operator: Operator, wanted: Wanted },
}

/// The value that a field is compared with.
#[derive(Debug)]
pub(super) enum Wanted {
    Nothing,
    Text(String),
    Number(i64),
    Flag(bool),
    Pattern(Regex),
}

impl Check {
    pub(super) fn new(expression: &Expression, schema: &Schema) -> Result<Self, String> {
        let all = |parts: &[Expression]| {
            parts.iter().map(|part| Self::new(part, schema)).collect::<Result<_, _>>()
        };
        Ok(match expression {
            Expression::And(parts) => Self::And(all(parts)?),
            Expression::Or(parts) => Self::Or(all(parts)?),
            Expression::Not(inner) => Self::Not(Box::new(Self::new(inner, schema)?)),
            Expression::Match { selector, operator, value } => {
                let kind = schema.at(selector)?;
                let wanted = wanted(selector, kind, *operator, value)?;
                let (selector, operator) = (selector.clone(), *operator);
                Self::Match { selector, schema: schema.clone(), operator, wanted }
            }
        })
    }

    pub(super) fn holds(&self, item: &Value) -> bool {
        match self {
            Self::And(parts) => parts.iter().all(|part| part.holds(item)),
            Self::Or(parts) => parts.iter().any(|part| part.holds(item)),
            Self::Not(inner) => !inner.holds(item),
            Self::Match { selector, schema, operator, wanted } => {
                follow(Some(item), schema, selector, *operator, wanted)
            }
        }
    }
}

/// Checks that the operator fits what is selected, and reads the value.
fn wanted(
    selector: &Selector,
    kind: &Schema,
    operator: Operator,
    value: &str,
) -> Result<Wanted, String> {
    use Operator::{Equal, In, IsEmpty, IsNotEmpty, Matches, NotEqual, NotIn, NotMatches};
    let name = selector.join(".");
    let bad_value = |problem: String| {
        format!("Failed to coerce value {value:?} for selector {name:?}: {problem}")
    };
    match (kind, operator) {
        (Schema::Text, Equal | NotEqual | In | NotIn) | (Schema::Map(_), In | NotIn) => {
            Ok(Wanted::Text(value.to_owned()))
        }
        (Schema::Text, Matches | NotMatches) => {
            let pattern = Regex::new(value).map_err(|error| {
                let reason = error.to_string().lines().last().unwrap_or_default().to_owned();
                format!(
                    "Failed to compile regular expression {value:?}: error parsing regexp: {reason}"
                )
            })?;
            Ok(Wanted::Pattern(pattern))
        }
        (Schema::Number, Equal | NotEqual) => {
            go_integer(value).map(Wanted::Number).ok_or_else(|| {
                bad_value(format!("strconv.ParseInt: parsing {value:?}: invalid syntax"))
            })
        }
        (Schema::Flag, Equal | NotEqual) => go_bool(value).map(Wanted::Flag).ok_or_else(|| {
            bad_value(format!("strconv.ParseBool: parsing {value:?}: invalid syntax"))
        }),
        (Schema::List(_) | Schema::Map(_), IsEmpty | IsNotEmpty) => Ok(Wanted::Nothing),
        (Schema::List(inner), In | NotIn) if matches!(**inner, Schema::Text) => {
            Ok(Wanted::Text(value.to_owned()))
        }
        _ => {
            let operator = operator.name();
            Err(format!("Invalid match operator {operator:?} for selector {name:?}"))
        }
    }
}

/// A number as Go reads one with its base in front.
fn go_integer(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let lower = digits.to_ascii_lowercase();
    let number = if let Some(hex) = lower.strip_prefix("0x") {
        i64::from_str_radix(hex, 16).ok()?
    } else {
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??
    };
    Some(sign * number)
}

fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Goes down to what is selected. In a list, one element that matches is
/// enough; a key that a map does not have matches only what is negative.
fn follow(
    value: Option<&Value>,
    schema: &Schema,
    path: &[String],
    operator: Operator,
    wanted: &Wanted,
) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return leaf(value, schema, operator, wanted);
    };
    match schema {
        Schema::Record(fields) => {
            let Some(field) = fields.get(first) else { return false };
            follow(value.and_then(|value| value.get(first)), field, rest, operator, wanted)
        }
        Schema::Map(inner) => match value.and_then(|value| value.get(first)) {
            Some(found) => follow(Some(found), inner, rest, operator, wanted),
            None => operator.is_negative(),
        },
        Schema::List(inner) => value.and_then(Value::as_array).is_some_and(|list| {
            list.iter().any(|item| follow(Some(item), inner, path, operator, wanted))
        }),
        Schema::Text | Schema::Number | Schema::Flag => false,
    }
}

fn leaf(value: Option<&Value>, schema: &Schema, operator: Operator, wanted: &Wanted) -> bool {
    let holds = match (schema, wanted) {
        (Schema::Text, Wanted::Text(wanted)) => {
            let text = value.and_then(Value::as_str).unwrap_or_default();
            match operator {
                Operator::In | Operator::NotIn => text.contains(wanted.as_str()),
                _ => text == wanted,
            }
        }
        (Schema::Text, Wanted::Pattern(pattern)) => {
            pattern.is_match(value.and_then(Value::as_str).unwrap_or_default())
        }
        (Schema::Number, Wanted::Number(wanted)) => {
            value.and_then(Value::as_i64).unwrap_or_default() == *wanted
        }
        (Schema::Flag, Wanted::Flag(wanted)) => {
            value.and_then(Value::as_bool).unwrap_or_default() == *wanted
        }
        (Schema::List(_), Wanted::Nothing) => {
            value.and_then(Value::as_array).is_none_or(Vec::is_empty)
        }
        (Schema::Map(_), Wanted::Nothing) => {
            value.and_then(Value::as_object).is_none_or(serde_json::Map::is_empty)
        }
        (Schema::List(_), Wanted::Text(wanted)) => value
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|item| item.as_str() == Some(wanted))),
        (Schema::Map(_), Wanted::Text(wanted)) => {
            value.and_then(Value::as_object).is_some_and(|map| map.contains_key(wanted))
        }
        _ => false,
    };
    match operator {
        Operator::Equal | Operator::In | Operator::Matches | Operator::IsEmpty => holds,
        _ => !holds,
    }
}
