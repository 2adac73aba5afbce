//! Lenient reading of strings, numbers, booleans and durations.

use std::time::Duration;

use consul_watch::GoDuration;

use super::{Decoder, Field, Group, Spanned};
use crate::config::value::{ConfigValue, ValueKind};

/// A value that is read from one attribute, leniently: `"8501"` is a number,
/// `"true"` a boolean, `5` a string.
///
/// Source: `mitchellh/mapstructure` v1.4 with weakly typed input.
pub(in crate::config) trait Scalar: Sized {
    /// Name of the type in a message.
    const EXPECTED: &'static str;

    /// Reads the value.
    fn read(value: &ValueKind) -> Option<Self>;

    /// Advice that follows a message about a wrong type.
    const HELP: Option<&'static str> = None;
}

impl Scalar for String {
    const EXPECTED: &'static str = "a string";

    fn read(value: &ValueKind) -> Option<Self> {
        match value {
            ValueKind::String(text) => Some(text.clone()),
            ValueKind::Number(number) => Some(number.to_string()),
            ValueKind::Bool(value) => Some(if *value { "1" } else { "0" }.to_owned()),
            ValueKind::Null | ValueKind::List(_) | ValueKind::Object(_) => None,
        }
    }
}

impl Scalar for bool {
    const EXPECTED: &'static str = "a boolean";
    const HELP: Option<&'static str> = Some("write true or false");

    fn read(value: &ValueKind) -> Option<Self> {
        match value {
            ValueKind::Bool(value) => Some(*value),
            ValueKind::Number(number) => {
                Some(number.as_str().bytes().any(|b| matches!(b, b'1'..=b'9')))
            }
            ValueKind::String(text) if text.is_empty() => Some(false),
            ValueKind::String(text) => parse_bool(text),
            ValueKind::Null | ValueKind::List(_) | ValueKind::Object(_) => None,
        }
    }
}

/// Reads a boolean as Go does.
pub(in crate::config) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

impl Scalar for i64 {
    const EXPECTED: &'static str = "a whole number";

    fn read(value: &ValueKind) -> Option<Self> {
        match value {
            ValueKind::Number(number) => number.as_str().parse().ok(),
            ValueKind::String(text) if text.is_empty() => Some(0),
            ValueKind::String(text) => text.parse().ok(),
            ValueKind::Bool(value) => Some(Self::from(*value)),
            ValueKind::Null | ValueKind::List(_) | ValueKind::Object(_) => None,
        }
    }
}

/// A duration, which validation may refuse for its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum SignedDuration {
    Negative,
    Positive(Duration),
}

impl Scalar for SignedDuration {
    const EXPECTED: &'static str = "a duration";
    const HELP: Option<&'static str> =
        Some("write a number with a unit, such as \"5s\", \"1m30s\" or \"500ms\"");

    fn read(value: &ValueKind) -> Option<Self> {
        match value {
            ValueKind::String(text) => match text.strip_prefix('-') {
                Some(rest) => rest.parse().ok().map(|_: GoDuration| Self::Negative),
                None => text.parse().ok().map(|length: GoDuration| Self::Positive(length.get())),
            },
            ValueKind::Number(number) if number.as_str() == "0" => {
                Some(Self::Positive(Duration::ZERO))
            }
            _ => None,
        }
    }
}

/// A duration for which an empty text is a mistake: in a setting of ours it stands for a variable
/// that was not filled, not for 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct GivenDuration(pub(in crate::config) SignedDuration);

impl Scalar for GivenDuration {
    const EXPECTED: &'static str = SignedDuration::EXPECTED;
    const HELP: Option<&'static str> = SignedDuration::HELP;

    fn read(value: &ValueKind) -> Option<Self> {
        match value {
            ValueKind::String(text) if text.is_empty() => None,
            value => SignedDuration::read(value).map(Self),
        }
    }
}

impl<T: Scalar> Field for Spanned<T> {
    fn decode(path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> Option<Self> {
        let (last, earlier) = group.entries.split_last()?;
        if let Some(first) = earlier.first() {
            decoder.findings.warn(
                format!("{path} is set more than once"),
                last.key_place.clone().or_else(|| first.key_place.clone()),
                "the last one counts",
            );
        }
        read(path, &last.value, decoder)
    }

    fn merge(&mut self, later: Self) {
        *self = later;
    }
}

/// The only item of a list that stands where one value is due, or the value itself.
///
/// Source: Consul-Terraform-Sync 0.9.0 `internal/decode` (`HookWeakDecodeFromSlice`).
pub(in crate::config) fn lone(value: &ConfigValue) -> &ConfigValue {
    match &value.kind {
        ValueKind::List(items) => match items.as_slice() {
            [item] => lone(item),
            _ => value,
        },
        _ => value,
    }
}

/// Reads one scalar, and reports what is none.
pub(super) fn read<T: Scalar>(
    path: &str,
    value: &ConfigValue,
    decoder: &mut Decoder<'_>,
) -> Option<Spanned<T>> {
    let read = T::read(&lone(value).kind);
    if read.is_none() {
        let message = format!("{path}: expected {}, found {}", T::EXPECTED, value.describe());
        let mut diagnostic = crate::Diagnostic::error(message).at(value.place.clone());
        diagnostic.help = T::HELP.map(str::to_owned);
        decoder.findings.errors.push(diagnostic);
    }
    read.map(|read| Spanned { value: read, place: value.place.clone() })
}
