//! Values that are no messages of their own, and those that are written as if
//! they were none.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::DateTime;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, Value as Proto};
use serde_json::{Map, Value as Json};

use super::value::{Number, Value};
use crate::file::go_duration;

/// Returns `true` if a message is written as an attribute that is no object.
pub(super) fn is_attribute(message: &MessageDescriptor) -> bool {
    matches!(
        message.full_name(),
        "google.protobuf.Timestamp"
            | "google.protobuf.Duration"
            | "google.protobuf.Struct"
            | "google.protobuf.Value"
            | "google.protobuf.ListValue"
    ) || is_wrapper(message)
}

fn is_wrapper(message: &MessageDescriptor) -> bool {
    matches!(
        message.full_name(),
        "google.protobuf.DoubleValue"
            | "google.protobuf.FloatValue"
            | "google.protobuf.Int64Value"
            | "google.protobuf.UInt64Value"
            | "google.protobuf.Int32Value"
            | "google.protobuf.UInt32Value"
            | "google.protobuf.BoolValue"
            | "google.protobuf.StringValue"
            | "google.protobuf.BytesValue"
    )
}

fn mismatch(expected: &str, actual: &Value) -> String {
    format!("expected value of type {expected} but actual type is {}", actual.type_name())
}

pub(super) fn expect_object(value: Value) -> Result<Vec<(String, Value)>, String> {
    match value {
        Value::Object(members) => Ok(members),
        other => Err(mismatch("object", &other)),
    }
}

pub(super) fn expect_tuple(value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Tuple(items) => Ok(items),
        other => Err(mismatch("list", &other)),
    }
}

fn expect_string(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(mismatch("string", &other)),
    }
}

/// The value of a field that is no message, and neither list nor map.
pub(super) fn scalar(kind: &Kind, value: Value) -> Result<Proto, String> {
    Ok(match kind {
        Kind::String => Proto::String(expect_string(value)?),
        Kind::Bool => match value {
            Value::Bool(value) => Proto::Bool(value),
            other => return Err(mismatch("bool", &other)),
        },
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            Proto::I32(whole(&value, i32::MIN, i32::MAX)?)
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            Proto::I64(whole(&value, i64::MIN, i64::MAX)?)
        }
        Kind::Uint32 | Kind::Fixed32 => Proto::U32(whole(&value, u32::MIN, u32::MAX)?),
        Kind::Uint64 | Kind::Fixed64 => Proto::U64(whole(&value, u64::MIN, u64::MAX)?),
        Kind::Float => Proto::F32(finite(&value, f32::is_finite)?),
        Kind::Double => Proto::F64(finite(&value, f64::is_finite)?),
        Kind::Bytes => {
            let bytes = STANDARD
                .decode(expect_string(value)?)
                .map_err(|error| format!("bytes are written in base64: {error}"))?;
            Proto::Bytes(bytes.into())
        }
        Kind::Enum(names) => {
            let name = expect_string(value)?;
            let found = names
                .get_value_by_name(&name)
                .ok_or_else(|| format!("unknown value \"{name}\" of {}", names.full_name()))?;
            Proto::EnumNumber(found.number())
        }
        // Messages are not scalars; the caller has taken them.
        Kind::Message(_) => return Err(mismatch("object", &value)),
    })
}

/// A whole number within the bounds of its type.
fn whole<T>(value: &Value, min: T, max: T) -> Result<T, String>
where
    T: TryFrom<i128> + std::fmt::Display + Copy,
{
    let number = match value {
        Value::Number(Number::Whole(number)) => Some(*number),
        // HCL makes no difference between 1000 and 1e3.
        Value::Number(Number::Fraction(number)) if number.fract() == 0.0 => {
            format!("{number:.0}").parse().ok()
        }
        Value::Number(Number::Fraction(_)) => None,
        other => return Err(mismatch("number", other)),
    };
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("value must be a whole number, between {min} and {max} inclusive"))
}

fn finite<T>(value: &Value, is_finite: impl Fn(T) -> bool) -> Result<T, String>
where
    T: std::str::FromStr + Copy,
{
    let text = match value {
        Value::Number(Number::Whole(number)) => number.to_string(),
        Value::Number(Number::Fraction(number)) => format!("{number:e}"),
        other => return Err(mismatch("number", other)),
    };
    let number = text.parse::<T>().ok().filter(|number| is_finite(*number));
    number.ok_or_else(|| format!("number is out of range: {text}"))
}

/// The value of a message that [`is_attribute`].
pub(super) fn well_known(message: &MessageDescriptor, value: Value) -> Result<Proto, String> {
    let mut result = DynamicMessage::new(message.clone());
    match message.full_name() {
        "google.protobuf.Timestamp" => {
            let text = expect_string(value)?;
            let time = DateTime::parse_from_rfc3339(&text)
                .map_err(|error| format!("{text:?} is no time in RFC 3339: {error}"))?;
            result.set_field_by_number(1, Proto::I64(time.timestamp()));
            let nanos = i32::try_from(time.timestamp_subsec_nanos().min(999_999_999));
            result.set_field_by_number(2, Proto::I32(nanos.unwrap_or_default()));
        }
        "google.protobuf.Duration" => {
            let text = expect_string(value)?;
            let nanos = go_duration::parse(&text)
                .ok_or_else(|| format!("{text:?} is no duration, such as 1m30s"))?;
            result.set_field_by_number(1, Proto::I64(nanos / 1_000_000_000));
            let rest = i32::try_from(nanos % 1_000_000_000).unwrap_or_default();
            result.set_field_by_number(2, Proto::I32(rest));
        }
        _ if is_wrapper(message) => {
            if let Some(field) = message.get_field(1) {
                result.set_field(&field, scalar(&field.kind(), value)?);
            }
        }
        _ => {
            let json = to_json(value)?;
            result = DynamicMessage::deserialize(message.clone(), json)
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(Proto::Message(result))
}

fn to_json(value: Value) -> Result<Json, String> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(value),
        Value::String(text) => Json::String(text),
        Value::Number(_) => {
            let number: f64 = finite(&value, f64::is_finite)?;
            Json::from(number)
        }
        Value::Tuple(items) => {
            Json::Array(items.into_iter().map(to_json).collect::<Result<_, _>>()?)
        }
        Value::Object(members) => {
            let members = members.into_iter().map(|(key, value)| Ok((key, to_json(value)?)));
            Json::Object(members.collect::<Result<Map<_, _>, String>>()?)
        }
    })
}
