//! Values of the Terraform language without expressions.

#[cfg(feature = "engine")]
mod expression;

use std::{collections::BTreeMap, fmt, str::FromStr};

#[cfg(feature = "engine")]
pub use expression::NotLiteral;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value as Json;

/// A value of the Terraform language without expressions: what an operator
/// may write as an argument.
///
/// Maps are sorted by key; numbers keep the decimal text that was written.
/// In serialised form it is the JSON value of the same meaning, where numbers
/// are rounded as JSON readers do; [`Literal::to_expression`] keeps them exactly.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(String),
    /// A list (a tuple, in Terraform's types).
    List(Vec<Self>),
    /// A map (an object, in Terraform's types).
    Map(BTreeMap<String, Self>),
}

impl From<&str> for Literal {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Literal {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Literal {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Literal {
    fn from(value: i64) -> Self {
        Self::Number(value.into())
    }
}

impl<T: Into<Self>> From<Vec<T>> for Literal {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl From<Json> for Literal {
    fn from(json: Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(value),
            Json::Number(number) => Self::Number(Number(number.to_string())),
            Json::String(text) => Self::String(text),
            Json::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Json::Object(members) => {
                Self::Map(members.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
        }
    }
}

impl Serialize for Literal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.to_json().serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(members) => serializer.collect_map(members),
        }
    }
}

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json::deserialize(deserializer).map(Self::from).map_err(de::Error::custom)
    }
}

/// A decimal number, kept as its text: an optional `-`, digits, and perhaps a
/// fraction and an exponent, as JSON writes numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Number(String);

/// A text that is no decimal number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a decimal number: {0:?}")]
pub struct InvalidNumber(String);

impl Number {
    /// The number's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The nearest JSON number; the text, if the number is out of the range of those.
    fn to_json(&self) -> Json {
        serde_json::from_str(&self.0).unwrap_or_else(|_out_of_range| Json::from(self.0.as_str()))
    }
}

impl FromStr for Number {
    type Err = InvalidNumber;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_number(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidNumber(text.to_owned()))
        }
    }
}

/// Returns `true` if the text is a number as JSON writes it, of any size.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) =
        text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) =
        mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
    let plain = digits(whole) && (whole == "0" || !whole.starts_with('0'));
    plain
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self(value.to_string())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
